"""Agents for clients that speak OpenAI's chat completions: the model is an agent, `main` the main agent.

The protocol has no memory: each request is a new run. What was said before goes into its task, as a quotation. Agents
below the run, tool calls and approvals are invisible in it; approvals wait in the inbox. A client that leaves stops
its run, as it would stop a model.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import orjson
from msgspec import Struct

from retinue.core.outcome import Outcome
from retinue.errors import UsageError
from retinue.faces.feed.feed import ConflictError, Feed, SpawnOrder
from retinue.faces.feed.sent_text import SentText
from retinue.faces.feed.stream import FeedFrame
from retinue.faces.server.problem import RequestError
from retinue.log.encode import dump

BY = "openai"


class ChatMessage(Struct, frozen=True):
    """One message; of `content` in parts only the text is used."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(str(part["text"]) for part in self.content if "text" in part)
        return self.content or ""


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class ChatBody(Struct, frozen=True, kw_only=True):
    """As OpenAI's API has it. `model` is the name of an agent. Sampling parameters are not used: the agent's file has
    its own."""

    model: str
    messages: list[ChatMessage]
    stream: bool = False
    stream_options: StreamOptions | None = None


class ChatUsage(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatAnswer(Struct, frozen=True):
    content: str
    role: Literal["assistant"] = "assistant"


class ChatChoice(Struct, frozen=True):
    message: ChatAnswer
    finish_reason: Literal["stop", "length"]
    index: int = 0


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """The answer of an agent, as OpenAI's API has it. `id` is the id of the run."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    object: Literal["chat.completion"] = "chat.completion"


def task_of(messages: list[ChatMessage]) -> str:
    """Return the task for a new run: the last words of the user, after what was said before as a quotation."""
    if not messages or messages[-1].role != "user" or not messages[-1].text.strip():
        raise UsageError("The last message must be the user's.", remedy="Send messages that end with a question.")
    last = messages[-1].text
    before = [message for message in messages[:-1] if message.text.strip()]
    if not before:
        return last
    said = orjson.dumps([{"role": message.role, "content": message.text} for message in before]).decode()
    return f"What was said before, as JSON:\n{said}\n\nAnswer this:\n{last}"


async def start_run(feed: Feed, body: ChatBody) -> str:
    """Start the run that a request asks for, and return its id."""
    agent = None if body.model == "main" else body.model
    row, _ = await feed.spawn(SpawnOrder(agent=agent, task=task_of(body.messages)), by=BY)
    return row.id


async def complete(feed: Feed, body: ChatBody) -> ChatCompletion:
    """Run an agent to its end and return its answer. Raise RequestError when the run fails."""
    run_id = await start_run(feed, body)
    try:
        outcome = await _ended(feed, run_id)
    except BaseException:
        await leave(feed, run_id)
        raise
    if not outcome.ok:
        failure = outcome.failure
        detail = failure.message if failure is not None else f"The run ended as {outcome.ended}."
        # Not 409 or 5xx: clients would send the same task again by themselves.
        raise RequestError(422, "RUN_FAILED", detail, f"retinue runs show {run_id}")
    choice = ChatChoice(ChatAnswer(outcome.text), _finish_reason(outcome))
    return ChatCompletion(
        id=run_id, created=int(time.time()), model=body.model, choices=[choice], usage=_usage(outcome)
    )


async def stream_completion(feed: Feed, body: ChatBody, run_id: str) -> AsyncIterator[bytes]:
    """Yield the chunks of an answer as server-sent events."""
    common = {"id": run_id, "object": "chat.completion.chunk", "created": int(time.time()), "model": body.model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: %b\n\n" % dump({**common, "choices": [choice]})

    outcome: Outcome | None = None
    try:
        yield chunk({"role": "assistant", "content": ""})
        sent, turns = SentText(), 0
        async for frame in _frames(feed, run_id):
            data = orjson.loads(frame.data)
            if frame.type == "turn.started":
                turns += 1
            elif frame.type == "run.ended":
                outcome = await feed.read(lambda reader: reader.outcome(run_id))
            new = sent.take(frame.type, data)
            if new:
                if turns > 1 and sent.length == len(new):
                    new = "\n\n" + new
                yield chunk({"content": new})
        assert outcome is not None
        if not outcome.ok:
            message = outcome.failure.message if outcome.failure is not None else f"The run ended as {outcome.ended}."
            yield b"data: %b\n\n" % dump({"error": {"message": message, "type": "run_failed", "code": outcome.ended}})
        else:
            yield chunk({}, _finish_reason(outcome))
        if body.stream_options is not None and body.stream_options.include_usage:
            yield b"data: %b\n\n" % dump({**common, "choices": [], "usage": _usage(outcome)})
        yield b"data: [DONE]\n\n"
    finally:
        if outcome is None:
            await leave(feed, run_id)


async def leave(feed: Feed, run_id: str) -> None:
    """Stop the run of a client that went away, unless it has ended."""
    try:
        await feed.stop(run_id, by=BY, tree=True)
    except ConflictError:
        # It has just ended by itself.
        return


async def _frames(feed: Feed, run_id: str) -> AsyncIterator[FeedFrame]:
    async for frames in feed.events(after=0, run_id=run_id):
        for frame in frames:
            yield frame
            if frame.type == "run.ended":
                return


async def _ended(feed: Feed, run_id: str) -> Outcome:
    async for _ in _frames(feed, run_id):
        pass
    outcome: Outcome = await feed.read(lambda reader: reader.outcome(run_id))
    return outcome


def _finish_reason(outcome: Outcome) -> Literal["stop", "length"]:
    return "length" if outcome.truncated else "stop"


def _usage(outcome: Outcome) -> ChatUsage:
    usage = outcome.tree_usage or outcome.usage
    prompt = usage.input + usage.cache_read + usage.cache_write
    return ChatUsage(prompt, usage.output, prompt + usage.output)
