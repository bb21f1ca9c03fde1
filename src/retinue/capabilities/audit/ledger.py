"""The ledger of changes: one small SQLite file per project, shared by its processes, and the interface of a run to it.

A row is one path changed by one run, with its state before and after. It is written before a tool replaces a file, and
right after a command has ended. With it, a run can be told which run changed a file, and undo can restore the file.

A lease is a lock on one of 256 files of the state folder, chosen by the path. It excludes other threads and processes,
and the kernel releases it when its holder dies. The content of the file names the holder, for error messages.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.capabilities.audit.shadow import CheckpointError, PathState, RootSnapshot, Shadow, blob_id
from retinue.core.files import NO_LIMIT, read_file
from retinue.core.programs import locked_file, start_of
from retinue.log.sqlite import create_private, open_patiently
from retinue.settings.places import private_folder
from retinue.tools.content import content_hash

LEASE_SECONDS = 15.0
MAX_HOLDER_BYTES = 400
MAX_COMMAND_LENGTH = 4_000
_FOLDER_STATE = PathState("", stat.S_IFDIR | 0o755)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, run_id TEXT NOT NULL, agent TEXT NOT NULL,
    turn INTEGER NOT NULL, call_id TEXT NOT NULL, kind TEXT NOT NULL, path BLOB NOT NULL,
    before_oid TEXT, before_mode INTEGER, after_oid TEXT, after_mode INTEGER, after_hash TEXT,
    shared TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS changes_by_path ON changes (path);
CREATE INDEX IF NOT EXISTS changes_by_run ON changes (run_id);
CREATE TABLE IF NOT EXISTS windows (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, agent TEXT NOT NULL, turn INTEGER NOT NULL,
    call_id TEXT NOT NULL, command TEXT NOT NULL, pid INTEGER NOT NULL, began REAL NOT NULL, ended REAL,
    after_change INTEGER NOT NULL, snapshots BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS windows_by_run ON windows (run_id);
CREATE INDEX IF NOT EXISTS windows_open ON windows (id) WHERE ended IS NULL;
CREATE TABLE IF NOT EXISTS forgotten (run_id TEXT PRIMARY KEY, at REAL NOT NULL);
"""
_CHANGE_COLUMNS = (
    "at, run_id, agent, turn, call_id, kind, path, before_oid, before_mode, after_oid, after_mode, after_hash, shared"
)
_WINDOW_COLUMNS = "run_id, agent, turn, call_id, command, pid, began, ended, after_change, snapshots"
_NO_STATE = (None, None)


class ChangeAuthor(Struct, frozen=True):
    """The run that made a change, in messages to others."""

    run_id: str
    agent: str

    def __str__(self) -> str:
        return f"{self.agent} (run {self.run_id[:8]})"


class RecordedChange(Struct, frozen=True):
    """One path changed by one run. `path` is absolute. `shared` names runs whose commands ran at the same time and may
    have changed it instead."""

    author: ChangeAuthor
    turn: int
    call_id: str
    kind: Literal["edit", "command", "undo"]
    path: str
    before: PathState | None
    after: PathState | None
    after_hash: str | None = None
    shared: tuple[str, ...] = ()
    at: float = 0.0
    id: int = 0

    @property
    def has_folder(self) -> bool:
        """Whether a folder was or is there."""
        return bool((self.before and self.before.is_folder) or (self.after and self.after.is_folder))

    @property
    def is_only_folder(self) -> bool:
        """Whether no file or link was or is there."""
        return (self.before is None or self.before.is_folder) and (self.after is None or self.after.is_folder)


class CommandWindow(Struct, frozen=True):
    """The time of a command, from the checkpoint before it to the one after. `after_change` is the id of the newest row
    when it began. `ended` is None while it runs, and stays None if its process died."""

    author: ChangeAuthor
    turn: int
    call_id: str
    command: str
    pid: int
    began: float
    ended: float | None
    after_change: int
    snapshots: tuple[RootSnapshot, ...]
    id: int = 0


class LedgerStore:
    """The database of changes. Any number of threads and processes may use it; every method is one short
    transaction."""

    def __init__(self, folder: Path) -> None:
        private_folder(folder)
        path = folder / "ledger.db"
        create_private(path)
        self.folder = folder
        self._lock = threading.Lock()
        self._connection = open_patiently(lambda: _open(path))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # Changes

    def add(self, rows: Sequence[RecordedChange]) -> list[int]:
        with self._transaction() as connection:
            return [_insert(connection, row) for row in rows]

    def drop(self, ids: Iterable[int]) -> None:
        """Remove rows of changes that were announced and did not happen."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM changes WHERE id=?", [(change_id,) for change_id in ids])

    def share(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Record that another run may have made these changes."""
        with self._transaction() as connection:
            connection.executemany("UPDATE changes SET shared=trim(shared || ' ' || ?2) WHERE id=?1", list(pairs))

    def of_runs(self, run_ids: Sequence[str]) -> list[RecordedChange]:
        return self._changes(f"WHERE run_id IN ({_marks(run_ids)}) ORDER BY id", *run_ids)

    def of_path(self, path: str, limit: int = 1_000) -> list[RecordedChange]:
        """Return the changes of a path, newest first."""
        return self._changes("WHERE path=? ORDER BY id DESC LIMIT ?", os.fsencode(path), limit)

    def since(self, change_id: int) -> list[RecordedChange]:
        return self._changes("WHERE id>? ORDER BY id", change_id)

    def newest(self) -> int:
        return int(self._read("SELECT coalesce(max(id), 0) FROM changes")[0][0])

    # Windows

    def begin(
        self, author: ChangeAuthor, turn: int, call_id: str, command: str, snapshots: Sequence[RootSnapshot]
    ) -> CommandWindow:
        began, newest = time.time(), self.newest()
        stored = (command[:MAX_COMMAND_LENGTH], os.getpid(), began, None, newest, _pack(snapshots))
        with self._transaction() as connection:
            number = _add_row(
                connection, "windows", _WINDOW_COLUMNS, (author.run_id, author.agent, turn, call_id, *stored)
            )
        return CommandWindow(
            author, turn, call_id, command, os.getpid(), began, None, newest, tuple(snapshots), id=number
        )

    def end(self, window: CommandWindow, rows: Sequence[RecordedChange]) -> None:
        """Record the end of the command and its changes in one transaction. The snapshots from before it are
        dropped."""
        with self._transaction() as connection:
            connection.execute("UPDATE windows SET ended=?, snapshots=x'' WHERE id=?", (time.time(), window.id))
            for row in rows:
                _insert(connection, row)

    def open_windows(self, run_ids: Sequence[str] | None = None) -> list[CommandWindow]:
        """Return the commands that are running, of these runs or of all."""
        if run_ids is None:
            return self._windows("ended IS NULL")
        return self._windows(f"ended IS NULL AND run_id IN ({_marks(run_ids)})", *run_ids)

    def overlapping(self, window: CommandWindow) -> list[CommandWindow]:
        """Return windows of other runs that were open at the same time, or still are."""
        return self._windows("(ended IS NULL OR ended>?) AND run_id!=?", window.began, window.author.run_id)

    # Retention

    def traces(self) -> dict[str, float]:
        """Return every run that has rows here, with the time of its last one."""
        return dict(
            self._read(
                "SELECT run_id, max(at) FROM (SELECT run_id, at FROM changes UNION ALL "
                "SELECT run_id, coalesce(ended, began) FROM windows) GROUP BY run_id"
            )
        )

    def forget(self, run_ids: Iterable[str]) -> None:
        """Remove the rows of these runs, and record that they were removed."""
        ids, now = [(run_id,) for run_id in run_ids], time.time()
        with self._transaction() as connection:
            connection.executemany("DELETE FROM changes WHERE run_id=?", ids)
            connection.executemany("DELETE FROM windows WHERE run_id=?", ids)
            connection.executemany("INSERT OR REPLACE INTO forgotten VALUES (?, ?)", [(*row, now) for row in ids])

    def forgotten(self, run_ids: Sequence[str]) -> float | None:
        """Return when rows of these runs were last removed; None if never."""
        query = f"SELECT max(at) FROM forgotten WHERE run_id IN ({_marks(run_ids)})"  # noqa: S608
        moment: float | None = self._read(query, *run_ids)[0][0]
        return moment

    def contents(self) -> list[str]:
        """Return the ids of all contents that an undo may need."""
        return [row[0] for row in self._read("SELECT DISTINCT before_oid FROM changes WHERE before_oid != ''")]

    def shrink(self) -> None:
        """Release the disk space of removed rows. Call it only while no process writes."""
        with suppress(sqlite3.Error):
            self._read("VACUUM")

    def _windows(self, where: str, *values: Any) -> list[CommandWindow]:
        rows = self._read(f"SELECT {_WINDOW_COLUMNS}, id FROM windows WHERE {where} ORDER BY id", *values)  # noqa: S608
        windows = []
        for run_id, agent, *row, snapshots, number in rows:
            values = (*row, _unpack(snapshots), number)
            windows.append(CommandWindow(ChangeAuthor(run_id, agent), *values))
        return windows

    def _changes(self, where: str, *values: Any) -> list[RecordedChange]:
        changes = []
        for row in self._read(f"SELECT {_CHANGE_COLUMNS}, id FROM changes {where}", *values):  # noqa: S608
            at, run_id, agent, turn, call_id, kind, path, before, before_mode, after, after_mode, *details = row
            digest, shared, number = details
            states = _state(before, before_mode), _state(after, after_mode)
            call = (ChangeAuthor(run_id, agent), turn, call_id, kind, os.fsdecode(path))
            changes.append(RecordedChange(*call, *states, digest, tuple(shared.split()), at, number))
        return changes

    def _read(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise OSError(5, f"the record of changes cannot be written: {error}") from error
                raise


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA busy_timeout=10000")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _insert(connection: sqlite3.Connection, row: RecordedChange) -> int:
    states: list[str | int | None] = []
    for state in (row.before, row.after):
        states += _NO_STATE if state is None else (state.oid, state.mode)
    call = (row.author.run_id, row.author.agent, row.turn, row.call_id, row.kind, os.fsencode(row.path))
    values = (row.at or time.time(), *call, *states, row.after_hash, " ".join(row.shared))
    return _add_row(connection, "changes", _CHANGE_COLUMNS, values)


def _add_row(connection: sqlite3.Connection, table: str, columns: str, values: Sequence[Any]) -> int:
    cursor = connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({_marks(values)})", values)  # noqa: S608
    return int(cursor.lastrowid or 0)


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _state(oid: str | None, mode: int) -> PathState | None:
    return None if oid is None else PathState(oid, mode)


def _pack(snapshots: Sequence[RootSnapshot]) -> bytes:
    # Paths may contain bytes that are not text, which only the standard library encodes.
    return zlib.compress(json.dumps(msgspec.to_builtins(snapshots)).encode("ascii"), 1)


def _unpack(data: bytes) -> tuple[RootSnapshot, ...]:
    return msgspec.convert(json.loads(zlib.decompress(data)), tuple[RootSnapshot, ...]) if data else ()


class LeaseError(OSError):
    """Another run holds the lease of the file for too long."""


class RunLedger:
    """The `retinue.core.tool.Ledger` of one run. The audit of the run keeps `turn` and `call_id` current."""

    def __init__(self, store: LedgerStore, shadow: Shadow | None, author: ChangeAuthor) -> None:
        self.author = author
        self.turn = 0
        self.call_id = ""
        self.touched: dict[str, None] = {}
        """Every path that tools of this run have written, including those that git ignores."""
        self._store = store
        self._shadow = shadow
        self._leases = private_folder(store.folder / "leases")
        self._announced: dict[str, list[int]] = {}
        self._missing: dict[str, list[str]] = {}

    @contextmanager
    def lease(self, path: Path) -> Iterator[None]:
        """Hold the lease while `path` is rewritten. Raise LeaseError after a long wait."""
        key = str(path)
        lock = self._leases / f"{hashlib.sha256(os.fsencode(key)).digest()[0]:02x}"
        with locked_file(lock, LEASE_SECONDS) as descriptor:
            if descriptor is None:
                holder = lock.read_bytes().decode("utf-8", "replace") or "another run"
                raise LeaseError(11, f"it is being written by {holder}; try again in a moment", key)
            name = str(self.author).encode("utf-8", "replace")[:MAX_HOLDER_BYTES]
            os.pwrite(descriptor, name, 0)
            os.ftruncate(descriptor, len(name))
            self._missing[key] = _missing_parents(path)
            try:
                yield
            finally:
                self._missing.pop(key, None)
                announced = self._announced.pop(key, None)
                # The announced change has not happened.
                if announced:
                    self._store.drop(announced)

    def writing(self, path: Path, old: bytes | None, new: bytes | None, mode: int | None) -> None:
        """Announce, under the lease, that the file is about to be replaced or removed. From now on undo can restore it,
        even if this process is killed."""
        key = str(path)
        before, after, digest = None, None, None
        if old is not None:
            before = PathState(self._keep(old), mode or stat.S_IFREG | 0o644)
        if new is not None:
            new_mode = stat.S_IFREG | ((mode or 0o666) & ~_umask())
            # A file that is replaced keeps its permissions.
            if old is not None:
                new_mode = mode or new_mode
            after, digest = PathState(blob_id(new), new_mode), content_hash(new)
        change = partial(RecordedChange, self.author, self.turn, self.call_id, "edit")
        rows = [change(folder, None, _FOLDER_STATE) for folder in self._missing.get(key, ())]
        self._announced[key] = self._store.add([*rows, change(key, before, after, digest)])
        self.touched[key] = None

    def wrote(self, path: Path, before: str | None, after: str | None) -> None:
        """Record that the announced write has happened."""
        self._announced.pop(str(path), None)

    def changed_by(self, path: Path, current: str) -> str | None:
        """Return the author of the last change of `path`, if that was another run. `current` is the hash of its
        content, empty if there is no file."""
        for row in self._store.of_path(str(path), limit=20):
            if not _has_result(row, path, current):
                continue
            if row.kind == "undo":
                return f"undo of {row.author}"
            return None if row.author.run_id == self.author.run_id else str(row.author)
        for window in reversed(self._store.open_windows()):
            inside = any(path.is_relative_to(snapshot.root) for snapshot in window.snapshots)
            if inside and window.author.run_id != self.author.run_id and start_of(window.pid) is not None:
                return f"a running command of {window.author}, it seems,"
        return None

    def _keep(self, data: bytes) -> str:
        """Store content for undo. If that fails the edit continues, and undo reports the file as lost."""
        if self._shadow is not None:
            with suppress(CheckpointError, OSError):
                return self._shadow.keep(data)
        return blob_id(data)


def _has_result(row: RecordedChange, path: Path, current: str) -> bool:
    """Return whether the file is in the state after this change."""
    if row.after is None or not current:
        return row.after is None and not current
    if row.after_hash is not None:
        return row.after_hash == current
    try:
        return blob_id(read_file(path, NO_LIMIT)) == row.after.oid
    except OSError:
        return False


def _missing_parents(path: Path) -> list[str]:
    """Return the folders above `path` that do not exist yet, the topmost first."""
    missing: list[str] = []
    for folder in path.parents:
        if os.path.lexists(folder):
            break
        missing.append(str(folder))
    return missing[::-1]


def _umask() -> int:
    """Return the umask without changing it, because other threads may create files meanwhile."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return 0o022
