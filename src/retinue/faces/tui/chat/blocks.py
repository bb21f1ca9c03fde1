"""The parts of a transcript: what a person said, what an agent said, thought and did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.text import Text
from textual.widgets import Collapsible, Markdown, Static
from textual.widgets.markdown import MarkdownStream

from retinue.domain.messages import ToolCall, ToolResult
from retinue.faces.tui.board.text import fit, one_line

SHOWN_RESULT = 4_000
_SUBJECT = ("file_path", "path", "command", "pattern", "query", "url", "description", "prompt", "task")


class Said(Static):
    """A person's words."""

    def __init__(self, text: str, *, queued: bool = False) -> None:
        super().__init__(Text(f"❯ {text}"), classes="said queued" if queued else "said")


class Notice(Static):
    """Something the person should know: `kind` is `warning`, `error` or `info`."""

    def __init__(self, text: str, kind: str = "info") -> None:
        super().__init__(Text(text), classes=f"notice {kind}")


class Answer(Markdown):
    """The model's text, as it comes."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text, classes="answer")
        self._stream: MarkdownStream | None = None

    async def write(self, piece: str) -> None:
        if self._stream is None:
            self._stream = Markdown.get_stream(self)
        await self._stream.write(piece)

    async def finish(self, text: str | None = None) -> None:
        """The whole text, where it differs from what was streamed."""
        if self._stream is not None:
            await self._stream.stop()
            self._stream = None
        if text is not None and text != self.source:
            await self.update(text)


class Thinking(Collapsible):
    """Folded: what the model thought."""

    def __init__(self) -> None:
        self._text = ""
        self._body = Static(Text(""), classes="thought")
        super().__init__(self._body, title="thinking", collapsed=True, classes="thinking")

    def write(self, piece: str) -> None:
        self._text += piece
        self._body.update(Text(self._text))


class ToolBlock(Collapsible):
    """One call: folded to a line, open with its arguments and result."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self._result = Static(Text(""), classes="result")
        super().__init__(
            Static(arguments(call), classes="arguments"),
            self._result,
            title=f"● {heading(call)}",
            collapsed=True,
            classes="tool",
        )

    def finish(self, result: ToolResult) -> None:
        mark = "✗" if result.is_error else "✓"
        self.title = f"{mark} {heading(self.call)}"
        self.add_class("failed" if result.is_error else "done")
        text = result.text
        more = f"\n… {len(text) - SHOWN_RESULT:,} more characters" if len(text) > SHOWN_RESULT else ""
        self._result.update(Text(text[:SHOWN_RESULT] + more))


def heading(call: ToolCall) -> str:
    """`read src/app.py`: the tool and what it is about."""
    subject = next((str(call.arguments[key]) for key in _SUBJECT if call.arguments.get(key)), "")
    return f"{call.name} {fit(one_line(subject), 100)}".rstrip()


def arguments(call: ToolCall) -> Text:
    """What was asked; an edit as a diff."""
    old = call.arguments.get("old_string", call.arguments.get("old_text"))
    new = call.arguments.get("new_string", call.arguments.get("new_text"))
    if isinstance(old, str) and isinstance(new, str):
        return diff(old, new)
    return Text(_json(call.arguments))


def diff(old: str, new: str) -> Text:
    """Line by line, with signs that need no colour."""
    from difflib import unified_diff

    text = Text()
    for line in list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]:
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        text.append(line + "\n", style)
    return text


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False, indent=2, default=str)[:SHOWN_RESULT]
