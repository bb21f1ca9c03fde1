"""Live progress of a run on stderr, one short line per thing that happened.

Nothing here reaches stdout. On a terminal the answer streams as it is written, dimmed if it is
to be printed once more; elsewhere only whole lines are printed, so that a log file stays readable.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from retinue.app.output import write_span
from retinue.app.text import MARKS, one_line, optional, plural
from retinue.core import events
from retinue.core.controls import visible
from retinue.core.format import format_duration, format_tokens, format_used
from retinue.core.outcome import RECORD, Outcome
from retinue.core.story import Entry, Step, Story, Topic
from retinue.faces.cli.console.markdown_stream import MarkdownStream, can_style, has_colour

_COLOURS = {"✓": "32", "✗": "31", "!": "33", "?": "33", "■": "33", "▸": "36"}
"""By the mark a line begins with; other lines that are indented are dim."""
SPAWNING = frozenset({"Agent", "subagent", "dispatch_agent"})
MOST_TOOLS = 8
NOTE_SIGNS: Mapping[Topic | None, str] = {
    "compacted": "⇊",
    "limit": "!",
    "mode": "!",
    "moved": "!",
    "plan": "!",
    "pruned": "…",
    "retry": "…",
    "warning": "!",
}
"""The notes that are printed, each with the sign before it."""


class Progress:
    """The events of one run as lines, and in short those of the runs below it. Quiet mode shows warnings only."""

    def __init__(
        self,
        agent: str,
        *,
        run_id: str = "",
        quiet: bool = False,
        stream: TextIO | None = None,
        answers: bool = False,
    ) -> None:
        """`answers`: what is streamed is all that the person sees of the answer."""
        self.agent = agent
        self.run_id = run_id
        self._names: dict[str, str] = {}
        self._warned: set[str] = set()
        self.quiet = quiet
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._open_line = False
        self._styled = can_style(self.stream)
        self._coloured = has_colour(self.stream)
        self._markdown: MarkdownStream | None = None
        if answers and self._styled:
            self._markdown = MarkdownStream(self.stream)
        self._answers = answers
        self._streamed: list[str] = []
        self._stories: dict[str, Story] = {}

    def has_shown(self, text: str) -> bool:
        """Return whether `text` has just been streamed whole, for people to read."""
        return self._answers and bool(text.strip()) and "".join(self._streamed).strip() == text.strip()

    def learn(self, event: events.Event) -> None:
        """Take only names from something that happened before."""
        if isinstance(event.body, events.RunCreated):
            self._names[event.run_id] = f"{event.body.agent} {event.run_id[:8]}"

    def show(self, event: events.Event) -> None:
        self.learn(event)
        is_below = bool(self.run_id) and event.run_id != self.run_id
        if is_below and isinstance(event.body, events.TRANSIENT):
            return
        story = self._stories.setdefault(event.run_id, Story())
        lines: list[str | None] = []
        for step in story.take(event.body, event.seq, event.at):
            if step.entry.topic == "asked":
                lines.append(self._question_line(event.run_id, step.entry))
            elif is_below:
                lines.append(self._child_line(event.run_id, step.entry))
            else:
                lines.append(self._line(step))
        if isinstance(event.body, events.RunStarted) and not is_below and not self.quiet:
            lines.append(f"▸ {self.agent} · {event.body.model} · {_tools(event.body.tools)}")
        for line in filter(None, lines):
            self._close_line()
            self._print(visible(line))

    def _print(self, text: str) -> None:
        """Print lines in the colours of their marks, where colours are wanted."""
        for line in text.split("\n"):
            codes = ""
            if self._coloured:
                codes = _COLOURS.get(line.lstrip()[:1], "2" if line.startswith("  ") else "")
            write_span(self.stream, line, codes)
            self.stream.write("\n")
        self.stream.flush()

    def _child_line(self, run_id: str, entry: Entry) -> str | None:
        """Return that a run below this one started, what goes wrong there, or how it ended."""
        name = self._names.get(run_id, run_id[:8])
        if entry.topic == "warning":
            return f"  ! {name}: {entry.text}"
        if self.quiet:
            return None
        if entry.kind == "task":
            return f"  ▸ {name}: {one_line(entry.detail or entry.text, 80)}"
        if entry.topic == "resumed":
            return f"  ▸ {name} goes on: {one_line(entry.detail, 80)}"
        if entry.outcome is not None:
            return f"  {name} {_ended(entry.outcome)}"
        return None

    def _question_line(self, run_id: str, entry: Entry) -> str | None:
        """Return that someone is asked elsewhere; on a terminal the question itself appears."""
        if self.live:
            return None
        unnamed = self.agent if run_id == self.run_id else run_id[:8]
        return (
            f"? {self._names.get(run_id, unnamed)} {one_line(entry.text, 121)} (retinue inbox answer {entry.detail} …)"
        )

    def _line(self, step: Step) -> str | None:
        entry = step.entry
        if entry.topic == "warning":
            self._warned.add(entry.text)
        elif entry.outcome is not None:
            return self._last_lines(entry.outcome)
        elif self.quiet:
            return None
        if entry.kind == "answer":
            self._stream(step)
        return note_line(entry) or call_line(step)

    def _last_lines(self, outcome: Outcome) -> str | None:
        """Return how it ended, and what the outcome notes that was not said before, such as denials."""
        lines = []
        if not self.quiet:
            lines.append(f"{_ended(outcome)}{optional(' · {}', self.run_id[:8])}")
        for note in outcome.notes:
            # The record is left out: each call was shown as it ran.
            if note not in self._warned and not note.startswith(RECORD):
                lines.append(f"! {note}")
        return "\n".join(lines) or None

    def _stream(self, step: Step) -> None:
        match step.change:
            case "added" if step.entry.continues is None:
                self._streamed.clear()
                self._close_line()
            case "grew":
                self._write(step.piece)
            case "ended" | "void" if not step.entry.cut_off:
                self._close_line()

    def _write(self, text: str) -> None:
        if not self.live:
            return
        self._streamed.append(text)
        if self._markdown is not None:
            self._markdown.write(text)
            self._open_line = True
            return
        # Dimmed where the answer is printed once more on stdout.
        is_dim = self._styled and not self._answers
        write_span(self.stream, text, "2" if is_dim else "")
        self.stream.flush()
        self._open_line = not text.endswith("\n")

    def _close_line(self) -> None:
        if not self._open_line:
            return
        self._open_line = False
        if self._markdown is not None:
            self._markdown.close()
        else:
            self.stream.write("\n")


def note_line(entry: Entry) -> str | None:
    """Return a note as a line: those about the conversation itself are indented below it."""
    if entry.topic not in NOTE_SIGNS:
        return None
    sign = NOTE_SIGNS[entry.topic]
    return f"{'' if sign == '!' else '  '}{sign} {entry.text}"


def call_line(step: Step) -> str | None:
    """Return that a call began, or how it failed."""
    entry = step.entry
    if entry.call is None:
        return None
    if step.change == "began" and entry.call.name not in SPAWNING:
        # Of a call that starts an agent, the agent's own line says it.
        return f"  {entry.call.name} {summary(entry.call.arguments)}".rstrip()
    if step.change == "ended" and entry.result is not None and entry.result.is_error:
        return f"  ✗ {entry.call.name}: {one_line(entry.result.text, 160)}"
    return None


def _ended(outcome: Outcome) -> str:
    mark = MARKS.get(outcome.ended, "✗")
    if outcome.shortfall:
        mark = "!"
    how = optional(", {}", outcome.shortfall)
    if outcome.evidence.denials:
        how += f", {plural(len(outcome.evidence.denials), 'call')} denied"
    parts = [f"{mark} {outcome.ended}{how}", f"↻{outcome.turns}", plural(outcome.tool_uses, "tool use")]
    parts.append(format_used(outcome.usage, outcome.turns, outcome.model))
    if outcome.tree_usage is not None:
        parts.append(f"with its agents {format_tokens(outcome.tree_usage.total_tokens)}")
    return " · ".join([*parts, format_duration(outcome.duration_ms)])


def _tools(names: Sequence[str]) -> str:
    """Return the tools of a run, as many as fit a line."""
    if not names:
        return "no tools"
    if len(names) <= MOST_TOOLS:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_TOOLS - 1])} and {len(names) - MOST_TOOLS + 1} more"


def summary(arguments: Mapping[str, Any], width: int = 100) -> str:
    """Return the arguments of a call on one line: the values that say what it is about, cut to `width`."""
    values = [str(value) for value in arguments.values() if isinstance(value, (str, int, float))]
    return one_line(" ".join(values), width)
