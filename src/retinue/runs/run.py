"""A run of this process: its state, its controls, and its position in the tree.

A run that is resumed stays the same object and begins its next attempt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from heapq import merge
from typing import TYPE_CHECKING, Any, Generic, Protocol

from msgspec.structs import asdict, replace

from retinue.core.clock import Clock
from retinue.core.delegation import Status
from retinue.core.events import TRANSIENT, Body, Event, RunEnded
from retinue.core.outcome import Outcome, StoppedBy, Value
from retinue.core.permission import NO_HOOKS
from retinue.core.run_state import COUNTED, MOVING, ActiveRun, RunPlace, RunState
from retinue.core.usage import NOTHING, Usage
from retinue.errors import StateError
from retinue.log.query import PAGE_EVENTS
from retinue.loop.job import Controls
from retinue.runs.launch import T

if TYPE_CHECKING:
    from retinue.core.messages import Image
    from retinue.core.permission import Hooks
    from retinue.core.spec import PermissionMode
    from retinue.core.tool import Reply, RunDialogue
    from retinue.log.replay import Conversation
    from retinue.runs.budget import Account
    from retinue.runs.launch import Launch
    from retinue.runs.project import Project


_NO_IDS: frozenset[str] = frozenset()
_PUBLIC = ("agent", "events", "id", "outcome", "steer", "stop", "wait")


class RunController(Protocol):
    """Starts, steers and stops runs: the supervisor."""

    project: Project
    clock: Clock

    def steer(self, node: Any, text: str, images: Sequence[Image] = ()) -> bool: ...
    def stop(self, run: Any, reason: str) -> bool: ...


class SlotQueue(Protocol):
    """The queue with the slot of a background run."""

    def position(self, run_id: str) -> int | None: ...
    def pause(self, run_id: str) -> None: ...
    def leave(self, run_id: str) -> None: ...
    async def resume(self, run_id: str) -> None: ...


class PlanReceiver(Protocol):
    """Receives the plan of a run in plan mode, and changes its mode."""

    async def submit_plan(self, plan: str, call_id: str) -> Reply: ...
    async def change(self, mode: PermissionMode) -> None: ...


class Run(Generic[Value]):
    """A run of this process. It is recorded in the log before the caller gets it, and continues even without a
    reference to it. `Value` is the type of its structured result."""

    def __init__(
        self, supervisor: RunController, place: RunPlace, launch: Launch, account: Account, parent: Run | None = None
    ) -> None:
        self.supervisor = supervisor
        self.place = place
        self.parent = parent
        self.children: list[Run] = []
        self.cleared = _NO_IDS
        """Children that are no longer listed."""
        self.state = ActiveRun(place.run_id, place.parent_id, place.root_id)
        self.below: Usage = NOTHING
        """The usage of all runs below it."""
        self.queues = True
        """Whether it needs a slot in the background."""
        self.attempt = 0
        """The number of its starts. A completion belongs to one attempt."""
        self.begin(launch, account)

    # Not attributes: an object with more than thirty loses the keys that Python shares, which are 1.3 kB.
    @property
    def project(self) -> Project:
        return self.supervisor.project

    @property
    def clock(self) -> Clock:
        return self.supervisor.clock

    def begin(self, launch: Launch, account: Account) -> None:
        """Begin the next attempt. Counts continue, and the state of the last end is reset."""
        self.launch = launch
        self.mode, self.readonly, self.tools = launch.mode, launch.readonly, launch.tools
        """The present values. A person may change the mode of a main run."""
        self.account = account
        """Its budget, and the usage of it and all runs below it."""
        self.controls = Controls()
        if launch.gate is not None:
            launch.gate.waiting = self.controls.waiting
        self.attempt += 1
        self.state.requeue()
        # Whoever starts an attempt with a type of result says so again.
        self._read_value: Callable[[Any], Any] | None = None
        self.notes = launch.notes
        self.end_notes: list[str] = []
        """Notes of capabilities for its outcome."""
        self.hooks: Hooks = NO_HOOKS
        """The hooks that are called for its events."""
        self.plan_mode: PlanReceiver | None = None
        """Receives the plan of a main run, and changes of its mode."""
        self.dialogue: RunDialogue | None = None
        """The to-do list and the questions of this attempt."""
        self.queue: SlotQueue | None = None
        """The queue with its slot; None if it needs none."""
        self.stopped_by: StoppedBy | None = None
        self.consumed = self.announced = False
        self.detached: asyncio.Event | None = None
        """Set when a foreground run is moved to the background, which ends the wait for it. It is created on first use,
        because few runs need it and an event costs 1 kB."""
        self._parts = dict(launch.state)
        self._made_at = time.time()
        self._ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def __dir__(self) -> list[str]:
        # What a person at a prompt or in a notebook is offered.
        return [*_PUBLIC, *(name for name in super().__dir__() if name.startswith("__"))]

    # For programs

    @property
    def id(self) -> str:
        """Return the id, which every command takes: `retinue runs show ID`."""
        return self.place.run_id

    @property
    def agent(self) -> str:
        """Return the name of the agent."""
        return self.launch.request.spec.name

    @property
    def outcome(self) -> Outcome[Value] | None:
        """Return its outcome; None while it is live, also after it was resumed."""
        over = self.over and not self._ended.cancelled() and self._ended.exception() is None
        return self._typed(self._ended.result()) if over else None

    async def events(self, *, tree: bool = False) -> AsyncIterator[Event]:
        """Yield every event from the first one on, each after it is in the log, until the run ends. With `tree` also
        those of all runs below it. May be called at any time: what has happened before comes first. Raise StateError
        when the run cannot be recorded any more."""
        log, place = self.project.log, self.place
        subscription = log.subscribe(root_id=place.root_id) if tree else log.subscribe(run_id=self.id)

        def stop_listening(_: object) -> None:
            # No event tells that a run cannot be recorded any more.
            if self.failure is not None:
                subscription.close()

        self._ended.add_done_callback(stop_listening)
        await log.flush()
        seen: dict[str, int] = {}
        ours = {self.id}
        for number, event in enumerate(self._written(tree)):
            seen[event.run_id] = event.seq
            if _is_of(ours, event):
                yield event
            if number % PAGE_EVENTS == PAGE_EVENTS - 1:
                # The past of a run may be long, and others are at work.
                await asyncio.sleep(0)
        if self.outcome is not None:
            subscription.close()
            return
        async for event in subscription:
            last = seen.get(event.run_id, 0)
            if not _is_of(ours, event):
                continue
            if event.seq > last or (event.seq == last and isinstance(event.body, TRANSIENT)):
                yield event
            if event.run_id == self.id and isinstance(event.body, RunEnded):
                subscription.close()
                return
        if self.failure is not None:
            raise self.failure

    async def steer(self, text: str) -> bool:
        """Send a message to the agent, which reads it after its current tool calls. Return False once it has ended."""
        return self.steer_now(text)

    async def stop(self, reason: str = "Stopped by the user.") -> bool:
        """Stop the run, and keep its answers. Return False once it has ended."""
        return self.stop_now(reason)

    async def wait(self) -> Outcome[Value]:
        """Return the outcome, whatever it is: a failed run does not raise. Cancelling the wait leaves the run alone."""
        return self._typed(await asyncio.shield(self._ended))

    def _typed(self, outcome: Outcome) -> Outcome:
        if self._read_value is None or outcome.value is None:
            return outcome
        return replace(outcome, value=self._read_value(outcome.value))

    def read_value(self, read: Callable[[Any], Any]) -> None:
        """Let `read` convert the JSON value of the outcome."""
        self._read_value = read

    # What it does

    @property
    def depth(self) -> int:
        return self.launch.request.depth

    @property
    def live(self) -> bool:
        return self.state.live

    @property
    def status(self) -> Status:
        return self.state.status

    def put(self, value: object) -> None:
        """Store `value` for this attempt of the run, under its type."""
        self._parts[type(value)] = value

    def get(self, kind: type[T]) -> T | None:
        """Return the value that a capability has stored for this attempt, or None."""
        part = self._parts.get(kind)
        return part if isinstance(part, kind) else None

    def record(self, body: Body) -> Event:
        """Write an event of the run to the log, and apply it. Raise StateError if it cannot be recorded."""
        event = self.project.log.append(self.place, body)
        self.observe(event)
        return event

    def observe(self, event: Event) -> None:
        """Apply one event of the run. It is called for every event, so it must be quick."""
        kind = type(event.body)
        if kind not in COUNTED:
            return
        if kind in MOVING:
            event = replace(event, at=self.clock.now())
        before = self.state.usage
        self.state.apply(event)
        if self.state.usage is not before and self.parent is not None:
            self.parent.charge_below(_more(self.state.usage, before))

    def charge_below(self, usage: Usage) -> None:
        """Add the usage of a run below this one."""
        above: Run | None = self
        while above is not None:
            above.below += usage
            above = above.parent

    def recall(self, row: RunState, past: Conversation, below: Usage) -> None:
        """Restore the state of the run's earlier attempts from the log."""
        self.state = ActiveRun(**asdict(row))
        self.state.requeue()
        if row.description == row.agent:
            # It was given none: its task says what it is about.
            self.state.description = ""
        self.state.usage, self.state.turns = past.usage, past.turn
        self.state.tool_uses, self.state.compactions = past.tool_uses, past.compactions
        self.below = below

    @asynccontextmanager
    async def release_slot(self) -> AsyncIterator[None]:
        """Release the slot while the run waits for a person, and wait for a slot afterwards."""
        if self.queue is not None:
            self.queue.pause(self.id)
        yield
        # It may have been moved to the background in the meantime.
        if self.queue is not None:
            self.state.state = "waiting"
            await self.queue.resume(self.id)
            self.state.state = "waiting" if self.state.asks else "running"

    def release(self) -> None:
        """Remove references in cycles, so that an ended run is freed without the garbage collector."""
        self.parent = self.plan_mode = self.dialogue = None
        self.hooks, self._parts, self.children = NO_HOOKS, {}, []

    def descendants(self) -> list[Run]:
        return [run for child in self.children for run in (child, *child.descendants())]

    # Its past

    def is_new(self, event: Event) -> bool:
        """Return whether an event happened since this process started or resumed the run."""
        return event.at >= self._made_at

    def _written(
        self, tree: bool, after: Mapping[str, int] | None = None, types: Collection[str] = ()
    ) -> Iterator[Event]:
        """Yield the events in the log, read a few at a time, ordered by time; those of each run stay in order."""
        reader, known = self.project.log.reader, after or {}
        runs = {self.id: None}
        if tree:
            # Oldest first: a run comes after the one that started it.
            for row in reversed(reader.list_runs(root_id=self.place.root_id)):
                if row.parent_id in runs:
                    runs[row.id] = None
        streams = [reader.stream(run, after=known.get(run, 0), types=types) for run in runs]
        return merge(*streams, key=lambda event: event.at)

    def recorded(
        self, *, tree: bool = False, after: Mapping[str, int] | None = None, types: Collection[str] = ()
    ) -> list[Event]:
        """Return the durable events in the log; with `tree` also those of all runs below it. `after` has the numbers of
        known events by run id; with `types` only events of these types are read."""
        return list(self._written(tree, after, types))

    # Its end

    def steer_now(self, text: str, images: Sequence[Image] = ()) -> bool:
        """Do the same as `steer`, but synchronously and with images."""
        return self.supervisor.steer(self, text, images)

    def stop_now(self, reason: str) -> bool:
        """Do the same as `stop`, but synchronously."""
        return self.supervisor.stop(self, reason)

    def detach(self) -> None:
        """Continue in the background, and end the wait for the run."""
        self._detachment().set()

    def _detachment(self) -> asyncio.Event:
        if self.detached is None:
            self.detached = asyncio.Event()
        return self.detached

    async def settled_or_detached(self) -> None:
        ended = asyncio.ensure_future(self.wait_settled())
        moved = asyncio.ensure_future(self._detachment().wait())
        try:
            await asyncio.wait({ended, moved}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            moved.cancel()

    async def wait_settled(self) -> None:
        """Wait until the run is over, without its outcome."""
        await asyncio.wait({self._ended})

    def settle(self, outcome: Outcome) -> None:
        if not self._ended.done():
            self._ended.set_result(outcome)

    @property
    def over(self) -> bool:
        """Whether the run has ended, or was left without an ending."""
        return self._ended.done()

    @property
    def failure(self) -> StateError | None:
        """The reason why the run was left without an ending; None while it is live, and once it has ended."""
        over = self._ended.done() and not self._ended.cancelled()
        error = self._ended.exception() if over else None
        return error if isinstance(error, StateError) else None

    def break_off(self, error: StateError) -> None:
        """Pass the reason why the run cannot be recorded any more to all who wait."""
        if not self._ended.done():
            self._ended.set_exception(error)
            # Mark it as retrieved: it is raised to those who wait, and asyncio does not report it at exit.
            self._ended.exception()

    def snapshot(self) -> ActiveRun:
        """Return a copy of the run's present state for its parent. The copy does not change."""
        state, launch, outcome = copy(self.state), self.launch, self.outcome
        if state.state == "running" and self.controls.is_waiting:
            state.state = "waiting"
        state.updated_at, state.outcome = self.clock.now(), outcome
        state.window, state.transcript, state.consumed = launch.model.info.window, launch.transcript, self.consumed
        state.queue_position = self.queue.position(self.id) if self.queue is not None else None
        state.notes = (*self.notes, *(outcome.notes if outcome else ()))
        return state


def _more(total: Usage, counted: Usage) -> Usage:
    """Return the difference of `total` and `counted`. Its cost is unknown if one of theirs is."""
    cost = None
    if total.cost_usd is not None and counted.cost_usd is not None:
        cost = max(total.cost_usd - counted.cost_usd, 0.0)
    return Usage(
        max(total.input - counted.input, 0),
        max(total.output - counted.output, 0),
        max(total.cache_read - counted.cache_read, 0),
        max(total.cache_write - counted.cache_write, 0),
        cost,
    )


def _is_of(ours: set[str], event: Event) -> bool:
    """Return whether an event belongs to one of these runs or to a run below them, which is then added to the set. A
    run is created before all runs below it."""
    if event.run_id not in ours:
        if event.parent_id not in ours:
            return False
        ours.add(event.run_id)
    return True
