"""Streamed text of a run without secrets, and the redactor the log needs, which the guard provides.

The end of each piece is held back until it is clear that no secret begins there.
"""

from __future__ import annotations

from typing import Protocol

from retinue.core.events import Body, RunEnded, TextDelta, ThinkingDelta, ToolEnded, ToolProgress, ToolsEnded, TurnEnded


class TextStream(Protocol):
    """Text that arrives in pieces. What `feed` returns is safe to show; it may hold back the
    end of a piece until it is clear that no secret begins there. `finish` returns the rest."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


class TextRedactor(Protocol):
    def suspects(self, encoded: bytes) -> bool:
        """Whether any of some bodies, as JSON on a line each, holds a secret. May be wrong about
        there being one, never about there being none."""
        ...

    def body(self, body: Body, encoded: bytes) -> Body:
        """`body` without secrets: the very same object when it has none. `encoded` is its JSON,
        which is quicker to look through than the object."""
        ...

    def stream(self) -> TextStream: ...


Delta = TextDelta | ThinkingDelta | ToolProgress


class StreamRedactor:
    """The open streams of one run: its answer, its thoughts, and one for each running tool."""

    __slots__ = ("_redact", "_speaking", "_stream", "_tools")

    def __init__(self, redact: TextRedactor) -> None:
        self._redact = redact
        self._speaking: type[TextDelta] | type[ThinkingDelta] = TextDelta
        self._stream: TextStream | None = None
        self._tools: dict[str, TextStream] = {}

    def say(self, delta: Delta) -> list[Delta]:
        """Return the text that may be shown now that `delta` has arrived; often a little less, never more."""
        if isinstance(delta, ToolProgress):
            tool = self._tools.get(delta.call_id)
            if tool is None:
                tool = self._tools[delta.call_id] = self._redact.stream()
            text = tool.feed(delta.text)
            return [ToolProgress(delta.call_id, text)] if text else []
        rest = self._pause() if type(delta) is not self._speaking else []
        if self._stream is None:
            self._stream, self._speaking = self._redact.stream(), type(delta)
        text = self._stream.feed(delta.text)
        if text == delta.text:
            return [*rest, delta]
        return [*rest, self._speaking(text)] if text else rest

    def before(self, body: Body) -> list[Delta]:
        """Return the text that must be shown before the durable event `body` takes its place in the order."""
        rest = self._pause()
        if isinstance(body, ToolEnded):
            ended = self._tools.pop(body.call_id, None)
            if ended is not None:
                rest += _progress(body.call_id, ended.finish())
        elif self._tools and isinstance(body, (ToolsEnded, TurnEnded, RunEnded)):
            for call_id, stream in self._tools.items():
                rest += _progress(call_id, stream.finish())
            self._tools = {}
        return rest

    @property
    def silent(self) -> bool:
        return self._stream is None and not self._tools

    def _pause(self) -> list[Delta]:
        if self._stream is None:
            return []
        text, self._stream = self._stream.finish(), None
        return [self._speaking(text)] if text else []


def _progress(call_id: str, text: str) -> list[Delta]:
    return [ToolProgress(call_id, text)] if text else []
