"""Who may write to a run: registering an owner, taking runs over, noticing the dead.

All of it runs inside a transaction of the caller, so that two processes that want the same run
get one yes and one no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.states import LIVE
from retinue.errors import StateError, UnknownRunError
from retinue.log.owner import Owner
from retinue.log.rows import SELECT_RUN

if TYPE_CHECKING:
    import sqlite3

_LIVE = ", ".join(f"'{state}'" for state in sorted(LIVE))


def register(connection: sqlite3.Connection, owner: Owner) -> None:
    connection.execute(
        "INSERT INTO owners (id, pid, started, host, boot, space, heartbeat) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (owner.id, owner.pid, owner.started, owner.host, owner.boot, owner.space, owner.heartbeat),
    )


def owners(connection: sqlite3.Connection) -> dict[str, Owner]:
    rows = connection.execute("SELECT id, pid, started, host, boot, space, heartbeat FROM owners")
    return {row[0]: Owner(*row) for row in rows}


def recover(connection: sqlite3.Connection, here: Owner) -> bool:
    """Marks the runs of processes that are gone as interrupted. Takes the write lock only when
    there is something to mark. Gives whether any process was gone."""
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
    """An owner goes: what it still ran is interrupted, and it can write no more."""
    connection.execute(
        f"UPDATE runs SET state='interrupted', owner=NULL WHERE owner=? AND state IN ({_LIVE})",  # noqa: S608
        (owner.id,),
    )
    connection.execute("DELETE FROM owners WHERE id=?", (owner.id,))


def take_over(connection: sqlite3.Connection, run_id: str, here: Owner) -> tuple[sqlite3.Row, int]:
    """Makes `here` the owner of an ended or interrupted run and gives its row as it was before,
    with the number of its last event. Raises StateError while another process runs it."""
    import sqlite3

    cursor = connection.execute(f"{SELECT_RUN} WHERE id=?", (run_id,))
    cursor.row_factory = sqlite3.Row
    row = cursor.fetchone()
    if row is None:
        raise UnknownRunError(f"There is no run {run_id} in this log.", remedy="See: retinue runs list")
    owner = owners(connection).get(row["owner"]) if row["state"] in LIVE else None
    if owner is not None:
        if owner.alive(here):
            where = f"process {owner.pid}" + ("" if owner.host == here.host else f" on {owner.host}")
            raise StateError(
                f"Run {run_id} is being run by {where}.",
                remedy="Watch it with: retinue runs tail " + run_id,
            )
        release(connection, owner)
    connection.execute("UPDATE runs SET state='running', owner=? WHERE id=?", (here.id, run_id))
    last = connection.execute("SELECT max(seq) FROM events WHERE run_id=?", (run_id,)).fetchone()[0]
    return row, int(last or 0)
