"""What others hold of a run while it goes on: watch it, steer it, stop it, wait for it."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any, Generic, Protocol

from msgspec.structs import replace

from retinue.core.events import TRANSIENT, Event, RunEnded
from retinue.core.outcome import Outcome, Value
from retinue.errors import StateError
from retinue.log.run_events import PAGE
from retinue.loop.controls import Controls

if TYPE_CHECKING:
    from retinue.core.messages import Image
    from retinue.core.outcome import StoppedBy
    from retinue.core.request import RunRequest
    from retinue.log.rows import RunPlace
    from retinue.runs.launch import Launch
    from retinue.runs.project import Project


class Run(ABC, Generic[Value]):
    """A run of this process, as programs see it. It is recorded in the log before anyone holds it, and goes on
    whether or not anyone keeps it. `Value` is the type of its structured result."""

    @property
    @abstractmethod
    def id(self) -> str:
        """Return the id, which every command takes: `retinue runs show ID`."""

    @property
    @abstractmethod
    def agent(self) -> str:
        """Return the name of the agent."""

    @property
    @abstractmethod
    def outcome(self) -> Outcome[Value] | None:
        """Return how it ended; None while it goes on."""

    @abstractmethod
    def events(self, *, tree: bool = False) -> AsyncIterator[Event]:
        """Yield every event from the first one on, each after it is in the log, until the run ends. With `tree` also
        those of all runs below it. May be called at any time: what has happened before comes first."""

    @abstractmethod
    async def steer(self, text: str) -> bool:
        """Say something to the agent after its current tool calls. Return False once it has ended."""

    @abstractmethod
    async def stop(self, reason: str = "Stopped by the user.") -> bool:
        """End the run as `stopped` and keep what it has said. Return False once it has ended."""

    @abstractmethod
    async def wait(self) -> Outcome[Value]:
        """Return the outcome, whatever it is: a failed run does not raise. Cancelling the wait leaves the run alone."""


_PUBLIC = ("agent", "events", "id", "outcome", "steer", "stop", "wait")


class RunController(Protocol):
    """What starts, steers and stops runs: the supervisor."""

    project: Project
    members: dict[str, Any]
    """The runs of this process in their tree, by id."""

    def steer(self, node: Any, text: str, images: Sequence[Image] = ()) -> bool: ...
    def stop(self, node: Any, reason: str, *, by: StoppedBy = "person") -> bool: ...
    async def start(self, request: RunRequest, *, parent: Any, description: str, background: bool) -> Any: ...
    async def resume(self, id_or_prefix: str, prompt: str, *, parent: Any, background: bool) -> Any: ...


class RunHandle(Run[Any]):
    """The run as the engine and other faces hold it."""

    def __init__(self, supervisor: RunController, place: RunPlace, launch: Launch) -> None:
        self.place = place
        self.launch = launch
        self.controls = Controls()
        self.supervisor = supervisor
        self._log = supervisor.project.log
        self._made_at = time.time()
        self._ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._read_value: Callable[[Any], Any] | None = None

    def __dir__(self) -> list[str]:
        # What a person at a prompt or in a notebook is offered.
        return [*_PUBLIC, *(name for name in super().__dir__() if name.startswith("__"))]

    def read_value(self, read: Callable[[Any], Any]) -> None:
        """Let `read` make the value of the outcome from what JSON holds."""
        self._read_value = read

    @property
    def project(self) -> Project:
        return self.supervisor.project

    @property
    def id(self) -> str:
        return self.place.run_id

    @property
    def agent(self) -> str:
        return self.launch.request.spec.name

    @property
    def outcome(self) -> Outcome | None:
        """None until the run has ended."""
        over = self._ended.done() and not self._ended.cancelled() and self._ended.exception() is None
        return self._typed(self._ended.result()) if over else None

    def _typed(self, outcome: Outcome) -> Outcome:
        if self._read_value is None or outcome.value is None:
            return outcome
        return replace(outcome, value=self._read_value(outcome.value))

    async def events(self, *, tree: bool = False) -> AsyncIterator[Event]:
        """Every event from the first one on, each after it is in the log; ends with the run.
        With `tree` those of all runs below it, too. Raises StateError when the run cannot be
        recorded any more.

        Safe to start at any time: what is already written comes from the log, the rest live.
        """
        place = self.place
        subscription = self._log.subscribe(root_id=place.root_id) if tree else self._log.subscribe(run_id=self.id)

        def stop_listening(_: object) -> None:
            # No event tells that a run cannot be recorded any more.
            if self.failure is not None:
                subscription.close()

        self._ended.add_done_callback(stop_listening)
        await self._log.flush()
        seen: dict[str, int] = {}
        ours = {self.id}
        for number, event in enumerate(self._written(tree)):
            seen[event.run_id] = event.seq
            if _is_of(ours, event):
                yield event
            if number % PAGE == PAGE - 1:
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

    def is_new(self, event: Event) -> bool:
        """Whether it happened since the run was started or taken up by this process."""
        return event.at >= self._made_at

    def _written(
        self, tree: bool, after: Mapping[str, int] | None = None, types: Collection[str] = ()
    ) -> Iterator[Event]:
        """The events in the log, a few at a time, ordered by time and each run's in order."""
        reader, known = self._log.reader, after or {}
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
        """The durable events in the log so far; with `tree` those of all runs below it, too. `after` are the numbers
        of events that are known, by the ids of their runs; with `types` only those are read."""
        return list(self._written(tree, after, types))

    async def steer(self, text: str) -> bool:
        """Say something to the agent after its current tool calls. False once it has ended."""
        return self.steerer(text)

    def steerer(self, text: str, images: Sequence[Image] = ()) -> bool:
        """The same, at once, and with images."""
        node = self._node()
        return node is not None and self.supervisor.steer(node, text, images)

    async def stop(self, reason: str = "Stopped by the user.") -> bool:
        """End the run as `stopped` and keep what it has said. False once it has ended."""
        return self.stopper(reason)

    def stopper(self, reason: str) -> bool:
        """The same, at once."""
        node = self._node()
        return node is not None and self.supervisor.stop(node, reason)

    def _node(self) -> Any:
        """The run, unless this is the handle of an earlier attempt of it, or it was forgotten."""
        node = self.supervisor.members.get(self.id)
        return node if node is not None and node.handle is self else None

    async def wait(self) -> Outcome:
        """The outcome, whatever it is: a failed run does not raise. Cancelling the wait leaves
        the run alone."""
        return self._typed(await asyncio.shield(self._ended))

    async def wait_settled(self) -> None:
        """Like `wait`, for those who only need to know that it is over."""
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
        """Why the run was left without an ending; None while it works, and once it has ended."""
        over = self._ended.done() and not self._ended.cancelled()
        error = self._ended.exception() if over else None
        return error if isinstance(error, StateError) else None

    def break_off(self, error: StateError) -> None:
        """The run could not be recorded any more: whoever waits must know why."""
        if not self._ended.done():
            self._ended.set_exception(error)
            # Marks it as seen: it is raised to those who wait, and asyncio does not report it at exit.
            self._ended.exception()


def handle_of(run: Run[Any]) -> RunHandle:
    """Return what the engine holds of a run that a program was given."""
    assert isinstance(run, RunHandle)
    return run


def handle_for(supervisor: RunController, place: RunPlace, launch: Launch) -> RunHandle:
    """Return the handle of an attempt that `supervisor` is about to begin. The handle of an earlier
    attempt steers and stops nothing any more."""
    handle = RunHandle(supervisor, place, launch)
    if launch.gate is not None:
        launch.gate.waiting = handle.controls.waiting
    return handle


def _is_of(ours: set[str], event: Event) -> bool:
    """Whether an event is of one of these runs or of one below them, which is one of them then.
    A run is created before anything below it is."""
    if event.run_id not in ours:
        if event.parent_id not in ours:
            return False
        ours.add(event.run_id)
    return True
