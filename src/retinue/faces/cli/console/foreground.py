"""A run in the foreground of a terminal: progress on stderr, the result on stdout, Ctrl-C.

In a JSON mode nothing but the document of the run reaches stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.app.answer_text import printed_answer
from retinue.app.documents import Output, run_document
from retinue.app.output import print_json
from retinue.core.events import Event, RunEnded, TextDelta
from retinue.core.outcome import Outcome
from retinue.core.usage import Usage
from retinue.errors import RetinueError
from retinue.faces.cli.console.markdown_stream import can_style, write_markdown
from retinue.faces.cli.console.progress import Progress
from retinue.faces.cli.project import say

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue, Run


async def drive(retinue: Retinue, run: Run[Any], output: Output, *, quiet: bool = False) -> int:
    """Show the run until it ends, print what was asked for, and return the exit code.

    The first Ctrl-C stops the run, which keeps what it has said; the second gives up waiting.
    """
    try:
        with _stop_on_interrupt(run):
            if output == "events":
                outcome = await _print_events(retinue, run)
            else:
                outcome = await _print_result(retinue, run, output, quiet)
    except RetinueError as error:
        # A log that cannot be written any more: the run has begun, and can go on later.
        error.run_id = run.id
        raise
    if output == "text" and not outcome.ok:
        _explain(run, outcome)
    return outcome.exit_code


async def _print_result(retinue: Retinue, run: Run, output: Output, quiet: bool) -> Outcome:
    """Print the answer, or the document that was asked for, when the run has ended."""
    if output != "text":
        outcome = await _ended(retinue, run)
        print(run_document(run, outcome, output), flush=True)
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
    """Show the events of the run as they come, and how it ended itself as the last of them."""
    last: Event | None = None
    async for event in _whole(retinue, run):
        if not run.is_new(event):
            progress.learn(event)
        elif event.run_id == run.id and isinstance(event.body, RunEnded):
            last = event
        else:
            progress.show(event)
    outcome = await _ended(retinue, run)
    if last is not None:
        progress.show(replace(last, body=RunEnded(outcome)))
    return outcome


async def _print_events(retinue: Retinue, run: Run) -> Outcome:
    """Print one JSON object per line, flushed, so that a reader sees each as it happens."""
    from retinue.core.encode import event_to_json, outcome_to_json

    last: Event | None = None
    async for event in _whole(retinue, run):
        # Streamed text comes in hundreds of pieces a second: those reach the reader with the next whole event.
        print_json(event_to_json(event), flush=not isinstance(event.body, TextDelta))
        if event.run_id == run.id:
            last = event
    outcome = await _ended(retinue, run)
    if last is not None:
        print_json(outcome_to_json(last, outcome))
    sys.stdout.flush()
    return outcome


async def _whole(retinue: Retinue, run: Run) -> AsyncIterator[Event]:
    """Yield every event of the run and of all runs below it.

    What still works there when the run has ended cannot outlive this program: it is stopped, and how it ended is
    among the events.
    """
    seen: dict[str, int] = {}
    async for event in run.events(tree=True):
        seen[event.run_id] = event.seq
        yield event
    await _end_below(retinue, run)
    # Runs that were stopped just now have written their last events after the stream had ended.
    for event in run.recorded(tree=True, after=seen):
        yield event


async def _ended(retinue: Retinue, run: Run) -> Outcome:
    """Return the outcome, with what the whole tree has used in the end."""
    outcome = await run.wait()
    await _end_below(retinue, run)
    below = retinue.supervisor.members[run.id].below
    if below == Usage():
        return outcome
    return replace(outcome, tree_usage=outcome.usage + below)


async def _end_below(retinue: Retinue, run: Run) -> None:
    await retinue.supervisor.end_tree(retinue.supervisor.members[run.id], "The program ended.", by="program")


def _explain(run: Run, outcome: Outcome) -> None:
    """Say on stderr why the run was not a success, and how to go on."""
    if outcome.failure is not None:
        say(f"retinue: {outcome.failure.message}")
        if outcome.failure.remedy:
            say(f"  {outcome.failure.remedy}")
    if outcome.partial and outcome.text:
        say("retinue: the text above is what the agent had said before it failed")
    say(f"  Go on with: retinue runs resume {run.id}")


@contextlib.contextmanager
def _stop_on_interrupt(run: Run) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    pressed = False

    def interrupt(why: str) -> None:
        nonlocal pressed
        # The second Ctrl-C: the run does not end by itself, so nobody waits for it any longer.
        if pressed and task is not None:
            task.cancel()
        pressed = True
        run.stop_now(why)

    def hang_up() -> None:
        # What is still to be printed is discarded: a terminal that is gone takes nothing more.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if stream.isatty():
                os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        run.stop_now("The terminal was closed.")

    numbers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: partial(interrupt, "Interrupted from the terminal."),
        signal.SIGTERM: partial(interrupt, "The program was asked to end (SIGTERM)."),
    }
    # Windows has no SIGHUP. Where it is ignored, nohup started us: the run goes on without its terminal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers[signal.SIGHUP] = hang_up
    try:
        for number, handle in numbers.items():
            loop.add_signal_handler(number, handle)
    except NotImplementedError:
        # Windows: KeyboardInterrupt ends the program instead.
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
