"""Live progress of a run on stderr, one short line per event.

This module prints no progress on stdout. On a terminal the answer is streamed, dimmed if it will be printed again;
elsewhere only complete lines are printed, so that a log file stays readable.

`show_run` shows a run in the foreground of a terminal: progress on stderr, the result on stdout, Ctrl-C to stop. In a
JSON mode, stdout contains only the document of the run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from msgspec.structs import replace

from retinue.app.documents import Output, run_document
from retinue.app.output import print_json, write_span
from retinue.app.process import handle_signals
from retinue.app.text import RUN_SIGNS, one_line, optional, plural, printed_answer, status_word
from retinue.core import events
from retinue.core.controls import visible
from retinue.core.encode import event_to_json, outcome_to_json
from retinue.core.events import Event, RunEnded, TextDelta
from retinue.core.format import format_duration, format_tokens, format_used
from retinue.core.outcome import RECORD, Outcome
from retinue.core.story import Entry, Story, StoryStep, Topic
from retinue.core.usage import Usage
from retinue.errors import RetinueError
from retinue.frontends.cli.console.markdown_stream import MarkdownStream, can_style, has_colour, write_markdown
from retinue.frontends.cli.project import say

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue, Run


_SIGN_COLOURS = {"✓": "32", "✗": "31", "!": "33", "?": "33", "■": "33", "▸": "36"}
"""By the sign at the beginning of a line; other indented lines are dim."""
SPAWNING = frozenset({"Agent", "subagent", "dispatch_agent"})
MAX_NAMED_TOOLS = 8
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
"""The notes that are printed, each with its sign."""


class Progress:
    """Prints the events of one run, and a summary of the runs below it. Quiet mode prints only warnings."""

    def __init__(
        self,
        agent: str,
        *,
        run_id: str = "",
        quiet: bool = False,
        stream: TextIO | None = None,
        answers: bool = False,
    ) -> None:
        """`answers` means that the streamed text is the only copy of the answer for the person."""
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
        """Return whether all of `text` has just been streamed."""
        return self._answers and bool(text.strip()) and "".join(self._streamed).strip() == text.strip()

    def learn(self, event: events.Event) -> None:
        """Store the names in a past event."""
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
        """Print lines in the colours of their signs, if colours are wanted."""
        for line in text.split("\n"):
            codes = ""
            if self._coloured:
                codes = _SIGN_COLOURS.get(line.lstrip()[:1], "2" if line.startswith("  ") else "")
            write_span(self.stream, line, codes)
            self.stream.write("\n")
        self.stream.flush()

    def _child_line(self, run_id: str, entry: Entry) -> str | None:
        """Return a line about the start, a warning or the end of a run below this one."""
        name = self._names.get(run_id, run_id[:8])
        if entry.topic == "warning":
            return f"  ! {name}: {entry.text}"
        if self.quiet:
            return None
        if entry.kind == "task":
            return f"  ▸ {name}: {one_line(entry.detail or entry.text, 80)}"
        if entry.topic == "resumed":
            return f"  ▸ {name} resumed: {one_line(entry.detail, 80)}"
        if entry.outcome is not None:
            return f"  {name} {_ended(entry.outcome)}"
        return None

    def _question_line(self, run_id: str, entry: Entry) -> str | None:
        """Return a line about a question to a person. On a terminal, the question itself appears instead."""
        if self.live:
            return None
        unnamed = self.agent if run_id == self.run_id else run_id[:8]
        return (
            f"? {self._names.get(run_id, unnamed)} {one_line(entry.text, 121)} (retinue inbox answer {entry.detail} …)"
        )

    def _line(self, step: StoryStep) -> str | None:
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
        """Return how the run ended, and the notes of the outcome that were not printed before, such as denials."""
        lines = []
        if not self.quiet:
            lines.append(f"{_ended(outcome)}{optional(' · {}', self.run_id[:8])}")
        for note in outcome.notes:
            # The record is omitted, because each call was shown when it ran.
            if note not in self._warned and not note.startswith(RECORD):
                lines.append(f"! {note}")
        return "\n".join(lines) or None

    def _stream(self, step: StoryStep) -> None:
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
    """Return a note as a line. Notes about the conversation are indented."""
    if entry.topic not in NOTE_SIGNS:
        return None
    sign = NOTE_SIGNS[entry.topic]
    return f"{'' if sign == '!' else '  '}{sign} {entry.text}"


def call_line(step: StoryStep) -> str | None:
    """Return a line about the start or the failure of a call."""
    entry = step.entry
    if entry.call is None:
        return None
    if step.change == "began" and entry.call.name not in SPAWNING:
        # A call that starts an agent is shown by the line of the agent.
        return f"  {entry.call.name} {summary(entry.call.arguments)}".rstrip()
    if step.change == "ended" and entry.result is not None and entry.result.is_error:
        return f"  ✗ {entry.call.name}: {one_line(entry.result.text, 160)}"
    return None


def _ended(outcome: Outcome) -> str:
    mark = RUN_SIGNS.get(outcome.ended, "✗")
    if outcome.shortfall:
        mark = "!"
    how = optional(", {}", outcome.shortfall)
    if outcome.evidence.denials:
        how += f", {plural(len(outcome.evidence.denials), 'call')} denied"
    parts = [f"{mark} {status_word(outcome.ended)}{how}", f"↻{outcome.turns}", plural(outcome.tool_uses, "tool use")]
    parts.append(format_used(outcome.usage, outcome.turns, outcome.model))
    if outcome.tree_usage is not None:
        parts.append(f"with its agents {format_tokens(outcome.tree_usage.total_tokens)}")
    return " · ".join([*parts, format_duration(outcome.duration_ms)])


def _tools(names: Sequence[str]) -> str:
    """Return as many of a run's tools as fit a line."""
    if not names:
        return "no tools"
    if len(names) <= MAX_NAMED_TOOLS:
        return ", ".join(names)
    return f"{', '.join(names[: MAX_NAMED_TOOLS - 1])} and {len(names) - MAX_NAMED_TOOLS + 1} more"


def summary(arguments: Mapping[str, Any], width: int = 100) -> str:
    """Return the scalar arguments of a call on one line, cut to `width`."""
    values = [str(value) for value in arguments.values() if isinstance(value, (str, int, float))]
    return one_line(" ".join(values), width)


async def show_run(retinue: Retinue, run: Run[Any], output: Output, *, quiet: bool = False) -> int:
    """Show the run until it ends, print the requested output, and return the exit code.

    The first Ctrl-C stops the run, which keeps its answers so far; the second stops waiting.
    """
    try:
        with _stop_on_interrupt(run):
            if output == "events":
                outcome = await _print_events(retinue, run)
            else:
                outcome = await _print_result(retinue, run, output, quiet)
    except RetinueError as error:
        # The log can no longer be written. The run has started and can be resumed later.
        error.run_id = run.id
        raise
    if output == "text" and not outcome.ok:
        _explain(run, outcome)
    return outcome.exit_code


async def _print_result(retinue: Retinue, run: Run, output: Output, quiet: bool) -> Outcome:
    """Print the answer, or the requested document, when the run has ended."""
    if output != "text":
        outcome = await _ended_by(retinue, run)
        print_json(run_document(run, outcome, output))
        return outcome
    progress = Progress(run.agent, run_id=run.id, quiet=quiet, answers=sys.stdout.isatty())
    outcome = await _show(retinue, run, progress)
    text = printed_answer(outcome)
    if text and not progress.has_shown(outcome.text):
        _print_answer(text)
    return outcome


def _print_answer(text: str) -> None:
    if can_style(sys.stdout):
        write_markdown(text, sys.stdout)
    else:
        print(text, flush=True)


async def _show(retinue: Retinue, run: Run, progress: Progress) -> Outcome:
    """Show the events of the run as they happen, and its own end last."""
    last: Event | None = None
    async for event in _all_events(retinue, run):
        if not run.is_new(event):
            progress.learn(event)
        elif event.run_id == run.id and isinstance(event.body, RunEnded):
            last = event
        else:
            progress.show(event)
    outcome = await _ended_by(retinue, run)
    if last is not None:
        progress.show(replace(last, body=RunEnded(outcome)))
    return outcome


async def _print_events(retinue: Retinue, run: Run) -> Outcome:
    """Print one JSON object per line, flushed, so that a reader sees each event at once."""
    last: Event | None = None
    async for event in _all_events(retinue, run):
        # Streamed text arrives in hundreds of pieces a second, so it is flushed with the next other event.
        print_json(event_to_json(event), flush=not isinstance(event.body, TextDelta))
        if event.run_id == run.id:
            last = event
    outcome = await _ended_by(retinue, run)
    if last is not None:
        print_json(outcome_to_json(last, outcome))
    sys.stdout.flush()
    return outcome


async def _all_events(retinue: Retinue, run: Run) -> AsyncIterator[Event]:
    """Yield every event of the run and of all runs below it.

    Runs below it that are still running when it has ended cannot outlive this program: they are stopped, and their ends
    are among the events.
    """
    seen: dict[str, int] = {}
    async for event in run.events(tree=True):
        seen[event.run_id] = event.seq
        yield event
    await _end_below(retinue, run)
    # Runs that were stopped just now have written their last events after the stream had ended.
    for event in run.recorded(tree=True, after=seen):
        yield event


async def _ended_by(retinue: Retinue, run: Run) -> Outcome:
    """Return the outcome with the final usage of the whole tree."""
    outcome = await run.wait()
    await _end_below(retinue, run)
    below = retinue.supervisor.members[run.id].below
    if below == Usage():
        return outcome
    return replace(outcome, tree_usage=outcome.usage + below)


async def _end_below(retinue: Retinue, run: Run) -> None:
    await retinue.supervisor.end_tree(retinue.supervisor.members[run.id], "The program ended.", by="program")


def _explain(run: Run, outcome: Outcome) -> None:
    """Print on stderr why the run failed, and how to resume it."""
    if outcome.failure is not None:
        say(f"retinue: {outcome.failure.message}")
        if outcome.failure.remedy:
            say(f"  {outcome.failure.remedy}")
    if outcome.partial and outcome.text:
        say("retinue: the text above is the agent's output before it failed")
    say(f"  Resume it with: retinue runs resume {run.id}")


def _stop_on_interrupt(run: Run) -> AbstractContextManager[None]:
    task = asyncio.current_task()
    pressed = False

    def interrupt(why: str) -> None:
        nonlocal pressed
        # The second Ctrl-C: stop waiting for a run that does not end.
        if pressed and task is not None:
            task.cancel()
        pressed = True
        run.stop_now(why)

    def hang_up() -> None:
        # Discard the remaining output, because the terminal is gone.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if stream.isatty():
                os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        run.stop_now("The terminal was closed.")

    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: partial(interrupt, "Interrupted from the terminal."),
        signal.SIGTERM: partial(interrupt, "The program was asked to end (SIGTERM)."),
    }
    # Windows has no SIGHUP. If it is ignored, nohup started us, and the run continues without its terminal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = hang_up
    return handle_signals(handlers)
