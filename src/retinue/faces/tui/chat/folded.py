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
from retinue.faces.tui.board.marks import STYLES
from retinue.faces.tui.board.text import changes_files, clean, clip, diff_of, ends, fit, one_line, styled

SHOWN_LINES = 200
SHOWN_CHARACTERS = 20_000
PROGRESS_KEPT = 4_000
REPORT_LINES = 40
"""Of what an agent found; a second look shows all of it."""
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
        if not self.is_attached:
            return
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("▾ " if self.unfolded else "▸ ", STYLES["dim"])
        line.append_text(self.head())
        inside = [Padding(self.body(), (0, 0, 0, 2))] if self.unfolded else []
        self.update(Group(line, *inside))


class Thinking(Folded):
    """What the model thought."""

    def __init__(self, text: str = "") -> None:
        super().__init__("thinking")
        self._text = text

    def write(self, piece: str) -> None:
        self._text += piece
        self.redraw()

    def head(self) -> Text:
        words = len(self._text.split())
        return Text(f"thinking · {words:,} words" if words else "thinking", STYLES["dim"])

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
        """A long report of an agent opens with its two ends, and then whole."""
        text = self._result.text if self._result is not None and self.call.name in _REPORTS else ""
        self._whole = self.unfolded and not self._whole and text.count("\n") >= REPORT_LINES
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
        if self._result is None:
            parts: list[RenderableType] = [diff if diff is not None else arguments(self.call)]
            return Group(*parts, Text(clean(self._progress))) if self._progress else parts[0]
        if self.call.name in _REPORTS and not self._whole:
            return Group(arguments(self.call), report(clean(self._result.text)))
        shown, missing = clip(clean(self._result.text), SHOWN_LINES, SHOWN_CHARACTERS)
        more = Text(f"\n… {missing:,} more lines" if missing > 0 else "", STYLES["dim"])
        if diff is not None:
            # A result that shows the change has more context than what was asked for.
            drawn = styled(shown) if "\n" in shown else Group(diff, Text(shown, STYLES["dim"]))
            return Group(drawn, more) if more.plain else drawn
        return Group(arguments(self.call), Text(shown, STYLES["dim"]).append_text(more))

    def _mark(self) -> tuple[str, str]:
        if self._asking:
            return "?", "warning"
        if self._result is None:
            return "●", "accent"
        if self._effect.denied is not None:
            return "⊘", "warning"
        if self._result.is_error:
            return "✗", "error"
        reads = self.call.name == "get_subagent_result"
        return ("●", "accent") if reads and _AT_WORK.match(self._result.text) else ("✓", "success")

    def _notes(self) -> list[str]:
        notes = ["waits for your answer"] if self._asking else []
        if self._effect.denied is not None:
            notes.append("denied")
        elif self._effect.exit_code:
            notes.append(f"exit {self._effect.exit_code}")
        if self._duration >= 1_000:
            notes.append(format_duration(self._duration))
        if self._result is not None and not self.unfolded:
            lines = self._result.text.count("\n") + 1
            notes += [f"{lines:,} lines"] if lines > 1 else []
        return notes


def report(text: str) -> Text:
    """What an agent found: whole if it is short, else its two ends and how much is between them."""
    head, missing, tail = ends(text, REPORT_LINES)
    drawn = Text(head[:SHOWN_CHARACTERS], STYLES["dim"])
    if missing:
        drawn.append(f"\n── {missing:,} more lines ──\n", STYLES["accent"])
        drawn.append(tail[-SHOWN_CHARACTERS:], STYLES["dim"])
    return drawn


def heading(call: ToolCall) -> str:
    """`read src/app.py`: the tool and what it is about."""
    subject = next((str(call.arguments[key]) for key in _SUBJECT if call.arguments.get(key)), "")
    return f"{one_line(call.name)} {fit(one_line(subject), 100)}".rstrip()


def arguments(call: ToolCall) -> Text:
    """What was asked; a command as it would be typed."""
    command = call.arguments.get("command")
    if isinstance(command, str):
        return Text(f"$ {clean(command)}")
    if call.broken is not None:
        return Text(clean(call.broken)[:SHOWN_CHARACTERS], STYLES["error"])
    written = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2, default=str)
    return Text(clip(clean(written.replace("\\n", "\n  ")), SHOWN_LINES, SHOWN_CHARACTERS)[0])
