"""The events of one run in order, read a few at a time: a run of any length takes little memory.

Reading the log: from any process, at any time, without disturbing the writer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.delegation import LIVE, State
from retinue.core.encode import decode
from retinue.core.events import AssistantEnded, Body, Event, RunCreated, RunEnded, RunResumed, ToolEnded
from retinue.core.foreign import RunId, is_valid
from retinue.core.messages import ToolResult
from retinue.core.outcome import Outcome
from retinue.core.programs import Owner, this_process
from retinue.core.run_state import RunPlace, RunState
from retinue.errors import StateError, UnknownRunError, UsageError
from retinue.log.batch import read_whole, refers
from retinue.log.database import connect_to_read, log_file, log_folders, trouble
from retinue.log.migrations import RARE_TYPES
from retinue.log.replay import Conversation, read_conversation, read_last_turn
from retinue.log.rows import SELECT_RUN, read_run

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection


PAGE = 64
"""Events that are in memory at once."""

_NEWEST = 2**62
Select = Callable[[str, tuple[object, ...]], Sequence[Any]]
"""Reads rows of the log."""


class RunEvents:
    """One run's events in the log at `path`. Each is yielded with its place in the order of the whole log."""

    def __init__(self, select: Select, path: Path, place: RunPlace) -> None:
        self._select = select
        self._path = path
        self._place = place
        self._keeps = True
        self._results: dict[int, ToolResult] = {}
        """Of the calls of the turn that is being read: its `tools.ended` refers to them."""

    def read(
        self,
        *,
        after: int = 0,
        types: Collection[str] = (),
        limit: int | None = None,
        condition: str = "",
        newest_first: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        """Yield the events above number `after`: those of `types`, or all; at most `limit`. `condition` is SQL that
        they meet besides. With `newest_first`, all of them the other way round."""
        conditions, order = "run_id=? AND seq>?", "seq"
        if newest_first:
            conditions, order, after = "run_id=? AND seq<?", "seq DESC", _NEWEST
        if types:
            conditions += f" AND type IN ({', '.join('?' * len(types))})"
            if all("run." <= kind < "tool." for kind in types):
                conditions += f" AND {RARE_TYPES}"
        if condition:
            conditions += f" AND ({condition})"
        query = f"SELECT id, seq, at, body FROM events WHERE {conditions} ORDER BY {order} LIMIT ?"  # noqa: S608 - marks
        # Without the answers in between, results would gather.
        self._keeps = not types
        left = limit
        while left is None or left > 0:
            wanted = PAGE if left is None else min(PAGE, left)
            rows = self._select(query, (self._place.run_id, after, *types, wanted))
            for number, seq, at, body in rows:
                after = seq
                yield (
                    number,
                    Event(
                        self._place.run_id, self._place.parent_id, self._place.root_id, seq, at, self._body(seq, body)
                    ),
                )
            if len(rows) < wanted:
                return
            if left is not None:
                left -= wanted

    def _body(self, seq: int, text: str) -> Body:
        try:
            if refers(text):
                return read_whole(text, self._result)
            body = decode(text)
        except ValueError as error:
            raise StateError(
                f"Event {seq} of run {self._place.run_id} in {self._path} cannot be read ({error}).",
                remedy="The other events are untouched: retinue runs show lists them up to there.",
            ) from error
        if isinstance(body, ToolEnded) and self._keeps:
            self._results[seq] = body.result
        elif isinstance(body, AssistantEnded):
            self._results.clear()
        return body

    def _result(self, seq: int) -> ToolResult:
        known = self._results.get(seq)
        if known is not None:
            return known
        rows = self._select("SELECT body FROM events WHERE run_id=? AND seq=?", (self._place.run_id, seq))
        body = decode(rows[0][0]) if rows else None
        if not isinstance(body, ToolEnded):
            raise ValueError(f"it refers to event {seq}, which is not the end of a call")
        return body.result


T = TypeVar("T")
_IDS = ("id", "parent_id", "root_id")


_PARTIAL = """SELECT text FROM partials WHERE run_id=? AND kind=? AND seq >= (
    SELECT coalesce(max(seq), 0) FROM events WHERE run_id=? AND type IN (
        'turn.started', 'model.retrying', 'assistant.ended', 'run.resumed'))
ORDER BY id"""
"""After one of these events, text that was streamed before is whole somewhere, or void."""


class LogReader:
    """One project's log, read-only. Cheap to open; close it, or use it with `with`."""

    def __init__(self, folder: Path, connection: LogConnection) -> None:
        self.path = log_file(folder)
        self._connection = connection
        self._here: Owner | None = None
        self._has_warned = False

    @classmethod
    def open(cls, folder: Path) -> LogReader:
        """`folder` is the project's state folder; one without a log reads as an empty log."""
        return cls(folder, connect_to_read(folder))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list_runs(
        self,
        *,
        states: Collection[State] | None = None,
        agent: str | None = None,
        parent_id: str | None = None,
        root_id: str | None = None,
        depth: int | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[RunState]:
        """Runs, newest first. `states` are as seen now, so `{"interrupted"}` finds every run
        whose process died. `before` is the id of a run: only older ones are listed, for the next page."""
        wanted = {"agent": agent, "parent_id": parent_id, "root_id": root_id, "depth": depth}
        given = {name: value for name, value in wanted.items() if value is not None}
        conditions = [f"{name}=?" for name in given]
        values = [*given.values()]
        if before is not None:
            conditions.append("(created_at, id) < (SELECT created_at, id FROM runs WHERE id=?)")
            values.append(before)
        where = " AND ".join(conditions) or "1=1"
        query = f"{SELECT_RUN} WHERE {where} {{}} ORDER BY created_at DESC, id DESC"
        stored = None if states is None else stored_states(states)
        if stored is None or "ended" in stored:
            return self._runs([query.format("")], values, states, limit)
        # The index of runs that have not ended needs its own words in the condition. One query for each state
        # keeps its order, so that only the newest are read.
        queries = [query.format(f"AND state <> 'ended' AND state='{state}'") for state in sorted(stored)]
        return self._runs(queries, values, states, limit)

    def conversations(self, words: Collection[str] = (), limit: int | None = None) -> list[RunState]:
        """What a person has talked to: main runs, the newest change first. All of `words` stand in the task
        or the id; upper and lower case are the same for ASCII letters."""
        conditions = ["parent_id IS NULL", "depth=0"]
        values: list[object] = []
        for word in words:
            escaped = word.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            conditions.append("lower(task || ' ' || id) LIKE ? ESCAPE '\\'")
            values.append(f"%{escaped}%")
        query = f"{SELECT_RUN} WHERE {' AND '.join(conditions)} ORDER BY updated_at DESC"
        return self._runs([query], values, None, limit)

    def _runs(
        self, queries: Sequence[str], values: Sequence[object], states: Collection[State] | None, limit: int | None
    ) -> list[RunState]:
        """What the queries find, newest first, each of which keeps that order."""
        found: list[RunState] = []
        with self._reading():
            known = self._connection.owners()
            cursors = [self._connection.execute(query, values) for query in queries]
            rows = cursors[0] if len(cursors) == 1 else merge(*cursors, key=_moment, reverse=True)
            for row in filter(self._is_readable, rows):
                if limit is not None and len(found) >= limit:
                    break
                run = self._seen(row, known)
                if states is None or run.state in states:
                    found.append(run)
        return found

    def tree(self, row: RunState) -> list[RunState]:
        """Return the run and all that it started, parents before their children."""
        found, waiting = [], [row]
        while waiting:
            each = waiting.pop(0)
            found.append(each)
            waiting += reversed(self.list_runs(parent_id=each.id))
        return found

    def named(self, name: str) -> list[RunState]:
        """Runs that were given this name, newest first."""
        return self._runs([f"{SELECT_RUN} WHERE name=? ORDER BY created_at DESC"], [name], None, None)

    def run(self, id_or_prefix: str) -> RunState:
        """The run of that id, or the only one whose id begins so. Raise UnknownRunError with
        the nearest ids, UsageError when several fit."""
        wanted = id_or_prefix.strip()
        with self._reading():
            # The character after every letter of an id bounds the range that begins with it.
            rows = self._connection.execute(
                f"{SELECT_RUN} WHERE id=? OR (id>? AND id<?) ORDER BY id LIMIT 6",
                (wanted, wanted, wanted + "\U0010ffff"),
            ).fetchall()
            rows = list(filter(self._is_readable, rows))
            known = self._connection.owners() if rows else {}
        exact = [row for row in rows if row["id"] == wanted]
        if len(exact or rows) == 1 and wanted:
            return self._seen((exact or rows)[0], known)
        if not rows or not wanted:
            raise self._unknown(wanted)
        ids = ", ".join(row["id"] for row in rows)
        raise UsageError(f"Several runs begin with '{wanted}': {ids}.", remedy="Give more of the id.")

    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """The durable events of a run whose number is above `after`, in order. A long run takes much memory so:
        see `stream`."""
        return list(self.stream(run_id, after=after, limit=limit))

    def stream(
        self, run_id: str, *, after: int = 0, types: Collection[str] = (), limit: int | None = None, condition: str = ""
    ) -> Iterator[Event]:
        """The same a few at a time; with `types` only those. `condition` is SQL about `events`."""
        found = self._of_run(run_id)
        if found is not None:
            for _, event in found.read(after=after, types=types, limit=limit, condition=condition):
                yield event

    def backwards(self, run_id: str, types: Collection[str] = (), condition: str = "") -> Iterator[Event]:
        """Yield the same the other way round, newest first."""
        found = self._of_run(run_id)
        if found is not None:
            for _, event in found.read(types=types, condition=condition, newest_first=True):
                yield event

    def created(self, run_id: str) -> RunCreated | None:
        """The first event of a run: who it is and what it was asked."""
        first = next(self.stream(run_id, limit=1), None)
        return first.body if first is not None and isinstance(first.body, RunCreated) else None

    def ordered(
        self, run_id: str, types: Collection[str], *, newest_first: bool = False
    ) -> Iterator[tuple[int, Event]]:
        """The events of a run of these types, a few at a time, each with its place in the order of the whole log:
        numbers of different runs can be compared."""
        found = self._of_run(run_id)
        if found is not None:
            yield from found.read(types=types, newest_first=newest_first)

    def _of_run(self, run_id: str) -> RunEvents | None:
        rows = self.select("SELECT parent_id, root_id FROM runs WHERE id=?", (run_id,))
        return RunEvents(self.select, self.path, RunPlace(run_id, *rows[0])) if rows else None

    def newest(self, run_id: str) -> int:
        """The place of a run's newest event in the order of the whole log; 0 without events."""
        with self._reading():
            row = self._connection.execute(
                "SELECT id FROM events WHERE run_id=? ORDER BY seq DESC LIMIT 1", (run_id,)
            ).fetchone()
        return int(row[0]) if row is not None else 0

    def partial(self, run_id: str, kind: str = "text") -> str:
        """Return the text that was shown of an answer which is incomplete, or never was completed."""
        with self._reading():
            rows = self._connection.execute(_PARTIAL, (run_id, kind, run_id))
            return "".join(row[0] for row in rows)

    def pieces(self, run_id: str, after: int = 0, seq: int = -1) -> list[tuple[int, int, str, str]]:
        """Return streamed text that is not yet part of an event: (number, seq it follows, kind, text). `after` is the
        last number that is known of those that follow event `seq`."""
        with self._reading():
            # Numbers begin again when the table was empty, so they order only the pieces after one event.
            rows = self._connection.execute(
                "SELECT id, seq, kind, text FROM partials WHERE run_id=? AND (seq>? OR id>?) ORDER BY seq, id",
                (run_id, seq, after),
            )
            return [tuple(row) for row in rows]

    def outcome(self, run_id: str) -> Outcome | None:
        """How the run ended; None while it has not, or since it was resumed."""
        rows = self.select(
            "SELECT seq FROM events WHERE run_id=? AND type IN ('run.ended', 'run.resumed') ORDER BY seq DESC LIMIT 1",
            (run_id,),
        )
        if not rows:
            return None
        seq = int(rows[0][0])
        (event,) = self.stream(run_id, after=seq - 1, limit=1)
        match event.body:
            case RunEnded(outcome):
                return outcome
            case RunResumed():
                return None
            case _:
                raise StateError(f"Event {seq} of run {run_id} in {self.path} should be its ending and is not.")

    def conversation(self, run_id: str) -> Conversation:
        """The run as it can be taken up again."""
        return read_conversation(self, run_id)

    def last_turn(self, run_id: str) -> Conversation:
        """How a run that is not over was cut off: `unknown`, `unrun` and `partial` of its conversation."""
        return read_last_turn(self, run_id)

    def version(self) -> int:
        """A number that changes whenever another process or connection has committed something."""
        with self._reading():
            return self._connection.version()

    def owners(self) -> dict[str, Owner]:
        """Return who runs something, by id."""
        with self._reading():
            return self._connection.owners()

    def select(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """For the modules of this package that know tables of their own."""
        with self._reading():
            return self._connection.execute(query, values).fetchall()

    def has_commands(self, owner: str) -> bool:
        """Whether there is a command for a run of `owner` that it has not taken yet."""
        with self._reading():
            found = self._connection.execute(
                "SELECT 1 FROM commands WHERE owner=? AND taken_at IS NULL LIMIT 1", (owner,)
            ).fetchone()
        return found is not None

    def _is_readable(self, row: Any) -> bool:
        """Return whether a row is one of a run. In a shared database others may have put there what would be a path
        elsewhere; it is reported once and left out."""
        if not self._connection.shared or all(is_valid(row[name], RunId | None) for name in _IDS):
            return True
        if not self._has_warned:
            self._has_warned = True
            logging.getLogger("retinue").warning("A run in the database has an id that is none. It is left out.")
        return False

    def _seen(self, row: Any, known: dict[str, Owner]) -> RunState:
        state: State = row["state"]
        owner = known.get(row["owner"]) if row["owner"] is not None else None
        # One that is queued and has no owner was offered to others: nobody has it yet.
        if state in LIVE and not (state == "queued" and row["owner"] is None):
            if self._here is None:
                self._here = this_process()
            if owner is None or not owner.alive(self._here):
                state, owner = "interrupted", None
        pid = owner.pid if owner is not None else None
        return read_run(RunState, row, state, pid)

    def _unknown(self, wanted: str) -> UnknownRunError:
        import difflib

        with self._reading():
            ids = [row[0] for row in self._connection.execute("SELECT id FROM runs ORDER BY created_at DESC LIMIT 500")]
        near = difflib.get_close_matches(wanted, ids, n=3, cutoff=0.6) if wanted else []
        hint = f"Near: {', '.join(near)}." if near else "See: retinue runs list"
        return UnknownRunError(f"There is no run '{wanted}' in this log.", remedy=hint)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            raise trouble(error, self.path) from error


def _moment(row: Any) -> tuple[float, str]:
    return row["created_at"], row["id"]


def stored_states(states: Collection[State]) -> frozenset[State]:
    """The states in which runs that are seen in one of `states` may stand in the log: one whose process is gone
    stands there as live."""
    stored = frozenset(states)
    return stored | LIVE if "interrupted" in stored else stored


def everywhere(home: Path, read: Callable[[LogReader], T]) -> list[tuple[Path, T]]:
    """What `read` finds in the log of every project under `home` (RETINUE_HOME). A log that
    cannot be read hides no other."""
    found: list[tuple[Path, T]] = []
    for folder in log_folders(home):
        with contextlib.suppress(StateError), LogReader.open(folder) as reader:
            found.append((folder, read(reader)))
    return found


def find_run(home: Path, id_or_prefix: str, first: Path | None = None) -> tuple[Path, RunState]:
    """The project folder and row of a run: the one in `first` if it has one, else the only one
    anywhere. Raise as `LogReader.run`; another project's unreadable log is passed over."""
    unknown: UnknownRunError | None = None
    found: list[tuple[Path, RunState]] = []
    folders = [folder for folder in log_folders(home) if folder != first]
    if first is not None:
        folders.insert(0, first)
    for folder in folders:
        try:
            with LogReader.open(folder) as reader:
                found.append((folder, reader.run(id_or_prefix)))
        except UnknownRunError as error:
            unknown = unknown if unknown is not None and "Near" not in error.remedy else error
        except StateError:
            if folder == first:
                raise
        if found and folder == first:
            break
    if len(found) > 1:
        ids = ", ".join(f"{row.id} in {row.cwd}" for _, row in found)
        raise UsageError(f"Several runs begin with '{id_or_prefix}': {ids}.", remedy="Give more of the id.")
    if found:
        return found[0]
    raise unknown or UnknownRunError(f"There is no run '{id_or_prefix}'.", remedy="Nothing has been run yet.")


def as_dict(row: RunState) -> dict[str, Any]:
    """A row as plain data, for `--json`."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(row)
    return data
