"""Costs of runs, and calls of web, document and language tools.

Costs are summed by agent, run, tree, day or model from the rows of the runs. A row has only the spending of its own
run, so the sum of a tree counts nothing twice. Tokens of a run without a price are counted and add nothing to the cost;
an unknown price is never shown as free. Calls are read from their `tool.ended` events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.encode import decode
from retinue.core.events import Body, ToolEnded
from retinue.core.permission import ToolEffect
from retinue.log.database import LIVE_STATES, opened

if TYPE_CHECKING:
    from retinue.log.backend import LogConnection
    from retinue.log.query import LogReader


Grouping = Literal["agent", "run", "tree", "day", "model"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

_TOKENS = "input + output + cache_write"
_SUMS = f"""count(*), sum(turns), sum(tool_uses), sum(input), sum(output), sum(cache_read), sum(cache_write),
    sum(cost_usd), sum(CASE WHEN cost_usd IS NULL THEN 1 ELSE 0 END),
    sum(CASE WHEN cost_usd IS NULL THEN {_TOKENS} ELSE 0 END),
    min(created_at), max(updated_at)"""
_ROOT = "coalesce((SELECT {0} FROM runs AS root WHERE root.id = runs.root_id), '')"
_DAY_COLUMN = "strftime('%Y-%m-%d', created_at, 'unixepoch', 'localtime')"
_GROUPING_COLUMNS: dict[Grouping, tuple[str, str, str]] = {
    "agent": ("agent", "''", "''"),
    "model": ("model", "''", "''"),
    "day": (_DAY_COLUMN, "''", "''"),
    "run": ("id", "agent", "task"),
    "tree": ("root_id", _ROOT.format("agent"), _ROOT.format("task")),
}

_TOKEN_COUNTS = ("input", "output", "cache_read", "cache_write")
_COUNTS = ("runs", "turns", "tool_uses", *_TOKEN_COUNTS, "unpriced_runs", "unpriced_tokens")
_USAGE = ", ".join(f"json_extract(answer, '$.message.usage.{name}')" for name in (*_TOKEN_COUNTS, "cost_usd"))
_UNFINISHED = f"""SELECT {{0}}, created_at, updated_at, {_USAGE} FROM runs
    CROSS JOIN (SELECT run_id AS whose, seq AS place, body AS answer FROM events WHERE type = 'assistant.ended')
    ON whose = id WHERE updated_at >= ? AND state <> 'ended' AND state <> 'queued' AND place >
        coalesce((SELECT max(seq) FROM events WHERE run_id = whose AND events.type = 'turn.ended'), 0)"""  # noqa: S608
"""Answers of turns that have not ended, or never will because their process died. They were paid, and no row includes
them yet."""


class Spending(Struct, frozen=True, kw_only=True):
    """The spending of a group of runs. `cost_usd` is None if no run has a price. `unpriced_runs` of the `runs` have no
    price, and used `unpriced_tokens`. `tokens` excludes tokens read from caches."""

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


def spending(folder: Path, by: Grouping, since: float = 0.0) -> list[Spending]:
    """Return the spending of the runs of one project that were active after `since` (Unix time): the most expensive
    groups first, days with the newest first. Raise StateError if the log cannot be read."""
    key, agent, task = _GROUPING_COLUMNS[by]
    query = f"SELECT {key}, {agent}, {task}, {_SUMS} FROM runs WHERE updated_at >= ? GROUP BY 1"  # noqa: S608 - our own words
    with opened(folder) as connection:
        rows = connection.execute(query, (since,))
        lines = [Spending(**dict(zip(Spending.__struct_fields__, row, strict=True))) for row in rows]
        lines += [_unfinished(tuple(row)) for row in connection.execute(_UNFINISHED.format(key), (since,))]
    return merged(lines, by)


def merged(lines: Iterable[Spending], by: Grouping) -> list[Spending]:
    """Return the groups of several projects as one list."""
    groups: dict[str, list[Spending]] = {}
    for line in lines:
        groups.setdefault(line.key, []).append(line)
    sums = [total(group, key) for key, group in groups.items()]
    if by == "day":
        return sorted(sums, key=lambda line: line.key, reverse=True)
    return sorted(sums, key=lambda line: (-(line.cost_usd or 0.0), -line.tokens, line.key))


def total(lines: Iterable[Spending], key: str = "total") -> Spending:
    """Return the sum of several groups."""
    lines = list(lines)
    if not lines:
        return Spending(key=key)
    priced = [line.cost_usd for line in lines if line.cost_usd is not None]
    sums = {name: sum(getattr(line, name) for line in lines) for name in _COUNTS}
    return replace(
        lines[0],
        key=key,
        # Without any price the cost is unknown, not zero.
        cost_usd=sum(priced) if priced else None,
        first_at=min(line.first_at for line in lines),
        last_at=max(line.last_at for line in lines),
        **sums,
    )


def _unfinished(row: tuple[Any, ...]) -> Spending:
    """Return the spending of one answer, for the group of its run."""
    key, first, last, *numbers, cost = row
    # PostgreSQL returns values of JSON as text.
    counts: dict[str, Any] = {name: int(number or 0) for name, number in zip(_TOKEN_COUNTS, numbers, strict=True)}
    cost = None if cost is None else float(cost)
    line = Spending(key=key, first_at=first, last_at=last, cost_usd=cost, **counts)
    return line if cost is not None else replace(line, unpriced_tokens=line.tokens)


ActivityKind = Literal["search", "fetch", "get_content", "convert", "lsp"]
ACTIVITY_KINDS: tuple[ActivityKind, ...] = get_args(ActivityKind)
Status = Literal["pending", "success", "error", "rate_limited", "denied"]

TOOL_KINDS: dict[str, ActivityKind] = {
    "web_search": "search",
    "fetch_content": "fetch",
    "get_search_content": "get_content",
    "convert_content": "convert",
    "lsp": "lsp",
}
_MAX_EXCERPT_CHARACTERS = 300


class ActivityEntry(Struct, frozen=True, kw_only=True):
    """One call. `provider` is the service that did it, if there are several; `hosts` are the contacted hosts."""

    at: float
    run_id: str
    agent: str
    kind: ActivityKind
    status: Status
    call_id: str
    provider: str = ""
    duration_ms: int = 0
    code: str = ""
    error: str = ""
    hosts: tuple[str, ...] = ()


class Totals(Struct, frozen=True, kw_only=True):
    """The calls of one kind and provider. Latencies are those of calls that ran, in milliseconds."""

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
    codes: dict[str, int] = {}


def activity(
    folder: Path, *, kinds: Collection[ActivityKind] = ACTIVITY_KINDS, since: float = 0.0
) -> list[ActivityEntry]:
    """Return the calls of one project after `since` (Unix time), newest first. Raise StateError if the
    log cannot be read."""
    tools = [tool for tool, kind in TOOL_KINDS.items() if kind in kinds]
    if not tools:
        return []
    with opened(folder) as connection:
        entries = [*_ended(connection, kinds, since), *_pending(connection, tools, since)]
    return sorted(entries, key=lambda entry: entry.at, reverse=True)


def totals(entries: Iterable[ActivityEntry]) -> list[Totals]:
    """Return the totals by kind and provider, in the order of the kinds."""
    groups: dict[tuple[ActivityKind, str], list[ActivityEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.kind, entry.provider), []).append(entry)
    ordered = sorted(groups, key=lambda key: (ACTIVITY_KINDS.index(key[0]), key[1]))
    return [_totals(*key, groups[key]) for key in ordered]


def everything(entries: Sequence[ActivityEntry]) -> Totals:
    return _totals("total", "", entries)


def first_host(reader: LogReader, run_id: str) -> str | None:
    """Return a host from which a run, or a run below it, has received data; None if there is none."""
    rows = reader.select(
        """WITH RECURSIVE tree (id) AS (
            SELECT id FROM runs WHERE id=? UNION ALL SELECT runs.id FROM runs JOIN tree ON runs.parent_id = tree.id
        )
        SELECT json_extract(body, '$.effect.hosts[0]') FROM events JOIN tree ON run_id = tree.id
        WHERE type = 'tool.ended' AND json_extract(body, '$.effect.hosts[0]') IS NOT NULL LIMIT 1""",
        (run_id,),
    )
    return str(rows[0][0]) if rows else None


def _totals(kind: str, provider: str, entries: Sequence[ActivityEntry]) -> Totals:
    count = Counter(entry.status for entry in entries)
    took = sorted(entry.duration_ms for entry in entries if entry.status not in ("pending", "denied"))
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
        codes=dict(Counter(entry.code for entry in entries if entry.code)),
    )


def _ended(connection: LogConnection, kinds: Collection[ActivityKind], since: float) -> Iterator[ActivityEntry]:
    marks = ",".join("?" * len(kinds))
    query = f"""SELECT run_id, agent, at, body FROM events JOIN runs ON runs.id = run_id
        WHERE source IN ({marks}) AND at >= ?"""  # noqa: S608 - marks
    for run_id, agent, at, body in connection.execute(query, (*kinds, since)):
        end = read_body(body)
        if not isinstance(end, ToolEnded):
            continue
        effect, result = end.effect, end.result
        yield ActivityEntry(
            at=at,
            run_id=run_id,
            agent=agent,
            kind=TOOL_KINDS[end.name],
            status=_status(effect, result.is_error),
            call_id=end.call_id,
            provider=effect.provider or "",
            duration_ms=end.duration_ms,
            code=effect.code or "",
            error=beginning(result.text) if result.is_error else "",
            hosts=effect.hosts,
        )


def _pending(connection: LogConnection, tools: list[str], since: float) -> Iterator[ActivityEntry]:
    """Yield the unfinished calls of live runs."""
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


def _status(effect: ToolEffect, failed: bool) -> Status:
    if effect.denied:
        return "denied"
    if not failed:
        return "success"
    return "rate_limited" if (effect.code or "").endswith("RATE_LIMITED") else "error"


def read_body(text: str) -> Body | None:
    """Decode the body of an event; None if it is unreadable because another machine or version wrote it."""
    try:
        return decode(text)
    except ValueError:
        return None


def beginning(text: str) -> str:
    """Return the beginning of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= _MAX_EXCERPT_CHARACTERS else text[: _MAX_EXCERPT_CHARACTERS - 1] + "…"
