"""Runs that work on other machines, as the process that started them sees them.

Such a run is a member of the tree like any other: it is steered and stopped by its controls, its parent waits for it
or hears of its end, and its events reach everyone who subscribed to it. What it does comes from the shared log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from msgspec.structs import replace

from retinue.core.events import Event, ToolEnded, TurnEnded, Warned
from retinue.core.outcome import Failure, Outcome
from retinue.core.usage import NO_LIMITS, NOTHING, Budget
from retinue.errors import RetinueError, StateError
from retinue.log.commands import CommandKind, RunCommand, annotate, send
from retinue.log.follow import PartialTexts, events_after, last_number
from retinue.log.query import LogReader
from retinue.runs.budget import Account, of_settings
from retinue.runs.execute import never_started

if TYPE_CHECKING:
    from retinue.core.request import RunRequest
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings

P = ParamSpec("P")
T = TypeVar("T")
LOOK_SECONDS = 0.1
COMPLAIN_SECONDS = 10.0
"""How long a run waits for a worker before it says why there is none."""


class Elsewhere(Protocol):
    """What sends runs of a project to other machines."""

    async def place(self, node: Run) -> None:
        """Send the run's workspace, give the run up in the log, and offer it. Raise RetinueError; then it is as
        before."""

    async def withdraw(self, node: Run) -> bool:
        """Take back a run that nobody serves yet. Return False when a worker has it, or has had it."""

    async def explain_waiting(self, node: Run) -> str | None:
        """Return why no worker can serve the run; None when one can."""

    async def close(self) -> None:
        """Let go of the connections."""

    async def collect(self, node: Run, outcome: Outcome) -> Outcome:
        """Bring back what the run has made. Return the outcome, which says what could not be brought."""


async def attend_elsewhere(node: Run, elsewhere: Elsewhere) -> None:
    """Send a run away and follow it until it has ended."""
    controls = node.controls
    try:
        await elsewhere.place(node)
    except RetinueError as error:
        failure = Failure("not_found", error.message, error.remedy)
        await never_started(node, "error", failure)
        return
    watch = node.project.part(RemoteWatch)
    line = CommandLine(node)
    ended = watch.follow(node)
    waiting = asyncio.create_task(_complain(node, elsewhere))
    try:
        controls.attach(line)
        controls.catch_up()
        line.wake()
        outcome = await _end_of(ended, node, elsewhere, line)
    except asyncio.CancelledError:
        node.break_off(StateError(f"Run {node.id} goes on elsewhere: nobody here waits for it any more."))
        raise
    finally:
        waiting.cancel()
        watch.forget(node)
        line.close()
    if outcome is None:
        return
    controls.close()
    node.settle(await elsewhere.collect(node, outcome))


async def _end_of(ended: asyncio.Future[Outcome], node: Run, elsewhere: Elsewhere, line: CommandLine) -> Outcome | None:
    """Return how it ended; None when it was stopped before anyone served it, and has its ending."""
    stopped = asyncio.ensure_future(line.stopped.wait())
    first: set[asyncio.Future[Any]] = {ended, stopped}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done() and await elsewhere.withdraw(node):
            await node.project.log.claim(node.id)
            await never_started(node, "stopped", Failure("stopped", "Stopped before it had started."))
            return None
        return await ended
    finally:
        stopped.cancel()


async def _complain(node: Run, elsewhere: Elsewhere) -> None:
    """Say in the run why nobody serves it, whenever the reason changes."""
    project = node.project
    said: str | None = None
    while True:
        await asyncio.sleep(COMPLAIN_SECONDS)
        if node.status != "queued":
            continue
        with contextlib.suppress(RetinueError):
            why = await elsewhere.explain_waiting(node)
            if why is not None and why != said:
                said = why
                await asyncio.to_thread(annotate, project.state, node.id, Warned("placement", why), project.redactor)


class CommandLine:
    """Passes on what is said to a run here to the worker that has it, in order. Fits `loop.controls.Listener`."""

    def __init__(self, node: Run) -> None:
        self._node = node
        self._queue: asyncio.Queue[RunCommand] = asyncio.Queue()
        self._task = asyncio.create_task(self._work(), name=f"commands for {node.id}")
        self.stopped = asyncio.Event()

    def wake(self) -> None:
        controls = self._node.controls
        for message in (*controls.take_steers(), *controls.take_follow_ups()):
            self._put("steer", message.text)

    def stop(self, reason: str) -> None:
        self._put("stop-tree", reason.removeprefix("Stopped by ").removesuffix("."))
        self.stopped.set()

    def waiting(self, call_id: str | None, begins: bool) -> None:
        """Its own waits are its worker's concern."""

    def close(self) -> None:
        self._task.cancel()

    def _put(self, kind: CommandKind, text: str) -> None:
        self._queue.put_nowait(RunCommand(self._node.id, kind, text))

    async def _work(self) -> None:
        while True:
            command = await self._queue.get()
            # It may be between two workers: what is said meanwhile is for the next one.
            for _ in range(100):
                with contextlib.suppress(RetinueError):
                    (answer,) = await send(self._node.project.state, [command])
                    if answer.accepted:
                        break
                await asyncio.sleep(0.3)


async def _finish_in_thread(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return what `work` gives, in a thread. Whoever is cancelled waits for its end: the connection that it uses is
    given to others then, and two at once wait for each other's answers for ever."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *given, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


class RemoteWatch:
    """Reads the log for all runs of this process that work elsewhere, and those below them: one reader, one question
    per change, and a cursor for each run."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._nodes: dict[str, Run] = {}
        self._ends: dict[str, asyncio.Future[Outcome]] = {}
        self._seen: dict[str, int] = {}
        self._above: dict[str, Run] = {}
        """The run of ours that each run below one belongs to."""
        self._task: asyncio.Task[None] | None = None

    def follow(self, node: Run) -> asyncio.Future[Outcome]:
        """Return the future end of a run, and let its events be known here until then."""
        end: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._nodes[node.id] = self._above[node.id] = node
        self._ends[node.id] = end
        self._seen[node.id] = 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read(), name="runs on other machines")
        return end

    def forget(self, node: Run) -> None:
        self._nodes.pop(node.id, None)
        self._ends.pop(node.id, None)
        for run_id in [run_id for run_id, above in self._above.items() if above is node]:
            del self._above[run_id]
            self._seen.pop(run_id, None)
        if not self._nodes and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _read(self) -> None:
        number, version, texts = -1, -1, PartialTexts()
        touched: set[str] = set()
        """Runs of which something is not known here yet, though the server went away meanwhile."""
        with LogReader.open(self._project.state) as reader:
            while True:
                try:
                    now = reader.version()
                    if now != version:
                        version = now
                        if number < 0:
                            number = await _finish_in_thread(last_number, reader)
                            touched |= set(self._nodes)
                        else:
                            page = await _finish_in_thread(events_after, reader, number)
                            for event in page:
                                texts.take(event)
                                if event.parent_id in self._above and event.run_id not in self._above:
                                    self._above[event.run_id] = self._above[event.parent_id]
                            touched |= {event.run_id for event in page} & self._above.keys()
                            if page:
                                number, version = page[-1].number, -1
                        for run_id in sorted(touched):
                            await self._bring(reader, run_id)
                            touched.discard(run_id)
                        self._stream(reader, texts)
                except StateError:
                    # The server is away for a moment; whoever writes reports it.
                    version = -1
                await asyncio.sleep(LOOK_SECONDS if version != -1 else 0)

    async def _bring(self, reader: LogReader, run_id: str) -> None:
        events = await _finish_in_thread(reader.events, run_id, self._seen.get(run_id, 0))
        for event in events:
            self._seen[run_id] = event.seq
            node = self._above.get(run_id)
            if node is not None:
                self._take(node, event)

    def _take(self, node: Run, event: Event) -> None:
        self._project.log.publish(event)
        body = event.body
        if isinstance(body, TurnEnded):
            node.account.charge(body.usage, turns=1)
        elif isinstance(body, ToolEnded):
            node.account.charge(NOTHING, tool_calls=1)
        if event.run_id != node.id:
            if isinstance(body, TurnEnded):
                node.charge_below(body.usage)
            return
        node.observe(event)
        outcome, end = node.state.outcome, self._ends.get(node.id)
        if outcome is not None and end is not None and not end.done():
            end.set_result(outcome)

    def _stream(self, reader: LogReader, texts: PartialTexts) -> None:
        for piece in texts.read(reader):
            place = piece.place
            if place.run_id in self._above:
                event = Event(place.run_id, place.parent_id, place.root_id, piece.seq, 0.0, piece.body)
                self._project.log.publish(event)


# What it may spend there, set aside before it leaves


def set_aside(request: RunRequest, settings: Settings, parent: Account | None) -> RunRequest:
    """Return the request of a run that works on another machine with all that it may spend there: nobody can ask this
    process then. Of what the tree has left it gets the share of one agent of those that work at once."""
    if parent is None:
        most = of_settings(settings)
    else:
        left, share = parent.remaining(), max(settings.max_concurrent, 1)
        most = Budget(
            tokens=_part(left.tokens, share),
            usd=None if left.usd is None else left.usd / share,
            turns=_part(left.turns, share),
            tool_calls=_part(left.tool_calls, share),
            seconds=left.seconds,
            spawns=_part(left.spawns, share),
        )
    if most == NO_LIMITS:
        return request
    return replace(request, budget=most if request.budget is None else request.budget.within(most))


def _part(amount: int | None, share: int) -> int | None:
    return None if amount is None else -(-amount // share)
