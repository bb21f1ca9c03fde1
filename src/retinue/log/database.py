"""The SQLite file of one project: opening it, its owners, writing many rows, and explaining its errors.

The log of a project is `RETINUE_HOME/projects/<project>/log.db`: one file per project keeps
projects from waiting for each other, and removing a project's state is removing its folder.
WAL mode lets readers and one writer work at once; `synchronous=NORMAL` means a killed process
loses nothing that was committed, and a power cut can cost the last commits but never the file.

An owner is a process that runs runs. Registering one and taking a run over happen inside a transaction
of the caller, so of two processes that want the same run exactly one gets it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.delegation import LIVE
from retinue.core.process import Owner
from retinue.errors import StateError, UnknownRunError
from retinue.log.migrations import MIGRATIONS, Migration, migrate, version_of
from retinue.log.rows import SELECT_RUN
from retinue.settings.places import private_folder

if TYPE_CHECKING:
    import sqlite3


Row = tuple[object, ...]

_SIZES = (512, 64, 8, 1)
"""Rows per statement. A finished statement waits until the other threads let it go on: beside a busy
event loop that is five milliseconds, so a thousand rows one by one would take five seconds. SQLite
keeps statements of these few sizes compiled."""
_UPDATES_FROM = (3, 33)
"""The version of SQLite that can change rows by a list of values."""


def insert(connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Add rows whose values are in the order of `columns`."""
    if rows:
        names = ", ".join(columns)
        _execute(connection, lambda values: f"INSERT INTO {table} ({names}) VALUES {values}", len(columns), rows)  # noqa: S608


def update(connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Set `columns` of the rows whose `id` follows their values."""
    if not rows:
        return
    import sqlite3

    one = f"UPDATE {table} SET {', '.join(f'{name}=?' for name in columns)} WHERE id=?"  # noqa: S608
    if len(rows) == 1 or sqlite3.sqlite_version_info < _UPDATES_FROM:
        connection.executemany(one, rows)
        return
    values = ", ".join(f"{name}=new.column{number}" for number, name in enumerate(columns, 1))
    many = f"UPDATE {table} SET {values} FROM (VALUES %s) AS new WHERE id=new.column{len(columns) + 1}"  # noqa: S608
    _execute(connection, lambda values: many % values, len(columns) + 1, rows)


def _execute(connection: sqlite3.Connection, sql: Callable[[str], str], width: int, rows: Sequence[Row]) -> None:
    marks = f"({', '.join('?' * width)})"
    for chunk in _chunks(rows, _most(connection) // width):
        connection.execute(sql(", ".join([marks] * len(chunk))), tuple(chain.from_iterable(chunk)))


def _chunks(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    start = 0
    for size in _SIZES:
        while size <= most and len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def _most(connection: sqlite3.Connection) -> int:
    """How many values one statement may have."""
    import sqlite3

    return connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)


FILE_NAME = "log.db"
PATIENCE_MS = 10_000
"""How long a statement waits for another process before it is an error."""
_PAUSE = 0.02


def log_file(folder: Path) -> Path:
    return folder / FILE_NAME


def log_folders(home: Path) -> list[Path]:
    """Every project folder under `home` (RETINUE_HOME) that has a log."""
    try:
        return sorted(entry for entry in (home / "projects").iterdir() if log_file(entry).is_file())
    except OSError:
        return []


def connect(folder: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> sqlite3.Connection:
    """A connection that writes. Makes folder (0700) and file (0600) and brings the schema up to
    date. Raise StateError with cause and remedy; a file that cannot be used is left as it is."""
    import sqlite3

    path = log_file(folder)
    try:
        _make_private(folder)
        _create(path)
        return _patiently(lambda: _writing(path, migrations))
    except (sqlite3.Error, OSError) as error:
        raise trouble(error, path) from error


def connect_to_read(folder: Path) -> sqlite3.Connection:
    """A connection that cannot write. A project without a log reads as an empty one, and a
    folder that may not be written is still read."""
    import sqlite3

    path = log_file(folder)
    try:
        if not path.is_file():
            return _empty()
        return _patiently(lambda: _reading(folder, path))
    except (sqlite3.Error, OSError) as error:
        raise trouble(error, path) from error


def check(folder: Path) -> list[str]:
    """Return what SQLite finds wrong with the whole file, page by page; an empty list when it is sound."""
    import sqlite3

    try:
        connection = connect_to_read(folder)
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(20)")]
        finally:
            connection.close()
    except StateError as error:
        return [str(error)]
    except sqlite3.Error as error:
        return [str(trouble(error, log_file(folder)))]
    return [] if found == ["ok"] else found


def trouble(error: sqlite3.Error | OSError, path: Path) -> StateError:
    """The sentence for what SQLite or the file system said."""
    code = _code(error)
    if isinstance(error, OSError):
        return _no_access(path, error.strerror or str(error))
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StateError(
            f"The log {path} is damaged or not a log of Retinue ({error}).",
            remedy=f"Nothing was changed. Move it aside (mv {path} {path}.broken) and a new one is made; "
            f"transcripts beside it are plain text, and `sqlite3 {path}.broken .recover` saves the rest.",
        )
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StateError(
            f"The log {path} could not be written: the disk is full or failing ({error}).",
            remedy="Free some space. What was written before is safe; what was not is kept in memory and tried again.",
        )
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return _no_access(path, str(error))
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StateError(
            f"The log {path} is held by another process ({error}).",
            remedy="Wait for it to finish, or find it with: lsof " + str(path),
        )
    return StateError(f"The log {path} cannot be used ({error}).", remedy="Set RETINUE_HOME to another folder.")


def _code(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def _no_access(path: Path, why: str) -> StateError:
    return StateError(
        f"The log {path} cannot be opened or written ({why}).",
        remedy="Set RETINUE_HOME to a folder you may write to, or correct the rights of this one.",
    )


def _make_private(folder: Path) -> None:
    private_folder(folder)
    if folder.stat().st_mode & 0o077:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)


def _create(path: Path) -> None:
    """Make the file for its owner only. An existing file is never opened here: closing it again
    would drop the locks that SQLite holds on it for this process, and with them its safety."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _open(uri: str) -> sqlite3.Connection:
    import sqlite3

    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
    return connection


def _patiently(opened: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
    """Return what `opened` opens, tried again for as long as another process holds the file.

    SQLite does not wait by itself while the first process turns a new file into a WAL file: it
    reports that as busy at once, whatever the busy timeout is."""
    import sqlite3

    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        try:
            return opened()
        except sqlite3.OperationalError as error:
            busy = _code(error).startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


def _writing(path: Path, migrations: tuple[Migration, ...]) -> sqlite3.Connection:
    connection = _open(f"{path.absolute().as_uri()}?mode=rw")
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA cache_size=-32768")
        connection.execute("PRAGMA journal_size_limit=16777216")
        migrate(connection, path, migrations)
        # SQLite opens a file it may not write without an error; asking for the lock finds out.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _reading(folder: Path, path: Path) -> sqlite3.Connection:
    import sqlite3

    uri = path.absolute().as_uri()
    connection = _open(f"{uri}?mode=ro")
    try:
        try:
            version = version_of(connection, path)
        except sqlite3.OperationalError:
            if os.access(folder, os.W_OK):
                raise
            # WAL needs a file of its own beside the database; here it can neither exist nor be made.
            connection.close()
            connection = _open(f"{uri}?mode=ro&immutable=1")
            version = version_of(connection, path)
        if version < len(MIGRATIONS) and os.access(folder, os.W_OK) and os.access(path, os.W_OK):
            connect(folder).close()
    except BaseException:
        connection.close()
        raise
    return connection


def _empty() -> sqlite3.Connection:
    connection = _open("file::memory:")
    migrate(connection, Path(FILE_NAME), MIGRATIONS)
    return connection


LIVE_STATES = ", ".join(f"'{state}'" for state in sorted(LIVE))
"""For conditions: a list of literals."""


def register(connection: sqlite3.Connection, owner: Owner) -> None:
    connection.execute(
        "INSERT INTO owners (id, pid, started, host, boot, space, heartbeat) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (owner.id, owner.pid, owner.started, owner.host, owner.boot, owner.space, owner.heartbeat),
    )


def owners(connection: sqlite3.Connection) -> dict[str, Owner]:
    rows = connection.execute("SELECT id, pid, started, host, boot, space, heartbeat FROM owners")
    return {row[0]: Owner(*row) for row in rows}


def recover(connection: sqlite3.Connection, here: Owner) -> bool:
    """Mark the runs of processes that are gone as interrupted. Takes the write lock only when
    there is something to mark. Return whether any process was gone."""
    dead = [owner for owner in owners(connection).values() if not owner.alive(here)]
    if not dead:
        return False
    connection.execute("BEGIN IMMEDIATE")
    try:
        for owner in dead:
            release(connection, owner)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return True


def release(connection: sqlite3.Connection, owner: Owner) -> None:
    """Remove an owner: what it still ran is interrupted, and it can write no more."""
    connection.execute(
        f"UPDATE runs SET state='interrupted', owner=NULL WHERE owner=? AND state IN ({LIVE_STATES})",  # noqa: S608
        (owner.id,),
    )
    connection.execute("DELETE FROM owners WHERE id=?", (owner.id,))


def take_over(connection: sqlite3.Connection, run_id: str, here: Owner) -> tuple[sqlite3.Row, int]:
    """Make `here` the owner of an ended or interrupted run and return its row as it was before,
    with the number of its last event. Raise StateError while another process runs it."""
    import sqlite3

    cursor = connection.execute(f"{SELECT_RUN} WHERE id=?", (run_id,))
    cursor.row_factory = sqlite3.Row
    row = cursor.fetchone()
    if row is None:
        raise UnknownRunError(f"There is no run {run_id} in this log.", remedy="See: retinue runs list")
    owner = owners(connection).get(row["owner"]) if row["state"] in LIVE else None
    if owner is not None:
        if owner.alive(here):
            where = f"process {owner.pid}"
            if owner.host != here.host:
                where += f" on {owner.host}"
            raise StateError(
                f"Run {run_id} is being run by {where}.",
                remedy="Watch it with: retinue runs tail " + run_id,
            )
        release(connection, owner)
    connection.execute("UPDATE runs SET state='running', owner=? WHERE id=?", (here.id, run_id))
    last = connection.execute("SELECT max(seq) FROM events WHERE run_id=?", (run_id,)).fetchone()[0]
    return row, int(last or 0)
