"""A run in the foreground of a terminal: progress on stderr, the result on stdout, Ctrl-C.

In a JSON mode nothing but the document of the run reaches stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from retinue.core.events import TRANSIENT, AssistantEnded, Event, RunEnded, ThinkingDelta, ToolProgress
from retinue.core.outcome import Outcome
from retinue.core.usage import Usage
from retinue.errors import RetinueError
from retinue.faces.cli.console.markdown_stream import can_style, write_markdown
from retinue.faces.cli.console.output import print_json
from retinue.faces.cli.console.progress import Progress
from retinue.faces.cli.project import printed_answer, say
from retinue.log.encode import dump
from retinue.models.keys import environment as process_environment
from retinue.runs.handle import Run, RunHandle, handle_of

if TYPE_CHECKING:
    from retinue.faces.api import Retinue
    from retinue.loop.result import ErrorCode

# text: the answer. result: the result object of `run --json`. events: every event as a line, the outcome last.
# summary: the object of `-p --output-format json`.
Output = Literal["text", "result", "events", "summary"]


async def drive(retinue: Retinue, started: Run[Any], output: Output, *, quiet: bool = False) -> int:
    """Show the run until it ends, print what was asked for, and return the exit code.

    The first Ctrl-C stops the run, which keeps what it has said; the second gives up waiting.
    """
    run = handle_of(started)
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


async def _print_result(retinue: Retinue, run: RunHandle, output: Output, quiet: bool) -> Outcome:
    """Print the answer, or the document that was asked for, when the run has ended."""
    if output != "text":
        outcome = await _ended(retinue, run)
        print(_document(run, outcome, output), flush=True)
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


async def _show(retinue: Retinue, run: RunHandle, progress: Progress) -> Outcome:
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


async def _print_events(retinue: Retinue, run: RunHandle) -> Outcome:
    """Print one JSON object per line, flushed, so that a reader sees each as it happens."""
    from retinue.log.encode import event_to_json, outcome_to_json

    last: Event | None = None
    async for event in _whole(retinue, run):
        # Streamed text comes in hundreds of pieces a second: those reach the reader with the next whole event.
        whole = not isinstance(event.body, TRANSIENT) or isinstance(event.body, (ThinkingDelta, ToolProgress))
        print_json(event_to_json(event), flush=whole)
        if event.run_id == run.id:
            last = event
    outcome = await _ended(retinue, run)
    if last is not None:
        print_json(outcome_to_json(last, outcome))
    sys.stdout.flush()
    return outcome


async def _whole(retinue: Retinue, run: RunHandle) -> AsyncIterator[Event]:
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


async def _ended(retinue: Retinue, run: RunHandle) -> Outcome:
    """Return the outcome, with what the whole tree has used in the end."""
    outcome = await run.wait()
    await _end_below(retinue, run)
    below = retinue.supervisor.members[run.id].below
    if below == Usage():
        return outcome
    return replace(outcome, tree_usage=outcome.usage + below)


async def _end_below(retinue: Retinue, run: RunHandle) -> None:
    await retinue.supervisor.end_tree(retinue.supervisor.members[run.id], "The program ended.", by="program")


def _document(run: RunHandle, outcome: Outcome, output: Output) -> str:
    if output == "result":
        return result_document(run, outcome)
    return summary_document(run, outcome)


def _explain(run: RunHandle, outcome: Outcome) -> None:
    """Say on stderr why the run was not a success, and how to go on."""
    if outcome.failure is not None:
        say(f"retinue: {outcome.failure.message}")
        if outcome.failure.remedy:
            say(f"  {outcome.failure.remedy}")
    if outcome.partial and outcome.text:
        say("retinue: the text above is what the agent had said before it failed")
    say(f"  Go on with: retinue runs resume {run.id}")


@contextlib.contextmanager
def _stop_on_interrupt(run: RunHandle) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    pressed = False

    def interrupt(why: str) -> None:
        nonlocal pressed
        # The second Ctrl-C: the run does not end by itself, so nobody waits for it any longer.
        if pressed and task is not None:
            task.cancel()
        pressed = True
        run.stopper(why)

    def hang_up() -> None:
        # What is still to be printed is discarded: a terminal that is gone takes nothing more.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if stream.isatty():
                os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        run.stopper("The terminal was closed.")

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


# Documents


def result_document(run: RunHandle, outcome: Outcome) -> str:
    """Return the object of `retinue run --json`."""
    from retinue.guard.redact import Redactor, sanitise
    from retinue.loop.result import RunReport, display_items, result_object

    redactor = Redactor(process_environment())
    types = ("assistant.ended",)
    messages = [event.body.message for event in run.recorded(types=types) if isinstance(event.body, AssistantEnded)]
    report = RunReport(
        agent=run.agent,
        task=run.launch.request.task,
        outcome=outcome,
        session_file=run.launch.transcript,
        display_items=display_items(messages),
    )
    return _text(
        result_object(report, run_id=run.id, sanitise=lambda text: sanitise(text, process_environment(), redactor))
    )


def refusal(error: RetinueError, output: Output) -> str:
    """Return what stands on stdout instead of the result of a run that never started, or that lost its log."""
    status = "interrupted" if error.run_id else "refused"
    if output == "result":
        from retinue.loop.result import refused

        codes: dict[str, ErrorCode] = {"UNKNOWN_AGENT": "UNKNOWN_AGENT", "AGENT_DISABLED": "SUBAGENT_DISABLED"}
        other: ErrorCode = "INVALID_INPUT" if error.exit_code == 2 else "SUBAGENT_FAILED"
        return _text(refused(codes.get(error.code, other), str(error), run_id=error.run_id))
    if output == "events":
        # The last and only line of a stream of events.
        place = {"run_id": error.run_id, "parent_id": None, "root_id": None, "seq": 0, "at": time.time()}
        failure = {"kind": error.code, "message": error.message, "remedy": error.remedy}
        return _text({"type": "outcome", **place, "ended": status, "failure": failure})
    refusal = {"code": error.code, "message": error.message, "remedy": error.remedy}
    return _text({"type": "result", "run_id": error.run_id, "status": status, "is_error": True, "error": refusal})


def delivered_summary(run_id: str, agent: str) -> str:
    """Return the same where an agent of another process was told something."""
    return _text({"type": "result", "run_id": run_id, "agent": agent, "status": "delivered", "is_error": False})


def summary_document(run: RunHandle, outcome: Outcome) -> str:
    """Return the object of `retinue -p --output-format json`."""
    error = None
    if outcome.failure is not None:
        failure = outcome.failure
        error = {"code": failure.kind, "message": failure.message, "remedy": failure.remedy}
    return _text(
        {
            "type": "result",
            "run_id": run.id,
            "agent": run.agent,
            "status": outcome.ended,
            "is_error": not outcome.ok,
            "result": outcome.text,
            "partial": outcome.partial,
            "truncated": outcome.truncated,
            "shortfall": outcome.shortfall or None,
            "value": outcome.value,
            "error": error,
            "limit": outcome.limit,
            "model": outcome.model or run.launch.model_name,
            "turns": outcome.turns,
            "tool_uses": outcome.tool_uses,
            "duration_ms": outcome.duration_ms,
            "usage": outcome.usage,
            "usage_known": outcome.usage.is_counted(outcome.turns, outcome.model),
            "tree_usage": outcome.tree_usage,
            "evidence": outcome.evidence,
            "branch": outcome.branch,
            "notes": outcome.notes,
            "transcript": run.launch.transcript,
        }
    )


def _text(document: dict[str, Any]) -> str:
    return dump(document).decode()
