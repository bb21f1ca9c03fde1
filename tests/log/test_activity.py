"""Activity and troubles, from the events of real runs in a real log."""

from __future__ import annotations

from pathlib import Path

import log_stories as stories
import pytest

from retinue.core.events import (
    AssistantEnded,
    LimitReached,
    Retrying,
    RunCreated,
    RunEnded,
    ToolEnded,
    ToolStarted,
    TurnStarted,
    Warned,
)
from retinue.core.messages import Text, ToolCall, ToolResult
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import ToolEffect
from retinue.core.run_state import RunPlace
from retinue.log.activity import GROUPINGS, activity, everything, first_host, spending, total, totals
from retinue.log.database import connect_to_read
from retinue.log.migrations import MIGRATIONS
from retinue.log.rows import SELECT_RUN
from retinue.log.sqlite import SqliteBackend
from retinue.log.store import Log
from retinue.log.troubles import troubles


def ended(call: str, name: str, ms: int, *, error: str = "", **effect: object) -> ToolEnded:
    result = ToolResult(call, name, (Text(error or "fine"),), bool(error))
    return ToolEnded(call, name, result, ToolEffect(**effect), ms)  # type: ignore[arg-type]


async def written(folder: Path) -> Log:
    log = Log.open(folder)
    parent, child = RunPlace("run-parent", None, "run-parent"), RunPlace("run-child", "run-parent", "run-parent")
    for place, agent, depth in ((parent, "main", 0), (child, "researcher", 1)):
        log.append(place, RunCreated(agent, "task", {}, "hash", "m", str(folder), depth))
    bodies = [
        ended("1", "web_search", 100, provider="brave", hosts=("api.example",)),
        ended("2", "web_search", 300, provider="brave", error="PROVIDER_RATE_LIMITED: slow", code="RATE_LIMITED"),
        ended("3", "web_search", 50, provider="ddgs", error="NETWORK_ERROR: none", code="NETWORK_ERROR"),
        ended("4", "fetch_content", 200, hosts=("a.example",)),
        ended("5", "fetch_content", 0, error="denied", denied="a rule"),
        ended("6", "read", 5, error="no such file"),
        ended("7", "lsp", 20, provider="ty"),
        ToolStarted(ToolCall("8", "fetch_content", {"url": "x"})),
        Warned("tool_time", "bash was stopped"),
        Retrying(1, 1.0, Failure("rate_limit", "too fast")),
        LimitReached("turns", "wrap-up", "30 turns"),
    ]
    for body in bodies:
        log.append(child, body)
    log.append(parent, RunEnded(Outcome("error", failure=Failure("server", "gone", "try again"))))
    await log.flush()
    return log


async def test_calls_are_counted_by_kind_and_provider(tmp_path: Path) -> None:
    log = await written(tmp_path)
    entries = activity(tmp_path)
    rows = {(row.kind, row.provider): row for row in totals(entries)}
    assert list(rows) == [("search", "brave"), ("search", "ddgs"), ("fetch", ""), ("lsp", "ty")]
    brave = rows["search", "brave"]
    assert (brave.total, brave.success, brave.rate_limited, brave.errors, brave.average_ms) == (2, 1, 1, 0, 200)
    assert brave.codes == {"RATE_LIMITED": 1}
    fetch = rows["fetch", ""]
    assert (fetch.total, fetch.success, fetch.denied, fetch.pending, fetch.median_ms) == (3, 1, 1, 1, 200)
    assert everything(entries).total == 7
    assert {entry.agent for entry in entries} == {"researcher"}
    assert [entry.kind for entry in activity(tmp_path, kinds=["lsp"])] == ["lsp"]
    assert activity(tmp_path, since=4e9) == []
    assert activity(tmp_path, kinds=[]) == []
    await log.close()


async def test_a_host_is_found_for_a_run_and_for_the_runs_above_it(tmp_path: Path) -> None:
    log = await written(tmp_path)
    assert first_host(log.reader, "run-child") in ("api.example", "a.example")
    assert first_host(log.reader, "run-parent") in ("api.example", "a.example")
    assert first_host(log.reader, "nobody") is None
    await log.close()


async def test_troubles_are_told_with_level_source_and_code(tmp_path: Path) -> None:
    log = await written(tmp_path)
    found = troubles(tmp_path, limit=None)
    assert [(each.level, each.source, each.code) for each in found] == [
        ("warning", "search", "RATE_LIMITED"),
        ("warning", "search", "NETWORK_ERROR"),
        ("warning", "fetch", "denied"),
        ("warning", "tool", "read"),
        ("warning", "run", "tool_time"),
        ("warning", "model", "rate_limit"),
        ("warning", "limit", "turns"),
        ("error", "run", "error"),
    ]
    assert found[-1].text == "gone try again"
    assert [each.code for each in troubles(tmp_path, limit=2)] == ["turns", "error"]
    assert [each.agent for each in troubles(tmp_path, levels=["error"])] == ["main"]
    assert [each.source for each in troubles(tmp_path, sources=["tool"])] == ["tool"]
    assert troubles(tmp_path, after=found[-1].number) == []
    await log.close()


@pytest.mark.sqlite
async def test_events_of_an_older_log_are_found_by_the_same_words(tmp_path: Path) -> None:
    log = await written(tmp_path / "new")
    await log.close()
    source = connect_to_read(tmp_path / "new")
    old = SqliteBackend(tmp_path / "old").connect(MIGRATIONS[:5])
    for table, columns in (("runs", SELECT_RUN), ("events", "SELECT id, run_id, seq, at, type, body FROM events")):
        rows = source.execute(columns).fetchall()
        names = [row[1] for row in old.execute(f"PRAGMA table_info({table})")]
        if table == "events":
            names = names[: len(rows[0])]
        rows = [[row[name] for name in names] for row in rows]
        old.insert(table, names, rows)
    old.close()
    assert troubles(tmp_path / "old", limit=None) == troubles(tmp_path / "new", limit=None)
    finished = [entry for entry in activity(tmp_path / "new") if entry.status != "pending"]
    assert [entry for entry in activity(tmp_path / "old") if entry.status != "pending"] == finished
    source.close()


@pytest.mark.parametrize("folder", ["nothing", "."])
def test_no_log_is_no_activity(folder: str, tmp_path: Path) -> None:
    assert activity(tmp_path / folder) == []
    assert troubles(tmp_path / folder) == []
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("by", GROUPINGS)
async def test_what_unfinished_turns_cost_is_counted(tmp_path: Path, by) -> None:
    async with Log.open(tmp_path) as log:
        for body in stories.whole():
            log.append(RunPlace("done"), body)
        for body in [*stories.opening(), TurnStarted(1), AssistantEnded(1, stories.answer("so far"))]:
            log.append(RunPlace("live"), body)
        await log.flush()
        whole = total(spending(tmp_path, by))
    assert (whole.runs, whole.input, whole.output) == (2, 30, 15)
    assert whole.cost_usd == pytest.approx(0.03)
