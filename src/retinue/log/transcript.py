"""The transcript of a run as JSON lines.

    {"isSidechain":true,"agentId":…,"type":"user|assistant|toolResult","message":…,"timestamp":…,"cwd":…}

A transcript is a projection of the log: its lines come from events, so compaction cannot shift them
and they can be made again at any time. Messages have the shape of the pi family; a compaction leaves
a `compact_boundary` line as Claude Code writes it. The first line is the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from retinue.core.encode import dump
from retinue.core.events import Compacted, Event, RunCreated, RunStarted
from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Image,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.log.open_calls import MessageStream

_STOP: dict[StopReason, str] = {"end": "stop", "tool_use": "toolUse", "refusal": "stop"}


def transcript_lines(events: Iterable[Event], output_kept: int | None = None) -> list[bytes]:
    """The whole transcript of one run, each line with its line feed."""
    lines = TranscriptLines(output_kept)
    return [line for event in events for line in lines.take(event)]


class TranscriptLines:
    """Turns the events of one run into lines, one event at a time and always the same way. Of the output of a tool
    at most `output_kept` characters are kept; None keeps all."""

    def __init__(self, output_kept: int | None = None) -> None:
        self._output_kept = output_kept
        self._task: str | None = None
        self._cwd = ""
        self._messages = MessageStream()

    def take(self, event: Event) -> list[bytes]:
        lines: list[bytes] = []
        for message in self._messages.take(event.body):
            lines += self._lines(event, message)
        match event.body:
            case RunCreated() as body:
                self._task, self._cwd = body.task, body.cwd
                lines.append(self._line(event, "user", {"role": "user", "content": body.task}))
            case RunStarted() as body:
                self._cwd = body.cwd
            case Compacted() as body:
                lines.append(self._boundary(event, body))
            case _:
                pass
        return lines

    def _lines(self, event: Event, message: Message) -> list[bytes]:
        match message:
            case AssistantMessage():
                return [self._line(event, "assistant", _assistant(event, message))]
            case ToolMessage():
                return self._results(event, message)
            case UserMessage():
                return self._user(event, message)

    def _user(self, event: Event, message: UserMessage) -> list[bytes]:
        first, self._task = self._task, None
        if first is not None and message.origin == "task" and message.text == first:
            # The prompt is there since the run was created.
            return []
        content = message.text if all(isinstance(part, Text) for part in message.content) else _parts(message.content)
        return [self._line(event, "user", {"role": "user", "content": content})]

    def _results(self, event: Event, message: ToolMessage) -> list[bytes]:
        return [
            self._line(
                event,
                "toolResult",
                {
                    "role": "toolResult",
                    "toolCallId": result.call_id,
                    "toolName": result.name,
                    "content": _parts(self._short(event, result.content)),
                    "isError": result.is_error,
                },
            )
            for result in message.results
        ]

    def _short(self, event: Event, content: Iterable[Content]) -> Iterable[Content]:
        if self._output_kept is None:
            return content
        return [_shortened(part, self._output_kept, event.run_id) for part in content]

    def _boundary(self, event: Event, body: Compacted) -> bytes:
        metadata = {
            "trigger": "manual" if body.reason == "manual" else "auto",
            "preTokens": body.tokens_before,
            "postTokens": body.tokens_after,
        }
        return self._encode(event, {"type": "system", "subtype": "compact_boundary", "compactMetadata": metadata})

    def _line(self, event: Event, kind: str, message: dict[str, Any]) -> bytes:
        return self._encode(event, {"type": kind, "message": message})

    def _encode(self, event: Event, fields: dict[str, Any]) -> bytes:
        moment = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"isSidechain": True, "agentId": event.run_id, **fields, "timestamp": moment, "cwd": self._cwd}
        return dump(line) + b"\n"


def _shortened(part: Content, most: int, run_id: str) -> Content:
    """Return the beginning and the end of long content, and where all of it is."""
    where = f"all of it: retinue runs show {run_id} --json"
    if not isinstance(part, Text):
        return part if len(part.data) <= most else Text(f"[{part.media_type}, {len(part.data)} characters; {where}]")
    if len(part.text) <= most:
        return part
    gone, end = len(part.text) - most, most // 4
    return Text(f"{part.text[: most - end]}\n[{gone} characters left out; {where}]\n{part.text[-end:]}")


def _assistant(event: Event, message: AssistantMessage) -> dict[str, Any]:
    usage, (provider, _, model) = message.usage, message.model.partition("/")
    data: dict[str, Any] = {
        "role": "assistant",
        "content": _parts(message.content),
        "provider": provider if model else "",
        "model": model or provider,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
            "totalTokens": usage.context_tokens,
            "cost": {"total": usage.cost_usd},
        },
        "stopReason": _STOP.get(message.stop, message.stop),
        "timestamp": int(event.at * 1000),
    }
    if message.failure is not None:
        data["errorMessage"] = message.failure.message
    return data


def _parts(content: Iterable[Content | Thinking | ToolCall]) -> list[dict[str, Any]]:
    return [_part(part) for part in content]


def _part(part: Content | Thinking | ToolCall) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image", "data": part.data, "mimeType": part.media_type}
        case Document():
            return {"type": "document", "data": part.data, "mimeType": part.media_type, "name": part.name}
        case Thinking():
            return {"type": "thinking", "thinking": part.text, "thinkingSignature": part.signature}
        case ToolCall():
            return {"type": "toolCall", "id": part.id, "name": part.name, "arguments": part.arguments}
