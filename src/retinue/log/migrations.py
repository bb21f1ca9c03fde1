"""The schema of the SQLite log, as an ordered list of small steps that are never edited once released.

`PRAGMA user_version` is the number of steps that a file has had. Each step runs in one transaction with its number, so
two processes that open an old file at once cannot both apply it. Step 8 replaces facts in sentences by typed facts: a
changed permission mode, the move to the background, the children in a notification, and the call that returned a
child's result.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from retinue.core.delegation import Status
from retinue.core.install import upgrade_advice
from retinue.core.spec import PermissionMode
from retinue.errors import StateError
from retinue.log.database import transaction
from retinue.log.rows import FIND_CREATED, FIND_MOVED, SET_LABELS, read_labels

if TYPE_CHECKING:
    import sqlite3


APPLICATION_ID = 0x5254_4E55
"""Stored in the file's header, so that no other database is mistaken for a log."""

Migration = Callable[["sqlite3.Connection"], None]


def create_log(connection: sqlite3.Connection) -> None:
    """1: events, runs, the owners of runs, and the streamed text of unfinished answers."""
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, at REAL NOT NULL)")
    connection.execute(
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY,
            run_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            at REAL NOT NULL,
            type TEXT NOT NULL,
            body TEXT NOT NULL,
            UNIQUE (run_id, seq)
        )"""
    )
    connection.execute(
        """CREATE TRIGGER events_are_append_only BEFORE UPDATE ON events
        BEGIN SELECT RAISE(ABORT, 'events are append-only'); END"""
    )
    connection.execute(
        """CREATE TABLE owners (
            id TEXT PRIMARY KEY,
            pid INTEGER NOT NULL,
            started TEXT NOT NULL,
            host TEXT NOT NULL,
            boot TEXT NOT NULL,
            space TEXT NOT NULL,
            heartbeat REAL NOT NULL
        )"""
    )
    connection.execute(
        """CREATE TABLE runs (
            id TEXT PRIMARY KEY,
            parent_id TEXT,
            root_id TEXT NOT NULL,
            depth INTEGER NOT NULL,
            agent TEXT NOT NULL,
            task TEXT NOT NULL,
            cwd TEXT NOT NULL,
            created_at REAL NOT NULL,
            owner TEXT REFERENCES owners (id),
            state TEXT NOT NULL,
            ended TEXT,
            error TEXT,
            model TEXT NOT NULL,
            transcript TEXT,
            started_at REAL,
            ended_at REAL,
            turns INTEGER NOT NULL,
            tool_uses INTEGER NOT NULL,
            compactions INTEGER NOT NULL,
            input INTEGER NOT NULL,
            output INTEGER NOT NULL,
            cache_read INTEGER NOT NULL,
            cache_write INTEGER NOT NULL,
            cost_usd REAL,
            updated_at REAL NOT NULL
        )"""
    )
    connection.execute("CREATE INDEX runs_by_time ON runs (created_at)")
    connection.execute("CREATE INDEX runs_by_parent ON runs (parent_id) WHERE parent_id IS NOT NULL")
    connection.execute("CREATE INDEX runs_by_owner ON runs (owner) WHERE state NOT IN ('ended', 'interrupted')")
    connection.execute(
        """CREATE TABLE partials (
            id INTEGER PRIMARY KEY,
            run_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            kind TEXT NOT NULL,
            text TEXT NOT NULL
        )"""
    )
    connection.execute("CREATE INDEX partials_by_run ON partials (run_id, seq)")


def add_commands(connection: sqlite3.Connection) -> None:
    """2: commands to the processes of runs. `owner` is the owner of the run when the command was sent: a process that
    takes the run over later does not execute it."""
    connection.execute(
        """CREATE TABLE commands (
            id INTEGER PRIMARY KEY,
            owner TEXT NOT NULL,
            run_id TEXT NOT NULL,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            at REAL NOT NULL,
            taken_at REAL,
            accepted INTEGER,
            answer TEXT
        )"""
    )
    connection.execute("CREATE INDEX commands_to_take ON commands (owner) WHERE taken_at IS NULL")


def add_inbox(connection: sqlite3.Connection) -> None:
    """3: the inbox, and the rules that people granted to agents. `item` is the original item without secrets;
    `fingerprint` identifies its payload. `taken_at` is the time when the run continued with the answer."""
    connection.execute(
        """CREATE TABLE inbox (
            id TEXT PRIMARY KEY,
            run_id TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            item TEXT NOT NULL,
            created_at REAL NOT NULL,
            expires_at REAL,
            state TEXT NOT NULL,
            choice TEXT,
            message TEXT,
            answered_by TEXT,
            answered_at REAL,
            taken_at REAL
        )"""
    )
    connection.execute("CREATE INDEX inbox_by_run ON inbox (run_id)")
    connection.execute("CREATE INDEX inbox_waiting ON inbox (created_at) WHERE state='waiting'")
    connection.execute(
        """CREATE TABLE grants (
            agent TEXT NOT NULL,
            source TEXT NOT NULL,
            rule TEXT NOT NULL,
            at REAL NOT NULL,
            granted_by TEXT NOT NULL,
            PRIMARY KEY (agent, source, rule)
        )"""
    )


def add_schedules(connection: sqlite3.Connection) -> None:
    """4: scheduled jobs, and their slots that were fired or skipped."""
    connection.execute(
        """CREATE TABLE schedules (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            agent TEXT NOT NULL,
            prompt TEXT NOT NULL,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            at REAL NOT NULL,
            seconds REAL NOT NULL,
            expression TEXT NOT NULL,
            zone TEXT NOT NULL,
            options TEXT NOT NULL,
            session_id TEXT,
            missed TEXT NOT NULL,
            jitter REAL NOT NULL,
            enabled INTEGER NOT NULL,
            created_at REAL NOT NULL,
            anchor REAL NOT NULL,
            next_at REAL,
            last_at REAL,
            last_run TEXT,
            last_error TEXT,
            runs INTEGER NOT NULL,
            skipped INTEGER NOT NULL
        )"""
    )
    connection.execute("CREATE INDEX schedules_by_slot ON schedules (next_at) WHERE enabled")
    connection.execute(
        """CREATE TABLE schedule_slots (
            job_id TEXT NOT NULL,
            slot REAL NOT NULL,
            at REAL NOT NULL,
            owner TEXT NOT NULL,
            result TEXT NOT NULL,
            run_id TEXT,
            PRIMARY KEY (job_id, slot)
        )"""
    )


def index_names(connection: sqlite3.Connection) -> None:
    """5: runs are found by their names, however many came after them."""
    connection.execute(f"CREATE INDEX runs_by_name ON events ({NAME_OF_RUN}) WHERE type='run.created'")


def index_history(connection: sqlite3.Connection) -> None:
    """6: queries for trees, states, agents, owners, conversations, troubles and calls need not read the whole history.
    `level` and `source` decide whether `retinue logs` and `retinue activity` list an event; most events have
    neither."""
    connection.execute("CREATE INDEX runs_by_moment ON runs (created_at, id)")
    connection.execute("CREATE INDEX runs_by_root ON runs (root_id, created_at, id)")
    connection.execute("CREATE INDEX runs_by_agent ON runs (agent, created_at, id)")
    connection.execute("CREATE INDEX runs_unended ON runs (state, created_at, id) WHERE state <> 'ended'")
    connection.execute("CREATE INDEX runs_main ON runs (updated_at) WHERE parent_id IS NULL")
    # The removal of an owner uses this index to find its runs. It cannot use one with a condition about the state.
    connection.execute("CREATE INDEX runs_owned ON runs (owner) WHERE owner IS NOT NULL")
    connection.execute("DROP INDEX runs_by_time")
    connection.execute("DROP INDEX runs_by_owner")
    connection.execute("ALTER TABLE events ADD COLUMN level TEXT")
    connection.execute("ALTER TABLE events ADD COLUMN source TEXT")
    connection.execute("DROP TRIGGER events_are_append_only")
    connection.execute(_LABEL_OLD_EVENTS)
    connection.execute(_APPEND_ONLY)
    connection.execute("CREATE INDEX events_by_source ON events (source, level, id) WHERE source IS NOT NULL")


RARE_TYPES = "type >= 'run.' AND type < 'tool.'"
"""The types of which a run has few events: `run.*` and `todos.updated`. SQLite uses the index only for queries that
contain exactly this condition. Two comparisons do not slow down inserts, as a list of types did."""


def index_rare_events(connection: sqlite3.Connection) -> None:
    """7: the few events of a long run that determine its state are found without reading the others."""
    connection.execute(f"CREATE INDEX events_rare ON events (type, run_id, seq) WHERE {RARE_TYPES}")


def type_facts(connection: sqlite3.Connection) -> None:
    """8: facts in sentences become fields of typed events."""
    calls = dict(connection.execute(FIND_CALLS).fetchall())
    typed = list(type_events(connection.execute(FIND_FACTS), calls))
    connection.execute("DROP TRIGGER events_are_append_only")
    for event in typed:
        changes = (event.type, event.body, event.number)
        connection.execute("UPDATE events SET type=?, body=?, level=NULL, source=NULL WHERE id=?", changes)
    connection.execute(_APPEND_ONLY)


def add_labels(connection: sqlite3.Connection) -> None:
    """9: the labels of a run, until now only in its first event, become columns of its row."""
    connection.execute("ALTER TABLE runs ADD COLUMN name TEXT")
    connection.execute("ALTER TABLE runs ADD COLUMN display_name TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE runs ADD COLUMN description TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE runs ADD COLUMN color TEXT")
    connection.execute("ALTER TABLE runs ADD COLUMN tags TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE runs ADD COLUMN call_id TEXT")
    connection.execute("ALTER TABLE runs ADD COLUMN background INTEGER NOT NULL DEFAULT 0")
    for run_id, body in connection.execute(FIND_CREATED).fetchall():
        connection.execute(SET_LABELS, (*read_labels(run_id, body), run_id))
    connection.execute(f"UPDATE runs SET background=1 WHERE id IN ({FIND_MOVED})")  # noqa: S608
    connection.execute("DROP INDEX runs_by_name")
    connection.execute("CREATE INDEX runs_by_name ON runs (name, created_at) WHERE name IS NOT NULL")


_APPEND_ONLY = """CREATE TRIGGER events_are_append_only BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are append-only'); END"""
_LABEL_OLD_EVENTS = """UPDATE events SET
    level = CASE type
        WHEN 'run.warned' THEN CASE json_extract(body, '$.code') WHEN 'internal' THEN 'error' ELSE 'warning' END
        WHEN 'run.ended' THEN
            CASE WHEN json_extract(body, '$.outcome.ended') IN ('steered', 'stopped') THEN 'warning' ELSE 'error' END
        WHEN 'tool.ended' THEN CASE WHEN json_extract(body, '$.result.is_error') THEN 'warning' ELSE 'info' END
        ELSE 'warning' END,
    source = CASE type
        WHEN 'model.retrying' THEN 'model'
        WHEN 'limit.reached' THEN 'limit'
        WHEN 'tool.ended' THEN CASE json_extract(body, '$.name')
            WHEN 'web_search' THEN 'search' WHEN 'fetch_content' THEN 'fetch'
            WHEN 'get_search_content' THEN 'get_content'
            WHEN 'convert_content' THEN 'convert' WHEN 'lsp' THEN 'lsp' ELSE 'tool' END
        ELSE 'run' END
    WHERE type IN ('run.warned', 'model.retrying', 'limit.reached')
        OR (type = 'run.ended' AND json_extract(body, '$.outcome.ended') <> 'completed')
        OR (type = 'tool.ended' AND (json_extract(body, '$.result.is_error') OR json_extract(body, '$.name')
            IN ('web_search', 'fetch_content', 'get_search_content', 'convert_content', 'lsp')))"""

NAME_OF_RUN = "json_extract(body, '$.options.name')"
"""The name of a run in its first event, which formats before 9 index."""

MIGRATIONS: tuple[Migration, ...] = (
    create_log,
    add_commands,
    add_inbox,
    add_schedules,
    index_names,
    index_history,
    index_rare_events,
    type_facts,
    add_labels,
)


def migrate(connection: sqlite3.Connection, path: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Apply the missing steps. Raise StateError if the file is newer than this program."""
    while version_of(connection, path, len(migrations)) < len(migrations):
        with transaction(connection):
            done = version_of(connection, path, len(migrations))
            if done < len(migrations):
                step = migrations[done]
                step(connection)
                row = (done + 1, step.__name__, time.time())
                connection.execute("INSERT INTO migrations (number, name, at) VALUES (?, ?, ?)", row)
                connection.execute(f"PRAGMA user_version={done + 1}")


def version_of(connection: sqlite3.Connection, path: Path, max_version: int = len(MIGRATIONS)) -> int:
    """Return the number of steps that the file has had. Raise StateError for a file of another program or of a newer
    Retinue."""
    # Read the tables first: another process that creates the log sets version and application id at once.
    has_tables = bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    foreign = application != APPLICATION_ID if version else has_tables
    if foreign:
        raise StateError(
            f"{path} is a database of another program, not a log of Retinue.",
            remedy=f"Nothing was changed. Move it aside: mv {path} {path}.other",
        )
    if version > max_version:
        raise StateError(
            f"The log {path} was written by a newer Retinue (format {version}; this one reads up to {max_version}).",
            remedy=f"{upgrade_advice()} Or set RETINUE_HOME to another folder.",
        )
    return version


FIND_FACTS = """SELECT id, run_id, type, body FROM events
    WHERE type = 'run.warned' OR type = 'child.read'
        OR (type = 'message.added' AND (instr(body, '<task-notification>') > 0 OR instr(body, '<agent-question>') > 0))
        OR (type = 'tool.ended' AND run_id IN (SELECT run_id FROM events WHERE type = 'child.read'))
    ORDER BY run_id, seq"""
FIND_CALLS = "SELECT run_id, json_extract(body, '$.options.call_id') FROM events WHERE type = 'run.created'"

_FRAME = re.compile(r"^<(task-notification|agent-question)>\n(.*?)^</\1>$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^<([a-z-]+)>(.*?)</\1>$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"<([a-z_]+)>(\d+)</\1>")
_STATUS_OF_LABELS: dict[str, Status] = {
    "Done": "completed",
    "Wrapped up (turn limit)": "steered",
    "Aborted (max turns exceeded)": "aborted",
    "Stopped": "stopped",
    "Stopped by the user": "stopped",
    "Timed out": "timeout",
    "Stopped (budget spent)": "over-budget",
    "Refused (no language model)": "refused",
    "Interrupted": "interrupted",
}
_CUT = re.compile(r" \([^()]*output limit[^()]*\)$")


class TypedEvent(NamedTuple):
    """The new type and body of the event `number`."""

    number: int
    type: str
    body: str


def type_events(rows: Iterable[tuple[int, str, str, str]], calls: Mapping[str, str | None]) -> Iterator[TypedEvent]:
    """Yield the new form of the events of `FIND_FACTS` that must change. `calls` has the id of the call that started
    each run, or None."""
    unread: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
    for number, run_id, kind, text in rows:
        body = json.loads(text)
        if kind == "child.read":
            unread[run_id, body["child_id"]] = (number, body)
        elif kind == "tool.ended":
            result = json.dumps(body.get("result"))
            carried = [
                key
                for key in unread
                if key[0] == run_id and (key[1] in result or calls.get(key[1]) == body.get("call_id"))
            ]
            for key in carried:
                read, fact = unread.pop(key)
                yield _typed(read, "child.read", {**fact, "call_id": body.get("call_id")})
        elif kind == "run.warned":
            yield from _from_warning(number, body)
        elif body["message"].get("notice") is None:
            yield from _from_message(number, body)


def _from_warning(number: int, body: Mapping[str, Any]) -> Iterator[TypedEvent]:
    code, text = body.get("code"), str(body.get("text"))
    if code == "moved_to_background":
        yield _typed(number, "run.moved", {"call_id": None})
    elif code in ("plan_approved", "permission_mode"):
        mode = next((mode for mode in get_args(PermissionMode) if f" {mode} now." in text), None)
        if mode is not None:
            cause = "plan" if code == "plan_approved" else "person"
            yield _typed(number, "run.mode_changed", {"mode": mode, "cause": cause})


def _from_message(number: int, body: dict[str, Any]) -> Iterator[TypedEvent]:
    message = body["message"]
    text = "\n".join(content["text"] for content in message["content"] if content.get("type") == "text")
    frames = _FRAME.findall(text)
    if message.get("origin") != "notification" or not frames:
        return
    if frames[0][0] == "agent-question":
        message["notice"] = _question(frames[0][1])
    else:
        endings = [_ending(frame) for name, frame in frames if name == "task-notification"]
        head = text[: text.index("<task-notification>")]
        message["notice"] = {
            "type": "children_ended",
            "endings": endings,
            "group": len(endings) > 1,
            "partial": "(partial" in head,
        }
    yield _typed(number, "message.added", body)


def _question(frame: str) -> dict[str, Any]:
    fields, options, _ = _fields(frame)
    return {
        "type": "child_asked",
        "run_id": fields.get("agent-id", ""),
        "agent": fields.get("agent", ""),
        "question": fields.get("question", ""),
        "options": options,
    }


def _ending(frame: str) -> dict[str, Any]:
    fields, _, notes = _fields(frame)
    label = fields.get("status", "")
    summary = fields.get("summary", "").removeprefix('Agent "')
    numbers = {name: int(value) for name, value in _NUMBER.findall(fields.get("usage", ""))}
    return {
        "id": fields.get("task-id", ""),
        "status": _STATUS_OF_LABELS.get(_CUT.sub("", label), "error"),
        "label": label,
        "description": summary[: summary.rfind(f'" {label}')] or "agent",
        "result": fields.get("result", ""),
        "truncated": _CUT.search(label) is not None,
        "stopped_by_person": label == "Stopped by the user",
        "transcript": fields.get("output-file", ""),
        "branch": fields.get("branch", ""),
        "notes": notes,
        "tool_uses": numbers.get("tool_uses", 0),
        "tokens": numbers.get("total_tokens"),
        "duration_ms": numbers.get("duration_ms", 0),
    }


def _fields(frame: str) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the fields of a frame, and its options and notes, of which there may be several."""
    fields: dict[str, str] = {}
    options, notes = [], []
    for name, escaped in _FIELD.findall(frame):
        text = escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        if name == "option":
            options.append(text)
        elif name == "note":
            notes.append(text)
        else:
            fields.setdefault(name, text)
    return fields, options, notes


def _typed(number: int, kind: str, fields: Mapping[str, Any]) -> TypedEvent:
    return TypedEvent(number, kind, json.dumps({**fields, "type": kind}, ensure_ascii=False, separators=(",", ":")))
