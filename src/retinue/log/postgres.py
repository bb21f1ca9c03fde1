"""The log of a project in a PostgreSQL database, for runs of several machines (extra `cluster`).

Each project has its own schema, `retinue_<name>`, with the tables of the SQLite file. Statements are translated word by
word; functions of the schema replace those of SQLite. `BEGIN IMMEDIATE` locks the project until the transaction ends,
so there is one writer at a time, as in SQLite. The server ends a transaction whose client is silent for two seconds.
That client must register again, and is refused if others have taken over its runs since.

The server announces commits (LISTEN) to one thread for each process and project. As with SQLite, readers compare a
version number. It grows with every announcement, and while the connection is lost, with every query for it.
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

Opened = TypeVar("Opened")
_RELISTEN_SECONDS = 0.5
_MAX_FIRST_LISTEN_SECONDS = 1.0
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
        self._ready.wait(_MAX_FIRST_LISTEN_SECONDS)

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
            # Earlier commits are not announced.
            self._announce()
            for _ in self._raw.notifies():
                self._announce()

    def _announce(self) -> None:
        self._count += 1
        self._notify()


def listener_of(url: str, schema: str) -> PostgresListener:
    """Return the listener of this process, which starts on first use."""
    listener = _listeners.get((url, schema))
    if listener is None:
        with _lock:
            listener = _listeners.get((url, schema)) or PostgresListener(url, schema)
            _listeners[url, schema] = listener
        listener.wait()
    return listener


MAX_SERVER_WAIT_SECONDS = 10.0
"""How long an operation waits for an unavailable server before it fails."""
_ATTEMPT_PAUSE_SECONDS = 0.1
_IDLE_TIMEOUT_MS = 2000
_STREAM_SECONDS = 0.25
_KEEPALIVE_OPTIONS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "tcp_user_timeout": 20_000,
}
"""With these options a silently lost connection is noticed after half a minute, not after 15 minutes."""
_SESSION = """SELECT set_config('search_path', %s, false), set_config('lock_timeout', '10000', false),
set_config('idle_in_transaction_session_timeout', %s, false), set_config('client_min_messages', 'warning', false),
set_config('timezone', %s, false)"""
_OWNERS = """SELECT id, pid, started, host, boot, space,
    extract(epoch FROM clock_timestamp())::float8
    - greatest(heartbeat, extract(epoch FROM pg_postmaster_start_time())::float8) FROM owners"""
"""The last value is how long each has been silent, except for the time when the server was down."""


@lru_cache(maxsize=1024)
def translate(sql: str) -> str:
    """Return a statement of this package in the dialect of PostgreSQL."""
    translated = sql.replace("%", "%%").replace(" IS ?", " IS NOT DISTINCT FROM ?").replace(" LIKE ", " ILIKE ")
    return translated.replace(" CROSS JOIN ", " JOIN ").replace("?", "%s")


def schema_of(project: str) -> str:
    """Return the schema of a project."""
    return f"retinue_{project}"


class PostgresConnection:
    """A connection to the server, as `backend.LogConnection` describes it."""

    shared = True
    heartbeat_seconds = SHARED_HEARTBEAT_SECONDS
    stream_seconds = _STREAM_SECONDS

    def __init__(self, backend: PostgresBackend, *, repeats: bool = False) -> None:
        self._backend = backend
        self.repeats = repeats
        """Whether its changes can be repeated safely if the connection is lost during a change."""
        self._begin = f"BEGIN; SELECT pg_advisory_xact_lock({_lock_number(backend.schema)})"
        self._raw = backend.open()
        self._inside = False
        """Whether a transaction is open."""

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
        # A query can be repeated. A change may have happened.
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
        """A transaction without the project's lock and without a limit for waiting on locked rows."""
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
            # The server numbers events, except for those that replace others.
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
        # The space is reused for new rows. A full vacuum would lock the log for all processes.
        self.execute("VACUUM events")
        return False

    def reopen(self) -> None:
        with contextlib.suppress(Exception):
            self._raw.close()
        self._inside = False
        # The idle connections were lost for the same reason.
        for raw in _idle.pop(self._backend.key, ()):
            raw.close()
        self._raw = self._backend.open()

    def close(self) -> None:
        self._backend.keep(self._raw)

    def _start(self, sql: str) -> NoRows:
        """Begin a transaction. It can be repeated on a new connection."""
        self._run(sql, None, repeats=True)
        self._inside = True
        return NoRows()

    def _run(self, statement: str, values: Sequence[Any] | None, *, repeats: bool) -> Any:
        """Execute a statement; with `repeats` once more on a new connection if this one was lost."""
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
        """Check that the server has the tables. It checks their pages itself."""
        try:
            with contextlib.closing(self.connect_to_read()) as connection:
                connection.execute("SELECT count(*) FROM runs").fetchone()
        except StateError as error:
            return [str(error)]
        return []

    def open(self) -> psycopg.Connection[Any]:
        """Return a connection to the server for this schema. Raise LostDatabaseError."""
        idle = _idle.get(self.key)
        while idle:
            with contextlib.suppress(IndexError):
                raw = idle.pop()
                if not (raw.closed or raw.broken):
                    return raw
        # If the server has no free connection, another process may close one soon.
        return _try_again(lambda: open_server(*self.key), lambda error: "too many clients" in str(error))

    def keep(self, raw: psycopg.Connection[Any]) -> None:
        """Close a connection, or keep it for reuse: opening one costs as much as twenty queries."""
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


def _try_again(do: Callable[[], Opened], is_temporary: Callable[[LostDatabaseError], bool]) -> Opened:
    """Return the result of `do`, repeated for some seconds while it fails for a temporary reason."""
    deadline = time.monotonic() + MAX_SERVER_WAIT_SECONDS
    while True:
        try:
            return do()
        except LostDatabaseError as error:
            if not is_temporary(error) or time.monotonic() > deadline:
                raise
        time.sleep(_ATTEMPT_PAUSE_SECONDS)


_MAX_IDLE_CONNECTIONS = 4
_idle: dict[tuple[str, str], list[psycopg.Connection[Any]]] = {}
_current: set[tuple[str, str]] = set()
"""Schemas that this process has migrated to its version, or found in it."""


def forget_connections(url: str) -> None:
    """Close all idle connections and listeners of a database."""
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
    # Other names are not ours, and could lead to other folders.
    return [name for name in names if is_valid(name, ProjectName)]


def make_project(url: str, name: str) -> None:
    """Create the missing log of a project, for senders whose database role may not. Raise UsageError or StateError."""
    if not is_valid(name, ProjectName):
        remedy = "Use lower-case letters, digits, - and _: the name that `retinue runs list` of the project shows."
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
        options = {name: value for name, value in _KEEPALIVE_OPTIONS.items() if f"{name}=" not in url}
        raw = psycopg.connect(url, autocommit=True, row_factory=read_rows, application_name="retinue", **options)
        raw.adapters.register_loader("numeric", number_loader())
        raw.execute(_SESSION, (sql.Identifier(schema).as_string(raw), str(_IDLE_TIMEOUT_MS), _zone()))
    except psycopg.Error as error:
        raise explain(error, place_of(url), broken=True) from error
    return raw


def place_of(url: str) -> str:
    """Return host and database of a URL for messages, without the password."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"PostgreSQL {parts.hostname or 'on this machine'}{parts.path}"


def explain(error: Exception, label: str, *, broken: bool) -> StateError:
    """Return the message for an error of the server or its driver."""
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
            remedy="Check that the server runs and RETINUE_DATABASE is right. Unwritten events are tried again.",
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return StateError(
            f"The log {label} denied an operation to this role ({reason}).",
            remedy="A worker creates a new project: retinue worker --project NAME. See docs/cluster.md, Roles.",
        )
    if isinstance(error, errors.LockNotAvailable):
        return StateError(f"The log {label} is locked by another process ({reason}).", remedy="Try again.")
    return StateError(f"The log {label} cannot be used ({reason}).", remedy="The server's own log says more.")


def _lock_number(schema: str) -> int:
    return int.from_bytes(hashlib.sha256(schema.encode()).digest()[:8], "big", signed=True)


def _without_nul(values: Sequence[Any]) -> Sequence[Any]:
    return without_nul(values) if any(isinstance(value, str) and "\0" in value for value in values) else values


@lru_cache(maxsize=1)
def _zone() -> str:
    """Return the time zone of this machine, which determines days."""
    import os
    from pathlib import Path

    name = os.environ.get("TZ", "").lstrip(":")
    with contextlib.suppress(OSError):
        name = name or str(Path("/etc/localtime").resolve()).rpartition("zoneinfo/")[2]
    if name and all(letter.isalnum() or letter in "/_+-" for letter in name) and not name.startswith("/"):
        return name
    return "UTC"
