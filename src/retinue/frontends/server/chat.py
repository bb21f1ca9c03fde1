"""Agents for clients that speak OpenAI's chat completions. The model is the name of an agent, or `main`.

The protocol has no memory, so each request is a new run. Earlier messages are quoted in its task. Agents below the run,
tool calls and approvals are invisible to the client; approvals wait in the inbox. If a client disconnects, its run is
stopped, as a model would be.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import orjson
from msgspec import Struct

from retinue.app.feed import ConflictError, Feed, SpawnOrder
from retinue.app.frame_story import FrameStories
from retinue.app.stream import FeedFrame
from retinue.app.text import failure_message
from retinue.core.encode import dump
from retinue.core.outcome import Outcome
from retinue.core.story import Entry
from retinue.errors import StateError, UsageError
from retinue.frontends.server.problem import RequestError

OPENAI_NAME = "openai"


class ChatMessage(Struct, frozen=True):
    """One message. Parts of `content` must be text."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """Raise UsageError for parts that are not text, because the run would not see them."""
        if not isinstance(self.content, list):
            return self.content or ""
        texts = [block.get("text") for block in self.content]
        if not all(isinstance(text, str) for text in texts):
            kinds = sorted({str(block.get("type")) for block in self.content if not isinstance(block.get("text"), str)})
            raise UsageError(
                f"A message has parts that are not text: {', '.join(kinds)}.",
                remedy="Send text; name files of the project as @path in it.",
            )
        return "\n".join(str(text) for text in texts)


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class JsonSchema(Struct, frozen=True):
    schema: dict[str, Any] | None = None


class ResponseFormat(Struct, frozen=True):
    """The form of the answer. A schema is enforced, like `schema` of POST /v1/runs."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class ChatBody(Struct, frozen=True, kw_only=True):
    """The body of OpenAI's API. `model` is the name of an agent. Sampling parameters are ignored, because the agent's
    file sets them. Tools of the client, several choices, log probabilities and sound are refused."""

    model: str
    messages: list[ChatMessage]
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    n: int | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None


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
    """The answer of an agent in the form of OpenAI's API. `id` is the id of the run."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    object: Literal["chat.completion"] = "chat.completion"


def task_of(messages: list[ChatMessage]) -> str:
    """Return the task of the new run: the last message of the user, after a quotation of the earlier messages."""
    if not messages or messages[-1].role != "user" or not messages[-1].text.strip():
        raise UsageError("The last message must be the user's.", remedy="Send messages that end with a question.")
    last = messages[-1].text
    before = [message for message in messages[:-1] if message.text.strip()]
    if not before:
        return last
    quotation = orjson.dumps([{"role": message.role, "content": message.text} for message in before]).decode()
    return f"What was said before, as JSON:\n{quotation}\n\nAnswer this:\n{last}"


def schema_of(form: ResponseFormat | None) -> dict[str, Any] | None:
    """Return the schema of the answer; None for plain text."""
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "object"}
    if form.json_schema is None or form.json_schema.schema is None:
        raise UsageError("`response_format` has no schema.", remedy="Put it into response_format.json_schema.schema.")
    return form.json_schema.schema


def _refuse_unable(body: ChatBody) -> None:
    """Raise UsageError for options that an agent does not support. Ignoring them would suggest that they worked."""
    if (body.tools or body.functions) and body.tool_choice != "none":
        raise UsageError(
            "An agent has its own tools, and cannot call those of a client.",
            remedy="Leave `tools` out; an MCP server (`mcpServers` of the agent) can bring them.",
        )
    if body.n not in (None, 1):
        raise UsageError("A run has one answer.", remedy="Leave `n` out, or send the request several times.")
    if body.logprobs:
        raise UsageError("A run has no log probabilities.", remedy="Leave `logprobs` out.")
    if body.modalities not in (None, [], ["text"]):
        raise UsageError("An agent answers in text alone.", remedy="Leave `modalities` out.")


async def start_run(feed: Feed, body: ChatBody) -> str:
    """Start the run of a request, and return its id."""
    _refuse_unable(body)
    agent = None if body.model == "main" else body.model
    order = SpawnOrder(agent=agent, task=task_of(body.messages), schema=schema_of(body.response_format))
    row, _ = await feed.spawn(order, by=OPENAI_NAME)
    return row.id


async def complete(feed: Feed, body: ChatBody) -> ChatCompletion:
    """Run an agent to its end and return its answer. Raise RequestError if the run fails."""
    run_id = await start_run(feed, body)
    try:
        outcome = await _ended(feed, run_id)
    except BaseException:
        await stop_run(feed, run_id)
        raise
    if not outcome.ok:
        # Not 409 or 5xx, for which clients would repeat the request.
        raise RequestError(422, "RUN_FAILED", failure_message(outcome), f"retinue runs show {run_id}")
    choice = ChatChoice(ChatAnswer(_answer(outcome, body)), _finish_reason(outcome))
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
    # With a schema, only the final value is sent, because streamed text would not be JSON.
    words = schema_of(body.response_format) is None
    try:
        yield chunk({"role": "assistant", "content": ""})
        stories = FrameStories()
        speaking: Entry | None = None
        async for frame in _frames(feed, run_id):
            if frame.type == "run.ended":
                outcome = await feed.outcome(run_id)
            elif frame.type == "run.interrupted":
                yield _failed(orjson.loads(frame.data)["detail"], "interrupted")
                return
            _, steps = stories.take(frame) or (None, [])
            for step in steps:
                if step.entry.kind == "answer" and step.piece and words:
                    # A blank line separates two answers.
                    parted = speaking is not None and speaking is not step.entry
                    yield chunk({"content": "\n\n" + step.piece if parted else step.piece})
                    speaking = step.entry
        assert outcome is not None
        if outcome.ok and not words:
            yield chunk({"content": _answer(outcome, body)})
        if not outcome.ok:
            yield _failed(failure_message(outcome), outcome.ended)
        else:
            yield chunk({}, _finish_reason(outcome))
        if body.stream_options is not None and body.stream_options.include_usage:
            yield b"data: %b\n\n" % dump({**common, "choices": [], "usage": _usage(outcome)})
        yield b"data: [DONE]\n\n"
    finally:
        if outcome is None:
            await stop_run(feed, run_id)


def _failed(message: str, code: str) -> bytes:
    return b"data: %b\n\n" % dump({"error": {"message": message, "type": "run_failed", "code": code}})


async def stop_run(feed: Feed, run_id: str) -> None:
    """Stop the run of a client that disconnected, unless it has ended."""
    try:
        await feed.stop(run_id, by=OPENAI_NAME, tree=True)
    except (ConflictError, StateError):
        # It has ended meanwhile, or can no longer be recorded.
        return


async def _frames(feed: Feed, run_id: str) -> AsyncIterator[FeedFrame]:
    async for frames in feed.events(after=0, run_id=run_id):
        for frame in frames:
            yield frame
            if frame.type in ("run.ended", "run.interrupted"):
                return


async def _ended(feed: Feed, run_id: str) -> Outcome:
    async for frame in _frames(feed, run_id):
        if frame.type == "run.interrupted":
            detail = orjson.loads(frame.data)["detail"]
            raise RequestError(422, "RUN_INTERRUPTED", detail, f"retinue runs resume {run_id}")
    return await feed.outcome(run_id)


def _answer(outcome: Outcome, body: ChatBody) -> str:
    return outcome.text if schema_of(body.response_format) is None else dump(outcome.value).decode()


def _finish_reason(outcome: Outcome) -> Literal["stop", "length"]:
    return "length" if outcome.truncated else "stop"


def _usage(outcome: Outcome) -> ChatUsage:
    usage = outcome.tree_usage or outcome.usage
    prompt = usage.input + usage.cache_read + usage.cache_write
    return ChatUsage(prompt, usage.output, prompt + usage.output)
