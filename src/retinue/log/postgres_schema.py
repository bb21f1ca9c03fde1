"""The tables of the log in PostgreSQL, as an ordered list of steps that are never edited once released, and their rows.

The tables are those of `migrations`, in the dialect of the server. Each step runs in one transaction with its number,
under the lock of the project, so two processes that open a new project at once cannot both apply it. Values of rows are
read by index and by name, like those of SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from retinue.core.install import upgrade_advice
from retinue.errors import StateError
from retinue.log.migrations import FIND_CALLS, FIND_FACTS, NAME_OF_RUN, RARE_TYPES, type_events
from retinue.log.rows import FIND_CREATED, FIND_MOVED, SET_LABELS, read_labels

_ANNOUNCED_TABLES = ("events", "runs", "partials", "commands", "inbox", "schedules")
"""The tables whose changes are announced to listeners."""

_CREATE_LOG = f"""
CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, at DOUBLE PRECISION NOT NULL);

CREATE FUNCTION json_extract(body TEXT, path TEXT) RETURNS TEXT LANGUAGE SQL IMMUTABLE PARALLEL SAFE
AS $$ SELECT body::json #>> string_to_array(replace(replace(substr(path, 3), '[', '.'), ']', ''), '.') $$;
CREATE FUNCTION instr(whole TEXT, part TEXT) RETURNS INTEGER LANGUAGE SQL IMMUTABLE PARALLEL SAFE
AS $$ SELECT strpos(whole, part) $$;
CREATE FUNCTION strftime(form TEXT, at DOUBLE PRECISION, kind TEXT, zone TEXT) RETURNS TEXT LANGUAGE SQL STABLE
AS $$ SELECT to_char(to_timestamp(at), 'YYYY-MM-DD') $$;

CREATE TABLE events (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    level TEXT,
    source TEXT,
    UNIQUE (run_id, seq)
);
CREATE FUNCTION refuse_change() RETURNS TRIGGER LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'events are append-only'; END $$;
CREATE TRIGGER events_are_append_only BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE INDEX runs_by_name ON events ({NAME_OF_RUN}) WHERE type='run.created';
CREATE INDEX events_by_source ON events (source, level, id) WHERE source IS NOT NULL;

CREATE TABLE owners (
    id TEXT COLLATE "C" PRIMARY KEY,
    pid BIGINT NOT NULL,
    started TEXT NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    space TEXT NOT NULL,
    heartbeat DOUBLE PRECISION NOT NULL
);
CREATE TABLE runs (
    rowid BIGINT GENERATED ALWAYS AS IDENTITY,
    id TEXT COLLATE "C" PRIMARY KEY,
    parent_id TEXT COLLATE "C",
    root_id TEXT COLLATE "C" NOT NULL,
    depth INTEGER NOT NULL,
    agent TEXT NOT NULL,
    task TEXT NOT NULL,
    cwd TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    owner TEXT COLLATE "C" REFERENCES owners (id),
    state TEXT NOT NULL,
    ended TEXT,
    error TEXT,
    model TEXT NOT NULL,
    transcript TEXT,
    started_at DOUBLE PRECISION,
    ended_at DOUBLE PRECISION,
    turns BIGINT NOT NULL,
    tool_uses BIGINT NOT NULL,
    compactions BIGINT NOT NULL,
    input BIGINT NOT NULL,
    output BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    cost_usd DOUBLE PRECISION,
    updated_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX runs_by_moment ON runs (created_at, id);
CREATE INDEX runs_by_agent ON runs (agent, created_at, id);
CREATE INDEX runs_main ON runs (updated_at) WHERE parent_id IS NULL;
CREATE INDEX runs_by_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX runs_by_root ON runs (root_id, created_at, id);
CREATE INDEX runs_owned ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_unended ON runs (state, created_at, id) WHERE state <> 'ended';
CREATE TABLE partials (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX partials_by_run ON partials (run_id, seq);

CREATE TABLE commands (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    taken_at DOUBLE PRECISION,
    accepted BOOLEAN,
    answer TEXT
);
CREATE INDEX commands_to_take ON commands (owner) WHERE taken_at IS NULL;

CREATE TABLE inbox (
    rowid BIGINT GENERATED ALWAYS AS IDENTITY,
    id TEXT COLLATE "C" PRIMARY KEY,
    run_id TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT NOT NULL,
    item TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    state TEXT NOT NULL,
    choice TEXT,
    message TEXT,
    answered_by TEXT,
    answered_at DOUBLE PRECISION,
    taken_at DOUBLE PRECISION
);
CREATE INDEX inbox_by_run ON inbox (run_id);
CREATE INDEX inbox_waiting ON inbox (created_at) WHERE state='waiting';
CREATE TABLE grants (
    agent TEXT NOT NULL,
    source TEXT NOT NULL,
    rule TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    granted_by TEXT NOT NULL,
    PRIMARY KEY (agent, source, rule)
);

CREATE TABLE schedules (
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    prompt TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    expression TEXT NOT NULL,
    zone TEXT NOT NULL,
    options TEXT NOT NULL,
    session_id TEXT,
    missed TEXT NOT NULL,
    jitter DOUBLE PRECISION NOT NULL,
    enabled BOOLEAN NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    anchor DOUBLE PRECISION NOT NULL,
    next_at DOUBLE PRECISION,
    last_at DOUBLE PRECISION,
    last_run TEXT,
    last_error TEXT,
    runs BIGINT NOT NULL,
    skipped BIGINT NOT NULL
);
CREATE INDEX schedules_by_slot ON schedules (next_at) WHERE enabled;
CREATE TABLE schedule_slots (
    job_id TEXT COLLATE "C" NOT NULL,
    slot DOUBLE PRECISION NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    owner TEXT NOT NULL,
    result TEXT NOT NULL,
    run_id TEXT COLLATE "C",
    PRIMARY KEY (job_id, slot)
);

CREATE FUNCTION tell_listeners() RETURNS TRIGGER LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_notify(TG_TABLE_SCHEMA, ''); RETURN NULL; END $$;
""" + "\n".join(
    f"CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT "
    "EXECUTE FUNCTION tell_listeners();"
    for table in _ANNOUNCED_TABLES
)

_FIND_RARE_EVENTS = f"""
ALTER TABLE events ALTER COLUMN type TYPE TEXT COLLATE "C";
CREATE INDEX events_rare ON events (type, run_id, seq) WHERE {RARE_TYPES};
"""


def _type_facts(raw: Any) -> None:
    """Facts in sentences become fields of typed events."""
    calls = {row[0]: row[1] for row in raw.execute(FIND_CALLS).fetchall()}
    typed = list(type_events(raw.execute(FIND_FACTS).fetchall(), calls))
    raw.execute("ALTER TABLE events DISABLE TRIGGER events_are_append_only")
    for event in typed:
        changes = (event.type, event.body, event.number)
        raw.execute("UPDATE events SET type=%s, body=%s, level=NULL, source=NULL WHERE id=%s", changes)
    raw.execute("ALTER TABLE events ENABLE TRIGGER events_are_append_only")


def _add_labels(raw: Any) -> None:
    """The labels of a run, until now only in its first event, become columns of its row."""
    raw.execute(_LABEL_COLUMNS)
    for run_id, body in raw.execute(FIND_CREATED).fetchall():
        raw.execute(SET_LABELS.replace("?", "%s"), (*without_nul(read_labels(run_id, body)), run_id))
    raw.execute(f"UPDATE runs SET background=true WHERE id IN ({FIND_MOVED})")  # noqa: S608


def without_nul(values: Iterable[object]) -> list[object]:
    """Return the values without NUL, the only character that PostgreSQL cannot store."""
    return [value.replace("\0", "\N{SYMBOL FOR NULL}") if isinstance(value, str) else value for value in values]


_LABEL_COLUMNS = """
ALTER TABLE runs ADD COLUMN name TEXT, ADD COLUMN color TEXT, ADD COLUMN call_id TEXT,
    ADD COLUMN display_name TEXT NOT NULL DEFAULT '', ADD COLUMN description TEXT NOT NULL DEFAULT '',
    ADD COLUMN tags TEXT NOT NULL DEFAULT '', ADD COLUMN background BOOLEAN NOT NULL DEFAULT false;
DROP INDEX runs_by_name;
CREATE INDEX runs_by_name ON runs (name, created_at) WHERE name IS NOT NULL;
"""
STEPS: tuple[tuple[str, str | Callable[[Any], None]], ...] = (
    ("create_log", _CREATE_LOG),
    ("find_rare_events", _FIND_RARE_EVENTS),
    ("type_facts", _type_facts),
    ("add_labels", _add_labels),
)
"""The name of each step, and its statements or the function that executes it."""


def count_steps(raw: Any, schema: str) -> int:
    """Return how many steps the schema has had; 0 if there is no log."""
    from psycopg import sql

    table = sql.Identifier(schema, "migrations")
    there = raw.execute("SELECT to_regclass(%s)", (table.as_string(raw),)).fetchone()[0]
    if there is None:
        return 0
    return int(raw.execute(sql.SQL("SELECT coalesce(max(number), 0) FROM {}").format(table)).fetchone()[0])


def migrate(raw: Any, schema: str, label: str, lock: int) -> None:
    """Apply the missing steps. Raise StateError if the schema is newer than this program."""
    from psycopg import sql

    done = count_steps(raw, schema)
    while done < len(STEPS):
        raw.execute(f"BEGIN; SELECT pg_advisory_xact_lock({lock})")
        try:
            raw.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            done = count_steps(raw, schema)
            if done < len(STEPS):
                name, step = STEPS[done]
                if isinstance(step, str):
                    raw.execute(step)
                else:
                    step(raw)
                raw.execute(
                    "INSERT INTO migrations VALUES (%s, %s, extract(epoch FROM clock_timestamp()))", (done + 1, name)
                )
                done += 1
            raw.execute("COMMIT")
        except BaseException:
            if not raw.closed:
                raw.execute("ROLLBACK")
            raise
    if done > len(STEPS):
        raise StateError(
            f"The log {label} was written by a newer Retinue (format {done}; this one reads up to {len(STEPS)}).",
            remedy=f"{upgrade_advice()} Or set RETINUE_DATABASE to another database.",
        )


class PostgresRow(tuple[Any, ...]):
    """A row of the server, with access to values by index and by name."""

    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return tuple.__getitem__(self, self.names[key])
        return tuple.__getitem__(self, key)


@lru_cache(maxsize=512)
def _row_class(names: tuple[str, ...]) -> type[PostgresRow]:
    indexes = {name: index for index, name in enumerate(names)}
    return type("PostgresRow", (PostgresRow,), {"names": indexes})


def read_rows(cursor: Any) -> Any:
    columns = cursor.description or ()
    return _row_class(tuple(column.name for column in columns))


class NoRows:
    """The cursor of a statement without results."""

    rowcount = 0

    def fetchone(self) -> None:
        return None

    def fetchall(self) -> list[Any]:
        return []

    def __iter__(self) -> Iterator[Any]:
        return iter(())


@lru_cache(maxsize=1)
def number_loader() -> Any:
    """Return the loader of `numeric`, the type of sums of whole numbers, which returns whole numbers as `int`."""
    from psycopg.adapt import Loader

    def load(_: Any, data: Any) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text or "N" in text else int(text)

    return type("Number", (Loader,), {"load": load})
