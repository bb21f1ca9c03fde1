"""Reading the log from any process, at any time, without blocking the writer.

Events of a run are read a page at a time, so a run of any length needs little memory.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.delegation import LIVE, State
from retinue.core.encode import decode, dump
from retinue.core.events import AssistantEnded, Body, Event, RunCreated, RunEnded, ToolEnded
from retinue.core.foreign import RunId, is_valid
from retinue.core.messages import ToolResult
from retinue.core.outcome import Outcome
from retinue.core.programs import Owner, this_process
from retinue.core.run_state import RunState
from retinue.errors import StateError, UnknownItemError, UnknownRunError, UsageError
from retinue.log.batch import has_references, resolve_references
from retinue.log.database import NO_ROW_LIMIT, connect_to_read, explained, log_file, log_folders
from retinue.log.migrations import RARE_TYPES
from retinue.log.replay import Conversation, read_conversation, read_last_turn
from retinue.log.rows import SELECT_RUN, read_run

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection


PAGE_EVENTS = 64
"""The number of events that are in memory at once."""

Value = TypeVar("Value")
Row = TypeVar("Row")
_ID_COLUMNS = ("id", "parent_id", "root_id")
_PARTIAL = """SELECT text FROM partials WHERE run_id=? AND kind=? AND seq >= (
    SELECT coalesce(max(seq), 0) FROM events WHERE run_id=? AND type IN (
        'turn.started', 'model.retrying', 'assistant.ended', 'run.resumed'))
ORDER BY id"""
"""After one of these events, text that was streamed before is complete in an event, or invalid."""
_TOUCHED = "EXISTS (SELECT 1 FROM events WHERE run_id=runs.id AND type='tool.ended' AND instr(events.body, {}) > 0)"
"""A JSON string is equal to a path only in the effect of a call: quotes in texts are escaped."""


class _Bodies:
    """Decodes the bodies of one run in order. A `tools.ended` refers to results of calls of its turn. With `keeps`
    these are kept until then; otherwise each is read again."""

    def __init__(self, reader: LogReader, run_id: str, keeps: bool) -> None:
        self._reader = reader
        self._run_id = run_id
        self._keeps = keeps
        self._results: dict[int, ToolResult] = {}

    def decode(self, seq: int, text: str) -> Body:
        try:
            if has_references(text):
                return resolve_references(text, self._result)
            body = decode(text)
        except ValueError as error:
            raise StateError(
                f"Event {seq} of run {self._run_id} in {self._reader.path} cannot be read ({error}).",
                remedy="The other events are intact: retinue runs show lists those before it.",
            ) from error
        if isinstance(body, ToolEnded) and self._keeps:
            self._results[seq] = body.result
        elif isinstance(body, AssistantEnded):
            self._results.clear()
        return body

    def _result(self, seq: int) -> ToolResult:
        result = self._results.get(seq)
        if result is not None:
            return result
        rows = self._reader.select("SELECT body FROM events WHERE run_id=? AND seq=?", (self._run_id, seq))
        body = decode(rows[0][0]) if rows else None
        if not isinstance(body, ToolEnded):
            raise ValueError(f"it refers to event {seq}, which is not the end of a call")
        return body.result


class LogReader:
    """One project's log, read-only. It is cheap to open. Close it, or use it as a context manager."""

    def __init__(self, folder: Path, connection: LogConnection) -> None:
        self.path = log_file(folder)
        self._connection = connection
        self._here: Owner | None = None
        self._has_warned = False

    @classmethod
    def open(cls, folder: Path) -> LogReader:
        """Open the log in a project's state folder. A missing log reads as an empty one."""
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
        touched: str | None = None,
        limit: int | None = None,
    ) -> list[RunState]:
        """Return runs, newest first. `states` are present states, so `{"interrupted"}` finds every run whose process
        died. `before` is the id of a run: only older runs are listed, as the next page. `touched` is a file that they
        read or wrote; a relative path starts at the folder of each run."""
        filters = {"agent": agent, "parent_id": parent_id, "root_id": root_id, "depth": depth}
        conditions = [f"{name}=?" for name, value in filters.items() if value is not None]
        values: list[object] = [value for value in filters.values() if value is not None]
        if before is not None:
            conditions.append("(created_at, id) < (SELECT created_at, id FROM runs WHERE id=?)")
            values.append(before)
        if touched is not None:
            is_absolute = touched.startswith("/")
            path = dump(touched).decode()
            conditions.append(_TOUCHED.format("?" if is_absolute else "'\"' || runs.cwd || ?"))
            values.append(path if is_absolute else f"/{path[1:]}")
        where = " AND ".join(conditions) or "1=1"
        query = f"{SELECT_RUN} WHERE {where} {{}} ORDER BY created_at DESC, id DESC"
        if states is None or "ended" in states:
            return self._runs([query.format("")], values, states, limit)
        # The row of a run whose process died has a live state.
        stored = {*states, *LIVE} if "interrupted" in states else states
        # The index of runs that have not ended is used only if its condition is repeated. One query for each state
        # keeps the order of the index, so that only the newest rows are read.
        queries = [query.format(f"AND state <> 'ended' AND state='{state}'") for state in sorted(stored)]
        return self._runs(queries, values, states, limit)

    def conversations(self, words: Collection[str] = (), limit: int | None = None) -> list[RunState]:
        """Return main runs, the most recently changed first. Each of `words` occurs in the task or the id; the case of
        ASCII letters is ignored."""
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
        """Return the rows of the queries as runs. Each query and the result have the newest runs first."""
        with explained(self.path):
            owners = self._connection.owners()
            cursors = [self._connection.execute(query, values) for query in queries]
            rows = cursors[0] if len(cursors) == 1 else merge(*cursors, key=_moment, reverse=True)
            runs = (self._read_run(row, owners) for row in rows if self._is_readable(row))
            return list(islice((run for run in runs if states is None or run.state in states), limit))

    def tree(self, row: RunState) -> list[RunState]:
        """Return the run and all runs below it, parents before their children."""
        runs = [row]
        # The list grows during the iteration.
        for run in runs:
            runs += reversed(self.list_runs(parent_id=run.id))
        return runs

    def named(self, name: str) -> list[RunState]:
        """Return the runs with this name, newest first."""
        return self._runs([f"{SELECT_RUN} WHERE name=? ORDER BY created_at DESC"], [name], None, None)

    def run(self, id_or_prefix: str) -> RunState:
        """Return the run with that id, or the only run whose id begins with it. Raise UnknownRunError with the nearest
        ids, and UsageError if several runs match."""
        prefix = id_or_prefix.strip()
        # The highest character ends the range of ids that begin with the prefix.
        query = f"{SELECT_RUN} WHERE id=? OR (id>? AND id<?) ORDER BY id LIMIT 6"
        rows = list(filter(self._is_readable, self.select(query, (prefix, prefix, prefix + "\U0010ffff"))))
        rows = [row for row in rows if row["id"] == prefix] or rows
        if not rows or not prefix:
            raise self._unknown(prefix)
        check_unique("runs", prefix, [row["id"] for row in rows])
        return self._read_run(rows[0], self.owners())

    def events(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the durable events of a run above number `after`, in order. `stream` needs less memory for a long
        run."""
        return list(self.stream(run_id, after=after, limit=limit))

    def stream(
        self, run_id: str, *, after: int = 0, types: Collection[str] = (), limit: int | None = None, condition: str = ""
    ) -> Iterator[Event]:
        """Yield the same, read a page at a time; with `types` only events of these types. `condition` is SQL about
        `events`."""
        for _, event in self.ordered(run_id, types, after=after, limit=limit, condition=condition):
            yield event

    def created(self, run_id: str) -> RunCreated | None:
        """Return the first event of a run, with its agent, task and options; None if it is missing."""
        first = next(self.stream(run_id, limit=1), None)
        return first.body if first is not None and isinstance(first.body, RunCreated) else None

    def ordered(
        self,
        run_id: str,
        types: Collection[str] = (),
        *,
        after: int = 0,
        limit: int | None = None,
        condition: str = "",
        newest_first: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        """Yield the events of a run above number `after`: those of `types`, or all; at most `limit`. `condition` is a
        further condition in SQL. With `newest_first`, `after` is ignored and the order is reversed. Each event comes
        with its number in the whole log, by which events of different runs can be compared."""
        places = self.select("SELECT parent_id, root_id FROM runs WHERE id=?", (run_id,))
        if not places:
            return
        parent_id, root_id = places[0]
        conditions, order = "run_id=? AND seq>?", "seq"
        if newest_first:
            conditions, order, after = "run_id=? AND seq<?", "seq DESC", NO_ROW_LIMIT
        if types:
            conditions += f" AND type IN ({', '.join('?' * len(types))})"
            if all("run." <= kind < "tool." for kind in types):
                conditions += f" AND {RARE_TYPES}"
        if condition:
            conditions += f" AND ({condition})"
        query = f"SELECT id, seq, at, body FROM events WHERE {conditions} ORDER BY {order} LIMIT ?"  # noqa: S608
        # If answers are not read, kept results would accumulate.
        bodies = _Bodies(self, run_id, keeps=not types)
        unread = NO_ROW_LIMIT if limit is None else limit
        while unread > 0:
            count = min(PAGE_EVENTS, unread)
            rows = self.select(query, (run_id, after, *types, count))
            for number, after, at, body in rows:
                yield number, Event(run_id, parent_id, root_id, after, at, bodies.decode(after, body))
            if len(rows) < count:
                return
            unread -= count

    def newest(self, run_id: str) -> int:
        """Return the number of a run's newest event in the whole log; 0 without events."""
        rows = self.select("SELECT id FROM events WHERE run_id=? ORDER BY seq DESC LIMIT 1", (run_id,))
        return int(rows[0][0]) if rows else 0

    def partial(self, run_id: str, kind: str = "text") -> str:
        """Return the streamed text of an unfinished answer."""
        return "".join(row[0] for row in self.select(_PARTIAL, (run_id, kind, run_id)))

    def outcome(self, run_id: str) -> Outcome | None:
        """Return how the run ended; None if it has not ended, or was resumed since."""
        for _, event in self.ordered(run_id, ("run.ended", "run.resumed"), limit=1, newest_first=True):
            if isinstance(event.body, RunEnded):
                return event.body.outcome
        return None

    def conversation(self, run_id: str) -> Conversation:
        """Return the conversation of a run, with which it can be resumed."""
        return read_conversation(self, run_id)

    def last_turn(self, run_id: str) -> Conversation:
        """Return only `unknown`, `unrun` and `partial` of the conversation: how an unfinished run was cut off."""
        return read_last_turn(self, run_id)

    def version(self) -> int:
        """Return a number that changes whenever another process or connection has committed something."""
        with explained(self.path):
            return self._connection.version()

    def owners(self) -> dict[str, Owner]:
        """Return the processes that own runs, by id."""
        with explained(self.path):
            return self._connection.owners()

    def select(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a query, for modules with their own tables."""
        with explained(self.path):
            return self._connection.execute(query, values).fetchall()

    def has_commands(self, owner: str) -> bool:
        """Return whether there is a command for a run of `owner` that it has not taken."""
        return bool(self.select("SELECT 1 FROM commands WHERE owner=? AND taken_at IS NULL LIMIT 1", (owner,)))

    def _is_readable(self, row: Any) -> bool:
        """Return whether the ids of a row are valid. In a shared database others may have written ids that would become
        paths; such a row is reported once and left out."""
        if not self._connection.shared or all(is_valid(row[name], RunId | None) for name in _ID_COLUMNS):
            return True
        if not self._has_warned:
            self._has_warned = True
            logging.getLogger("retinue").warning("A run in the database has an invalid id. It is left out.")
        return False

    def _read_run(self, row: Any, owners: dict[str, Owner]) -> RunState:
        state: State = row["state"]
        owner = owners.get(row["owner"])
        # A queued run without an owner was offered to workers, and no worker has taken it.
        if state in LIVE and not (state == "queued" and row["owner"] is None):
            if self._here is None:
                self._here = this_process()
            if owner is None or not owner.alive(self._here):
                state, owner = "interrupted", None
        return read_run(RunState, row, state, None if owner is None else owner.pid)

    def _unknown(self, prefix: str) -> UnknownRunError:
        import difflib

        ids = [row[0] for row in self.select("SELECT id FROM runs ORDER BY created_at DESC LIMIT 500")]
        near = difflib.get_close_matches(prefix, ids, n=3, cutoff=0.6) if prefix else []
        hint = f"Near: {', '.join(near)}." if near else "See: retinue runs list"
        return UnknownRunError(f"There is no run '{prefix}' in this log.", remedy=hint)


def _moment(row: Any) -> tuple[float, str]:
    return row["created_at"], row["id"]


def readable(rows: Iterable[Row], read: Callable[[Row], Value]) -> list[Value]:
    """Return the result of `read` for each row. An unreadable row is left out with a warning."""
    values = []
    for row in rows:
        try:
            values.append(read(row))
        except StateError as error:
            logging.getLogger("retinue").warning("%s It is left out.", error)
    return values


def check_unique(noun: str, beginning: str, ids: Sequence[str]) -> None:
    """Raise UsageError if several ids begin with `beginning`."""
    if len(ids) > 1:
        message = f"Several {noun} begin with '{beginning}': {', '.join(ids)}."
        raise UsageError(message, remedy="Give more of the id.")


def everywhere(home: Path, read: Callable[[LogReader], Value]) -> list[tuple[Path, Value]]:
    """Return the result of `read` for the log of every project under `home` (RETINUE_HOME). Unreadable logs are left
    out."""
    results: list[tuple[Path, Value]] = []
    for folder in log_folders(home):
        with contextlib.suppress(StateError), LogReader.open(folder) as reader:
            results.append((folder, read(reader)))
    return results


def find_anywhere(home: Path, first: Path | None, find: Callable[[LogReader], Value]) -> list[tuple[Path, Value]]:
    """Return the results of `find` with their project folders: only that of `first` if it has one, else those of all
    projects. Raise what `find` raises; UnknownRunError and UnknownItemError only if no project has a result. Other
    projects' unreadable logs are left out."""
    unknown: UnknownRunError | UnknownItemError | None = None
    results: list[tuple[Path, Value]] = []
    for folder in dict.fromkeys(([] if first is None else [first]) + log_folders(home)):
        try:
            with LogReader.open(folder) as reader:
                results.append((folder, find(reader)))
        except (UnknownRunError, UnknownItemError) as error:
            unknown = unknown if unknown is not None and "Near" not in error.remedy else error
        except StateError:
            if folder == first:
                raise
        if results and folder == first:
            break
    if unknown is not None and not results:
        raise unknown
    return results


def find_run(home: Path, id_or_prefix: str, first: Path | None = None) -> tuple[Path, RunState]:
    """Return the project folder and the row of a run: from `first` if it has the run, else from any project. Raise as
    `LogReader.run`."""
    runs = find_anywhere(home, first, lambda reader: reader.run(id_or_prefix))
    if not runs:
        raise UnknownRunError(f"There is no run '{id_or_prefix}'.", remedy="Nothing has been run yet.")
    check_unique("runs", id_or_prefix, [f"{row.id} in {row.cwd}" for _, row in runs])
    return runs[0]
