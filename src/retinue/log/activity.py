"""Totals over runs: what they cost, and what their tools did.

Costs are added up by agent, run, tree, day or model from the rows of the runs. Each row holds what
its run spent itself, so adding up a tree counts nothing twice. A run whose price is unknown is
counted with its tokens and adds nothing to the cost: unknown is never shown as free.

Counts, errors and latencies of web, document and language tools come from the ends of tool calls in
the log, so nothing is lost when a process ends.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.messages import ToolResult
from retinue.log.database import LIVE_STATES, connect_to_read, log_file, trouble

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection
    from retinue.log.query import LogReader


By = Literal["agent", "run", "tree", "day", "model"]
BY: tuple[By, ...] = get_args(By)

_TOKENS = "input + output + cache_write"
_SUMS = f"""count(*), sum(turns), sum(tool_uses), sum(input), sum(output), sum(cache_read), sum(cache_write),
    sum(cost_usd), sum(CASE WHEN cost_usd IS NULL THEN 1 ELSE 0 END),
    sum(CASE WHEN cost_usd IS NULL THEN {_TOKENS} ELSE 0 END),
    min(created_at), max(updated_at)"""
_ROOT = "(SELECT {0} FROM runs AS root WHERE root.id = runs.root_id)"
_DAY = "strftime('%Y-%m-%d', created_at, 'unixepoch', 'localtime')"
_KEYS: dict[By, tuple[str, str, str]] = {
    "agent": ("agent", "''", "''"),
    "model": ("model", "''", "''"),
    "day": (_DAY, "''", "''"),
    "run": ("id", "agent", "task"),
    "tree": ("root_id", _ROOT.format("agent"), _ROOT.format("task")),
}

_NUMBERS = ("input", "output", "cache_read", "cache_write", "cost_usd")
_USAGE = ", ".join(f"json_extract(answer, '$.message.usage.{name}')" for name in _NUMBERS)
_UNFINISHED = f"""SELECT {{0}}, created_at, updated_at, {_USAGE} FROM runs
    CROSS JOIN (SELECT run_id AS whose, seq AS place, body AS answer FROM events WHERE type = 'assistant.ended')
    ON whose = id WHERE updated_at >= ? AND state <> 'ended' AND state <> 'queued' AND place >
        coalesce((SELECT max(seq) FROM events WHERE run_id = whose AND events.type = 'turn.ended'), 0)"""  # noqa: S608
"""Answers of turns that have not ended, or never will because their process died: they were paid,
and are in no row yet."""


class Spending(Struct, frozen=True, kw_only=True):
    """One line. `cost_usd` is None when no run of it has a price; `unpriced_runs` of `runs` have
    none, and used `unpriced_tokens`. `tokens` leaves out what was read from caches."""

    key: str
    agent: str = ""
    task: str = ""
    runs: int = 0
    turns: int = 0
    tool_uses: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None
    unpriced_runs: int = 0
    unpriced_tokens: int = 0
    first_at: float = 0.0
    last_at: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_write


def spending(folder: Path, by: By, since: float = 0.0) -> list[Spending]:
    """The runs of one project that were active after `since` (Unix time), added up. Dearest
    first; days newest first. Raise StateError if the log cannot be read."""
    import sqlite3

    key, agent, task = _KEYS[by]
    query = f"SELECT {key}, {agent}, {task}, {_SUMS} FROM runs WHERE updated_at >= ? GROUP BY 1"  # noqa: S608 - our own words
    try:
        connection = connect_to_read(folder)
        try:
            lines = [_line(tuple(row)) for row in connection.execute(query, (since,))]
            lines += [_unfinished(tuple(row)) for row in connection.execute(_UNFINISHED.format(key), (since,))]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise trouble(error, log_file(folder)) from error
    return merged(lines, by)


def merged(lines: Iterable[Spending], by: By) -> list[Spending]:
    """The lines of several projects as one list."""
    found: dict[str, Spending] = {}
    for line in lines:
        found[line.key] = total((found[line.key], line), line.key) if line.key in found else line
    return ordered(found.values(), by)


def total(lines: Iterable[Spending], key: str = "total") -> Spending:
    """Return the sum of all lines."""
    some = list(lines)
    agent, task = (some[0].agent, some[0].task) if some else ("", "")
    priced = [line.cost_usd for line in some if line.cost_usd is not None]
    # Nothing priced is unknown, not free.
    cost = sum(priced) if priced else None
    return Spending(
        key=key,
        agent=agent,
        task=task,
        runs=sum(line.runs for line in some),
        turns=sum(line.turns for line in some),
        tool_uses=sum(line.tool_uses for line in some),
        input=sum(line.input for line in some),
        output=sum(line.output for line in some),
        cache_read=sum(line.cache_read for line in some),
        cache_write=sum(line.cache_write for line in some),
        cost_usd=cost,
        unpriced_runs=sum(line.unpriced_runs for line in some),
        unpriced_tokens=sum(line.unpriced_tokens for line in some),
        first_at=min((line.first_at for line in some), default=0.0),
        last_at=max((line.last_at for line in some), default=0.0),
    )


def ordered(lines: Iterable[Spending], by: By) -> list[Spending]:
    if by == "day":
        return sorted(lines, key=lambda line: line.key, reverse=True)
    return sorted(lines, key=lambda line: (-(line.cost_usd or 0.0), -line.tokens, line.key))


def _line(row: tuple[object, ...]) -> Spending:
    names = Spending.__struct_fields__
    values = dict(zip(names, row, strict=True))
    values["agent"], values["task"] = values["agent"] or "", values["task"] or ""
    return Spending(**values)  # type: ignore[arg-type]  # the columns are listed in the order of the fields


def _unfinished(row: tuple[Any, ...]) -> Spending:
    """Return the spending that one answer adds to the line of its run."""
    key, first, last, *numbers, cost = row
    # PostgreSQL gives what it finds in JSON as text.
    counts: dict[str, Any] = {name: int(number or 0) for name, number in zip(_NUMBERS, numbers, strict=False)}
    cost = None if cost is None else float(cost)
    line = Spending(key=key, first_at=first, last_at=last, cost_usd=cost, **counts)
    return line if cost is not None else replace(line, unpriced_tokens=line.tokens)


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


class ActivityEntry(Struct, frozen=True, kw_only=True):
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


class Totals(Struct, frozen=True, kw_only=True):
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
    """The 95th percentile of the latencies."""
    last_at: float = 0.0
    codes: dict[str, int] = field(default_factory=dict)


def activity(folder: Path, *, kinds: Collection[Kind] = KINDS, since: float = 0.0) -> list[ActivityEntry]:
    """The calls of one project after `since` (Unix time), newest first. Raise StateError if the
    log cannot be read."""
    import sqlite3

    tools = [tool for tool, kind in TOOL_KINDS.items() if kind in kinds]
    if not tools:
        return []
    try:
        connection = connect_to_read(folder)
        try:
            found = [*_ended(connection, kinds, since), *_pending(connection, tools, since)]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise trouble(error, log_file(folder)) from error
    return sorted(found, key=lambda entry: entry.at, reverse=True)


def totals(entries: Iterable[ActivityEntry]) -> list[Totals]:
    """By kind and provider, in the order of the kinds."""
    groups: dict[tuple[str, str], list[ActivityEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.kind, entry.provider), []).append(entry)
    return [_totals(kind, provider, groups[kind, provider]) for kind, provider in sorted(groups, key=_place)]


def everything(entries: Sequence[ActivityEntry]) -> Totals:
    return _totals("total", "", entries)


def first_host(reader: LogReader, run_id: str) -> str | None:
    """A host from which a run, or one below it, has received something; None without one."""
    rows = reader.select(
        """WITH RECURSIVE tree (id) AS (
            SELECT id FROM runs WHERE id=? UNION ALL SELECT runs.id FROM runs JOIN tree ON runs.parent_id = tree.id
        )
        SELECT json_extract(body, '$.effect.hosts[0]') FROM events JOIN tree ON run_id = tree.id
        WHERE type = 'tool.ended' AND json_extract(body, '$.effect.hosts[0]') IS NOT NULL LIMIT 1""",
        (run_id,),
    )
    return str(rows[0][0]) if rows else None


def _place(key: tuple[str, str]) -> tuple[int, str]:
    return [*KINDS, "total"].index(key[0]), key[1]


def _totals(kind: str, provider: str, entries: Sequence[ActivityEntry]) -> Totals:
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


def _ended(connection: LogConnection, kinds: Collection[Kind], since: float) -> Iterator[ActivityEntry]:
    marks = ",".join("?" * len(kinds))
    query = f"""SELECT run_id, agent, at, body FROM events JOIN runs ON runs.id = run_id
        WHERE source IN ({marks}) AND at >= ?"""  # noqa: S608 - marks
    for run_id, agent, at, body in connection.execute(query, (*kinds, since)):
        data = _data(body)
        effect, result = data.get("effect") or {}, data.get("result") or {}
        code = effect.get("code") or ""
        failed = bool(result.get("is_error"))
        yield ActivityEntry(
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


def _pending(connection: LogConnection, tools: list[str], since: float) -> Iterator[ActivityEntry]:
    """Calls that have begun and not ended, of runs that have not either."""
    marks = ",".join("?" * len(tools))
    query = f"""SELECT run_id, agent, at, json_extract(body, '$.call.name'), json_extract(body, '$.call.id')
        FROM events AS started JOIN runs ON runs.id = run_id
        WHERE run_id IN (SELECT id FROM runs WHERE state <> 'ended' AND state IN ({LIVE_STATES}))
        AND type = 'tool.started' AND at >= ?
        AND json_extract(body, '$.call.name') IN ({marks}) AND NOT EXISTS (
            SELECT 1 FROM events AS ended WHERE ended.run_id = started.run_id AND ended.type = 'tool.ended'
            AND ended.seq > started.seq
            AND json_extract(ended.body, '$.call_id') = json_extract(started.body, '$.call.id')
        )"""  # noqa: S608 - marks
    for run_id, agent, at, tool, call_id in connection.execute(query, (since, *tools)):
        yield ActivityEntry(
            at=at, run_id=run_id, agent=agent, kind=TOOL_KINDS[tool], status="pending", call_id=str(call_id)
        )


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
    return _beginning(" ".join(parts))


def text_of_result(result: ToolResult) -> str:
    """The same of a result that is not JSON."""
    return _beginning(result.text)


def _beginning(said: str) -> str:
    text = " ".join(said.split())
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
