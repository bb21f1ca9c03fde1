"""A run in the foreground of a terminal: progress on stderr, the result on stdout, Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from retinue.core.events import TRANSIENT, Event, RunEnded, ThinkingDelta, ToolProgress
from retinue.core.outcome import Outcome
from retinue.core.usage import Usage
from retinue.faces.cli.output import escape_json
from retinue.faces.cli.progress import Progress
from retinue.faces.cli.project import for_reader, harmless

if TYPE_CHECKING:
    from retinue.faces.api import Retinue, Run

Output = Literal["text", "result", "events", "summary"]
"""text: the answer. result: the result object of `run --json`. events: every event as a line,
the outcome last. summary: the object of `-p --output-format json`."""


async def drive(retinue: Retinue, run: Run, output: Output, *, quiet: bool = False) -> int:
    """Shows the run until it ends and prints what was asked for. Gives the exit code.

    The first Ctrl-C stops the run, which keeps what it has said; the second gives up waiting.
    """
    with _stop_on_interrupt(run):
        if output == "events":
            outcome = await _print_events(retinue, run)
        else:
            silent = quiet or output != "text"
            progress = Progress(run.agent, run_id=run.id, quiet=silent, answers=sys.stdout.isatty())
            outcome = await _show(retinue, run, progress)
            if not (output == "text" and progress.has_shown(outcome.text)):
                print(_document(run, outcome, output), flush=True)
    if output == "text" and not outcome.ok:
        _explain(run, outcome)
    return outcome.exit_code


async def _show(retinue: Retinue, run: Run, progress: Progress) -> Outcome:
    """How the run itself ended is the last thing that is shown."""
    last: Event | None = None
    if not progress.quiet:
        async for event in _whole(retinue, run):
            if event.run_id == run.id and isinstance(event.body, RunEnded) and run.is_new(event):
                last = event
            else:
                (progress.show if run.is_new(event) else progress.learn)(event)
    outcome = await _ended(retinue, run)
    if last is not None:
        progress.show(replace(last, body=RunEnded(outcome)))
    return outcome


async def _print_events(retinue: Retinue, run: Run) -> Outcome:
    """One JSON object per line, flushed, so that a reader sees each as it happens."""
    from retinue.log.encode import event_to_json, outcome_to_json

    out = sys.stdout.buffer
    last: Event | None = None
    async for event in _whole(retinue, run):
        out.write(escape_json(event_to_json(event)) + b"\n")
        if not isinstance(event.body, TRANSIENT) or isinstance(event.body, (ThinkingDelta, ToolProgress)):
            out.flush()
        last = event if event.run_id == run.id else last
    outcome = await _ended(retinue, run)
    if last is not None:
        out.write(escape_json(outcome_to_json(last, outcome)) + b"\n")
    out.flush()
    return outcome


async def _whole(retinue: Retinue, run: Run) -> AsyncIterator[Event]:
    """Every event of the run and of all below it. What still works there when the run has ended
    cannot outlive this program: it is stopped, and how it ended comes, too."""
    seen: dict[str, int] = {}
    async for event in run.events(tree=True):
        seen[event.run_id] = event.seq
        yield event
    await _end_below(retinue, run)
    for event in run.recorded(tree=True):
        if event.seq > seen.get(event.run_id, 0):
            yield event


async def _ended(retinue: Retinue, run: Run) -> Outcome:
    """The outcome, with what the whole tree has used in the end."""
    outcome = await run.wait()
    await _end_below(retinue, run)
    below = retinue.supervisor.members[run.id].below
    return outcome if below == Usage() else replace(outcome, tree_usage=outcome.usage + below)


async def _end_below(retinue: Retinue, run: Run) -> None:
    await retinue.supervisor.end_tree(retinue.supervisor.members[run.id], "The program ended.", by="program")


def _document(run: Run, outcome: Outcome, output: Output) -> str:
    if output == "text":
        return for_reader(outcome.text) or "No output."
    from retinue.faces.cli.documents import result_document, summary_document

    return result_document(run, outcome) if output == "result" else summary_document(run, outcome)


def _explain(run: Run, outcome: Outcome) -> None:
    """Why it was not a success, and how to go on, in words on stderr."""
    if outcome.failure is not None:
        print(harmless(f"retinue: {outcome.failure.message}"), file=sys.stderr)
        if outcome.failure.remedy:
            print(harmless(f"  {outcome.failure.remedy}"), file=sys.stderr)
    if outcome.partial and outcome.text:
        print("retinue: the text above is what the agent had said before it failed", file=sys.stderr)
    print(f"  Go on with: retinue runs resume {run.id}", file=sys.stderr)


@contextlib.contextmanager
def _stop_on_interrupt(run: Run) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    pressed = False

    def interrupt() -> None:
        nonlocal pressed
        if pressed and task is not None:
            task.cancel()
        pressed = True
        run.stopper("Interrupted from the terminal.")

    def hang_up() -> None:
        _leave_terminal()
        run.stopper("The terminal was closed.")

    handlers = {"SIGINT": interrupt, "SIGTERM": interrupt, "SIGHUP": hang_up}
    numbers = {getattr(signal, name): handle for name, handle in handlers.items() if hasattr(signal, name)}
    if "SIGHUP" in signal.Signals.__members__ and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        del numbers[signal.SIGHUP]  # started by nohup: it goes on without its terminal
    try:
        for number, handle in numbers.items():
            loop.add_signal_handler(number, handle)
    except NotImplementedError:  # Windows: KeyboardInterrupt ends the program instead
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _leave_terminal() -> None:
    """A terminal that is gone takes no more words: those that are still to come go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
