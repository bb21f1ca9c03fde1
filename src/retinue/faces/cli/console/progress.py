"""Live progress of a run on stderr, one short line per thing that happened.

Nothing here reaches stdout. On a terminal the answer streams as it is written, dimmed if it is
to be printed once more; elsewhere only whole lines are printed, so that a log file stays readable.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from retinue.core import events
from retinue.core.controls import visible
from retinue.core.format import format_duration, format_tokens, format_used, retry_text
from retinue.core.outcome import RECORD
from retinue.faces.cli.console.markdown_stream import MarkdownStream, can_style, has_colour
from retinue.faces.cli.console.output import write_span
from retinue.faces.text import MARKS, one_line, optional, plural

_COLOURS = {"✓": "32", "✗": "31", "!": "33", "?": "33", "■": "33", "▸": "36"}
"""By the mark a line begins with; other lines that are indented are dim."""
SPAWNING = frozenset({"Agent", "subagent", "dispatch_agent"})
MOST_TOOLS = 8


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
        # The newest answer ended at the output limit: the next one may be the rest of it.
        self._cut_off = False
        self._goes_on = False

    def has_shown(self, text: str) -> bool:
        """Return whether `text` has just been streamed whole, for people to read."""
        return self._answers and bool(text.strip()) and "".join(self._streamed).strip() == text.strip()

    def learn(self, event: events.Event) -> None:
        """Take only names from something that happened before."""
        if isinstance(event.body, events.RunCreated):
            self._names[event.run_id] = f"{event.body.agent} {event.run_id[:8]}"

    def show(self, event: events.Event) -> None:
        self.learn(event)
        if isinstance(event.body, events.InboxOpened):
            line = self._question_line(event, event.body)
        elif self.run_id and event.run_id != self.run_id:
            line = self._child_line(event)
        else:
            line = self._line(event.body)
        if line:
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

    def _child_line(self, event: events.Event) -> str | None:
        """Return that a run below this one started, what goes wrong there, or how it ended."""
        body = event.body
        name = self._names.get(event.run_id, event.run_id[:8])
        if isinstance(body, events.RunCreated) and not self.quiet:
            about = body.options.get("description") or body.task
            return f"  ▸ {name}: {one_line(str(about), 80)}"
        if isinstance(body, events.RunResumed) and not self.quiet:
            return f"  ▸ {name} goes on: {one_line(body.prompt, 80)}"
        if isinstance(body, events.Warned):
            return f"  ! {name}: {body.text}"
        if isinstance(body, events.RunEnded) and not self.quiet:
            return f"  {name} {self._ended(body)}"
        return None

    def _question_line(self, event: events.Event, body: events.InboxOpened) -> str | None:
        """Return that someone is asked elsewhere; on a terminal the question itself appears."""
        if self.live:
            return None
        unnamed = self.agent if event.run_id == self.run_id else event.run_id[:8]
        who = self._names.get(event.run_id, unnamed)
        return f"? {who} waits for an answer: {one_line(body.title, 100)} (retinue inbox answer {body.item_id} …)"

    def _line(self, body: events.Body) -> str | None:
        if isinstance(body, events.Warned):
            self._warned.add(body.text)
            return f"! {body.text}"
        if isinstance(body, events.RunEnded):
            return self._last_lines(body)
        if self.quiet:
            return None
        match body:
            case events.RunStarted():
                return f"▸ {self.agent} · {body.model} · {_tools(body.tools)}"
            case events.ToolStarted(call) if call.name in SPAWNING:
                # The agent's own line says it.
                return None
            case events.ToolStarted():
                return f"  {body.call.name} {summary(body.call.arguments)}".rstrip()
            case events.ToolEnded() if body.result.is_error:
                return f"  ✗ {body.name}: {one_line(body.result.text, 160)}"
            case events.Retrying():
                return f"  … {retry_text(body.failure.message, body.delay, body.attempt, body.most)}"
            case events.LimitReached():
                return f"! {body.detail}"
            case events.Compacted():
                return f"  ⇊ context compacted: {body.tokens_before} → {body.tokens_after} tokens"
            case _:
                self._stream(body)
        return None

    def _last_lines(self, body: events.RunEnded) -> str | None:
        """Return how it ended, and what the outcome notes that was not said before, such as denials."""
        lines = []
        if not self.quiet:
            lines.append(f"{self._ended(body)}{optional(' · {}', self.run_id[:8])}")
        for note in body.outcome.notes:
            # The record is left out: each call was shown as it ran.
            if note not in self._warned and not note.startswith(RECORD):
                lines.append(f"! {note}")
        return "\n".join(lines) or None

    def _ended(self, body: events.RunEnded) -> str:
        outcome = body.outcome
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

    def _stream(self, body: events.Body) -> None:
        match body:
            case events.TextDelta(text):
                self._write(text)
            case events.AssistantEnded():
                # An answer that was cut off at the output limit goes on in the next turn: its line stays open.
                self._cut_off = body.message.stop == "length" and not body.message.tool_calls
            case events.MessageAdded():
                self._goes_on = self._cut_off and body.message.origin == "correction"
            case events.TurnEnded():
                if not self._cut_off:
                    self._close_line()
            case events.TurnStarted():
                if not self._goes_on:
                    self._streamed.clear()
                    self._close_line()
                self._cut_off = self._goes_on = False

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
