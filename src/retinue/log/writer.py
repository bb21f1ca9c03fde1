"""The one thread of a process that writes to the log.

Batches come from the event loop through a queue. Whatever has gathered is written in one
transaction, so the cost of a commit is shared by all events of that moment. Only then are
subscribers told. When writing fails nothing is thrown away: the batches stay, the failure is
reported to whoever waits, and the attempt is repeated when more arrives or a second has passed.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.events import Event
from retinue.core.lean import dataclass
from retinue.errors import RetinueError, StateError
from retinue.log.batch import Batch, Changes
from retinue.log.claim import recover, register, release
from retinue.log.database import trouble
from retinue.log.owner import HEARTBEAT_SECONDS, Owner
from retinue.log.redaction import Redactor
from retinue.log.rows import Tally
from retinue.log.transcripts import Transcripts

if TYPE_CHECKING:
    import sqlite3

RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do on the writing connection, after all batches before it."""

    do: Callable[[Writer], Any]
    done: Future[Any]


class Writer:
    """`delivered` is called with batches that are safely in the file; `failure` says, to any
    thread, why others are not yet."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        owner: Owner,
        redact: Redactor | None,
        delivered: Callable[[list[Batch]], None],
        failed: Callable[[StateError], None],
        complain: Callable[[str, str], None],
    ) -> None:
        self.connection = connection
        self.path = path
        self.owner = owner
        self.tallies: dict[str, Tally] = {}
        self.transcripts = Transcripts(complain, path.parent)
        self.failure: StateError | None = None
        self.found_dead = False
        self._redact = redact
        self._delivered = delivered
        self._failed = failed
        self._backlog: list[Batch] = []
        self._registered = False
        self._beaten = time.monotonic()
        self._queue: queue.SimpleQueue[Batch | Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="retinue-log", daemon=True)
        self._thread.start()

    def submit(self, item: Batch | Job) -> None:
        self._queue.put(item)

    def stop(self) -> None:
        """Asks the thread to write what it has and to close the file."""
        self._queue.put(None)

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def _main(self) -> None:
        with contextlib.suppress(Exception):
            self.found_dead = recover(self.connection, self.owner)
        going = True
        while going:
            for item in self._next():
                match item:
                    case Batch():
                        self._backlog.append(item)
                    case Job():
                        self._commit()
                        self._do(item)
                    case None:
                        going = False
            self._commit()
            self._beat()
        self._close()

    def _next(self) -> list[Batch | Job | None]:
        """Waits for something to do, then takes all there is."""
        patience = RETRY_SECONDS if self._backlog else HEARTBEAT_SECONDS if self.tallies else None
        found: list[Batch | Job | None] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._queue.get(timeout=patience))
            while True:
                found.append(self._queue.get_nowait())
        return found

    def _commit(self) -> None:
        batches = self._backlog
        if not batches:
            return
        try:
            events = self._write(batches)
        except Exception as error:  # noqa: BLE001  (a writer that dies in silence would lose the log)
            self._report(error)
            return
        self.failure = None
        self._backlog = []
        self.transcripts.take(events)
        self._delivered(batches)

    def _write(self, batches: list[Batch]) -> list[Event]:
        rows = [row for batch in batches for row in batch.prepare(self._redact)]
        events = [event for batch in batches for event in batch.events]
        changes = Changes(self.tallies)
        for event in events:
            changes.take(event)
        with self.transaction():
            changes.write(self.connection, rows, self.owner.id)
        changes.settle()
        return events

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction of a process that is registered as an owner, and still is: a process
        that others took for dead must not write to runs they may have gone on with."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            if not self._registered:
                register(self.connection, self.owner)
            elif self.connection.execute("SELECT 1 FROM owners WHERE id=?", (self.owner.id,)).fetchone() is None:
                raise StateError(
                    f"Another process took this one for dead and may have gone on with its runs (log {self.path}).",
                    remedy="This happens when a machine was suspended for long. Look with: retinue runs list",
                )
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        self._registered = True

    def _beat(self) -> None:
        if self.tallies and time.monotonic() - self._beaten > HEARTBEAT_SECONDS:
            self._beaten = time.monotonic()
            with contextlib.suppress(Exception), self.transaction():
                self.connection.execute("UPDATE owners SET heartbeat=? WHERE id=?", (time.time(), self.owner.id))

    def _do(self, job: Job) -> None:
        if not job.done.set_running_or_notify_cancel():
            return
        if self.failure is not None:
            job.done.set_exception(self.failure)
            return
        try:
            job.done.set_result(job.do(self))
        except Exception as error:  # noqa: BLE001  (handed to the caller, who raises it)
            job.done.set_exception(self._sentence(error))

    def _report(self, error: Exception) -> None:
        sentence = self._sentence(error)
        self.failure = sentence if isinstance(sentence, StateError) else StateError(str(sentence))
        self._failed(self.failure)

    def _sentence(self, error: Exception) -> RetinueError:
        import sqlite3

        if isinstance(error, RetinueError):
            return error
        if isinstance(error, (sqlite3.Error, OSError)):
            found = trouble(error, self.path)
        else:
            found = StateError(f"The log {self.path} met a defect of Retinue: {type(error).__name__}: {error}")
        found.__cause__ = error
        return found

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            if self._registered:
                with self.transaction():
                    release(self.connection, self.owner)
        self.connection.close()
