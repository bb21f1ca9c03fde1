"""The database of a project's log: its location, its connections, and the owners of runs.

A project's log is a SQLite file in its state folder, or a schema of a PostgreSQL database if the user has named one
(`settings.database`). Everything else in this package works with both.

An owner is a process that executes runs. Registering an owner and taking over a run happen inside a transaction of the
caller, so if two processes want the same run, exactly one gets it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.delegation import LIVE
from retinue.core.programs import Owner
from retinue.errors import StateError, UnknownRunError
from retinue.log.backend import LogBackend, LogConnection
from retinue.log.rows import SELECT_RUN
from retinue.settings.places import ProjectDatabase, database_folder, database_of, database_url

if TYPE_CHECKING:
    import sqlite3

FILE_NAME = "log.db"
NO_ROW_LIMIT = 2**62
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)})
_NO_ACCESS_ERRORS = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")


def log_file(folder: Path) -> Path:
    """Return the SQLite file of a project's log, which exists unless a database server is used."""
    return folder / FILE_NAME


def backend_of(folder: Path) -> LogBackend:
    """Return the log of the project with this state folder."""
    database = database_of(folder)
    if database is None:
        from retinue.log.sqlite import SqliteBackend

        return SqliteBackend(folder)
    from retinue.log.postgres import PostgresBackend

    return PostgresBackend(database)


def connect(folder: Path) -> LogConnection:
    return backend_of(folder).connect()


def connect_to_read(folder: Path) -> LogConnection:
    return backend_of(folder).connect_to_read()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to StateError with a remedy. Connections to PostgreSQL convert their own errors."""
    import sqlite3

    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error


@contextlib.contextmanager
def opened(folder: Path, *, writable: bool = False) -> Iterator[LogConnection]:
    """Yield a connection to the log of a project, and close it, which rolls an open transaction back. Raise
    StateError."""
    with explained(log_file(folder)), contextlib.closing((connect if writable else connect_to_read)(folder)) as log:
        yield log


@contextlib.contextmanager
def transaction(connection: LogConnection | sqlite3.Connection) -> Iterator[None]:
    """Commit all changes made within this context, or none. Only one process at a time can be inside."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk ends the transaction.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def explain(error: Exception, path: Path) -> StateError:
    """Return the message for an error of SQLite or of the file system."""
    code = error_code(error)
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StateError(
            f"The log {path} is damaged or not a log of Retinue ({error}).",
            remedy=f"Nothing was changed. Move it aside (mv {path} {path}.broken), and a new one is created. "
            f"Transcripts beside it are plain text, and `sqlite3 {path}.broken .recover` saves the rest.",
        )
    if is_failing_disk(error):
        return StateError(
            f"The log {path} could not be written: the disk is full or failing ({error}).",
            remedy="Free some space. Written events are safe; the others stay in memory and are tried again. "
            "Runs at work are interrupted and can be resumed then.",
        )
    if isinstance(error, OSError) or code.startswith(_NO_ACCESS_ERRORS):
        return StateError(
            f"The log {path} cannot be opened or written ({getattr(error, 'strerror', None) or error}).",
            remedy="Set RETINUE_HOME to a folder you may write to, or correct the permissions of this one.",
        )
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StateError(
            f"The log {path} is locked by another process ({error}).",
            remedy="Wait for it to finish, or find it with: lsof " + str(path),
        )
    return StateError(f"The log {path} cannot be used ({error}).", remedy="Set RETINUE_HOME to another folder.")


def is_failing_disk(error: Exception) -> bool:
    """Return whether a write failed because the disk is full or defective."""
    if isinstance(error, OSError):
        return error.errno in _DISK_ERRORS
    return error_code(error).startswith(("SQLITE_FULL", "SQLITE_IOERR"))


def error_code(error: Exception) -> str:
    """Return the name of an error of SQLite; empty for any other."""
    return getattr(error, "sqlite_errorname", "") or ""


def log_folders(home: Path) -> list[Path]:
    """Return the state folders of all projects with a log under `home` (RETINUE_HOME), and of the projects in the
    database that the user has named."""
    folders: list[Path] = []
    with contextlib.suppress(OSError):
        folders = sorted(entry for entry in (home / "projects").iterdir() if log_file(entry).is_file())
    url = database_url()
    if url is not None:
        from retinue.log.postgres import project_names

        with contextlib.suppress(StateError):
            folders += [database_folder(home, ProjectDatabase(url, name)) for name in project_names(url)]
    return folders


LIVE_STATES = ", ".join(f"'{state}'" for state in sorted(LIVE))
"""For conditions: a list of literals."""


def register(connection: LogConnection, owner: Owner) -> None:
    connection.execute(
        "INSERT INTO owners (id, pid, started, host, boot, space, heartbeat) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        (owner.id, owner.pid, owner.started, owner.host, owner.boot, owner.space, connection.clock()),
    )


def recover(connection: LogConnection, here: Owner) -> bool:
    """Mark the runs of dead processes as interrupted. Return whether any process was dead. Only then the log is
    locked."""
    dead = [owner for owner in connection.owners().values() if not owner.alive(here)]
    if not dead:
        return False
    with transaction(connection):
        for owner in dead:
            release(connection, owner)
    return True


def release(connection: LogConnection, owner: Owner) -> None:
    """Remove an owner. Its live runs become interrupted, and it cannot write any more."""
    connection.execute(
        f"UPDATE runs SET state='interrupted', owner=NULL WHERE owner=? AND state IN ({LIVE_STATES})",  # noqa: S608
        (owner.id,),
    )
    connection.execute("DELETE FROM owners WHERE id=?", (owner.id,))


def take_over(connection: LogConnection, run_id: str, here: Owner) -> tuple[Any, int]:
    """Make `here` the owner of an ended or interrupted run. Return its previous row and the number of its last event.
    Raise StateError while another process runs it."""
    row = connection.execute(f"{SELECT_RUN} WHERE id=?", (run_id,)).fetchone()
    if row is None:
        raise UnknownRunError(f"There is no run {run_id} in this log.", remedy="See: retinue runs list")
    owner = connection.owners().get(row["owner"]) if row["state"] in LIVE else None
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
    return row, last_seq(connection, run_id)


def last_seq(connection: LogConnection, run_id: str) -> int:
    """Return the number of the last event of a run; 0 without events."""
    return int(connection.execute("SELECT max(seq) FROM events WHERE run_id=?", (run_id,)).fetchone()[0] or 0)
