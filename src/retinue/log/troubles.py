"""Warnings and errors of runs, from the log: what went wrong, where and when."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct

from retinue.log.activity import TOOL_KINDS, text_of
from retinue.log.database import connect_to_read, log_file, trouble

Level = Literal["warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
Source = Literal["search", "fetch", "get_content", "convert", "lsp", "tool", "model", "limit", "run"]
SOURCES: tuple[Source, ...] = get_args(Source)

_TYPES = ("run.warned", "model.retrying", "limit.reached", "tool.ended", "run.ended")
_MILD_ENDS = ("steered", "stopped")
_SEVERE = ("internal",)


class Trouble(Struct, frozen=True, kw_only=True):
    """`number` orders the troubles of a project, so that a reader can go on after one."""

    number: int
    at: float
    level: Level
    source: Source
    run_id: str
    agent: str
    code: str
    text: str


def troubles(
    folder: Path,
    *,
    levels: Collection[Level] = LEVELS,
    sources: Collection[Source] = SOURCES,
    after: int = 0,
    since: float = 0.0,
    limit: int | None = 20,
) -> list[Trouble]:
    """The newest `limit` of one project, oldest first; None: all. Raise StateError if the log
    cannot be read."""
    import sqlite3

    try:
        connection = connect_to_read(folder)
        try:
            found: list[Trouble] = []
            for each in _read(connection, after, since):
                if each.level in levels and each.source in sources:
                    found.append(each)
                if limit is not None and len(found) >= limit:
                    break
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise trouble(error, log_file(folder)) from error
    return found[::-1]


def _read(connection: Any, after: int, since: float) -> Iterator[Trouble]:
    """The newest first."""
    query = f"""SELECT events.id, run_id, agent, at, type, body FROM events JOIN runs ON runs.id = run_id
        WHERE events.id > ? AND at >= ? AND type IN ({",".join("?" * len(_TYPES))})
        AND (type != 'tool.ended' OR json_extract(body, '$.result.is_error'))
        AND (type != 'run.ended' OR json_extract(body, '$.outcome.ended') != 'completed')
        ORDER BY events.id DESC"""  # noqa: S608 - marks
    for number, run_id, agent, at, kind, body in connection.execute(query, (after, since, *_TYPES)):
        level, source, code, text = _judge(kind, json.loads(body))
        yield Trouble(
            number=number, at=at, level=level, source=source, run_id=run_id, agent=agent, code=code, text=text
        )


def _judge(kind: str, data: dict[str, Any]) -> tuple[Level, Source, str, str]:
    match kind:
        case "run.warned":
            code = str(data.get("code", ""))
            level: Level = "error" if code in _SEVERE else "warning"
            return level, "run", code, str(data.get("text", ""))
        case "model.retrying":
            failure = data.get("failure") or {}
            return "warning", "model", str(failure.get("kind", "")), str(failure.get("message", ""))
        case "limit.reached":
            return "warning", "limit", str(data.get("limit", "")), str(data.get("detail", ""))
        case "tool.ended":
            name, effect = str(data.get("name", "")), data.get("effect") or {}
            code = "denied" if effect.get("denied") else str(effect.get("code") or "")
            return "warning", TOOL_KINDS.get(name, "tool"), code or name, f"{name}: {text_of(data.get('result') or {})}"
        case _:
            return _ending(data.get("outcome") or {})


def _ending(outcome: dict[str, Any]) -> tuple[Level, Source, str, str]:
    ended, failure = str(outcome.get("ended", "")), outcome.get("failure") or {}
    said = " ".join(filter(None, (failure.get("message"), failure.get("remedy")))) or f"The run ended as {ended}."
    level: Level = "warning" if ended in _MILD_ENDS else "error"
    return level, "run", ended, said
