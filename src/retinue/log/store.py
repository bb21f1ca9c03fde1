"""The log of a project, for the process that runs agents.

`append` numbers an event at once, passes it to the writer's thread, and never waits. `await flush()` is the barrier:
when it returns, all events appended before are in the file. Subscribers get an event only after its commit, so nothing
that was shown can be lost. Streamed text is written and shown in pieces, with an unnoticeable delay.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import TRANSIENT, Body, Delta, Event, RunCreated, RunEnded, Warned
from retinue.core.programs import this_process
from retinue.core.run_state import ActiveRun, RunPlace, RunState
from retinue.errors import RetinueError, StateError
from retinue.log.batch import LogBatch, StreamRedactor, TextRedactor
from retinue.log.database import connect, log_file, take_over
from retinue.log.follow import Subscription
from retinue.log.query import LogReader
from retinue.log.rows import read_run
from retinue.log.transcript import transcript_path
from retinue.log.writer import Writer, WriterJob

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection

Result = TypeVar("Result")


class _OpenRun(Struct):
    """A run that this process writes to."""

    place: RunPlace
    seq: int
    redactor: StreamRedactor | None


class Log:
    """The writable log of a project. Use it from one event loop, and open it once per process and project."""

    def __init__(self, folder: Path, redact: TextRedactor | None = None) -> None:
        self.folder = folder
        self.path = log_file(folder)
        self._redact = redact
        self._runs: dict[str, _OpenRun] = {}
        self._pending: list[Event] = []
        self._cut: list[str] = []
        self._submitted = 0
        self._published = 0
        self._unannounced = 0
        self._handed_over = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._handing_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._subscribers: dict[str | None, list[Subscription]] = {}
        self._reader: LogReader | None = None
        self._closed = False
        connection = connect(folder)
        self._stream_seconds = connection.stream_seconds
        """The interval between two writes of streamed text. Durable events are written after the loop's current
        round."""
        self._writer = Writer(
            connection, self.path, this_process(), redact, self._delivered, self._failed, self._transcript_failed
        )
        atexit.register(self._at_exit)

    @classmethod
    def open(cls, folder: Path, *, redact: TextRedactor | None = None) -> Log:
        """Open or create the log in a project's state folder. Runs of dead processes are marked as interrupted. Raise
        StateError with cause and remedy."""
        return cls(folder, redact)

    @property
    def reader(self) -> LogReader:
        """A reader of the events that are in the file."""
        if self._reader is None:
            self._reader = LogReader.open(self.folder)
        return self._reader

    async def read(self, read: Callable[[LogReader], Result]) -> Result:
        """Return the result of `read`, called in a thread so that reading a long run does not block the others."""

        def read_in_thread() -> Result:
            with LogReader.open(self.folder) as reader:
                return read(reader)

        return await asyncio.to_thread(read_in_thread)

    def append(self, place: RunPlace, body: Body) -> Event:
        """Number `body`, and pass it to the file and then to subscribers. Never waits. Raise StateError while the log
        cannot be written, and for a run that is not open in this process."""
        if self._writer.failure is not None or self._closed:
            self._refuse()
        run = self._runs.get(place.run_id)
        if run is None:
            run = self._begin(place, body)
        if isinstance(body, TRANSIENT):
            return self._stream(run, body)
        now = time.time()
        if run.redactor is not None and not run.redactor.silent:
            for delta in run.redactor.before(body):
                self._pending.append(Event(place.run_id, place.parent_id, place.root_id, run.seq, now, delta))
        run.seq += 1
        event = Event(place.run_id, place.parent_id, place.root_id, run.seq, now, body)
        self._pending.append(event)
        if isinstance(body, RunEnded):
            del self._runs[place.run_id]
        if not self._handing_over:
            self._hand_over_soon()
        return event

    async def flush(self) -> None:
        """Wait until all appended events are in the file and subscribers have them. Raise StateError if they cannot be
        written; they are kept and tried again later."""
        if self._writer.failure is not None:
            self._hand_over(force=True)
        elif self._pending and not self._handing_over:
            # All flushes of the same round share a batch.
            self._hand_over_soon()
        number = self._submitted + bool(self._pending)
        waiter = (number, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        if max(self._published, self._unannounced) >= number:
            self._waiters.remove(waiter)
        else:
            await waiter[1]

    def subscribe(self, *, run_id: str | None = None, root_id: str | None = None) -> Subscription:
        """Return a subscription to future events, each after its commit: of one run, of a tree, or of all runs. A
        subscription to a run or a tree ends with the end of that run."""
        self._bind()
        key = f"tree {root_id}" if root_id is not None else run_id
        group = self._subscribers.setdefault(key, [])

        def unsubscribe(subscription: Subscription) -> None:
            group.remove(subscription)
            if not group and self._subscribers.get(key) is group:
                del self._subscribers[key]

        subscription = Subscription(root_id or run_id, unsubscribe)
        group.append(subscription)
        return subscription

    async def claim(self, run_id: str) -> RunState:
        """Make this process the owner of an ended or interrupted run, and return the run's state before. Raise
        UnknownRunError, and StateError while the run is live."""
        if run_id in self._runs:
            raise StateError(f"Run {run_id} is already running in this process.", remedy="Steer it or wait for it.")
        await self.flush()
        row = self.reader.run(run_id)
        taking = asyncio.ensure_future(self._ask(lambda writer: _take_over(writer, self.folder, row.id)))
        try:
            last = await asyncio.shield(taking)
        except asyncio.CancelledError:
            with contextlib.suppress(RetinueError):
                await taking
                await self.release(row)
            raise
        self._open(row.place, last)
        return row

    def _open(self, place: RunPlace, seq: int) -> _OpenRun:
        redactor = StreamRedactor(self._redact) if self._redact is not None else None
        run = self._runs[place.run_id] = _OpenRun(place, seq, redactor)
        return run

    async def release(self, row: RunState) -> None:
        """Undo `claim`, as long as nothing was appended: the run has the state of `row` again."""

        def write(writer: Writer) -> None:
            writer.runs.pop(row.id, None)
            with writer.transaction():
                writer.connection.execute("UPDATE runs SET state=?, owner=NULL WHERE id=?", (row.state, row.id))

        self._runs.pop(row.id, None)
        await self._ask(write)

    async def release_queued(self, run_id: str) -> None:
        """Release a run that has not begun, so that another process can take it: it stays `queued`, without owner."""
        await self.flush()
        await self.release(self.reader.run(run_id))

    def cut_off(self, place: RunPlace) -> None:
        """Stop writing to a run that has no ending. It is marked as interrupted as soon as that can be written; until
        then no process can resume it. Its subscriptions are closed."""
        if self._closed or self._runs.pop(place.run_id, None) is None:
            return
        self._cut.append(place.run_id)
        self._hand_over(force=True)
        for subscription in tuple(self._subscribers.get(place.run_id, ())):
            subscription.close()

    def publish(self, event: Event) -> None:
        """Publish an event that is in the log to subscribers."""
        for key in (event.run_id, f"tree {event.root_id}", None):
            for subscription in tuple(self._subscribers.get(key, ())):
                subscription.push(event)

    @property
    def owner(self) -> str:
        """The id under which this process owns runs in the log."""
        return self._writer.owner.id

    @property
    def found_dead(self) -> bool:
        """Whether runs of a dead process were found when this log was opened. Valid after the first `flush`."""
        return self._writer.found_dead

    async def transact(self, do: Callable[[LogConnection], Result]) -> Result:
        """Return the result of `do`, called in one transaction after all events appended before. It runs in the
        writer's thread and must be quick. Raise StateError."""

        def run_transaction(writer: Writer) -> Result:
            with writer.transaction():
                return do(writer.connection)

        return await self._ask(run_transaction)

    async def close(self) -> None:
        """Write the remaining events and close the file. Live runs become interrupted. Raise StateError if events could
        not be written."""
        if self._closed:
            return
        try:
            await self.flush()
        finally:
            self._shut()
            await asyncio.to_thread(self._writer.join)

    async def __aenter__(self) -> Log:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _begin(self, place: RunPlace, body: Body) -> _OpenRun:
        if not isinstance(body, RunCreated):
            raise StateError(
                f"Run {place.run_id} is not open here, so its event {body.type} was not recorded.",
                remedy="A run begins with its creation, or with claim() when it is resumed.",
            )
        self._bind()
        return self._open(place, 0)

    def _refuse(self) -> None:
        if self._closed:
            raise StateError(f"The log {self.path} is closed.")
        self._hand_over(force=True)
        if self._writer.failure is not None:
            raise self._writer.failure

    def _bind(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()

    def _stream(self, run: _OpenRun, delta: Delta) -> Event:
        place = run.place
        event = Event(place.run_id, place.parent_id, place.root_id, run.seq, time.time(), delta)
        if run.redactor is None:
            self._pending.append(event)
        else:
            self._pending += [
                event if shown is delta else replace(event, body=shown) for shown in run.redactor.feed(delta)
            ]
        if self._timer is None and not self._handing_over:
            assert self._loop is not None
            self._timer = self._loop.call_at(self._handed_over + self._stream_seconds, self._hand_over)
        return event

    def _hand_over_soon(self) -> None:
        assert self._loop is not None
        self._handing_over = True
        self._loop.call_soon(self._hand_over)

    def _hand_over(self, force: bool = False) -> None:
        self._handing_over = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending or force:
            self._submitted += 1
            self._handed_over = self._loop.time() if self._loop is not None else 0.0
            self._writer.submit(LogBatch(self._submitted, self._pending, tuple(self._cut)))
            self._pending, self._cut = [], []

    async def _ask(self, do: Callable[[Writer], Result]) -> Result:
        """Return the result of `do`, called in the writer's thread after all events appended before."""
        self._bind()
        done: Future[Result] = Future()
        self._writer.submit(WriterJob(do, done))
        return await asyncio.wrap_future(done)

    def _delivered(self, batches: list[LogBatch]) -> None:
        """Notify the loop from the writer's thread if a task waits or subscribes. A task may begin to wait during this
        decision, so the waiters are checked again: either the task sees the number, or this method sees the task."""
        if self._waiters or self._subscribers:
            self._call(self._publish, batches)
            return
        self._unannounced = batches[-1].number
        if self._waiters:
            self._call(self._publish, batches)

    def _publish(self, batches: list[LogBatch]) -> None:
        if self._subscribers:
            for batch in batches:
                for event in batch.events:
                    self.publish(event)
        self._published = batches[-1].number
        self._wake(self._published, None)

    def _wake(self, number: int, failure: StateError | None) -> None:
        """Wake the tasks that wait for batches up to `number`."""
        waiters, self._waiters = self._waiters, []
        for batch, waiter in waiters:
            if batch > number:
                self._waiters.append((batch, waiter))
            elif not waiter.done():
                waiter.set_result(None) if failure is None else waiter.set_exception(failure)

    def _failed(self, failure: StateError, number: int) -> None:
        """Pass a failure from the writer's thread to every task that waits for batches up to `number`. Later batches
        are still tried."""
        if self._waiters:
            self._call(self._wake, number, failure)

    def _transcript_failed(self, run_id: str, text: str) -> None:
        """Report from the writer's thread that a transcript could not be written."""
        self._call(self._warn, run_id, text)

    def _warn(self, run_id: str, text: str) -> None:
        run = self._runs.get(run_id)
        if run is not None and not self._closed and self._writer.failure is None:
            self.append(run.place, Warned("transcript", text))

    def _call(self, do: Any, *args: Any) -> None:
        if self._loop is not None:
            # In a closed loop no task is waiting.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(do, *args)

    def _shut(self) -> None:
        self._closed = True
        atexit.unregister(self._at_exit)
        for group in list(self._subscribers.values()):
            for subscription in tuple(group):
                subscription.close()
        if self._reader is not None:
            self._reader.close()
            # A later query opens the file again.
            self._reader = None
        self._writer.stop()

    def _at_exit(self) -> None:
        """Write the remaining events of a program that ends without closing its log."""
        if not self._closed:
            self._hand_over()
            self._closed = True
            self._writer.stop()
            self._writer.join(timeout=5)


def _take_over(writer: Writer, folder: Path, run_id: str) -> int:
    with writer.transaction():
        row, last = take_over(writer.connection, run_id, writer.owner)
    writer.runs[run_id] = read_run(ActiveRun, row, "running")
    # A shared database may name files of other machines, or any other: accept only the path that we would create.
    if row["transcript"] and (not writer.connection.shared or row["transcript"] == transcript_path(folder, run_id)):
        with LogReader.open(folder) as reader:
            writer.transcripts.reopen(run_id, Path(row["transcript"]), reader.stream(run_id))
    return last
