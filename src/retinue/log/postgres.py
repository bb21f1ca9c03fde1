"""The log of a project in a PostgreSQL database, for runs of several machines (extra `cluster`).

Each project has its own schema, `retinue_<name>`, with the tables of the SQLite file. Statements are translated word by
word; functions of the schema replace those of SQLite. `BEGIN IMMEDIATE` locks the project until the transaction ends,
so there is one writer at a time, as in SQLite. The server ends a transaction whose client is silent for two seconds.
That client must register again, and is refused if others have taken over its runs meanwhile.

The server announces commits (LISTEN) to one thread of each process and project. Readers compare a number, as with
SQLite, which grows with every announcement; while the connection is broken it grows with every look.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.foreign import ProjectName, is_valid
from retinue.core.programs import SHARED_HEARTBEAT_SECONDS, Owner
from retinue.errors import MissingExtraError, StateError, UsageError
from retinue.log.backend import LogConnection, LostDatabaseError, Row
from retinue.log.postgres_schema import NoRows, count_steps, migrate, number_loader, read_rows, without_nul
from retinue.log.sqlite import empty
from retinue.settings.places import ProjectDatabase

if TYPE_CHECKING:
    import psycopg

C = TypeVar("C")
_RELISTEN_SECONDS = 0.5
_FIRST_LISTEN_SECONDS = 1.0
_listeners: dict[tuple[str, str], PostgresListener] = {}
_lock = threading.Lock()


class PostgresListener:
    """Counts the changes of one schema, and calls `notify` after each, in its own thread."""

    def __init__(self, url: str, schema: str, notify: Callable[[], None] = lambda: None) -> None:
        self._url = url
        self._schema = schema
        self._notify = notify
        self._count = 0
        self._listening = False
        self._raw: Any = None
        self._over = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="retinue-listen", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        if not self._listening:
            self._count += 1
        return self._count

    def wait(self) -> None:
        """Wait until it listens, at most a second."""
        self._ready.wait(_FIRST_LISTEN_SECONDS)

    def end(self) -> None:
        self._over.set()
        with contextlib.suppress(Exception):
            self._raw.cancel_safe(timeout=1)
        with contextlib.suppress(Exception):
            self._raw.close()

    def _main(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(Exception):
                self._listen()
            self._listening = False
            self._over.wait(_RELISTEN_SECONDS)

    def _listen(self) -> None:
        self._raw = open_server(self._url, self._schema)
        from psycopg import sql

        with self._raw:
            self._raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._schema)))
            self._listening = True
            self._ready.set()
            # Commits from before are not announced any more.
            self._announce()
            for _ in self._raw.notifies():
                self._announce()

    def _announce(self) -> None:
        self._count += 1
        self._notify()


def listener_of(url: str, schema: str) -> PostgresListener:
    """Return the listener of this process, started when it is first asked for."""
    listener = _listeners.get((url, schema))
    if listener is None:
        with _lock:
            listener = _listeners.get((url, schema)) or PostgresListener(url, schema)
            _listeners[url, schema] = listener
        listener.wait()
    return listener


PATIENCE_SECONDS = 10.0
"""How long an operation waits for a server that is gone before it is an error."""
_ATTEMPT_PAUSE_SECONDS = 0.1
_IDLE_MS = 2000
STREAM_SECONDS = 0.25
_CABLE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "tcp_user_timeout": 20_000,
}
"""A connection that was cut without a word is found after half a minute, not after the system's quarter of an hour."""
_SESSION = """SELECT set_config('search_path', %s, false), set_config('lock_timeout', '10000', false),
set_config('idle_in_transaction_session_timeout', %s, false), set_config('client_min_messages', 'warning', false),
set_config('timezone', %s, false)"""
_OWNERS = """SELECT id, pid, started, host, boot, space,
    extract(epoch FROM clock_timestamp())::float8
    - greatest(heartbeat, extract(epoch FROM pg_postmaster_start_time())::float8) FROM owners"""
"""How long each has been silent. While the server was away, nobody could be heard."""


@lru_cache(maxsize=1024)
def translate(sql: str) -> str:
    """Return a statement of this package in PostgreSQL's words."""
    words = sql.replace("%", "%%").replace(" IS ?", " IS NOT DISTINCT FROM ?").replace(" LIKE ", " ILIKE ")
    return words.replace(" CROSS JOIN ", " JOIN ").replace("?", "%s")


def schema_of(project: str) -> str:
    """Return the schema of a project."""
    return f"retinue_{project}"


class PostgresConnection:
    """A connection to the server, as `backend.LogConnection` describes it."""

    shared = True
    heartbeat_seconds = SHARED_HEARTBEAT_SECONDS
    stream_seconds = STREAM_SECONDS

    def __init__(self, backend: PostgresBackend, *, repeats: bool = False) -> None:
        self._backend = backend
        self.repeats = repeats
        """Whether its changes, too, can be made again when nobody knows whether they were made."""
        # A number that is computed here.
        self._begin = f"BEGIN; SELECT pg_advisory_xact_lock({_lock_number(backend.schema)})"
        self._raw = backend.open()
        self._inside = False
        """Whether a transaction was begun and has not ended."""

    @property
    def in_transaction(self) -> bool:
        from psycopg.pq import TransactionStatus

        return self._raw.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any:
        if sql == "BEGIN IMMEDIATE":
            return self._start(self._begin)
        if sql == "BEGIN":
            return self._start("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if sql in ("COMMIT", "ROLLBACK"):
            self._inside = False
            with self._explained(unsure=sql == "COMMIT"):
                self._raw.execute(sql)
            return NoRows()
        if self._raw.closed and not self._inside:
            self._wait_for_server()
        # A question by itself can be asked again. A change may have happened.
        repeats = not self._inside and (self.repeats or sql.startswith(("SELECT", "WITH")))
        return self._run(translate(sql), _without_nul(values), repeats=repeats)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Any:
        if self._raw.closed and not self._inside:
            self._wait_for_server()
        with self._explained():
            cursor = self._raw.cursor()
            cursor.executemany(translate(sql), [_without_nul(row) for row in rows])
            return cursor

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing of what is done inside, without the project's lock, however long others hold a row."""
        self._start("BEGIN; SET LOCAL lock_timeout TO 0")
        try:
            yield
        except BaseException:
            with contextlib.suppress(StateError):
                self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if rows:
            marks = ", ".join("?" * len(columns))
            # The server numbers events, except where one takes the place of another.
            numbered = "OVERRIDING SYSTEM VALUE" if table == "events" and "id" in columns else ""
            self.executemany(f"INSERT INTO {table} ({', '.join(columns)}) {numbered} VALUES ({marks})", rows)  # noqa: S608

    def update(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if rows:
            values = ", ".join(f"{name}=?" for name in columns)
            self.executemany(f"UPDATE {table} SET {values} WHERE id=?", rows)  # noqa: S608

    def version(self) -> int:
        return listener_of(*self._backend.key).version

    def clock(self) -> float:
        return float(self.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()[0])

    def owners(self) -> dict[str, Owner]:
        now = time.time()
        rows = self.execute(_OWNERS)
        return {row[0]: Owner(*(*row[:6], now - row[6], True)) for row in rows}

    def size(self) -> int:
        return int(self.execute("SELECT pg_total_relation_size('events')").fetchone()[0])

    def shrink(self) -> bool:
        # The server gives the space to new rows. A full vacuum would keep every process from the log meanwhile.
        self.execute("VACUUM events")
        return False

    def reopen(self) -> None:
        with contextlib.suppress(Exception):
            self._raw.close()
        self._inside = False
        # Whatever broke this one has broken those that wait to be used again.
        for raw in _idle.pop(self._backend.key, ()):
            raw.close()
        self._raw = self._backend.open()

    def close(self) -> None:
        self._backend.keep(self._raw)

    def _start(self, sql: str) -> NoRows:
        """Begin a transaction. Nothing has happened before it, so it may be tried on a new connection."""
        self._run(sql, None, repeats=True)
        self._inside = True
        return NoRows()

    def _run(self, statement: str, values: Sequence[Any] | None, *, repeats: bool) -> Any:
        """Execute a statement; with `repeats` again on a new connection, if this one broke."""
        try:
            with self._explained():
                return self._raw.execute(statement, values)
        except LostDatabaseError:
            if not repeats:
                raise
        self._wait_for_server()
        with self._explained():
            return self._raw.execute(statement, values)

    def _wait_for_server(self) -> None:
        _try_again(self.reopen, lambda error: True)

    @contextlib.contextmanager
    def _explained(self, unsure: bool = False) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            explained = self._backend.explain(error, self._raw)
            if isinstance(explained, LostDatabaseError):
                explained.unsure = unsure
            raise explained from error


class PostgresBackend:
    """The schema of one project, as `backend.LogBackend` describes it."""

    def __init__(self, database: ProjectDatabase, schema: str = "") -> None:
        self.database = database
        self.schema = schema or schema_of(database.project)
        self.key = database.url, self.schema
        self.label = f"{database.project} in {place_of(database.url)}"

    def exists(self) -> bool:
        with self._borrowed() as raw:
            return count_steps(raw, self.schema) > 0

    def connect(self) -> LogConnection:
        if self.key not in _current:
            import psycopg

            with self._borrowed() as raw:
                try:
                    migrate(raw, self.schema, self.label, _lock_number(self.schema))
                except psycopg.Error as error:
                    raise self.explain(error, raw) from error
            _current.add(self.key)
        return PostgresConnection(self)

    def connect_to_read(self) -> LogConnection:
        return self.connect() if self.key in _current or self.exists() else empty()

    def check(self) -> list[str]:
        """Ask the server whether it has the tables; their pages are its own concern."""
        try:
            with contextlib.closing(self.connect_to_read()) as connection:
                connection.execute("SELECT count(*) FROM runs").fetchone()
        except StateError as error:
            return [str(error)]
        return []

    def open(self) -> psycopg.Connection[Any]:
        """Return a connection to the server that is set up for this schema. Raise LostDatabaseError."""
        idle = _idle.get(self.key)
        while idle:
            with contextlib.suppress(IndexError):
                raw = idle.pop()
                if not (raw.closed or raw.broken):
                    return raw
        # Another process may close one of its connections in a moment.
        return _try_again(lambda: open_server(*self.key), lambda error: "too many clients" in str(error))

    def keep(self, raw: psycopg.Connection[Any]) -> None:
        """Close a connection, or keep it for the next one: opening one costs as much as twenty questions."""
        from psycopg.pq import TransactionStatus

        idle = _idle.setdefault(self.key, [])
        if raw.info.transaction_status == TransactionStatus.IDLE and len(idle) < _MAX_IDLE_CONNECTIONS:
            idle.append(raw)
        else:
            raw.close()

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[psycopg.Connection[Any]]:
        raw = self.open()
        try:
            yield raw
        finally:
            self.keep(raw)

    def explain(self, error: Exception, raw: psycopg.Connection[Any]) -> StateError:
        return explain(error, self.label, broken=raw.broken or raw.closed)


def _try_again(do: Callable[[], C], is_passing: Callable[[LostDatabaseError], bool]) -> C:
    """Return what `do` returns, tried again for some seconds while it fails for a passing reason."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return do()
        except LostDatabaseError as error:
            if not is_passing(error) or time.monotonic() > deadline:
                raise
        time.sleep(_ATTEMPT_PAUSE_SECONDS)


_MAX_IDLE_CONNECTIONS = 4
_idle: dict[tuple[str, str], list[psycopg.Connection[Any]]] = {}
_current: set[tuple[str, str]] = set()
"""Schemas that this process has seen to be of its own version."""


def forget_connections(url: str) -> None:
    """Close what is kept open to a database: nothing more is wanted of it."""
    for key in [key for key in _listeners if key[0] == url]:
        _listeners.pop(key).end()
    for key in [key for key in _idle if key[0] == url]:
        for raw in _idle.pop(key):
            raw.close()
        _current.discard(key)


def project_names(url: str) -> list[str]:
    """Return the projects that have a log in the database. Raise StateError."""
    with contextlib.closing(open_server(url, "public")) as raw:
        rows = raw.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'retinue\\_%' ORDER BY 1").fetchall()
    names = [row[0].removeprefix(schema_of("")) for row in rows]
    # Others are not ours, and could lead to another folder.
    return [name for name in names if is_valid(name, ProjectName)]


def make_project(url: str, name: str) -> None:
    """Make the log of a project where there is none, for senders whose role may not. Raise UsageError or StateError."""
    if not is_valid(name, ProjectName):
        remedy = "Small letters, digits, - and _: as `retinue runs list` of the project would name it."
        raise UsageError(f"{name!r} is not the name of a project in a database.", remedy=remedy)
    PostgresBackend(ProjectDatabase(url, name)).connect().close()


def open_server(url: str, schema: str) -> psycopg.Connection[Any]:
    """Return a new connection that sees `schema`. Raise MissingExtraError or LostDatabaseError."""
    try:
        import psycopg
        from psycopg import sql
    except ImportError as error:
        raise MissingExtraError("cluster", "A log in PostgreSQL") from error

    try:
        own = {name: value for name, value in _CABLE.items() if f"{name}=" not in url}
        raw = psycopg.connect(url, autocommit=True, row_factory=read_rows, application_name="retinue", **own)
        raw.adapters.register_loader("numeric", number_loader())
        raw.execute(_SESSION, (sql.Identifier(schema).as_string(raw), str(_IDLE_MS), _zone()))
    except psycopg.Error as error:
        raise explain(error, place_of(url), broken=True) from error
    return raw


def place_of(url: str) -> str:
    """Return host and database of a URL, for messages: no password."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"PostgreSQL {parts.hostname or 'on this machine'}{parts.path}"


def explain(error: Exception, label: str, *, broken: bool) -> StateError:
    """Return the sentence for what the server or its driver said."""
    import psycopg
    from psycopg import errors

    reason = " ".join(str(error).split()) or type(error).__name__
    thrown_out = isinstance(error, (errors.AdminShutdown, errors.CrashShutdown, errors.IdleInTransactionSessionTimeout))
    if isinstance(
        error, (errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName)
    ) or (isinstance(error, psycopg.OperationalError) and "authentication failed" in reason):
        return StateError(f"The log {label} refused the connection ({reason}).", remedy="Correct RETINUE_DATABASE.")
    if thrown_out or (broken and isinstance(error, psycopg.OperationalError)):
        return LostDatabaseError(
            f"The log {label} cannot be reached ({reason}).",
            remedy="See that the server runs and RETINUE_DATABASE is right. What is not written is tried again.",
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return StateError(
            f"The log {label} refused something to this role ({reason}).",
            remedy="A new project is made by a worker: retinue worker --project NAME. See docs/cluster.md, Roles.",
        )
    if isinstance(error, errors.LockNotAvailable):
        return StateError(f"The log {label} is held by another process ({reason}).", remedy="Try again.")
    return StateError(f"The log {label} cannot be used ({reason}).", remedy="The server's own log says more.")


def _lock_number(schema: str) -> int:
    return int.from_bytes(hashlib.sha256(schema.encode()).digest()[:8], "big", signed=True)


def _without_nul(values: Sequence[Any]) -> Sequence[Any]:
    return without_nul(values) if any(isinstance(value, str) and "\0" in value for value in values) else values


@lru_cache(maxsize=1)
def _zone() -> str:
    """Return the time zone of this machine, in which days are counted."""
    import os
    from pathlib import Path

    name = os.environ.get("TZ", "").lstrip(":")
    with contextlib.suppress(OSError):
        name = name or str(Path("/etc/localtime").resolve()).rpartition("zoneinfo/")[2]
    if name and all(letter.isalnum() or letter in "/_+-" for letter in name) and not name.startswith("/"):
        return name
    return "UTC"
