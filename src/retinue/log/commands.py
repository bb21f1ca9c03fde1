"""Commands from one process to a run of another, and notes added to runs that are over.

The sender addresses the process that owns the run at that moment, so a command is never carried
out by one that takes the run over later. Owners look for commands when the file has changed; taking
one and marking it as taken is one transaction, so it is never taken twice. A sender that gives up
withdraws its command unless it was taken: a command is carried out, refused or withdrawn, and its
sender knows which.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.core.delegation import LIVE
from retinue.core.encode import encode
from retinue.core.events import Body, RunEnded
from retinue.core.foreign import MAX_TEXT_CHARACTERS, RunId, Text, UnreadableValueError, decode_row
from retinue.core.outcome import Failure, Outcome
from retinue.core.programs import this_process
from retinue.core.run_state import RunState
from retinue.errors import StateError, UnknownRunError, UsageError
from retinue.log.batch import TextRedactor
from retinue.log.database import connect, log_file, trouble
from retinue.log.query import LogReader

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection

CommandKind = Literal["steer", "stop", "stop-tree", "compact", "background"]

PATIENCE_SECONDS = 10.0
"""How long a sender waits. The owner looks five times a second, unless it hangs."""
POLL_SECONDS = 0.05
_SEPARATOR = "\x1f"
KEEP_SECONDS = 600.0
"""After this time no sender waits for an answer any more."""


class RunCommand(Struct, frozen=True):
    """`text` is the message of `steer`. Of `stop` and `stop-tree` it names who asks; empty: the user. `by` names the
    face that steers; the record of the run keeps it."""

    run_id: str
    kind: CommandKind
    text: str = ""
    by: str = ""


class _CommandRow(Struct, frozen=True):
    """A command as the database holds it."""

    id: int
    run_id: RunId
    kind: CommandKind
    text: Text


class PendingCommand(Struct, frozen=True):
    """A command that its owner must answer, by its number."""

    number: int
    command: RunCommand


class CommandAnswer(Struct, frozen=True):
    """`accepted`: the run has taken it. `text` says what happens now, or why not and what to do."""

    run_id: str
    accepted: bool
    text: str


# The sender


async def send_aside(folder: Path, commands: Sequence[RunCommand]) -> list[CommandAnswer]:
    """Send commands in a thread of its own, and return their answers: another process may hold the file for seconds,
    and must not hold up this one's event loop."""
    if not commands:
        return []
    return await asyncio.to_thread(lambda: asyncio.run(send(folder, commands)))


async def send(
    folder: Path, commands: Sequence[RunCommand], *, patience: float = PATIENCE_SECONDS
) -> list[CommandAnswer]:
    """Return one answer per command, in order. Wait no longer than `patience` seconds, whatever the owner
    does. Raise UnknownRunError for a run that is not in this log, UsageError for a message that is too long, and
    StateError when the log cannot be used."""
    import sqlite3

    if any(len(_pack(command)) > MAX_TEXT_CHARACTERS for command in commands):
        raise UsageError(
            f"A message to a run has at most {MAX_TEXT_CHARACTERS:,} characters.",
            remedy="Put the text into a file of the project, and name the file in the message.",
        )
    try:
        connection = connect(folder)
        try:
            with LogReader.open(folder) as reader:
                rows = [reader.run(command.run_id) for command in commands]
                answers: dict[int, CommandAnswer] = {}
                for place, (command, row) in enumerate(zip(commands, rows, strict=True)):
                    if row.state == "queued" and row.pid is None and command.kind in ("stop", "stop-tree"):
                        answers[place] = _end_offered(folder, row)
                told = [place for place in range(len(rows)) if place not in answers]
                some_commands = [commands[place] for place in told]
                some_rows = [rows[place] for place in told]
                said = await _converse(connection, reader, some_commands, some_rows, patience)
                answers |= zip(told, said, strict=True)
                return [answers[place] for place in range(len(rows))]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise trouble(error, log_file(folder)) from error


async def _converse(
    connection: LogConnection,
    reader: LogReader,
    commands: Sequence[RunCommand],
    rows: Sequence[RunState],
    patience: float,
) -> list[CommandAnswer]:
    numbers = _give(connection, commands, rows)
    answers: dict[int, CommandAnswer] = {}
    deadline = time.monotonic() + patience
    try:
        while len(answers) < sum(number is not None for number in numbers):
            late = time.monotonic() >= deadline
            for number, row in zip(numbers, rows, strict=True):
                if number is not None and number not in answers:
                    answer = _answered(connection, number, row) or _given_up(connection, reader, number, row, late)
                    if answer is not None:
                        answers[number] = answer
            if len(answers) < sum(number is not None for number in numbers):
                await asyncio.sleep(POLL_SECONDS)
    finally:
        _forget(connection, [number for number in numbers if number is not None])
    return [answers[number] if number is not None else not_live(row) for number, row in zip(numbers, rows, strict=True)]


def _give(connection: LogConnection, commands: Sequence[RunCommand], rows: Sequence[RunState]) -> list[int | None]:
    """Write the commands and return the number of each; None where no process runs the run."""
    now, here = time.time(), this_process()
    connection.execute("BEGIN IMMEDIATE")
    try:
        alive = {name for name, owner in connection.owners().items() if owner.alive(here)}
        connection.execute("DELETE FROM commands WHERE at<?", (now - KEEP_SECONDS,))
        numbers: list[int | None] = []
        for command, row in zip(commands, rows, strict=True):
            owner, state = connection.execute("SELECT owner, state FROM runs WHERE id=?", (row.id,)).fetchone()
            if state not in LIVE or owner not in alive:
                numbers.append(None)
                continue
            connection.execute(
                "INSERT INTO commands (owner, run_id, kind, text, at) VALUES (?, ?, ?, ?, ?)",
                (owner, row.id, command.kind, _pack(command), now),
            )
            numbers.append(connection.execute("SELECT max(id) FROM commands").fetchone()[0])
        connection.execute("COMMIT")
    except BaseException:
        # A full disk has ended the transaction already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return numbers


def _answered(connection: LogConnection, number: int, row: RunState) -> CommandAnswer | None:
    found = connection.execute("SELECT accepted, answer FROM commands WHERE id=?", (number,)).fetchone()
    if found is None or found[0] is None:
        return None
    return CommandAnswer(row.id, bool(found[0]), found[1])


def _given_up(
    connection: LogConnection, reader: LogReader, number: int, row: RunState, late: bool
) -> CommandAnswer | None:
    """The answer when the owner is gone or too slow; None while it may still answer."""
    if reader.run(row.id).state not in LIVE:
        # It may have answered and ended between two looks.
        return _answered(connection, number, row) or not_live(reader.run(row.id))
    if not late:
        return None
    withdrawn = connection.execute("DELETE FROM commands WHERE id=? AND taken_at IS NULL", (number,)).rowcount
    if withdrawn:
        text = f"Not delivered: process {row.pid}, which runs it, did not answer. It may be busy or hang; try again."
        return CommandAnswer(row.id, False, text)
    return _answered(connection, number, row) or CommandAnswer(
        row.id, False, f"Process {row.pid} has taken it and not answered yet. See: retinue runs show {row.id}"
    )


def _end_offered(folder: Path, row: RunState) -> CommandAnswer:
    """End a run that was offered to workers and that none has taken."""
    failure = Failure("stopped", "Stopped before it had started.")
    outcome = Outcome("stopped", failure=failure, model=row.model, stopped_by="person")
    annotate(folder, row.id, RunEnded(outcome))
    return CommandAnswer(row.id, True, "It is stopped: no worker had taken it.")


def not_live(row: RunState) -> CommandAnswer:
    """Return the sentence about a run that no process runs."""
    if row.state == "queued":
        text = "Not delivered: no worker has taken the run yet. Try again when it has started."
    elif row.state == "ended":
        text = f"Not delivered: the run has ended ({row.ended}). Go on with it: retinue runs resume {row.id}"
    else:
        text = f"Not delivered: the run was interrupted, its process is gone. Resume it: retinue runs resume {row.id}"
    return CommandAnswer(row.id, False, text)


def _forget(connection: LogConnection, numbers: Sequence[int]) -> None:
    if numbers:
        connection.execute(f"DELETE FROM commands WHERE id IN ({', '.join('?' * len(numbers))})", tuple(numbers))  # noqa: S608


# The owner: the first two inside `Log.transact`


def take(connection: LogConnection, owner: str) -> list[PendingCommand]:
    """The commands for the runs of `owner` that nobody has taken, in the order they were given.
    From here on they are taken, and their text is nowhere but in the result."""
    rows = connection.execute(
        "SELECT id, run_id, kind, text FROM commands WHERE owner=? AND taken_at IS NULL ORDER BY id", (owner,)
    ).fetchall()
    connection.executemany(
        "UPDATE commands SET taken_at=?, text='' WHERE id=?", [(time.time(), number) for number, *_ in rows]
    )
    found = []
    for row in rows:
        try:
            checked = decode_row(dict(zip(_CommandRow.__struct_fields__, row, strict=True)), _CommandRow, "A command")
        except UnreadableValueError as error:
            # It is taken, so that nobody meets it again; its sender has no answer.
            logging.getLogger("retinue").warning("%s It is left out.", error)
            continue
        found.append(PendingCommand(checked.id, _unpack(checked.run_id, checked.kind, checked.text)))
    return found


def _pack(command: RunCommand) -> str:
    """Return what the table holds: the text, and who steers behind a separator that no keyboard writes. Processes of
    earlier versions write none."""
    return f"{command.text}{_SEPARATOR}{command.by}" if command.by else command.text


def _unpack(run_id: str, kind: CommandKind, text: str) -> RunCommand:
    said, separator, by = text.rpartition(_SEPARATOR)
    return RunCommand(run_id, kind, said, by) if separator else RunCommand(run_id, kind, text)


def answer(connection: LogConnection, answers: Iterable[tuple[int, CommandAnswer]]) -> None:
    connection.executemany(
        "UPDATE commands SET accepted=?, answer=? WHERE id=?",
        [(given.accepted, given.text, number) for number, given in answers],
    )


class Ear:
    """Whether there is a command for `owner`. Asking costs a few microseconds while the file
    has not changed, and one look into a small index when it has."""

    def __init__(self, reader: LogReader, owner: str) -> None:
        self._reader = reader
        self._owner = owner
        self._version = -1

    def again(self) -> None:
        """Look again next time: the commands that were seen could not be taken."""
        self._version = -1

    def hears(self) -> bool:
        try:
            version = self._reader.version()
            if version == self._version:
                return False
            self._version = version
            return self._reader.has_commands(self._owner)
        except StateError:
            # The next write to the log reports the cause better.
            return False


def annotate(folder: Path, run_id: str, body: Body, redact: TextRedactor | None = None) -> int:
    """Append `body` to a run that no process runs; return its number. Raise UnknownRunError without the
    run, and StateError while a process runs it: then only that process may write."""
    import sqlite3

    body_clean, data = encode(body)
    if redact is not None:
        clean = redact.body(body_clean, data)
        if clean is not body_clean:
            body_clean, data = encode(clean)
    connection = connect(folder)
    try:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute("SELECT state, owner FROM runs WHERE id=?", (run_id,)).fetchone()
        if row is None:
            raise UnknownRunError(f"There is no run {run_id} in this log.", remedy="See: retinue runs list")
        state, owner = row
        running = connection.owners().get(owner) if state in LIVE else None
        if running is not None and running.alive(this_process()):
            raise StateError(f"Run {run_id} is still running.", remedy=f"Stop it first: retinue runs stop {run_id}")
        if state == "ended" and isinstance(body, RunEnded):
            raise StateError(f"Run {run_id} has ended already.")
        seq = int(
            connection.execute("SELECT coalesce(max(seq), 0) FROM events WHERE run_id=?", (run_id,)).fetchone()[0]
        )
        connection.execute(
            "INSERT INTO events (run_id, seq, at, type, body) VALUES (?, ?, ?, ?, ?)",
            (run_id, seq + 1, time.time(), body.type, data.decode()),
        )
        if isinstance(body, RunEnded):
            failure = body.outcome.failure
            connection.execute(
                "UPDATE runs SET state='ended', owner=NULL, ended=?, error=?, ended_at=?, updated_at=? WHERE id=?",
                (body.outcome.ended, failure.kind if failure else None, time.time(), time.time(), run_id),
            )
        connection.execute("COMMIT")
        return seq + 1
    except sqlite3.Error as error:
        raise trouble(error, log_file(folder)) from error
    finally:
        # An open transaction is rolled back with it.
        connection.close()
