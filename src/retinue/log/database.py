"""The database of a project's log: which it is, opening it, and who owns runs in it.

A project's log is a SQLite file in its state folder, or a schema of a PostgreSQL database when the user has named one
(`settings.database`). Everything else in this package works on both.

An owner is a process that runs runs. Registering one and taking a run over happen inside a transaction
of the caller, so of two processes that want the same run exactly one gets it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from retinue.core.delegation import LIVE
from retinue.core.programs import Owner
from retinue.errors import StateError, UnknownRunError
from retinue.log.backend import LogBackend, LogConnection
from retinue.log.rows import SELECT_RUN
from retinue.settings.places import ProjectDatabase, database_folder, database_of, database_url

FILE_NAME = "log.db"
MOST_ROWS = 2**62
"""For a limit that is none."""


def log_file(folder: Path) -> Path:
    """Return the file that the log of a project is without a database server."""
    return folder / FILE_NAME


def backend_of(folder: Path) -> LogBackend:
    """Return the log of the project whose state folder this is."""
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


def check(folder: Path) -> list[str]:
    return backend_of(folder).check()


def trouble(error: Exception, path: Path) -> StateError:
    """Return the sentence for what SQLite or the file system said. A connection to PostgreSQL raises its own."""
    from retinue.log.sqlite import explain

    return explain(error, path)


def may_pass(error: Exception) -> bool:
    """Return whether a write that failed may succeed in a moment, when some space is free again."""
    from retinue.log.sqlite import is_failing_disk

    return is_failing_disk(error)


def log_folders(home: Path) -> list[Path]:
    """Return every project folder under `home` (RETINUE_HOME) that has a log, and those of the projects in the
    database that the user has named."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        found = sorted(entry for entry in (home / "projects").iterdir() if log_file(entry).is_file())
    url = database_url()
    if url is not None:
        from retinue.log.postgres import project_names

        with contextlib.suppress(StateError):
            found += [database_folder(home, ProjectDatabase(url, name)) for name in project_names(url)]
    return found


LIVE_STATES = ", ".join(f"'{state}'" for state in sorted(LIVE))
"""For conditions: a list of literals."""


def register(connection: LogConnection, owner: Owner) -> None:
    connection.execute(
        "INSERT INTO owners (id, pid, started, host, boot, space, heartbeat) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        (owner.id, owner.pid, owner.started, owner.host, owner.boot, owner.space, connection.clock()),
    )


def recover(connection: LogConnection, here: Owner) -> bool:
    """Mark the runs of processes that are gone as interrupted. Takes the write lock only when
    there is something to mark. Return whether any process was gone."""
    dead = [owner for owner in connection.owners().values() if not owner.alive(here)]
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


def release(connection: LogConnection, owner: Owner) -> None:
    """Remove an owner: what it still ran is interrupted, and it can write no more."""
    connection.execute(
        f"UPDATE runs SET state='interrupted', owner=NULL WHERE owner=? AND state IN ({LIVE_STATES})",  # noqa: S608
        (owner.id,),
    )
    connection.execute("DELETE FROM owners WHERE id=?", (owner.id,))


def take_over(connection: LogConnection, run_id: str, here: Owner) -> tuple[Any, int]:
    """Make `here` the owner of an ended or interrupted run and return its row as it was before,
    with the number of its last event. Raise StateError while another process runs it."""
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
    last = connection.execute("SELECT max(seq) FROM events WHERE run_id=?", (run_id,)).fetchone()[0]
    return row, int(last or 0)
