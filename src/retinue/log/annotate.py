"""An event added to a run that is over, from outside: what a person did about it afterwards."""

from __future__ import annotations

import time
from pathlib import Path

from retinue.core.events import Undone
from retinue.core.states import LIVE
from retinue.errors import StateError
from retinue.log.claim import owners
from retinue.log.database import connect, log_file, trouble
from retinue.log.encode import encode
from retinue.log.owner import this_process
from retinue.log.redaction import Redactor


def annotate(folder: Path, run_id: str, body: Undone, redact: Redactor | None = None) -> int:
    """Appends `body` to a run that no process runs; gives its number. Raises StateError while
    one does: then only that process may write."""
    import sqlite3

    body_clean, data = encode(body)
    if redact is not None:
        clean = redact.body(body_clean, data)
        if clean is not body_clean:
            body_clean, data = encode(clean)
    connection = connect(folder)
    try:
        connection.execute("BEGIN IMMEDIATE")
        state, owner = connection.execute("SELECT state, owner FROM runs WHERE id=?", (run_id,)).fetchone()
        running = owners(connection).get(owner) if state in LIVE else None
        if running is not None and running.alive(this_process()):
            raise StateError(f"Run {run_id} is still running.", remedy=f"Stop it first: retinue runs stop {run_id}")
        seq = int(
            connection.execute("SELECT coalesce(max(seq), 0) FROM events WHERE run_id=?", (run_id,)).fetchone()[0]
        )
        connection.execute(
            "INSERT INTO events (run_id, seq, at, type, body) VALUES (?, ?, ?, ?, ?)",
            (run_id, seq + 1, time.time(), body.type, data.decode()),
        )
        connection.execute("COMMIT")
        return seq + 1
    except sqlite3.Error as error:
        raise trouble(error, log_file(folder)) from error
    finally:
        connection.close()  # an open transaction is rolled back with it
