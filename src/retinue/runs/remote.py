"""Runs that work on other machines, as the process that started them sees them.

Such a run is a member of the tree like any other: its controls steer and stop it, its parent waits for it or is
notified of its completion, and its subscribers get its events. They come from the shared log.
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

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
LOG_POLL_SECONDS = 0.1
EXPLAIN_SECONDS = 10.0
"""How often a run that waits for a worker checks why there is none."""


class RemoteSender(Protocol):
    """Sends runs of a project to other machines."""

    async def place(self, node: Run) -> None:
        """Send the run's workspace, release the run in the log, and offer it. Raise RetinueError; then nothing has
        changed."""

    async def withdraw(self, node: Run) -> bool:
        """Withdraw the offer of a run. Return False if a worker has it, or has had it."""

    async def explain_waiting(self, node: Run) -> str | None:
        """Return why no worker can serve the run; None if one can."""

    async def close(self) -> None:
        """Close the connections."""

    async def collect(self, node: Run, outcome: Outcome) -> Outcome:
        """Fetch the results of the run. Return the outcome with notes about what could not be fetched."""


async def execute_remotely(node: Run, sender: RemoteSender) -> None:
    """Send a run to another machine, and follow it until it has ended."""
    controls = node.controls
    try:
        await sender.place(node)
    except RetinueError as error:
        failure = Failure("not_found", error.message, error.remedy)
        await never_started(node, "error", failure)
        return
    watch = node.project.part(RemoteWatch)
    forwarder = CommandForwarder(node)
    ended = watch.follow(node)
    explaining = asyncio.create_task(_explain_waiting(node, sender))
    try:
        controls.attach(forwarder)
        controls.catch_up()
        forwarder.wake()
        outcome = await _wait_end(ended, node, sender, forwarder)
    except asyncio.CancelledError:
        node.break_off(StateError(f"Run {node.id} continues on another machine: this process stops waiting for it."))
        raise
    finally:
        explaining.cancel()
        watch.forget(node)
        forwarder.close()
    if outcome is None:
        return
    controls.close()
    node.settle(await sender.collect(node, outcome))


async def _wait_end(
    ended: asyncio.Future[Outcome], node: Run, sender: RemoteSender, forwarder: CommandForwarder
) -> Outcome | None:
    """Return the outcome of the run; None if it was stopped before a worker took it, which ends it here."""
    stopped = asyncio.ensure_future(forwarder.stopped.wait())
    waiting: set[asyncio.Future[Any]] = {ended, stopped}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done() and await sender.withdraw(node):
            await node.project.log.claim(node.id)
            await never_started(node, "stopped", Failure("stopped", "Stopped before it had started."))
            return None
        return await ended
    finally:
        stopped.cancel()


async def _explain_waiting(node: Run, sender: RemoteSender) -> None:
    """Record a warning with the reason why no worker serves the run, whenever the reason changes."""
    project = node.project
    recorded: str | None = None
    while True:
        await asyncio.sleep(EXPLAIN_SECONDS)
        if node.status != "queued":
            continue
        with contextlib.suppress(RetinueError):
            reason = await sender.explain_waiting(node)
            if reason is not None and reason != recorded:
                recorded = reason
                warning = Warned("placement", reason)
                await asyncio.to_thread(annotate, project.state, node.id, warning, project.redactor)


class CommandForwarder:
    """Forwards messages and commands for a run to its worker, in order. Implements `loop.controls.Listener`."""

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
        """Do nothing: the worker handles the waits of the run."""

    def close(self) -> None:
        self._task.cancel()

    def _put(self, kind: CommandKind, text: str) -> None:
        self._queue.put_nowait(RunCommand(self._node.id, kind, text))

    async def _work(self) -> None:
        while True:
            command = await self._queue.get()
            # While the run moves between two workers, wait for the next one.
            for _ in range(100):
                with contextlib.suppress(RetinueError):
                    (answer,) = await send(self._node.project.state, [command])
                    if answer.accepted:
                        break
                await asyncio.sleep(0.3)


async def _finish_in_thread(
    work: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
) -> Result:
    """Return the result of `work`, called in a thread. Cancellation waits for its end, because its connection is used
    again afterwards, and two threads on one connection would block each other."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **options))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


class RemoteWatch:
    """Reads the log for all runs of this process on other machines and all runs below them: with one reader, one query
    per change, and a cursor for each run."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._nodes: dict[str, Run] = {}
        self._ends: dict[str, asyncio.Future[Outcome]] = {}
        self._seen: dict[str, int] = {}
        self._above: dict[str, Run] = {}
        """The followed run above each run, by its id."""
        self._task: asyncio.Task[None] | None = None

    def follow(self, node: Run) -> asyncio.Future[Outcome]:
        """Return the future outcome of a run, and publish its events until then."""
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
        """Runs with unread events. They stay in the set if the server becomes unavailable."""
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
                            await self._read_events(reader, run_id)
                            touched.discard(run_id)
                        self._stream(reader, texts)
                except StateError:
                    # The server is temporarily unavailable, which writers report.
                    version = -1
                await asyncio.sleep(LOG_POLL_SECONDS if version != -1 else 0)

    async def _read_events(self, reader: LogReader, run_id: str) -> None:
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
            run = piece.place
            if run.run_id in self._above:
                event = Event(run.run_id, run.parent_id, run.root_id, piece.seq, 0.0, piece.body)
                self._project.log.publish(event)


def with_own_budget(request: RunRequest, settings: Settings, parent: Account | None) -> RunRequest:
    """Return the request of a run on another machine with its complete budget, because it cannot ask this process
    there. It gets the share of one of `max_concurrent` agents in the remaining budget of the tree."""
    if parent is None:
        budget = of_settings(settings)
    else:
        remaining, agents = parent.remaining(), max(settings.max_concurrent, 1)
        budget = Budget(
            tokens=_share(remaining.tokens, agents),
            usd=None if remaining.usd is None else remaining.usd / agents,
            turns=_share(remaining.turns, agents),
            tool_calls=_share(remaining.tool_calls, agents),
            seconds=remaining.seconds,
            spawns=_share(remaining.spawns, agents),
        )
    if budget == NO_LIMITS:
        return request
    return replace(request, budget=budget if request.budget is None else request.budget.within(budget))


def _share(amount: int | None, agents: int) -> int | None:
    return None if amount is None else -(-amount // agents)
