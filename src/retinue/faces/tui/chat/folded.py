"""Parts of a transcript that are one line until someone opens them: thinking, tool calls."""

from __future__ import annotations

import json
import re
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import Static

from retinue.core.format import format_duration
from retinue.core.messages import ToolCall, ToolResult
from retinue.core.permission import ToolEffect
from retinue.faces.text import optional
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import changes_files, clean, cut_lines, diff_of, ends, fit, one_line, styled

SHOWN_LINES = 200
SHOWN_CHARACTERS = 20_000
PROGRESS_KEPT = 4_000
# Of what an agent found; a second look shows all of it.
REPORT_LINES = 40
_REPORTS = frozenset({"get_subagent_result", "Agent", "subagent", "dispatch_agent"})
_AT_WORK = re.compile(r"Agent: .*\nType: .* \| Status: (?:queued|starting|running|waiting)\b")
_SUBJECT = ("file_path", "path", "command", "pattern", "query", "url", "description", "prompt", "task")


class Folded(Static, can_focus=True):
    """One widget however much is inside: what is folded is not laid out at all."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "flip", "open or fold", show=False),
        Binding("up,k", "app.focus_previous", show=False),
        Binding("down,j", "app.focus_next", show=False),
    ]

    def __init__(self, classes: str, *, unfolded: bool = False) -> None:
        super().__init__("", classes=f"folded {classes}")
        self.unfolded = unfolded

    def on_mount(self) -> None:
        self.redraw()

    def head(self) -> Text:
        raise NotImplementedError

    def body(self) -> RenderableType:
        raise NotImplementedError

    def fold(self, folded: bool) -> None:
        if self.unfolded == folded:
            self.unfolded = not folded
            self.redraw()

    def action_flip(self) -> None:
        self.fold(self.unfolded)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_flip()

    def redraw(self) -> None:
        # Before it is on the screen its size is not known; `on_mount` draws it.
        if not self.is_attached:
            return
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("▾ " if self.unfolded else "▸ ", STYLES["dim"])
        line.append_text(self.head())
        if self.unfolded:
            self.update(Group(line, Padding(self.body(), (0, 0, 0, 2))))
        else:
            self.update(Group(line))


class Thinking(Folded):
    """What the model thought."""

    def __init__(self, text: str = "") -> None:
        super().__init__("thinking")
        self._text = text

    def write(self, piece: str) -> None:
        self._text += piece
        self.redraw()

    def head(self) -> Text:
        return Text(f"thinking{optional(' · {:,} words', len(self._text.split()))}", STYLES["dim"])

    def body(self) -> Text:
        return Text(clean(self._text), STYLES["dim"])


class ToolBlock(Folded):
    """One call: what it is about, how it went; open with its arguments or diff, and its result."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__("tool", unfolded=changes_files(call))
        self.call = call
        self._result: ToolResult | None = None
        self._effect = ToolEffect()
        self._duration = 0
        self._progress = ""
        self._asking = False
        self._whole = False

    def action_flip(self) -> None:
        """Open or fold. A long report of an agent opens with its two ends, and then whole."""
        is_report = self._result is not None and self.call.name in _REPORTS
        is_long = is_report and self._result is not None and self._result.text.count("\n") >= REPORT_LINES
        self._whole = self.unfolded and not self._whole and is_long
        if self._whole:
            self.redraw()
        else:
            self.fold(self.unfolded)

    def progress(self, text: str) -> None:
        self._progress = (self._progress + text)[-PROGRESS_KEPT:]
        if self.unfolded:
            self.redraw()

    def asking(self, asks: bool) -> None:
        """It waits for a person, or does not any more."""
        self._asking = asks
        self.redraw()

    def finish(self, result: ToolResult, effect: ToolEffect | None = None, duration_ms: int = 0) -> None:
        self._result, self._effect, self._duration = result, effect or ToolEffect(), duration_ms
        self._asking, self._progress = False, ""
        self.redraw()

    def head(self) -> Text:
        mark, style = self._mark()
        line = Text.assemble((f"{mark} ", STYLES[style]), heading(self.call))
        notes = self._notes()
        if notes:
            line.append(f" · {' · '.join(notes)}", STYLES["dim"])
        return line

    def body(self) -> RenderableType:
        diff = diff_of(self.call)
        parts: list[RenderableType] = [diff or arguments(self.call)]
        if self._result is None:
            if self._progress:
                parts.append(Text(clean(self._progress)))
            return Group(*parts)
        if self.call.name in _REPORTS and not self._whole:
            return Group(*parts, report(clean(self._result.text)))
        shown, missing = cut_lines(clean(self._result.text), SHOWN_LINES, SHOWN_CHARACTERS)
        more = Text(optional("\n… {:,} more lines", max(missing, 0)), STYLES["dim"])
        if diff is None:
            return Group(*parts, Text(shown, STYLES["dim"]).append_text(more))
        # A result that shows the change has more context than what was asked for.
        drawn = [styled(shown)] if "\n" in shown else [diff, Text(shown, STYLES["dim"])]
        if more.plain:
            drawn.append(more)
        return Group(*drawn)

    def _mark(self) -> tuple[str, str]:
        if self._asking:
            return "?", "warning"
        if self._result is None:
            return "●", "accent"
        if self._effect.denied is not None:
            return "⊘", "warning"
        if self._result.is_error:
            return "✗", "error"
        if self.call.name == "get_subagent_result" and _AT_WORK.match(self._result.text):
            return "●", "accent"
        return "✓", "success"

    def _notes(self) -> list[str]:
        notes = []
        if self._asking:
            notes.append("waits for your answer")
        if self._effect.denied is not None:
            notes.append("denied")
        elif self._effect.exit_code:
            notes.append(f"exit {self._effect.exit_code}")
        if self._duration >= 1_000:
            notes.append(format_duration(self._duration))
        if self._result is not None and not self.unfolded and "\n" in self._result.text:
            notes.append(f"{self._result.text.count(chr(10)) + 1:,} lines")
        return notes


def report(text: str) -> Text:
    """Return what an agent found: whole if it is short, else its two ends and how much is between them."""
    head, missing, tail = ends(text, REPORT_LINES)
    drawn = Text(head[:SHOWN_CHARACTERS], STYLES["dim"])
    if missing:
        drawn.append(f"\n── {missing:,} more lines ──\n", STYLES["accent"])
        drawn.append(tail[-SHOWN_CHARACTERS:], STYLES["dim"])
    return drawn


def heading(call: ToolCall) -> str:
    """Return `read src/app.py`: the tool and what it is about."""
    for key in _SUBJECT:
        if call.arguments.get(key):
            return f"{one_line(call.name)} {fit(one_line(str(call.arguments[key])), 100)}".rstrip()
    return one_line(call.name)


def arguments(call: ToolCall) -> Text:
    """Return what was asked; a command as it would be typed."""
    command = call.arguments.get("command")
    if isinstance(command, str):
        return Text(f"$ {clean(command)}")
    if call.broken is not None:
        return Text(clean(call.broken)[:SHOWN_CHARACTERS], STYLES["error"])
    written = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2, default=str)
    return Text(cut_lines(clean(written.replace("\\n", "\n  ")), SHOWN_LINES, SHOWN_CHARACTERS)[0])
