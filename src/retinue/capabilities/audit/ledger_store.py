"""Who changed which file: one small SQLite file per project, shared by all its processes.

A row is one path changed by one run, with what was there before and after, by content id. It
is written before a tool replaces a file, and right after a command ended; so a
run that finds a file changed can be told which run changed it, and undo knows the way back.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from retinue.capabilities.audit.shadow import PathState, RootSnapshot
from retinue.log.sqlite import create_private, open_patiently
from retinue.settings.places import private_folder

if TYPE_CHECKING:
    import sqlite3

Kind = Literal["edit", "command", "undo"]

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
_COLUMNS = (
    "id, at, run_id, agent, turn, call_id, kind, path, before_oid, before_mode, after_oid, after_mode, "
    "after_hash, shared"
)
_WINDOW = "id, run_id, agent, turn, call_id, command, pid, began, ended, after_change, snapshots"


class Who(Struct, frozen=True):
    """A run, as others are told of it."""

    run_id: str
    agent: str

    def __str__(self) -> str:
        return f"{self.agent} (run {self.run_id[:8]})"


class Changed(Struct, frozen=True, kw_only=True):
    """One path changed by one run. `path` is absolute. `shared` names runs whose commands were
    at work at the same time and may have changed it instead."""

    id: int = 0
    at: float = 0.0
    who: Who
    turn: int
    call_id: str
    kind: Kind
    path: str
    before: PathState | None
    after: PathState | None
    after_hash: str | None = None
    shared: tuple[str, ...] = ()

    @property
    def has_folder(self) -> bool:
        """Whether a folder was or is there."""
        return bool((self.before and self.before.is_folder) or (self.after and self.after.is_folder))

    @property
    def is_only_folder(self) -> bool:
        """Whether no file or link was or is there."""
        return (self.before is None or self.before.is_folder) and (self.after is None or self.after.is_folder)


class CommandWindow(Struct, frozen=True, kw_only=True):
    """A command at work, from the checkpoint before it to the one after. `after_change` is the
    newest row when it began; `ended` is None while it runs, and forever if it was cut off."""

    id: int
    who: Who
    turn: int
    call_id: str
    command: str
    pid: int
    began: float
    ended: float | None
    after_change: int
    snapshots: tuple[RootSnapshot, ...]


def _open(path: Path) -> sqlite3.Connection:
    import sqlite3

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


class LedgerStore:
    """Threads and processes may use it at once; every method is one short transaction."""

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

    def add(self, rows: Sequence[Changed]) -> list[int]:
        with self._transaction() as connection:
            return [self._insert(connection, row) for row in rows]

    def drop(self, ids: Iterable[int]) -> None:
        """Take back rows of changes that were announced and did not happen."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM changes WHERE id=?", [(each,) for each in ids])

    def share(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Record that another run may have made these changes instead."""
        with self._transaction() as connection:
            connection.executemany("UPDATE changes SET shared=trim(shared || ' ' || ?2) WHERE id=?1", list(pairs))

    def of_runs(self, run_ids: Sequence[str]) -> list[Changed]:
        marks = ", ".join("?" * len(run_ids))
        return self._changes(f"WHERE run_id IN ({marks}) ORDER BY id", run_ids)

    def of_path(self, path: str, limit: int = 1_000) -> list[Changed]:
        """Return the changes of a path, newest first."""
        return self._changes("WHERE path=? ORDER BY id DESC LIMIT ?", (os.fsencode(path), limit))

    def since(self, change_id: int) -> list[Changed]:
        return self._changes("WHERE id>? ORDER BY id", (change_id,))

    def newest(self) -> int:
        with self._lock:
            return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM changes").fetchone()[0])

    # Windows

    def begin(
        self, who: Who, turn: int, call_id: str, command: str, snapshots: Sequence[RootSnapshot]
    ) -> CommandWindow:
        began, newest = time.time(), self.newest()
        with self._transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO windows (run_id, agent, turn, call_id, command, pid, began, after_change, snapshots) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (who.run_id, who.agent, turn, call_id, command[:4000], os.getpid(), began, newest, _pack(snapshots)),
            )
        return CommandWindow(
            id=int(cursor.lastrowid or 0),
            who=who,
            turn=turn,
            call_id=call_id,
            command=command,
            pid=os.getpid(),
            began=began,
            ended=None,
            after_change=newest,
            snapshots=tuple(snapshots),
        )

    def end(self, window: CommandWindow, rows: Sequence[Changed]) -> None:
        """Record that the command is over and what it changed: both or neither. What
        the workspace looked like before is not needed any more."""
        with self._transaction() as connection:
            connection.execute("UPDATE windows SET ended=?, snapshots=x'' WHERE id=?", (time.time(), window.id))
            for row in rows:
                self._insert(connection, row)

    def open_windows(self, run_ids: Sequence[str] | None = None) -> list[CommandWindow]:
        return self._windows("WHERE ended IS NULL", run_ids)

    def overlapping(self, window: CommandWindow) -> list[CommandWindow]:
        """Return windows of other runs that were open at the same time, or still are."""
        return self._windows("WHERE (ended IS NULL OR ended>?) AND run_id!=?", None, (window.began, window.who.run_id))

    # What is kept, and for how long

    def traces(self) -> dict[str, float]:
        """Return every run that has left anything here, with the time of the last of it."""
        with self._lock:
            found = self._connection.execute(
                "SELECT run_id, max(at) FROM (SELECT run_id, at FROM changes UNION ALL "
                "SELECT run_id, coalesce(ended, began) FROM windows) GROUP BY run_id"
            ).fetchall()
        return dict(found)

    def forget(self, run_ids: Iterable[str]) -> None:
        """Forget how to undo these runs, but remember that they once could be."""
        ids, now = list(run_ids), time.time()
        with self._transaction() as connection:
            for table in ("changes", "windows"):
                connection.executemany(f"DELETE FROM {table} WHERE run_id=?", [(each,) for each in ids])  # noqa: S608
            connection.executemany("INSERT OR REPLACE INTO forgotten VALUES (?, ?)", [(each, now) for each in ids])

    def forgotten(self, run_ids: Sequence[str]) -> float | None:
        """Return when anything of these runs was last forgotten."""
        marks = ", ".join("?" * len(run_ids))
        with self._lock:
            query = f"SELECT max(at) FROM forgotten WHERE run_id IN ({marks})"  # noqa: S608
            return self._connection.execute(query, tuple(run_ids)).fetchone()[0]  # type: ignore[no-any-return]

    def contents(self) -> list[str]:
        """Return the ids of all contents that an undo may ask for."""
        with self._lock:
            found = self._connection.execute("SELECT DISTINCT before_oid FROM changes WHERE before_oid != ''")
            return [row[0] for row in found]

    def shrink(self) -> None:
        """Give the disk back what removed rows took. Not while others are writing."""
        import sqlite3

        with self._lock, suppress(sqlite3.Error):
            self._connection.execute("VACUUM")

    def _windows(self, where: str, run_ids: Sequence[str] | None, values: tuple[Any, ...] = ()) -> list[CommandWindow]:
        if run_ids is not None:
            where += f" AND run_id IN ({', '.join('?' * len(run_ids))})"
        with self._lock:
            found = self._connection.execute(
                f"SELECT {_WINDOW} FROM windows {where} ORDER BY id",  # noqa: S608
                (*values, *(run_ids or ())),
            ).fetchall()
        return list(map(_window, found))

    def _changes(self, where: str, values: Sequence[Any]) -> list[Changed]:
        with self._lock:
            found = self._connection.execute(f"SELECT {_COLUMNS} FROM changes {where}", tuple(values)).fetchall()  # noqa: S608
        return list(map(_change, found))

    def _insert(self, connection: sqlite3.Connection, row: Changed) -> int:
        cursor = connection.execute(
            f"INSERT INTO changes ({_COLUMNS.removeprefix('id, ')}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (
                row.at or time.time(),
                row.who.run_id,
                row.who.agent,
                row.turn,
                row.call_id,
                row.kind,
                os.fsencode(row.path),
                *_state_columns(row.before),
                *_state_columns(row.after),
                row.after_hash,
                " ".join(row.shared),
            ),
        )
        return int(cursor.lastrowid or 0)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        import sqlite3

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


def _window(row: Sequence[Any]) -> CommandWindow:
    return CommandWindow(
        id=row[0],
        who=Who(row[1], row[2]),
        turn=row[3],
        call_id=row[4],
        command=row[5],
        pid=row[6],
        began=row[7],
        ended=row[8],
        after_change=row[9],
        snapshots=_unpack(row[10]),
    )


def _change(row: Sequence[Any]) -> Changed:
    return Changed(
        id=row[0],
        at=row[1],
        who=Who(row[2], row[3]),
        turn=row[4],
        call_id=row[5],
        kind=row[6],
        path=os.fsdecode(row[7]),
        before=_state(row[8], row[9]),
        after=_state(row[10], row[11]),
        after_hash=row[12],
        shared=tuple(row[13].split()),
    )


def _state(oid: str | None, mode: int) -> PathState | None:
    return None if oid is None else PathState(oid, mode)


def _state_columns(state: PathState | None) -> tuple[str | None, int | None]:
    return (None, None) if state is None else (state.oid, state.mode)


def _pack(snapshots: Sequence[RootSnapshot]) -> bytes:
    data = []
    for each in snapshots:
        data.append([each.root, each.tree, each.usual, dict(each.modes), sorted(each.folders), each.left_out])
    return zlib.compress(json.dumps(data).encode("ascii"), 1)


def _unpack(data: bytes) -> tuple[RootSnapshot, ...]:
    if not data:
        return ()
    found = []
    for root, tree, usual, modes, folders, left_out in json.loads(zlib.decompress(data)):
        found.append(RootSnapshot(root, tree, (usual[0], usual[1]), modes, frozenset(folders), tuple(left_out)))
    return tuple(found)
