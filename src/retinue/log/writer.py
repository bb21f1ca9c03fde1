"""The thread of a process that writes to the log.

Batches arrive from the event loop through a queue. All waiting batches are encoded, redacted and written in one
transaction, so that concurrent events share the cost of a commit. Subscribers are notified after the commit. The writer
retries for some seconds if the disk is full. If writing still fails, the batches are kept, every waiting caller gets
the failure, and the writer tries again when more arrive or after a second. In the meantime no events are accepted, so
the backlog stays small.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.core.encode import replace_surrogates
from retinue.core.events import STREAMED, AssistantEnded, Event, RunCreated, TextDelta
from retinue.core.programs import Owner
from retinue.core.run_state import COUNTED, MOVING, ActiveRun
from retinue.errors import RetinueError, StateError
from retinue.log.backend import LostDatabaseError
from retinue.log.batch import EventRow, LogBatch, TextRedactor, WrittenResults
from retinue.log.database import LIVE_STATES, explain, is_failing_disk, recover, register, release, transaction
from retinue.log.rows import CHANGING_COLUMNS, COUNT_COLUMNS, IDENTITY_COLUMNS, changing, counts, identity
from retinue.log.transcript import Transcripts

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection


_EVENT_COLUMNS = ("run_id", "seq", "at", "type", "body", "level", "source")
_TEXT_COLUMNS = ("run_id", "seq", "kind", "text")
_DELETE_TEXT = "DELETE FROM partials WHERE run_id=? AND seq>=?"
_CUT_OFF = f"UPDATE runs SET state='interrupted', owner=NULL WHERE id=? AND owner=? AND state IN ({LIVE_STATES})"  # noqa: S608


class Changes(Struct):
    """The changes of a transaction. They are applied to `runs` only by `settle`, so that a failed transaction leaves
    the writer's memory unchanged."""

    runs: dict[str, ActiveRun]
    touched: dict[str, ActiveRun] = {}
    changed: dict[str, None] = {}
    moved: set[str] = set()
    created: set[str] = set()
    texts: dict[str, dict[tuple[int, str], list[str]]] = {}
    obsolete: list[tuple[str, int]] = []
    cut: list[str] = []

    def take(self, event: Event) -> None:
        body, run_id = event.body, event.run_id
        kind = type(body)
        if kind not in COUNTED:
            if isinstance(body, STREAMED):
                key = (event.seq, "text" if kind is TextDelta else "thinking")
                self.texts.setdefault(run_id, {}).setdefault(key, []).append(body.text)
            return
        run = self._run(run_id)
        if kind in MOVING:
            self.moved.add(run_id)
            if kind is RunCreated:
                self.created.add(run_id)
        if run.apply(event):
            self.changed[run_id] = None
        if isinstance(body, AssistantEnded) and body.message.failure is None:
            self._remove_streamed_text(run_id, run)

    def _remove_streamed_text(self, run_id: str, run: ActiveRun) -> None:
        """Remove the streamed text of a successful answer, whose message has all of it."""
        # Text of earlier turns stays: the message of such a turn may have failed.
        pieces = self.texts.pop(run_id, {}).items()
        if older := {key: texts for key, texts in pieces if key[0] < run.turn_seq}:
            self.texts[run_id] = older
        if run.has_saved_text:
            self.obsolete.append((run_id, run.turn_seq))
            run.has_saved_text = False

    def _run(self, run_id: str) -> ActiveRun:
        run = self.touched.get(run_id)
        if run is None:
            before = self.runs.get(run_id)
            run = self.touched[run_id] = ActiveRun(run_id) if before is None else copy(before)
        return run

    def write(self, connection: LogConnection, rows: list[EventRow], owner: str) -> None:
        """Write all changes inside the transaction that the caller has begun."""
        connection.insert("events", _EVENT_COLUMNS, rows)
        created: list[tuple[object, ...]] = []
        moved: list[tuple[object, ...]] = []
        counted: list[tuple[object, ...]] = []
        for run_id in self.changed:
            run = self.touched[run_id]
            if run_id in self.created:
                created.append(identity(run) + changing(run, owner))
            elif run_id in self.moved:
                moved.append((*changing(run, owner), run_id))
            else:
                counted.append((*counts(run), run_id))
        connection.insert("runs", (*IDENTITY_COLUMNS, *CHANGING_COLUMNS), created)
        connection.update("runs", CHANGING_COLUMNS, moved)
        connection.update("runs", COUNT_COLUMNS, counted)
        if self.obsolete:
            connection.executemany(_DELETE_TEXT, self.obsolete)
        texts = []
        for run_id, pieces in self.texts.items():
            self._run(run_id).has_saved_text = True
            texts += [
                (run_id, seq, kind, replace_surrogates("".join(streamed))) for (seq, kind), streamed in pieces.items()
            ]
        connection.insert("partials", _TEXT_COLUMNS, texts)
        if self.cut:
            # A run whose ending is in this transaction after all has ended.
            connection.executemany(_CUT_OFF, [(run_id, owner) for run_id in self.cut])

    def settle(self) -> None:
        """Apply the changes of the committed transaction to the writer's memory."""
        for run_id, run in self.touched.items():
            if run.state == "ended":
                self.runs.pop(run_id, None)
            else:
                self.runs[run_id] = run
        for run_id in self.cut:
            self.runs.pop(run_id, None)


RETRY_SECONDS = 1.0
MAX_SERVER_OUTAGE_SECONDS = 60.0
"""How long a database server may be unavailable before runs get an error."""
MAX_DISK_OUTAGE_SECONDS = 5.0
"""How long a disk may be full. It is shorter because a person who stops a run waits for it."""
_DISK_PAUSE_SECONDS = 0.2


class WriterJob(Struct, frozen=True):
    """A function that the writer's thread calls after all batches before it."""

    do: Callable[[Writer], Any]
    done: Future[Any]


class Writer:
    """Writes batches to the log. `delivered` is called with batches that were committed. Any thread may read `failure`,
    the reason why others could not be written yet."""

    def __init__(
        self,
        connection: LogConnection,
        path: Path,
        owner: Owner,
        redact: TextRedactor | None,
        delivered: Callable[[list[LogBatch]], None],
        failed: Callable[[StateError, int], None],
        transcript_failed: Callable[[str, str], None],
    ) -> None:
        self.connection = connection
        self.path = path
        self.owner = owner
        self.runs: dict[str, ActiveRun] = {}
        self.transcripts = Transcripts(transcript_failed, path.parent)
        self.failure: StateError | None = None
        self.found_dead = False
        self._redact = redact
        self._results = WrittenResults()
        self._delivered = delivered
        self._failed = failed
        self._backlog: list[LogBatch] = []
        self._registered = False
        self._beaten = time.monotonic()
        self._queue: queue.SimpleQueue[LogBatch | WriterJob | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="retinue-log", daemon=True)
        self._thread.start()

    def submit(self, item: LogBatch | WriterJob) -> None:
        self._queue.put(item)

    def stop(self) -> None:
        """Ask the thread to write what it has and to close the file."""
        self._queue.put(None)

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def _main(self) -> None:
        with contextlib.suppress(Exception):
            self.found_dead = recover(self.connection, self.owner)
        # In a separate function, so that the last batch is freed while the thread waits for the next one.
        while self._work():
            pass
        self._close()

    def _work(self) -> bool:
        """Wait for items, and process them. Return False once the writer is to stop."""
        is_running = True
        for item in self._next():
            match item:
                case LogBatch():
                    self._enqueue(item)
                case WriterJob():
                    self._commit()
                    self._call(item)
                case None:
                    is_running = False
        self._commit()
        self._beat()
        return is_running

    def _enqueue(self, batch: LogBatch) -> None:
        """Add a batch to the backlog. An empty one, which only asks for another attempt, is merged with the last."""
        if self._backlog and not batch.events and not batch.cut:
            self._backlog[-1].number = batch.number
        else:
            self._backlog.append(batch)

    def _next(self) -> list[LogBatch | WriterJob | None]:
        """Wait for an item, and return all waiting ones."""
        timeout = None
        if self._backlog:
            timeout = RETRY_SECONDS
        elif self.runs:
            timeout = self.connection.heartbeat_seconds
        items: list[LogBatch | WriterJob | None] = []
        with contextlib.suppress(queue.Empty):
            items.append(self._queue.get(timeout=timeout))
            while True:
                items.append(self._queue.get_nowait())
        return items

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

    def _write(self, batches: list[LogBatch]) -> list[Event]:
        rows: list[EventRow] = []
        events: list[Event] = []
        for batch in batches:
            rows += batch.prepare(self._redact, self._results)
            # Redacted events have replaced their originals now.
            events += batch.events
        changes = Changes(self.runs)
        for event in events:
            changes.take(event)
        changes.cut = [run_id for batch in batches for run_id in batch.cut]
        self._write_patiently(changes, rows)
        changes.settle()
        return events

    def _write_patiently(self, changes: Changes, rows: list[EventRow]) -> None:
        """Write exactly once, also across a restart of the server or a temporarily full disk."""
        began = time.monotonic()
        while True:
            try:
                with self.transaction():
                    changes.write(self.connection, rows, self.owner.id)
                return
            except LostDatabaseError as error:
                if time.monotonic() > began + MAX_SERVER_OUTAGE_SECONDS:
                    raise
                if error.unsure and self._is_written(rows):
                    return
            except Exception as error:
                # After a failure was reported, do not retry here: nobody waits for this attempt any more.
                is_over = time.monotonic() > began + MAX_DISK_OUTAGE_SECONDS
                if self.failure is not None or not is_failing_disk(error) or is_over:
                    raise
                time.sleep(_DISK_PAUSE_SECONDS)

    def _is_written(self, rows: list[EventRow]) -> bool:
        """Return whether a commit succeeded before the connection was lost."""
        if not rows:
            return False
        query = "SELECT 1 FROM events WHERE run_id=? AND seq=?"
        return self.connection.execute(query, rows[0][:2]).fetchone() is not None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction if this owner is still registered. A process that others have declared dead must not
        write to runs that they may have taken over."""
        query = "SELECT 1 FROM owners WHERE id=?"
        with transaction(self.connection):
            if not self._registered or self.connection.execute(query, (self.owner.id,)).fetchone() is None:
                # An owner without runs sends no heartbeats, and nobody can have taken over any of its runs.
                if self._registered and self.runs:
                    raise StateError(
                        f"Another process found this one dead and may have taken over its runs (log {self.path}).",
                        remedy="This happens if a machine was suspended for long. See: retinue runs list",
                    )
                register(self.connection, self.owner)
            yield
        self._registered = True

    def _beat(self) -> None:
        if self.runs and time.monotonic() - self._beaten >= self.connection.heartbeat_seconds:
            self._beaten = time.monotonic()
            with contextlib.suppress(Exception):
                now = self.connection.clock()
                self.connection.execute("UPDATE owners SET heartbeat=? WHERE id=?", (now, self.owner.id))

    def _call(self, job: WriterJob) -> None:
        if not job.done.set_running_or_notify_cancel():
            return
        if self.failure is not None:
            job.done.set_exception(self.failure)
            return
        try:
            job.done.set_result(job.do(self))
        except Exception as error:  # noqa: BLE001  (handed to the caller, who raises it)
            job.done.set_exception(self._convert(error))

    def _report(self, error: Exception) -> None:
        converted = self._convert(error)
        self.failure = converted if isinstance(converted, StateError) else StateError(str(converted))
        self._failed(self.failure, self._backlog[-1].number)

    def _convert(self, error: Exception) -> RetinueError:
        import sqlite3

        if isinstance(error, RetinueError):
            return error
        converted = StateError(f"A defect of Retinue stopped the log {self.path}: {type(error).__name__}: {error}")
        if isinstance(error, (sqlite3.Error, OSError)):
            converted = explain(error, self.path)
        converted.__cause__ = error
        return converted

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            if self._registered:
                with self.transaction():
                    release(self.connection, self.owner)
        self.connection.close()
