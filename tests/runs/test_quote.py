"""Quotes before a fan-out, from the history of the agent in a real log (ask 22 of part 7)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from retinue.core.events import RunCreated, RunEnded, RunStarted
from retinue.core.outcome import Outcome
from retinue.core.run_state import RunPlace
from retinue.core.usage import Usage
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.runs.fanout import Estimate, QuotedAgent, quote
from retinue.testing import ModelInfo, Prices

MODEL = ModelInfo("anthropic", "m", prices=Prices(10.0, 100.0, above=(1, Prices(1e6, 1e6))))
OWN = ModelInfo("own", "m")


async def record(folder: Path, agent: str, *usages: Usage, model: str = "anthropic/old", seconds: float = 60.0) -> None:
    async with Log.open(folder) as log:
        for number, usage in enumerate(usages):
            place = RunPlace(f"{agent}-{model}-{number}")
            log.append(place, RunCreated(agent, "task", {}, "h", model, "/p"))
            log.append(place, RunStarted(model, (), "/p"))
            log.append(place, RunEnded(Outcome("completed", usage=usage, turns=3, model=model)))
    with sqlite3.connect(folder / "log.db") as connection:
        connection.execute("UPDATE runs SET started_at=ended_at-? WHERE agent=?", (seconds, agent))


async def test_agents_times_model_times_the_median_of_their_history(tmp_path: Path) -> None:
    usages = [Usage(number * 1_000, number * 100, 0, 0, 77.0) for number in range(1, 10)]
    await record(tmp_path, "reviewer", *usages)
    await record(tmp_path, "other", Usage(10**9, 10**9, 0, 0, 1e6))
    with LogReader.open(tmp_path) as reader:
        made = quote([QuotedAgent("reviewer", MODEL)] * 20, reader, at_once=4)
    assert made.agents == 20
    assert made.total == Estimate(20 * 5_500, pytest.approx(20 * (5_000 * 10 + 500 * 100) / 1e6), pytest.approx(300.0))
    assert made.text == (
        "20 agents: 20 × reviewer on anthropic/m. About 110.0k tokens, ~$2.00, 5m, estimated from 9 earlier runs."
    )


async def test_an_agent_without_a_history_is_judged_by_all(tmp_path: Path) -> None:
    await record(tmp_path, "other", Usage(1_000, 0, 0, 0, 0.5))
    with LogReader.open(tmp_path) as reader:
        made = quote([QuotedAgent("new", MODEL)], reader)
    assert made.total is not None and made.total.tokens == 1_000
    assert made.text.startswith("1 agent: new on anthropic/m.") and made.text.endswith("1 earlier run.")


async def test_without_any_history_nothing_is_invented(tmp_path: Path) -> None:
    with LogReader.open(tmp_path) as reader:
        made = quote([QuotedAgent("new", MODEL)] * 3, reader)
    assert made.total is None
    assert "unknown" in made.text


async def test_a_model_without_a_price_is_never_free(tmp_path: Path) -> None:
    await record(tmp_path, "reviewer", Usage(1_000, 0, 0, 0, 0.5))
    with LogReader.open(tmp_path) as reader:
        mixed = quote([QuotedAgent("reviewer", OWN), QuotedAgent("reviewer", MODEL)], reader)
        assert mixed.total is not None and mixed.total.usd is None and mixed.total.tokens == 2_000
        assert "unknown price" in mixed.text and "$" not in mixed.text
    await record(tmp_path, "mine", Usage(1_000, 0, 0, 0, 0.5), model="own/m")
    with LogReader.open(tmp_path) as reader:
        made = quote([QuotedAgent("mine", OWN)], reader)
        assert made.total is not None and made.total.usd == 0.5, "what it cost before, it costs again"


async def test_free_models_and_runs_that_never_began(tmp_path: Path) -> None:
    await record(tmp_path, "reviewer", Usage(1_000, 0, 0, 0, 0.0))
    async with Log.open(tmp_path) as log:
        log.append(RunPlace("never"), RunCreated("reviewer", "task", {}, "h", "m", "/p"))
        log.append(RunPlace("never"), RunEnded(Outcome("stopped")))
    with LogReader.open(tmp_path) as reader:
        made = quote([QuotedAgent("reviewer", ModelInfo("ollama", "x", prices=Prices(0.0, 0.0)))] * 2, reader)
    assert "free of charge" in made.text and made.text.endswith("estimated from 1 earlier run.")
