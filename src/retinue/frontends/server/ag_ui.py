"""Agents for clients that speak AG-UI 1.0: `POST /ag-ui/{agent}`.

A thread is one run with all its resumes. Its first request starts the run; later ones steer or resume it. Agents below
the run are sub-agents of the protocol, and their text and calls have a `subagentRunId`. A question for a person ends
the response with an interrupt; the run waits, and the next request answers with `resume`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from msgspec import Struct

from retinue.app.details import tree_usage
from retinue.app.feed import Feed, SpawnOrder, id_of_key
from retinue.app.frame_story import FrameStories
from retinue.app.stream import FeedFrame
from retinue.app.text import failure_message
from retinue.app.watch import find_waiting
from retinue.core.delegation import LIVE
from retinue.core.encode import dump
from retinue.core.events import Event, RunCreated, RunEnded
from retinue.core.messages import ToolCall
from retinue.core.outcome import Outcome
from retinue.core.permission import InboxItem
from retinue.core.story import StoryStep
from retinue.core.usage import NOTHING, Usage
from retinue.errors import AnsweredError, UsageError
from retinue.frontends.server.chat import ChatMessage

AG_UI_NAME = "ag-ui"
AG_UI_VERSION = "1.0"


class ResumeEntry(Struct, frozen=True, rename="camel"):
    """An answer to an interrupt. `payload` is one of the options, a text, or an object with `answer` and `message`."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class AgentInput(Struct, frozen=True, kw_only=True, rename="camel"):
    """AG-UI's RunAgentInput. `tools`, `context` and `state` of the client are not used."""

    thread_id: str
    run_id: str
    messages: list[ChatMessage]
    resume: list[ResumeEntry] | None = None


class Thread(Struct, frozen=True):
    """The run of a thread for one request. Events after `after` are sent; `used` is the usage of its tree before."""

    run_id: str
    after: int = 0
    used: Usage = NOTHING


class _RunMessages:
    """One run of the tree: its id for clients, and its open message."""

    def __init__(self, subagent: str | None) -> None:
        self.subagent = subagent
        self.message: str | None = None


class Translator:
    """Translates the events of a tree of runs to those of AG-UI."""

    def __init__(self, root: str, agents: Mapping[str, str]) -> None:
        """`agents` are the agent names of existing runs."""
        self._root = root
        self._agents = agents
        self._stories = FrameStories()
        self._speakers: dict[str, _RunMessages] = {root: _RunMessages(None)}

    def take(self, frame: FeedFrame) -> list[dict[str, Any]]:
        """Return the client's events for one frame of the event stream."""
        event, steps = self._stories.take(frame) or (None, [])
        if event is None:
            return []
        translated: list[dict[str, Any]] = []
        run_id = event.run_id
        speaker = self._speakers.get(run_id)
        if speaker is None:
            speaker = self._speakers[run_id] = _RunMessages(run_id)
            if isinstance(event.body, RunCreated):
                return [self._started(event, event.body)]
            # It started before this response, and the previous response suspended it.
            name = self._agents.get(run_id, run_id)
            translated.append({"type": "SUBAGENT_STARTED", "subagentRunId": run_id, "name": name})
        for step in steps:
            translated += self._told(run_id, speaker, step)
        if isinstance(event.body, RunEnded) and run_id != self._root:
            del self._speakers[run_id]
            translated.append(_finished(run_id, event.body.outcome))
        return translated

    def _told(self, run_id: str, speaker: _RunMessages, step: StoryStep) -> list[dict[str, Any]]:
        entry = step.entry
        if entry.kind == "answer":
            return self._said(run_id, speaker, step)
        if entry.call is not None and step.change == "added" and entry.state == "pending":
            # Other calls were sent with an earlier response.
            return _call(speaker, entry.call)
        if entry.result is not None and step.change == "ended":
            ids = {"messageId": f"{entry.result.call_id}-result", "toolCallId": entry.result.call_id}
            result = {"type": "TOOL_CALL_RESULT", **ids, "content": entry.result.text, "role": "tool"}
            return [_of(speaker, result)]
        return []

    def suspend(self, interrupts: list[str]) -> list[dict[str, Any]]:
        """Return the events that close everything open, because the response ends before the run does."""
        closing = []
        for run_id, speaker in self._speakers.items():
            closing += self._close(speaker)
            if run_id != self._root:
                outcome = {"type": "suspended", "interruptIds": interrupts}
                closing.append({"type": "SUBAGENT_FINISHED", "subagentRunId": run_id, "outcome": outcome})
        return closing

    def _started(self, event: Event, body: RunCreated) -> dict[str, Any]:
        started = {"type": "SUBAGENT_STARTED", "subagentRunId": event.run_id, "name": body.agent}
        if body.options.description:
            started["description"] = body.options.description
        if event.parent_id and event.parent_id != self._root:
            started["parentSubagentRunId"] = event.parent_id
        if body.options.call_id:
            started["parentToolCallId"] = body.options.call_id
        return started

    def _said(self, run_id: str, speaker: _RunMessages, step: StoryStep) -> list[dict[str, Any]]:
        translated = []
        if step.piece:
            if speaker.message is None:
                speaker.message = f"{run_id}-{step.entry.seq}"
                start = {"type": "TEXT_MESSAGE_START", "messageId": speaker.message, "role": "assistant"}
                translated.append(_of(speaker, start))
            content = {"type": "TEXT_MESSAGE_CONTENT", "messageId": speaker.message, "delta": step.piece}
            translated.append(_of(speaker, content))
        if step.change in ("ended", "void"):
            translated += self._close(speaker)
        return translated

    def _close(self, speaker: _RunMessages) -> list[dict[str, Any]]:
        if speaker.message is None:
            return []
        message, speaker.message = speaker.message, None
        return [_of(speaker, {"type": "TEXT_MESSAGE_END", "messageId": message})]


def _of(speaker: _RunMessages, event: dict[str, Any]) -> dict[str, Any]:
    if speaker.subagent is None:
        return event
    return {**event, "subagentRunId": speaker.subagent}


def _call(speaker: _RunMessages, call: ToolCall) -> list[dict[str, Any]]:
    ids = {"toolCallId": call.id}
    return [
        _of(speaker, {"type": "TOOL_CALL_START", **ids, "toolCallName": call.name}),
        _of(speaker, {"type": "TOOL_CALL_ARGS", **ids, "delta": dump(call.arguments).decode()}),
        _of(speaker, {"type": "TOOL_CALL_END", **ids}),
    ]


def _finished(run_id: str, outcome: Outcome) -> dict[str, Any]:
    if outcome.ok:
        success = {"type": "success"}
        return {"type": "SUBAGENT_FINISHED", "subagentRunId": run_id, "result": outcome.text, "outcome": success}
    return {
        "type": "SUBAGENT_ERROR",
        "subagentRunId": run_id,
        "message": failure_message(outcome),
        "code": outcome.ended,
    }


def interrupt_of(item: InboxItem, root: str) -> dict[str, Any]:
    """Return an inbox item as an interrupt."""
    interrupt: dict[str, Any] = {
        "id": item.id,
        "reason": {"approval": "tool_call", "question": "input_required", "quote": "confirmation"}[item.kind],
        "message": f"{item.title}\n{item.detail}".strip(),
        "responseSchema": {"type": "string", **({"enum": list(item.options)} if item.kind != "question" else {})},
        "metadata": {"agent": item.agent, "risk": item.risk, "reason": item.reason, "rule": item.rule},
    }
    call_id = item.payload.get("call_id")
    if isinstance(call_id, str):
        interrupt["toolCallId"] = call_id
    if item.expires_at is not None:
        interrupt["expiresAt"] = datetime.fromtimestamp(item.expires_at, UTC).isoformat()
    if item.run_id != root:
        interrupt["subagentRunId"] = item.run_id
    return interrupt


async def start_thread(feed: Feed, agent: str, request: AgentInput) -> Thread:
    """Start, steer, answer or resume the run of a thread."""
    key = f"ag-ui {agent} {request.thread_id}"
    run_id = id_of_key(key, feed.cwd)
    rows = await feed.read(lambda reader: [row for row in reader.list_runs(root_id=run_id) if row.id == run_id])
    cursor = feed.places.get(run_id)
    if cursor is None:
        cursor = await feed.newest_event()
    words = _last_words(request)
    if not rows:
        if words is None:
            raise UsageError("A new thread needs words of the user.", remedy="Send a message with the role `user`.")
        order = SpawnOrder(agent=None if agent == "main" else agent, task=words)
        await feed.spawn(order, by=AG_UI_NAME, run_id=run_id)
        return Thread(run_id)
    used = await feed.read(tree_usage, run_id)
    if request.resume:
        for entry in request.resume:
            await _answer(feed, entry)
    elif words is not None and rows[0].state in LIVE:
        await feed.say(run_id, words, by=AG_UI_NAME)
    if (await feed.find(run_id)).state not in LIVE:
        await feed.resume(run_id, words if not request.resume else None, by=AG_UI_NAME)
    return Thread(run_id, cursor, used)


async def _answer(feed: Feed, entry: ResumeEntry) -> None:
    answer, message = entry.payload, ""
    if isinstance(entry.payload, dict):
        answer, message = entry.payload.get("answer"), str(entry.payload.get("message") or "")
    if entry.status == "cancelled" or answer is None:
        answer = "deny"
    try:
        await feed.answer(entry.interrupt_id, str(answer), message, by=AG_UI_NAME)
    except AnsweredError:
        # Someone answered first, and the run continues with that answer.
        return


def _last_words(request: AgentInput) -> str | None:
    for message in reversed(request.messages):
        if message.role == "user":
            return message.text if message.text.strip() else None
    return None


async def stream_thread(feed: Feed, request: AgentInput, thread: Thread) -> AsyncIterator[bytes]:
    """Yield AG-UI's events as server-sent events, until the run ends or waits for a person."""
    run_id, after = thread.run_id, thread.after
    ids = {"threadId": request.thread_id, "runId": request.run_id}
    yield _event({"type": "RUN_STARTED", **ids, "protocolVersion": AG_UI_VERSION})
    agents = {row.id: row.agent for row in (await feed.tree(run_id)).runs}
    translator = Translator(run_id, agents)
    waiting = await find_waiting(feed, run_id, after)
    if waiting:
        yield _event(_interrupted(ids, waiting, run_id))
        return
    async for frames in feed.events(after=after, run_id=run_id, tree=True):
        for frame in frames:
            if frame.number is not None:
                after = feed.places[run_id] = frame.number
            for event in translator.take(frame):
                yield _event(event)
            if frame.type == "run.ended" and frame.run_id == run_id:
                outcome = await feed.outcome(run_id)
                yield _event(_end(ids, outcome, thread.used))
                return
            if frame.type == "run.interrupted" and frame.run_id == run_id:
                detail = orjson.loads(frame.data)["detail"]
                yield _event({"type": "RUN_ERROR", "message": detail, "code": "interrupted"})
                return
            if frame.type in ("inbox.opened", "inbox.waiting"):
                waiting = await find_waiting(feed, run_id, after)
        if waiting:
            for event in translator.suspend([item.id for item in waiting]):
                yield _event(event)
            yield _event(_interrupted(ids, waiting, run_id))
            return


def _interrupted(ids: dict[str, str], waiting: list[InboxItem], run_id: str) -> dict[str, Any]:
    interrupts = [interrupt_of(item, run_id) for item in waiting]
    return {"type": "RUN_FINISHED", **ids, "outcome": {"type": "interrupt", "interrupts": interrupts}}


def _end(ids: dict[str, str], outcome: Outcome, before: Usage) -> dict[str, Any]:
    if not outcome.ok:
        return {"type": "RUN_ERROR", "message": failure_message(outcome), "code": outcome.ended}
    result = outcome.value if outcome.value is not None else outcome.text
    usage = [_spent(outcome.tree_usage or outcome.usage, before, outcome.model)]
    return {"type": "RUN_FINISHED", **ids, "result": result, "outcome": {"type": "success"}, "usage": usage}


def _spent(now: Usage, before: Usage, model: str | None) -> dict[str, Any]:
    """Return the usage since `before`. AG-UI includes cached tokens in the input."""
    read, written = now.cache_read - before.cache_read, now.cache_write - before.cache_write
    return {
        "model": model,
        "inputTokens": now.input - before.input + read + written,
        "outputTokens": now.output - before.output,
        "cachedInputTokens": read,
        "cacheWriteInputTokens": written,
    }


def _event(event: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % dump(event)
