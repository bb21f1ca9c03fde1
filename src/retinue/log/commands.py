"""Commands from one process to a run of another process, and events added to runs without a process.

A command is addressed to the process that owns the run at that moment; a process that takes the run over later never
executes it. Owners look for commands when the file has changed. They take a command and mark it as taken in one
transaction, so it is taken once. A sender that stops waiting withdraws its command unless it was taken. So every
command is executed, refused or withdrawn, and its sender learns which.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.delegation import LIVE
from retinue.core.encode import encode
from retinue.core.events import Body, RunEnded
from retinue.core.foreign import MAX_TEXT_CHARACTERS, RunId, Text, decode_row
from retinue.core.outcome import Failure, Outcome
from retinue.core.programs import this_process
from retinue.core.run_state import RunState
from retinue.errors import StateError, UnknownRunError, UsageError
from retinue.log.batch import TextRedactor
from retinue.log.database import last_seq, opened, transaction
from retinue.log.query import LogReader, readable

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection

CommandKind = Literal["steer", "stop", "stop-tree", "compact", "background"]

MAX_ANSWER_SECONDS = 10.0
"""How long a sender waits. The owner looks for commands five times a second, unless it hangs."""
ANSWER_POLL_SECONDS = 0.05
_SEPARATOR = "\x1f"
STALE_COMMAND_SECONDS = 600.0
"""The age at which commands are removed: no sender waits any more."""


class RunCommand(Struct, frozen=True):
    """A command to a run. `text` is the message of `steer`; for `stop` and `stop-tree` it names who asked, and empty
    text stands for the user. `by` names the front end that steers, for the record of the run."""

    run_id: RunId
    kind: CommandKind
    text: Text = ""
    by: str = ""


class PendingCommand(Struct, frozen=True):
    """A command that its owner has taken and must answer."""

    number: int
    command: RunCommand


class CommandAnswer(Struct, frozen=True):
    """The answer to a command. `text` states the effect of an accepted command, or the reason and the remedy."""

    run_id: str
    accepted: bool
    text: str


# The sender


async def send_aside(folder: Path, commands: Sequence[RunCommand]) -> list[CommandAnswer]:
    """Send commands from a separate thread, and return their answers: another process may lock the file for seconds,
    which must not block this event loop."""
    if not commands:
        return []
    return await asyncio.to_thread(lambda: asyncio.run(send(folder, commands)))


async def send(
    folder: Path, commands: Sequence[RunCommand], *, patience: float = MAX_ANSWER_SECONDS
) -> list[CommandAnswer]:
    """Send commands, and return one answer per command, in order, after at most `patience` seconds. Raise
    UnknownRunError for a run that is not in this log, UsageError for a message that is too long, and StateError if the
    log cannot be used."""
    if any(len(_pack(command)) > MAX_TEXT_CHARACTERS for command in commands):
        raise UsageError(
            f"A message to a run has at most {MAX_TEXT_CHARACTERS:,} characters.",
            remedy="Put the text into a file of the project, and name the file in the message.",
        )
    with opened(folder, writable=True) as connection, LogReader.open(folder) as reader:
        runs = [reader.run(command.run_id) for command in commands]
        ended = list(map(partial(_end_offered, folder), commands, runs))
        addressed = [pair for pair, end in zip(zip(commands, runs, strict=True), ended, strict=True) if end is None]
        answers = iter(await _exchange(connection, reader, addressed, patience))
        return [end or next(answers) for end in ended]


async def _exchange(
    connection: LogConnection, reader: LogReader, addressed: Sequence[tuple[RunCommand, RunState]], patience: float
) -> list[CommandAnswer]:
    numbers = _write(connection, addressed)
    unanswered = {number: run for number, (_, run) in zip(numbers, addressed, strict=True) if number is not None}
    answers: dict[int | None, CommandAnswer] = {}
    deadline = time.monotonic() + patience
    try:
        while unanswered:
            late = time.monotonic() >= deadline
            for number, run in tuple(unanswered.items()):
                answer = _find_answer(connection, number, run) or _give_up(connection, reader, number, run, late)
                if answer is not None:
                    answers[number] = answer
                    del unanswered[number]
            if unanswered:
                await asyncio.sleep(ANSWER_POLL_SECONDS)
    finally:
        connection.executemany("DELETE FROM commands WHERE id=?", [(number,) for number in numbers if number])
    return [answers.get(number) or not_live(run) for number, (_, run) in zip(numbers, addressed, strict=True)]


def _write(connection: LogConnection, addressed: Sequence[tuple[RunCommand, RunState]]) -> list[int | None]:
    """Write the commands, and return their numbers; None for a command whose run has no process."""
    now, here = time.time(), this_process()
    numbers: list[int | None] = []
    with transaction(connection):
        alive = {name for name, owner in connection.owners().items() if owner.alive(here)}
        connection.execute("DELETE FROM commands WHERE at<?", (now - STALE_COMMAND_SECONDS,))
        for command, run in addressed:
            owner, state = connection.execute("SELECT owner, state FROM runs WHERE id=?", (run.id,)).fetchone()
            if state not in LIVE or owner not in alive:
                numbers.append(None)
                continue
            row = (owner, run.id, command.kind, _pack(command), now)
            connection.insert("commands", ("owner", "run_id", "kind", "text", "at"), [row])
            numbers.append(connection.execute("SELECT max(id) FROM commands").fetchone()[0])
    return numbers


def _find_answer(connection: LogConnection, number: int, run: RunState) -> CommandAnswer | None:
    query = "SELECT accepted, answer FROM commands WHERE id=? AND accepted IS NOT NULL"
    row = connection.execute(query, (number,)).fetchone()
    return None if row is None else CommandAnswer(run.id, bool(row[0]), row[1])


def _give_up(
    connection: LogConnection, reader: LogReader, number: int, run: RunState, late: bool
) -> CommandAnswer | None:
    """Return the answer if the owner is gone or too slow; None while it may still answer."""
    present = reader.run(run.id)
    if present.state not in LIVE:
        # It may have answered and then ended.
        return _find_answer(connection, number, run) or not_live(present)
    if not late:
        return None
    if connection.execute("DELETE FROM commands WHERE id=? AND taken_at IS NULL", (number,)).rowcount:
        text = f"Not delivered: process {run.pid}, which runs it, did not answer. It may be busy or hang; try again."
        return CommandAnswer(run.id, False, text)
    return _find_answer(connection, number, run) or CommandAnswer(
        run.id, False, f"Process {run.pid} has taken it and not answered yet. See: retinue runs show {run.id}"
    )


def _end_offered(folder: Path, command: RunCommand, row: RunState) -> CommandAnswer | None:
    """Stop a run that was offered to workers and that no worker has taken. Return None for other commands and runs."""
    if row.state != "queued" or row.pid is not None or command.kind not in ("stop", "stop-tree"):
        return None
    failure = Failure("stopped", "Stopped before it had started.")
    outcome = Outcome("stopped", failure=failure, model=row.model, stopped_by="person")
    annotate(folder, row.id, RunEnded(outcome))
    return CommandAnswer(row.id, True, "It is stopped: no worker had taken it.")


def not_live(row: RunState) -> CommandAnswer:
    """Return the answer about a run without a process."""
    if row.state == "queued":
        text = "Not delivered: no worker has taken the run yet. Try again when it has started."
    elif row.state == "ended":
        text = f"Not delivered: the run has ended ({row.ended}). Continue it: retinue runs resume {row.id}"
    else:
        text = f"Not delivered: the run was interrupted, its process is gone. Resume it: retinue runs resume {row.id}"
    return CommandAnswer(row.id, False, text)


# The owner; `take` and `answer` inside `Log.transact`


def take(connection: LogConnection, owner: str) -> list[PendingCommand]:
    """Take the new commands for the runs of `owner`, in the order in which they were sent. Their text is removed from
    the table."""
    rows = connection.execute(
        "SELECT id, run_id, kind, text FROM commands WHERE owner=? AND taken_at IS NULL ORDER BY id", (owner,)
    ).fetchall()
    connection.executemany(
        "UPDATE commands SET taken_at=?, text='' WHERE id=?", [(time.time(), number) for number, *_ in rows]
    )
    # An unreadable command is also taken, so that nobody reads it again; its sender gets no answer.
    return readable(rows, _read_command)


def _read_command(row: Any) -> PendingCommand:
    number, run_id, kind, text = row
    command = decode_row({"run_id": run_id, "kind": kind, "text": text}, RunCommand, "A command")
    text, separator, by = command.text.rpartition(_SEPARATOR)
    return PendingCommand(number, replace(command, text=text, by=by) if separator else command)


def _pack(command: RunCommand) -> str:
    """Return the value of the column `text`: the text, and `by` after a separator that no keyboard produces. Earlier
    versions write no separator."""
    return f"{command.text}{_SEPARATOR}{command.by}" if command.by else command.text


def answer(connection: LogConnection, answers: Iterable[tuple[int, CommandAnswer]]) -> None:
    connection.executemany(
        "UPDATE commands SET accepted=?, answer=? WHERE id=?",
        [(answer.accepted, answer.text, number) for number, answer in answers],
    )


class CommandPoll:
    """Looks for commands to `owner`. This costs a few microseconds while the file has not changed, and one search in a
    small index after a change."""

    def __init__(self, reader: LogReader, owner: str) -> None:
        self._reader = reader
        self._owner = owner
        self.reset()

    def reset(self) -> None:
        """Search again next time, because the present commands could not be taken."""
        self._version = -1

    def has_commands(self) -> bool:
        try:
            version = self._reader.version()
            if version == self._version:
                return False
            self._version = version
            return self._reader.has_commands(self._owner)
        except StateError:
            # The next write to the log will report the cause.
            return False


def annotate(folder: Path, run_id: str, body: Body, redact: TextRedactor | None = None) -> int:
    """Append `body` to a run without a process, and return its number. Raise UnknownRunError if the run is missing, and
    StateError while a process runs it, because only that process may write."""
    written, data = encode(body)
    if redact is not None and (clean := redact.body(written, data)) is not written:
        data = encode(clean)[1]
    with opened(folder, writable=True) as connection, transaction(connection):
        row = connection.execute("SELECT state, owner FROM runs WHERE id=?", (run_id,)).fetchone()
        if row is None:
            raise UnknownRunError(f"There is no run {run_id} in this log.", remedy="See: retinue runs list")
        state, owner = row
        running = connection.owners().get(owner) if state in LIVE else None
        if running is not None and running.alive(this_process()):
            raise StateError(f"Run {run_id} is still running.", remedy=f"Stop it first: retinue runs stop {run_id}")
        if state == "ended" and isinstance(body, RunEnded):
            raise StateError(f"Run {run_id} has ended already.")
        now, seq = time.time(), last_seq(connection, run_id) + 1
        columns = ("run_id", "seq", "at", "type", "body")
        connection.insert("events", columns, [(run_id, seq, now, body.type, data.decode())])
        if isinstance(body, RunEnded):
            failure = body.outcome.failure
            connection.execute(
                "UPDATE runs SET state='ended', owner=NULL, ended=?, error=?, ended_at=?, updated_at=? WHERE id=?",
                (body.outcome.ended, failure.kind if failure else None, now, now, run_id),
            )
    return seq
