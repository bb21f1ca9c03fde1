"""The tables through which workers and senders of runs communicate, in the schema `retinue` of the shared database.

| table | contents |
|---|---|
| `workers` | the workers, their profiles, and their last heartbeats by the server's clock |
| `placements` | the offered runs: attempt, queue, and the worker that has it |
| `bundle_parts` | commits of workspaces as git bundles, by project and commit, in parts |
| `workspaces` | the commits of a run at its start, after its last turn that wrote and at its end; its packs of files
(`file_pack.py`); the git remote of a commit without a bundle; since when the sender has it |

All methods block: call them in a thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from retinue.cluster.cause_log import CauseLog
from retinue.core.foreign import (
    AttemptNumber,
    BranchName,
    Commit,
    CommitOrNone,
    Count,
    PackName,
    ProjectName,
    RemoteUrl,
    RunId,
    UnreadableValueError,
    Word,
    check,
    decode_json,
    decode_row,
    is_valid,
)
from retinue.core.programs import Owner, this_process
from retinue.core.request import Attempt, RunNeeds, WorkerView
from retinue.errors import StateError
from retinue.log.postgres import PostgresBackend, PostgresConnection
from retinue.settings.places import ProjectDatabase

ValueT = TypeVar("ValueT")
WorkspaceKind = Literal["history", "base", "increment", "result", "home", "memory", "outputs"]
SCHEMA = "retinue"
"""Also the channel on which offers are announced to workers."""
_REPLACED_KINDS: frozenset[WorkspaceKind] = frozenset({"increment", "memory", "outputs"})
"""Kinds whose newest value replaces the one before."""
_PACK_KINDS: frozenset[WorkspaceKind] = frozenset({"home", "memory", "outputs"})
"""Kinds that are packs of files."""
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS retinue;
CREATE TABLE IF NOT EXISTS retinue.workers (
    id TEXT PRIMARY KEY, pid BIGINT NOT NULL, started TEXT NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL,
    space TEXT NOT NULL, heartbeat DOUBLE PRECISION NOT NULL, view TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS retinue.placements (
    project TEXT NOT NULL, run_id TEXT NOT NULL, attempt INTEGER NOT NULL, queue TEXT NOT NULL, needs TEXT NOT NULL,
    worker TEXT, offered_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (project, run_id)
);
CREATE TABLE IF NOT EXISTS retinue.bundle_parts (
    project TEXT NOT NULL, commit TEXT NOT NULL, part INTEGER NOT NULL, data BYTEA NOT NULL,
    PRIMARY KEY (project, commit, part)
);
CREATE TABLE IF NOT EXISTS retinue.workspaces (
    project TEXT NOT NULL, run_id TEXT NOT NULL, kind TEXT NOT NULL, commit TEXT NOT NULL, head TEXT NOT NULL,
    branch TEXT NOT NULL, turn INTEGER NOT NULL, PRIMARY KEY (project, run_id, kind)
);
ALTER TABLE retinue.workspaces ADD COLUMN IF NOT EXISTS home_at DOUBLE PRECISION;
ALTER TABLE retinue.workspaces ADD COLUMN IF NOT EXISTS remote TEXT NOT NULL DEFAULT '';
ALTER TABLE retinue.workspaces ADD COLUMN IF NOT EXISTS history TEXT NOT NULL DEFAULT '';
"""
_NEWEST_COLUMN = """SELECT 1 FROM pg_attribute
WHERE attrelid=to_regclass('retinue.workspaces') AND attname='history' AND NOT attisdropped"""
"""Finds a row if the tables are those of this version."""
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_REMOVE_BUNDLES = f"""
DELETE FROM bundle_parts USING (
    SELECT project, CASE WHEN kind <> 'base' THEN commit || ':' || kind WHEN history = '' THEN commit
    ELSE commit || '^' || history END AS key FROM workspaces
    GROUP BY 1, 2 HAVING bool_and(coalesce(home_at < {_NOW} - ?, FALSE))
) AS finished WHERE bundle_parts.project=finished.project AND bundle_parts.commit=finished.key RETURNING part
"""  # noqa: S608


PART_BYTES = 4 * 2**20
"""Bundles are stored in parts of this size. A single value would take ten times as long, and memory four times."""
MAX_BUNDLE_BYTES = 512 * 2**20
"""Larger bundles are refused: they would delay everyone who shares the database."""
MAX_TEXT_BYTES = 1 << 18
"""The longest text of a column that is fetched."""


class UnreadablePlacement(Struct, frozen=True):
    """An offer that no worker can read. `project` and `run_id` are unchecked values of the row."""

    project: str
    run_id: str
    reason: str

    @property
    def names_a_run(self) -> bool:
        """Whether project and run id are well-formed, so that the run can be looked up."""
        return is_valid(self.project, ProjectName) and is_valid(self.run_id, RunId)


class _PlacementRow(Struct, frozen=True):
    project: ProjectName
    run_id: RunId
    attempt: AttemptNumber
    needs: str
    queue: Word
    worker: Word | None


class _WorkerRow(Struct, frozen=True):
    id: Word
    pid: Count
    started: Word
    host: Word
    boot: Word
    space: Word
    silence: Annotated[float, Meta(ge=-86_400, le=1e12)]
    view: str


class StoredWorkspace(Struct, frozen=True):
    """One stored commit or pack of a run. `head` is the newest commit that the sender's repository has; `turn` is the
    turn after which it was saved. The `commit` of a pack is its hash. `remote` is the git remote that has it; empty for
    the database. `history` is a commit that is stored once for all runs; the bundle leaves out its history."""

    kind: WorkspaceKind
    commit: Commit
    head: CommitOrNone = ""
    branch: BranchName = ""
    turn: Count = 0
    remote: RemoteUrl = ""
    history: CommitOrNone = ""

    @property
    def key(self) -> str:
        """The key of its bundle. Bundles of one commit may leave out different histories."""
        if self.kind != "base":
            return f"{self.commit}:{self.kind}"
        if self.history:
            return f"{self.commit}^{self.history}"
        return self.commit


class ClusterTables:
    """The tables of one database, over one connection that all threads share."""

    def __init__(self, url: str, causes: CauseLog | None = None) -> None:
        self.url = url
        self.causes = causes or CauseLog(logging.getLogger("retinue").warning)
        """Receives reports about unreadable rows."""
        self._lock = threading.RLock()
        self._backend = PostgresBackend(ProjectDatabase(url, ""), SCHEMA)
        self._connection: PostgresConnection | None = None
        self.seen: list[WorkerView] = []
        """The workers that were alive at the last query."""

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # Workers

    def beat(self, owner: Owner, view: WorkerView) -> None:
        """Record the heartbeat and the profile of a worker."""
        identity = (owner.id, owner.pid, owner.started, owner.host, owner.boot, owner.space)
        profile = msgspec.json.encode(replace(view, runs=(), heartbeat=0.0)).decode()
        self._execute(
            f"INSERT INTO workers VALUES (?, ?, ?, ?, ?, ?, {_NOW}, ?) "  # noqa: S608
            "ON CONFLICT (id) DO UPDATE SET heartbeat=excluded.heartbeat, view=excluded.view",
            *identity,
            profile,
        )

    def remove_worker(self, worker: str) -> None:
        """Remove a worker that ends."""
        self._execute("DELETE FROM workers WHERE id=?", worker)

    def forget_workers(self) -> None:
        """Remove the workers without a heartbeat for an hour."""
        self._execute(f"DELETE FROM workers WHERE heartbeat < {_NOW} - {_FORGET_SECONDS}")  # noqa: S608

    def workers(self) -> list[WorkerView]:
        """Return the live workers, each with its runs. Unreadable rows are reported and left out."""
        silent = f"{_NOW} - greatest(heartbeat, extract(epoch FROM pg_postmaster_start_time())::float8)"
        columns = ", ".join(map(_bounded, ("id", "started", "host", "boot", "space", "view")))
        query = f"SELECT {columns}, pid, {silent} AS silence FROM workers ORDER BY heartbeat DESC LIMIT {_MAX_ROWS}"  # noqa: S608
        views = filter(None, map(self._living_worker, self._execute(query)))
        runs: dict[str, list[str]] = {}
        query = f"SELECT worker, run_id FROM placements WHERE worker IS NOT NULL LIMIT {_MAX_ROWS}"  # noqa: S608
        for worker, run_id in self._execute(query):
            runs.setdefault(worker, []).append(run_id)
        self.seen = [replace(view, runs=self._readable(runs.get(view.id, []), RunId, "A placement")) for view in views]
        return self.seen

    def _living_worker(self, values: Any) -> WorkerView | None:
        """Return the worker of a row; None if it is dead or the row is unreadable."""
        here = this_process()
        try:
            row = decode_row(_by_name(values), _WorkerRow, "A worker in the database")
            owner = (row.id, row.pid, row.started, row.host, row.boot, row.space)
            if not Owner(*owner, here.heartbeat - row.silence, shared=True).alive(here, here.heartbeat):
                return None
            view = decode_json(row.view, WorkerView, "The profile of a worker in the database")
            if view.id != row.id:
                raise UnreadableValueError("A worker in the database has the profile of another one.")
        except UnreadableValueError as error:
            self.causes.report(str(error), f"{error} It is left out.")
            return None
        return replace(view, heartbeat=row.silence)

    def _readable(self, values: list[ValueT], kind: Any, where: str) -> tuple[ValueT, ...]:
        """Return the values of that type, and report the others."""
        accepted: list[ValueT] = []
        for value in values:
            try:
                check(value, kind, where)
            except UnreadableValueError as error:
                self.causes.report(str(error), f"{error} It is left out.")
            else:
                accepted.append(value)
        return tuple(accepted)

    # Placements

    def put(self, attempt: Attempt) -> bool:
        """Offer an attempt to the workers. Return False if this attempt or a later one was offered before."""
        needs = msgspec.json.encode(attempt.needs).decode()
        inserted = self._execute(
            f"INSERT INTO placements VALUES (?, ?, ?, '', ?, NULL, {_NOW}) ON CONFLICT (project, run_id) "  # noqa: S608
            "DO UPDATE SET attempt=excluded.attempt, queue=excluded.queue, needs=excluded.needs, worker=NULL, "
            "offered_at=excluded.offered_at WHERE placements.attempt<excluded.attempt",
            *(attempt.project, attempt.run_id, attempt.number, needs),
        )
        if inserted.rowcount:
            self._execute(f"NOTIFY {SCHEMA}")
        return bool(inserted.rowcount)

    def queue_offers(self, enqueue: Callable[[Attempt], str]) -> None:
        """Pass each attempt without a queue to `enqueue`, which returns the name of its queue, or nothing. Workers
        share this work: one of them locks the row of an attempt. Unreadable rows wait for `remove_unreadable`."""
        skipped: list[str] = []
        query = (
            f"SELECT {_PLACEMENT}, md5(project) || md5(run_id) AS mark FROM placements "  # noqa: S608
            "WHERE queue='' AND worker IS NULL AND NOT (md5(project) || md5(run_id)) = ANY(?) "
            "ORDER BY offered_at LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        while len(skipped) < _MAX_ROWS:
            with self._use() as connection, connection.transaction():
                row = connection.execute(query, (skipped,)).fetchone()
                if row is None:
                    return
                queue = ""
                with contextlib.suppress(UnreadableValueError):
                    attempt, _ = _read_attempt(row)
                    queue = enqueue(attempt)
                if queue:
                    connection.execute(
                        "UPDATE placements SET queue=? WHERE project=? AND run_id=?",
                        (queue, attempt.project, attempt.run_id),
                    )
            if not queue:
                skipped.append(row["mark"])

    def take(self, attempt: Attempt, worker: str) -> bool:
        """Assign an attempt to a worker. Return False if the offer is gone or another worker has it."""
        updated = self._execute(
            "UPDATE placements SET worker=? WHERE project=? AND run_id=? AND attempt=? AND coalesce(worker, ?)=?",
            *(worker, attempt.project, attempt.run_id, attempt.number, worker, worker),
        )
        return bool(updated.rowcount)

    def holds(self, attempt: Attempt, worker: str) -> bool:
        """Return whether the worker still has the attempt: no later one was offered, and the run has not ended."""
        query = "SELECT 1 FROM placements WHERE project=? AND run_id=? AND attempt=? AND worker=?"
        return bool(self._execute(query, attempt.project, attempt.run_id, attempt.number, worker).rowcount)

    def drop(self, project: str, run_id: str) -> None:
        """Remove the offer of a run that needs no worker any more."""
        self._execute("DELETE FROM placements WHERE project=? AND run_id=?", project, run_id)

    def stranded(self) -> list[Attempt]:
        """Return the next attempt of every run whose worker is dead or whose queue has no worker."""
        workers = self.workers()
        alive = {worker.id for worker in workers}
        queues = {worker.queue for worker in workers if not worker.draining}
        # A new offer gets into its queue in a moment.
        due = f"worker IS NOT NULL OR offered_at < {_NOW} - {_QUEUE_SECONDS}"
        attempts: list[Attempt] = []
        for row in self._select_placements(due):
            with contextlib.suppress(UnreadableValueError):
                attempt, placement = _read_attempt(row)
                is_served = placement.worker in alive if placement.worker is not None else placement.queue in queues
                if not is_served:
                    attempts.append(replace(attempt, number=attempt.number + 1))
        return attempts

    def remove_unreadable(self) -> list[UnreadablePlacement]:
        """Remove the unreadable offers, and return them."""
        removed: list[UnreadablePlacement] = []
        for row in self._select_placements("TRUE"):
            try:
                _read_attempt(row)
            except UnreadableValueError as error:
                removed.append(UnreadablePlacement(row["project"] or "", row["run_id"] or "", str(error)))
                self._execute("DELETE FROM placements WHERE ctid=?::tid", row["place"])
        return removed

    def _select_placements(self, condition: str) -> list[Any]:
        query = f"SELECT {_PLACEMENT}, ctid::text AS place FROM placements WHERE {condition} LIMIT {_MAX_ROWS}"  # noqa: S608
        return list(self._execute(query))

    # Workspaces

    def has_bundle(self, project: str, commit: str) -> bool:
        query = "SELECT 1 FROM bundle_parts WHERE project=? AND commit=? AND part=0"
        return bool(self._execute(query, project, commit).rowcount)

    def histories(self, project: str) -> list[str]:
        """Return the commits whose complete history is stored."""
        query = "SELECT commit FROM bundle_parts WHERE project=? AND part=0 AND commit LIKE '%:history'"
        commits = [row[0].removesuffix(":history") for row in self._execute(query, project)]
        return list(self._readable(commits, Commit, "The name of a history in the database"))

    def save_workspace(self, project: str, run_id: str, stored: StoredWorkspace, data: bytes | None) -> None:
        """Store a workspace and its bundle; `data` is None if the bundle is stored already. An increment replaces the
        one before, which is removed last."""
        before = None
        if stored.kind in _REPLACED_KINDS:
            before = self.workspace(project, run_id, stored.kind)
        if data is not None:
            self._save_bundle(project, stored.key, data)
        self._execute(
            "INSERT INTO workspaces (project, run_id, kind, commit, head, branch, turn, remote, history) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (project, run_id, kind) DO UPDATE SET "
            "commit=excluded.commit, head=excluded.head, branch=excluded.branch, turn=excluded.turn, "
            "remote=excluded.remote, history=excluded.history, home_at=NULL",
            *(project, run_id, *msgspec.structs.astuple(stored)),
        )
        if before is not None and before.key != stored.key:
            self._execute("DELETE FROM bundle_parts WHERE project=? AND commit=?", project, before.key)

    def _save_bundle(self, project: str, key: str, data: bytes) -> None:
        with self._use_alone() as connection, connection.transaction():
            for number, start in enumerate(range(0, max(len(data), 1), PART_BYTES)):
                # A sender of the same part waits for the first one, and need not insert it then.
                connection.execute(
                    "INSERT INTO bundle_parts VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (project, key, number, data[start : start + PART_BYTES]),
                )

    def workspace(self, project: str, run_id: str, kind: WorkspaceKind) -> StoredWorkspace | None:
        """Return what is stored of a run; None without it. Raise UnreadableValueError."""
        columns = ", ".join(map(_bounded, ("commit", "head", "branch", "remote", "history")))
        query = f"SELECT {columns}, turn FROM workspaces WHERE project=? AND run_id=? AND kind=?"  # noqa: S608
        row = self._execute(query, project, run_id, kind).fetchone()
        if row is None:
            return None
        where = f"The workspace ({kind}) of run {run_id} in the database"
        if kind in _PACK_KINDS:
            check(row["commit"], PackName, where)
            return StoredWorkspace(kind, row["commit"])
        return decode_row({"kind": kind, **_by_name(row)}, StoredWorkspace, where)

    def bundle(self, project: str, stored: StoredWorkspace, max_bytes: int = MAX_BUNDLE_BYTES) -> bytes | None:
        """Return the bundle of a workspace; None if it is missing. Raise StateError if it exceeds `max_bytes`."""
        data = bytearray()
        query = (
            f"SELECT octet_length(data), substr(data, 1, {PART_BYTES}) FROM bundle_parts "  # noqa: S608
            "WHERE project=? AND commit=? AND part=?"
        )
        with self._use_alone() as connection:
            for number in range(max_bytes // PART_BYTES + 2):
                row = connection.execute(query, (project, stored.key, number)).fetchone()
                if row is None:
                    return bytes(data) if number else None
                if row[0] > PART_BYTES or len(data) + row[0] > max_bytes:
                    break
                data += row[1]
        raise StateError(
            f"The bundle of the workspace {stored.commit[:12]} in the database is larger than {max_bytes} bytes."
        )

    def mark_home(self, project: str, run_id: str) -> None:
        """Record that the sender's repository has everything of an ended run."""
        statement = f"UPDATE workspaces SET home_at={_NOW} WHERE project=? AND run_id=? AND home_at IS NULL"  # noqa: S608
        self._execute(statement, project, run_id)

    def finished_bases(self, project: str, keep_seconds: float) -> set[str]:
        """Return the start commits whose runs have all been home for `keep_seconds`."""
        query = (
            "SELECT commit FROM workspaces WHERE project=? AND kind='base' "  # noqa: S608
            f"GROUP BY commit HAVING bool_and(coalesce(home_at < {_NOW} - ?, FALSE))"
        )
        commits = [row[0] for row in self._execute(query, project, keep_seconds)]
        return set(self._readable(commits, Commit, "The commit of an ended run in the database"))

    def finished_on_remotes(self, keep_seconds: float) -> list[tuple[str, str, str]]:
        """Return project, run and git remote of the runs with commits on a remote that have been home for
        `keep_seconds`."""
        query = (
            "SELECT project, run_id, max(remote) FROM workspaces GROUP BY project, run_id "  # noqa: S608
            f"HAVING max(remote) <> '' AND bool_and(coalesce(home_at < {_NOW} - ?, FALSE))"
        )
        rows = [tuple(row) for row in self._execute(query, keep_seconds)]
        kind = tuple[ProjectName, RunId, RemoteUrl]
        return list(self._readable(rows, kind, "The git remote of an ended run in the database"))

    def leave_remote(self, project: str, run_id: str) -> None:
        """Record that a run has no commits on a git remote any more."""
        self._execute("UPDATE workspaces SET remote='' WHERE project=? AND run_id=?", project, run_id)

    def remove_bundles(self, keep_seconds: float) -> int:
        """Remove the bundles whose runs have all been home for `keep_seconds`. Return their number."""
        with self._use() as connection, connection.transaction():
            # A sender first names its bundle and then checks whether it is stored. Do not remove it in between.
            connection.execute("LOCK TABLE workspaces IN SHARE ROW EXCLUSIVE MODE")
            removed = connection.execute(_REMOVE_BUNDLES, (keep_seconds,)).fetchall()
            return sum(number == 0 for (number,) in removed)

    def _execute(self, statement: str, *values: object) -> Any:
        """Execute a statement, and return a cursor with all its rows."""
        with self._use() as connection:
            return connection.execute(statement, values)

    @contextmanager
    def _use(self) -> Iterator[PostgresConnection]:
        with self._lock:
            if self._connection is None:
                self._make_tables()
                self._connection = PostgresConnection(self._backend, repeats=True)
            yield self._connection

    def _make_tables(self) -> None:
        """Create missing tables. A role that only uses them may not create any."""
        raw = self._backend.open()
        try:
            if raw.execute(_NEWEST_COLUMN).fetchone() is not None:
                return
            raw.execute("SELECT pg_advisory_lock(7238)")
            try:
                raw.execute(_SCHEMA)
            finally:
                raw.execute("SELECT pg_advisory_unlock(7238)")
        finally:
            self._backend.keep(raw)

    @contextmanager
    def _use_alone(self) -> Iterator[PostgresConnection]:
        """Use a separate connection for slow work, so that nobody waits for it."""
        with self._use():
            connection = PostgresConnection(self._backend, repeats=True)
        try:
            yield connection
        finally:
            connection.close()


def _bounded(column: str) -> str:
    """Return the SQL of a text column that reads as NULL if the text is too long."""
    return f"CASE WHEN octet_length({column}) <= {MAX_TEXT_BYTES} THEN {column} END AS {column}"


_PLACEMENT = ", ".join((*map(_bounded, ("project", "run_id", "needs", "queue", "worker")), "attempt"))


def _by_name(row: Any) -> dict[str, object]:
    return dict(zip(row.names, row, strict=True))


def _read_attempt(row: Any) -> tuple[Attempt, _PlacementRow]:
    """Return the attempt of a row of `placements`. Raise UnreadableValueError."""
    placement = decode_row(_by_name(row), _PlacementRow, "An offer in the database")
    needs = decode_json(placement.needs, RunNeeds, "The needs of an offer in the database")
    return Attempt(placement.project, placement.run_id, placement.attempt, needs), placement


_MAX_ROWS = 10_000
"""The number of rows that are read of one table; fewer runs are at work at once."""
_QUEUE_SECONDS = 3.0
"""The time after which an attempt without a queue is offered again."""
_FORGET_SECONDS = 3600.0
"""The time without a heartbeat after which a worker is removed."""
