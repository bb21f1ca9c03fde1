"""What runs have cost, added up by agent, run, tree, day or model.

Sums come from the rows of the runs, children included, each with what it spent itself; so adding
up a tree counts nothing twice. A run whose price is not known is counted and its tokens are named,
and it adds nothing to the cost: unknown is never shown as free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from retinue.log.database import connect_to_read, log_file, trouble

By = Literal["agent", "run", "tree", "day", "model"]
BY: tuple[By, ...] = get_args(By)

_TOKENS = "input + output + cache_write"
_SUMS = f"""count(*), sum(turns), sum(tool_uses), sum(input), sum(output), sum(cache_read), sum(cache_write),
    sum(cost_usd), sum(cost_usd IS NULL), sum(CASE WHEN cost_usd IS NULL THEN {_TOKENS} ELSE 0 END),
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
    ON whose = id WHERE updated_at >= ? AND state NOT IN ('queued', 'ended') AND place >
        coalesce((SELECT max(seq) FROM events WHERE run_id = whose AND events.type = 'turn.ended'), 0)"""  # noqa: S608
"""Answers of turns that have not ended, or never will because their process died: they were paid,
and are in no row yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
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
    first; days newest first. Raises StateError if the log cannot be read."""
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
    """Everything together."""
    some = list(lines)
    priced = [line.cost_usd for line in some if line.cost_usd is not None]
    return Spending(
        key=key,
        agent=some[0].agent if some else "",
        task=some[0].task if some else "",
        runs=sum(line.runs for line in some),
        turns=sum(line.turns for line in some),
        tool_uses=sum(line.tool_uses for line in some),
        input=sum(line.input for line in some),
        output=sum(line.output for line in some),
        cache_read=sum(line.cache_read for line in some),
        cache_write=sum(line.cache_write for line in some),
        cost_usd=sum(priced) if priced else None,
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
    names = (*Spending.__dataclass_fields__,)
    values = dict(zip(names, row, strict=True))
    values["agent"], values["task"] = values["agent"] or "", values["task"] or ""
    return Spending(**values)  # type: ignore[arg-type]  # the columns are listed in the order of the fields


def _unfinished(row: tuple[Any, ...]) -> Spending:
    """What an answer adds to the line of its run."""
    key, first, last, *numbers, cost = row
    counts: dict[str, Any] = {name: number or 0 for name, number in zip(_NUMBERS, numbers, strict=False)}
    line = Spending(key=key, first_at=first, last_at=last, cost_usd=cost, **counts)
    return line if cost is not None else replace(line, unpriced_tokens=line.tokens)
