"""Live progress of a run on stderr, one short line per thing that happened.

Nothing here reaches stdout. On a terminal the answer streams dimmed as it is written; elsewhere
only whole lines are printed, so that a log file stays readable.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO

from retinue.domain.events import (
    Body,
    Compacted,
    Event,
    LimitReached,
    Retrying,
    RunCreated,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    Warned,
)
from retinue.domain.format import format_duration, format_tokens


class Progress:
    """Draws the events of one run, and in short those of the runs below it. Quiet mode shows
    warnings only."""

    def __init__(self, agent: str, *, run_id: str = "", quiet: bool = False, stream: TextIO | None = None) -> None:
        self.agent = agent
        self.run_id = run_id
        self._names: dict[str, str] = {}
        self.quiet = quiet
        self.stream = sys.stderr if stream is None else stream
        self.live = self.stream.isatty()
        self._open_line = False

    def show(self, event: Event) -> None:
        below = bool(self.run_id) and event.run_id != self.run_id
        line = self._child_line(event) if below else self._line(event.body)
        if line:
            self._close_line()
            print(line, file=self.stream, flush=True)

    def _child_line(self, event: Event) -> str | None:
        """A run below this one: that it started, what goes wrong, how it ended."""
        body = event.body
        if isinstance(body, RunCreated):
            self._names[event.run_id] = f"{body.agent} {event.run_id[:8]}"
            line = f"  ▸ {self._names[event.run_id]}: {_first_line(body.task, 80)}"
            return None if self.quiet else line
        name = self._names.get(event.run_id, event.run_id[:8])
        if isinstance(body, Warned):
            return f"  ! {name}: {body.text}"
        if isinstance(body, RunEnded) and not self.quiet:
            return f"  {name} {self._ended(body)}"
        return None

    def _line(self, body: Body) -> str | None:
        if isinstance(body, Warned):
            return f"! {body.text}"
        if self.quiet:
            return None
        match body:
            case RunStarted():
                tools = ", ".join(body.tools) or "no tools"
                return f"▸ {self.agent} · {body.model} · {tools}"
            case TextDelta():
                self._delta(body.text)
            case ToolStarted():
                return f"  {body.call.name} {summary(body.call.arguments)}".rstrip()
            case ToolEnded() if body.result.is_error:
                return f"  ✗ {body.name}: {_first_line(body.result.text)}"
            case TurnEnded():
                self._close_line()
            case Retrying():
                return f"  … {body.failure.message} Trying again in {body.delay:.1f}s (attempt {body.attempt})."
            case LimitReached():
                return f"! {body.detail}"
            case Compacted():
                return f"  ⇊ context compacted: {body.tokens_before} → {body.tokens_after} tokens"
            case RunEnded():
                return self._ended(body)
            case _:
                return None
        return None

    def _ended(self, body: RunEnded) -> str:
        outcome = body.outcome
        mark = "✓" if outcome.ok else "✗"
        parts = [f"↻{outcome.turns}", f"{outcome.tool_uses} tool uses", format_tokens(outcome.usage.total_tokens)]
        return f"{mark} {outcome.ended} · {' · '.join(parts)} · {format_duration(outcome.duration_ms)}"

    def _delta(self, text: str) -> None:
        if self.live:
            print(f"\x1b[2m{text}\x1b[0m", end="", file=self.stream, flush=True)
            self._open_line = not text.endswith("\n")

    def _close_line(self) -> None:
        if self._open_line:
            print(file=self.stream)
            self._open_line = False


def summary(arguments: Mapping[str, Any], width: int = 100) -> str:
    """A call's arguments on one line: the values that say what it is about, cut to `width`."""
    values = [str(value) for value in arguments.values() if isinstance(value, (str, int, float))]
    return _first_line(" ".join(values), width)


def _first_line(text: str, width: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
