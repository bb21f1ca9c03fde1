"""What runs did on the web, with documents and with language servers: counts, errors, latency.

Everything comes from the ends of tool calls in the log: nothing is counted twice, nothing is
forgotten when a process ends, and nothing has to be written beside.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from retinue.log.database import connect_to_read, log_file, trouble

if TYPE_CHECKING:
    import sqlite3

    from retinue.log.query import Reader

Kind = Literal["search", "fetch", "get_content", "convert", "lsp"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Status = Literal["pending", "success", "error", "rate_limited", "denied"]

TOOL_KINDS: dict[str, Kind] = {
    "web_search": "search",
    "fetch_content": "fetch",
    "get_search_content": "get_content",
    "convert_content": "convert",
    "lsp": "lsp",
}
_TEXT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One call. `provider` is who did it, where there are several; `hosts` were contacted."""

    at: float
    run_id: str
    agent: str
    kind: Kind
    status: Status
    call_id: str
    provider: str = ""
    duration_ms: int = 0
    code: str = ""
    error: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The calls of one kind and provider. Latencies are of calls that ran, in milliseconds."""

    kind: str
    provider: str
    total: int = 0
    success: int = 0
    errors: int = 0
    rate_limited: int = 0
    denied: int = 0
    pending: int = 0
    average_ms: int = 0
    median_ms: int = 0
    slow_ms: int = 0
    """What nineteen of twenty calls did not exceed."""
    last_at: float = 0.0
    codes: dict[str, int] = field(default_factory=dict)


def activity(folder: Path, *, kinds: Collection[Kind] = KINDS, since: float = 0.0) -> list[Entry]:
    """The calls of one project after `since` (Unix time), newest first. Raises StateError if the
    log cannot be read."""
    import sqlite3

    tools = [tool for tool, kind in TOOL_KINDS.items() if kind in kinds]
    if not tools:
        return []
    try:
        connection = connect_to_read(folder)
        try:
            found = [*_ended(connection, tools, since), *_pending(connection, tools, since)]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise trouble(error, log_file(folder)) from error
    return sorted(found, key=lambda entry: entry.at, reverse=True)


def totals(entries: Iterable[Entry]) -> list[Totals]:
    """By kind and provider, in the order of the kinds."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.kind, entry.provider), []).append(entry)
    return [_totals(kind, provider, groups[kind, provider]) for kind, provider in sorted(groups, key=_place)]


def everything(entries: Sequence[Entry]) -> Totals:
    return _totals("total", "", entries)


def first_host(reader: Reader, run_id: str) -> str | None:
    """A host from which a run, or one below it, has got something; None if none has."""
    rows = reader.select(
        """WITH RECURSIVE tree (id) AS (
            SELECT ? UNION ALL SELECT runs.id FROM runs JOIN tree ON runs.parent_id = tree.id
        )
        SELECT json_extract(body, '$.effect.hosts[0]') FROM events JOIN tree ON run_id = tree.id
        WHERE type = 'tool.ended' AND json_extract(body, '$.effect.hosts[0]') IS NOT NULL LIMIT 1""",
        (run_id,),
    )
    return str(rows[0][0]) if rows else None


def _place(key: tuple[str, str]) -> tuple[int, str]:
    return [*KINDS, "total"].index(key[0]), key[1]


def _totals(kind: str, provider: str, entries: Sequence[Entry]) -> Totals:
    count = {status: sum(entry.status == status for entry in entries) for status in get_args(Status)}
    took = sorted(entry.duration_ms for entry in entries if entry.status not in ("pending", "denied"))
    codes: dict[str, int] = {}
    for entry in entries:
        if entry.code:
            codes[entry.code] = codes.get(entry.code, 0) + 1
    return Totals(
        kind=kind,
        provider=provider,
        total=len(entries),
        success=count["success"],
        errors=count["error"],
        rate_limited=count["rate_limited"],
        denied=count["denied"],
        pending=count["pending"],
        average_ms=round(sum(took) / len(took)) if took else 0,
        median_ms=took[len(took) // 2] if took else 0,
        slow_ms=took[min(len(took) - 1, len(took) * 19 // 20)] if took else 0,
        last_at=max((entry.at for entry in entries), default=0.0),
        codes=codes,
    )


def _ended(connection: sqlite3.Connection, tools: list[str], since: float) -> Iterator[Entry]:
    marks = ",".join("?" * len(tools))
    query = f"""SELECT run_id, agent, at, body FROM events JOIN runs ON runs.id = run_id
        WHERE type = 'tool.ended' AND at >= ? AND json_extract(body, '$.name') IN ({marks})"""  # noqa: S608 - marks
    for run_id, agent, at, body in connection.execute(query, (since, *tools)):
        data = _data(body)
        effect, result = data.get("effect") or {}, data.get("result") or {}
        code = effect.get("code") or ""
        failed = bool(result.get("is_error"))
        yield Entry(
            at=at,
            run_id=run_id,
            agent=agent,
            kind=TOOL_KINDS[data["name"]],
            status=_status(effect, failed),
            call_id=str(data.get("call_id", "")),
            provider=effect.get("provider") or "",
            duration_ms=int(data.get("duration_ms") or 0),
            code=code,
            error=text_of(result) if failed else "",
            hosts=tuple(map(str, effect.get("hosts") or ())),
        )


def _pending(connection: sqlite3.Connection, tools: list[str], since: float) -> Iterator[Entry]:
    """Calls that have begun and not ended, of runs that have not either."""
    marks = ",".join("?" * len(tools))
    query = f"""SELECT run_id, agent, at, json_extract(body, '$.call.name'), json_extract(body, '$.call.id')
        FROM events AS started JOIN runs ON runs.id = run_id
        WHERE state NOT IN ('ended', 'interrupted') AND type = 'tool.started' AND at >= ?
        AND json_extract(body, '$.call.name') IN ({marks}) AND NOT EXISTS (
            SELECT 1 FROM events AS ended WHERE ended.run_id = started.run_id AND ended.type = 'tool.ended'
            AND ended.seq > started.seq
            AND json_extract(ended.body, '$.call_id') = json_extract(started.body, '$.call.id')
        )"""  # noqa: S608 - marks
    for run_id, agent, at, tool, call_id in connection.execute(query, (since, *tools)):
        yield Entry(at=at, run_id=run_id, agent=agent, kind=TOOL_KINDS[tool], status="pending", call_id=str(call_id))


def _status(effect: dict[str, Any], failed: bool) -> Status:
    if effect.get("denied"):
        return "denied"
    if not failed:
        return "success"
    return "rate_limited" if str(effect.get("code") or "").endswith("RATE_LIMITED") else "error"


def _data(body: str) -> dict[str, Any]:
    data = json.loads(body)
    return data if isinstance(data, dict) else {}


def text_of(result: dict[str, Any]) -> str:
    """The beginning of what a result says, on one line."""
    parts = [part.get("text", "") for part in result.get("content") or () if isinstance(part, dict)]
    text = " ".join(" ".join(parts).split())
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
