"""The log of one project as a SQLite file: opening it and writing many rows.

The file is `RETINUE_HOME/projects/<project>/log.db`. With one file per project, projects do not wait for each other,
and removing a project's folder removes its state. In WAL mode, readers and one writer can work at the same time. With
`synchronous=NORMAL`, a killed process loses no committed event; a power failure can lose the last commits but not the
file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from retinue.core.programs import HEARTBEAT_SECONDS, Owner
from retinue.errors import StateError
from retinue.log.backend import Row
from retinue.log.database import FILE_NAME, error_code, explain, log_file, opened
from retinue.log.migrations import MIGRATIONS, Migration, migrate, version_of
from retinue.settings.places import private_folder

_STATEMENT_ROWS = (512, 64, 8, 1)
"""The numbers of rows in one statement. After each statement the thread waits for the interpreter's lock: five
milliseconds beside a busy event loop, so a thousand single rows would take five seconds. SQLite keeps the statements of
these sizes compiled."""
_MIN_UPDATE_FROM_VERSION = (3, 33)
"""The first version of SQLite with `UPDATE … FROM`."""
_STREAM_SECONDS = 0.05
ConnectionT = TypeVar("ConnectionT", bound=sqlite3.Connection)


class SqliteConnection(sqlite3.Connection):
    """A connection to the file, as `backend.LogConnection` describes it."""

    shared = False
    heartbeat_seconds = HEARTBEAT_SECONDS
    stream_seconds = _STREAM_SECONDS

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if rows:
            names = ", ".join(columns)
            self._execute_many(lambda values: f"INSERT INTO {table} ({names}) VALUES {values}", len(columns), rows)  # noqa: S608

    def update(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if not rows:
            return
        one = f"UPDATE {table} SET {', '.join(f'{name}=?' for name in columns)} WHERE id=?"  # noqa: S608
        if len(rows) == 1 or sqlite3.sqlite_version_info < _MIN_UPDATE_FROM_VERSION:
            self.executemany(one, rows)
            return
        values = ", ".join(f"{name}=new.column{number}" for number, name in enumerate(columns, 1))
        many = f"UPDATE {table} SET {values} FROM (VALUES %s) AS new WHERE id=new.column{len(columns) + 1}"  # noqa: S608
        self._execute_many(lambda values: many % values, len(columns) + 1, rows)

    def _execute_many(self, sql: Callable[[str], str], width: int, rows: Sequence[Row]) -> None:
        marks = f"({', '.join('?' * width)})"
        max_rows = self.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // width
        for chunk in _chunks(rows, max_rows):
            self.execute(sql(", ".join([marks] * len(chunk))), tuple(chain.from_iterable(chunk)))

    def version(self) -> int:
        return int(self.execute("PRAGMA data_version").fetchone()[0])

    def clock(self) -> float:
        return time.time()

    def owners(self) -> dict[str, Owner]:
        rows = self.execute("SELECT id, pid, started, host, boot, space, heartbeat FROM owners")
        return {row[0]: Owner(*row) for row in rows}

    def size(self) -> int:
        pages = self.execute("PRAGMA page_count").fetchone()[0]
        return int(pages * self.execute("PRAGMA page_size").fetchone()[0])

    def shrink(self) -> bool:
        try:
            self.execute("VACUUM")
            busy, *_ = self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if not error_code(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
            return False
        return not busy

    def reopen(self) -> None:
        """Do nothing: a file is never lost."""


def _chunks(rows: Sequence[Row], max_rows: int) -> Iterator[Sequence[Row]]:
    start = 0
    for size in _STATEMENT_ROWS:
        while size <= max_rows and len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


BUSY_TIMEOUT_MS = 10_000
"""How long a statement waits for another process before it fails."""
_RETRY_PAUSE_SECONDS = 0.02


class SqliteBackend:
    """The file in a project's state folder, as `backend.LogBackend` describes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = log_file(folder)
        self.label = str(self.path)

    def exists(self) -> bool:
        return self.path.is_file()

    def connect(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> SqliteConnection:
        """Create folder (0700) and file (0600) if they are missing. An unusable file is not changed."""
        try:
            _make_private(self.folder)
            create_private(self.path)
            return open_patiently(lambda: _writing(self.path, migrations))
        except (sqlite3.Error, OSError) as error:
            raise explain(error, self.path) from error

    def connect_to_read(self) -> SqliteConnection:
        """Also read a log in a folder without write permission."""
        try:
            if not self.exists():
                return empty()
            return open_patiently(lambda: _reading(self.folder, self.path))
        except (sqlite3.Error, OSError) as error:
            raise explain(error, self.path) from error

    def check(self) -> list[str]:
        """Check the whole file, page by page."""
        try:
            with opened(self.folder) as connection:
                problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check(20)")]
        except StateError as error:
            return [str(error)]
        return [] if problems == ["ok"] else problems


def _make_private(folder: Path) -> None:
    private_folder(folder)
    if folder.stat().st_mode & 0o077:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)


def create_private(path: Path) -> None:
    """Create the file, accessible to its owner only. An existing file is never opened here: closing it would release
    the locks that SQLite has on it in this process."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _open(uri: str) -> SqliteConnection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=SqliteConnection)
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    return connection


def open_patiently(open_connection: Callable[[], ConnectionT]) -> ConnectionT:
    """Return the connection, tried again while another process locks the file. While the first process turns a new file
    into a WAL file, SQLite reports it as busy at once, whatever the busy timeout is."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            return open_connection()
        except sqlite3.OperationalError as error:
            busy = error_code(error).startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_PAUSE_SECONDS)


def _writing(path: Path, migrations: tuple[Migration, ...]) -> SqliteConnection:
    connection = _open(f"{path.absolute().as_uri()}?mode=rw")
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA cache_size=-32768")
        connection.execute("PRAGMA journal_size_limit=16777216")
        migrate(connection, path, migrations)
        # SQLite opens a read-only file without an error; taking the lock fails.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _reading(folder: Path, path: Path) -> SqliteConnection:
    uri = path.absolute().as_uri()
    connection = _open(f"{uri}?mode=ro")
    try:
        try:
            version = version_of(connection, path)
        except sqlite3.OperationalError:
            if os.access(folder, os.W_OK):
                raise
            # WAL mode needs another file beside the database, which cannot be created here.
            connection.close()
            connection = _open(f"{uri}?mode=ro&immutable=1")
            version = version_of(connection, path)
        if version < len(MIGRATIONS):
            if os.access(folder, os.W_OK) and os.access(path, os.W_OK):
                SqliteBackend(folder).connect().close()
            else:
                connection = _migrated_copy(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrated_copy(connection: SqliteConnection, path: Path) -> SqliteConnection:
    """Return a copy in memory, in the newest format, of a file without write permission."""
    copy = _open("file::memory:")
    connection.backup(copy)
    connection.close()
    migrate(copy, path)
    return copy


def empty() -> SqliteConnection:
    """Return a connection to an empty log in memory."""
    connection = _open("file::memory:")
    migrate(connection, Path(FILE_NAME), MIGRATIONS)
    return connection
