"""Folded parts of a transcript, which the person can open: thinking, tool calls and agents at work. Also the to-do
list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import Static

from retinue.app.call_text import SPAWNING
from retinue.app.markdown import markdown_lines
from retinue.app.rich_text import STYLES, changes_files, clean, cut_lines, diff_of, ends, styled
from retinue.app.text import ASKING_MARK, CALL_MARKS, Mark, optional
from retinue.core.format import format_duration
from retinue.core.messages import ToolResult
from retinue.core.story import Entry
from retinue.core.tool import Todo
from retinue.frontends.tui.board.calls import (
    agent_lines,
    arguments,
    heading,
    result_for_people,
    todo_lines,
)
from retinue.frontends.tui.board.cards import RunCard, Window

SHOWN_LINES = 200
SHOWN_CHARACTERS = 20_000
PROGRESS_KEPT = 4_000
# Characters of an agent's report when it is opened first. Opening it again shows all of it.
REPORT_LINES = 40
# Lines of a folded diff.
DIFF_LINES = 10
_REPORTS = SPAWNING | {"get_subagent_result"}
_AT_WORK = re.compile(r"Agent: .*\nType: .* \| Status: (?:queued|starting|running|waiting)\b")


class Folded(Static, can_focus=True):
    """One widget, however much it contains. Folded content is not laid out."""

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

    def preview(self) -> Sequence[Text]:
        """Return the lines that stay visible below the first one while the block is folded."""
        return ()

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
        # Before the block is on the screen its size is unknown; `on_mount` draws it.
        if not self.is_attached:
            return
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("▾ " if self.unfolded else "▸ ", STYLES["dim"])
        line.append_text(self.head())
        if self.unfolded:
            self.update(Group(line, Padding(self.body(), (0, 0, 0, 2))))
        else:
            below = self.preview()
            for row in below:
                row.no_wrap, row.overflow = True, "ellipsis"
            self.update(Group(line, Padding(Group(*below), (0, 0, 0, 2))) if below else Group(line))


class Thinking(Folded):
    """The reasoning of the model."""

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
    """One tool call, from its entry in the story: a heading and the outcome; when open, also its arguments or diff and
    its result."""

    shows_time: ClassVar[bool] = True

    def __init__(self, entry: Entry) -> None:
        super().__init__("tool")
        assert entry.call is not None, "the entry is a call"
        self.entry, self.call = entry, entry.call
        self._progress = ""
        self._whole = False

    @property
    def result(self) -> ToolResult | None:
        return self.entry.result

    @property
    def is_changed(self) -> bool:
        """Whether the result may show what the call changed."""
        return self.result is not None and "\n" in self.result.text and not self.result.is_error

    def action_flip(self) -> None:
        """Open or fold. A long report of an agent opens first with its two ends, then completely."""
        is_report = self.result is not None and self.call.name in _REPORTS
        is_long = is_report and self.result is not None and self.result.text.count("\n") >= REPORT_LINES
        self._whole = self.unfolded and not self._whole and is_long
        if self._whole:
            self.redraw()
        else:
            self.fold(self.unfolded)

    def progress(self, text: str) -> None:
        self._progress = (self._progress + text)[-PROGRESS_KEPT:]
        if self.unfolded:
            self.redraw()

    def end(self) -> None:
        """Show how the call has ended."""
        self._progress = ""
        self.redraw()

    def head(self) -> Text:
        sign, tone, _ = self._mark()
        line = Text.assemble((f"{sign} ", STYLES[tone]), heading(self.call))
        notes = self._notes()
        if notes:
            line.append(f" · {' · '.join(notes)}", STYLES["dim"])
        return line

    def preview(self) -> Sequence[Text]:
        """Return the beginning of a change."""
        if not changes_files(self.call) or (self.result is not None and self.result.is_error):
            return ()
        change = self._change()
        if change is None:
            return ()
        rows = change.split("\n", allow_blank=True)
        shown = list(rows[:DIFF_LINES])
        if len(rows) > DIFF_LINES:
            shown.append(Text(f"… {len(rows) - DIFF_LINES:,} more lines", STYLES["dim"]))
        return shown

    def body(self) -> RenderableType:
        change = self._change()
        if change is not None:
            return Group(change, *self._said_beside())
        asked = arguments(self.call)
        parts: list[RenderableType] = [asked] if asked else []
        if self.result is None:
            if self._progress:
                parts.append(Text(clean(self._progress)))
        elif self.call.name in _REPORTS and not self._whole:
            parts.append(report(clean(result_for_people(self.result.text))))
        else:
            parts.append(self._shown_result())
        return Group(*parts)

    def _change(self) -> Text | None:
        """Return the diff of a call that changes files. The diff in a result has more context than the one in the
        call."""
        asked = diff_of(self.call)
        if asked is None or self.result is None or not self.is_changed:
            return asked
        shown = cut_lines(clean(self.result.text), SHOWN_LINES, SHOWN_CHARACTERS)[0]
        # The sentence before the diff repeats the heading.
        first, _, diff = shown.partition("\n")
        return styled(diff if first.endswith(":") and diff.startswith("@@") else shown)

    def _said_beside(self) -> list[Text]:
        return [] if self.result is None or self.is_changed else [self._shown_result()]

    def _shown_result(self) -> Text:
        text = self.result.text if self.result is not None else ""
        if self.call.name in _REPORTS:
            text = result_for_people(text)
        shown, missing = cut_lines(clean(text), SHOWN_LINES, SHOWN_CHARACTERS)
        return Text(f"{shown}{optional(chr(10) + '… {:,} more lines', max(missing, 0))}", STYLES["dim"])

    def _mark(self) -> Mark:
        if self.entry.asks:
            return ASKING_MARK
        if self.call.name == "get_subagent_result" and self.result is not None and _AT_WORK.match(self.result.text):
            return CALL_MARKS["running"]
        return CALL_MARKS[self.entry.state]

    def _notes(self) -> list[str]:
        notes = [ASKING_MARK.word] if self.entry.asks else []
        if self.entry.state in ("cut", "denied"):
            notes.append(CALL_MARKS[self.entry.state].word)
        elif self.entry.effect.exit_code:
            notes.append(f"exit {self.entry.effect.exit_code}")
        if changes_files(self.call):
            notes += self._counts()
        if self.shows_time and self.entry.duration_ms >= 1_000:
            notes.append(format_duration(self.entry.duration_ms))
        if self.result is not None and not self.unfolded and not changes_files(self.call):
            lines = self.result.text.count("\n") + 1
            notes += [f"{lines:,} lines"] if lines > 1 else []
        return notes

    def _counts(self) -> list[str]:
        """Return `+3 -1`: the lines that the call adds and removes."""
        change = diff_of(self.call)
        if change is None:
            return []
        rows = change.plain.split("\n")
        added, removed = (sum(row.startswith(sign) for row in rows) for sign in "+-")
        return [" ".join(filter(None, (optional("+{}", added), optional("-{}", removed))))]


class AgentBlock(ToolBlock):
    """A call that starts an agent. It shows the agent's progress while the call waits, and then how the agent ended."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self._lines: list[Text] = []
        self._text = ""

    def paint(self, card: RunCard, now: float, window: Window, *, frame: int = 0, motion: bool = True) -> None:
        """Show the current state of the agent. An unchanged display is not drawn again."""
        lines = agent_lines(card, now, window, frame=frame, motion=motion)
        if card.outcome is not None:
            self._text = card.outcome.text
        if lines != self._lines:
            self._lines = lines
            self.redraw()

    def end(self) -> None:
        if self.entry.effect.in_background:
            self._lines = [Text("⎿ works in the background", STYLES["dim"])]
        super().end()

    def head(self) -> Text:
        if not self._lines:
            return super().head()
        line = Text(heading(self.call), "bold")
        if self.entry.asks:
            line.append(f" · {ASKING_MARK.word}", STYLES[ASKING_MARK.tone])
        return line

    def preview(self) -> Sequence[Text]:
        return [line.copy() for line in self._lines]

    def body(self) -> RenderableType:
        """Return the agent's state, its task and its report."""
        parts: list[RenderableType] = [*self.preview(), arguments(self.call)]
        if self.result is not None:
            text = clean((self._text or result_for_people(self.result.text))[:SHOWN_CHARACTERS])
            rows = markdown_lines(text, max(self.content_size.width - 2, 20))
            if not self._whole and len(rows) > REPORT_LINES:
                missing = len(rows) - REPORT_LINES
                rows[REPORT_LINES:] = [Text(f"── {missing:,} more lines ──", STYLES["accent"])]
            parts += rows
        return Group(*parts)


class Checklist(Static):
    """The to-do list of the main agent. Each change moves the open list to the end of the conversation."""

    def __init__(self, todos: Sequence[Todo]) -> None:
        super().__init__("", classes="checklist")
        self.todos = tuple(todos)

    def on_resize(self) -> None:
        self.redraw()

    def show(self, todos: Sequence[Todo]) -> None:
        self.todos = tuple(todos)
        self.redraw()

    def redraw(self) -> None:
        if self.is_attached:
            self.display = bool(self.todos)
            self.update(Group(*todo_lines(self.todos, max(self.size.width, 20))))

    @property
    def is_done(self) -> bool:
        return all(todo.status == "completed" for todo in self.todos)


def report(text: str) -> Text:
    """Return a short report of an agent completely; of a long one both ends, and how much is between them."""
    head, missing, tail = ends(text, REPORT_LINES)
    drawn = Text(head[:SHOWN_CHARACTERS], STYLES["dim"])
    if missing:
        drawn.append(f"\n── {missing:,} more lines ──\n", STYLES["accent"])
        drawn.append(tail[-SHOWN_CHARACTERS:], STYLES["dim"])
    return drawn
