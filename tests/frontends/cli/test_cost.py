"""`retinue cost` over real logs (G7; bugs 35 and 36 of §5.3, ask 6 of part 7)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from tests.git_folder import make_git_folder

from retinue.core.events import AssistantEnded, RunCreated, RunEnded, RunStarted
from retinue.core.messages import AssistantMessage
from retinue.core.outcome import Outcome
from retinue.core.run_state import RunPlace
from retinue.core.usage import Usage
from retinue.errors import RetinueError
from retinue.frontends.cli.main import Command, dispatch, run
from retinue.log.store import Log
from retinue.settings.places import state_folder

COST = Command("", "reports:cost")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    make_git_folder(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def record(project: Path, *runs: tuple[str, str | None, str, str, Usage]) -> None:
    """Runs as (id, parent, agent, model, usage); the root of all is the first without a parent."""

    async def write() -> None:
        roots: dict[str, str] = {}
        async with Log.open(state_folder(project)) as log:
            for run_id, parent, agent, model, usage in runs:
                roots[run_id] = roots[parent] if parent else run_id
                place = RunPlace(run_id, parent, roots[run_id])
                depth = 1 if parent else 0
                log.append(place, RunCreated(agent, f"Task of {run_id}", {}, "h", model, str(project), depth))
                log.append(place, RunStarted(model, (), str(project)))
                log.append(place, RunEnded(Outcome("completed", "ok", usage=usage, turns=2, tool_uses=3, model=model)))

    asyncio.run(write())


def cut_off(project: Path, run_id: str, usage: Usage) -> None:
    """A run whose process died while a tool of its first turn ran."""

    async def write() -> None:
        async with Log.open(state_folder(project)) as log:
            place = RunPlace(run_id, None, run_id)
            log.append(place, RunCreated("main", "Task", {}, "h", PRICED, str(project), 0))
            log.append(place, RunStarted(PRICED, (), str(project)))
            log.append(place, AssistantEnded(1, AssistantMessage((), "tool_use", usage, PRICED)))

    asyncio.run(write())


PRICED, OTHER, UNPRICED = "anthropic/one", "anthropic/two", "own/model"
STORY = (
    ("aaaa0000", None, "main", PRICED, Usage(1_000, 500, 9_000, 100, 0.10)),
    ("bbbb0000", "aaaa0000", "reviewer", OTHER, Usage(2_000, 600, 0, 0, 2.00)),
    ("cccc0000", "bbbb0000", "reviewer", UNPRICED, Usage(3_000, 700, 0, 0, None)),
    ("dddd0000", None, "Explore", PRICED, Usage(10, 5, 0, 0, 0.05)),
)


def report(*words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert dispatch("retinue cost", COST, [*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_by_agent_with_children_sorted_and_added_up(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, *STORY)
    document = report(capsys=capsys)
    assert [(row["agent"], row["runs"], row["cost_usd"]) for row in document["rows"]] == [
        ("reviewer", 2, 2.0),
        ("main", 1, 0.1),
        ("Explore", 1, 0.05),
    ]
    whole = document["total"]
    assert (whole["runs"], whole["turns"], whole["tool_uses"]) == (4, 8, 12)
    assert (whole["input"], whole["output"], whole["cache_read"], whole["cache_write"]) == (6_010, 1_805, 9_000, 100)
    assert whole["cost_usd"] == pytest.approx(2.15)


def test_bug_36_a_tree_includes_all_descendants_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, *STORY)
    rows = report("--by", "tree", capsys=capsys)["rows"]
    assert [(row["key"], row["agent"], row["runs"]) for row in rows] == [
        ("aaaa0000", "main", 3),
        ("dddd0000", "Explore", 1),
    ]
    assert rows[0]["cost_usd"] == pytest.approx(2.1) and rows[0]["tokens"] == 1_600 + 2_600 + 3_700


def test_bug_35_cache_reads_are_shown_apart(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, *STORY)
    (row,) = [row for row in report("--by", "run", capsys=capsys)["rows"] if row["key"] == "aaaa0000"]
    assert (row["tokens"], row["cache_read"], row["task"]) == (1_600, 9_000, "Task of aaaa0000")


def test_unknown_prices_are_counted_apart_and_never_free(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, *STORY)
    rows = {row["key"]: row for row in report("--by", "model", capsys=capsys)["rows"]}
    assert (rows[UNPRICED]["cost_usd"], rows[UNPRICED]["unpriced_runs"]) == (None, 1)
    assert rows[UNPRICED]["unpriced_tokens"] == 3_700
    assert dispatch("retinue cost", COST, ["--by", "model"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (unknown,) = [line for line in lines if line.startswith(UNPRICED)]
    assert unknown.split()[-1] == "unpriced" and "$" not in unknown
    (whole,) = [line for line in lines if line.startswith("total")]
    assert whole.endswith("~$2.15 + 1 unpriced")
    assert "1 run with 3.7k tokens" in lines[-1]


def test_what_is_free_is_shown_as_such(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, ("eeee0000", None, "local", "ollama/x", Usage(5, 5, 0, 0, 0.0)))
    dispatch("retinue cost", COST, [])
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]] == ["$0", "$0"]


def test_days_are_listed_newest_first(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, *STORY)
    move(project, "dddd0000", days=3)
    rows = report("--by", "day", capsys=capsys)["rows"]
    assert [row["runs"] for row in rows] == [3, 1]
    assert rows[0]["key"] == time.strftime("%Y-%m-%d") > rows[1]["key"]


def move(project: Path, run_id: str, days: float, ended: float | None = None) -> None:
    """Lets a run have happened earlier."""
    with sqlite3.connect(state_folder(project) / "log.db") as connection:
        connection.execute(
            "UPDATE runs SET created_at=created_at-?, updated_at=updated_at-? WHERE id=?",
            (days * 86_400, (days if ended is None else ended) * 86_400, run_id),
        )


@pytest.mark.parametrize(("since", "runs"), [("7d", 3), ("2w", 4), ("1h", 2), ("2000-01-01", 4), ("2999-12-31", 0)])
def test_since_takes_spans_and_dates(project: Path, since: str, runs: int, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, *STORY)
    move(project, "dddd0000", days=10)
    move(project, "cccc0000", days=2)
    assert report("--since", since, capsys=capsys)["total"]["runs"] == runs


def test_a_run_that_was_resumed_lately_is_not_hidden_by_its_age(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, *STORY)
    move(project, "dddd0000", days=30, ended=0)
    assert report("--since", "1d", capsys=capsys)["total"]["runs"] == 4


@pytest.mark.parametrize("since", ["", "soon", "7", "-1d", "7y", "2026-13-40", "99999999999d", "٧d"])
def test_a_time_that_is_none_is_a_usage_error(project: Path, since: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", f"--since={since}"]) == 2
    assert "7d" in capsys.readouterr().err


def test_limit_shortens_the_list_and_not_the_total(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, *STORY)
    document = report("--by", "run", "--limit", "1", capsys=capsys)
    assert len(document["rows"]) == 1 and document["total"]["runs"] == 4
    dispatch("retinue cost", COST, ["--by", "run", "--limit", "1"])
    assert "… and 3 more" in capsys.readouterr().out


def test_all_projects_are_added_up_and_a_broken_log_is_said(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, *STORY)
    other = tmp_path / "other"
    make_git_folder(other)
    record(other, ("ffff0000", None, "reviewer", PRICED, Usage(1, 1, 0, 0, 1.0)))
    broken = tmp_path / "home" / "projects" / "broken"
    broken.mkdir()
    (broken / "log.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    assert report(capsys=capsys)["total"]["runs"] == 4
    document = report("--all", capsys=capsys)
    assert (document["rows"][0]["agent"], document["rows"][0]["runs"]) == ("reviewer", 3)
    assert document["total"]["runs"] == 5
    (problem,) = document["problems"]
    assert "broken" in problem
    assert (broken / "log.db").read_bytes().startswith(b"not a database")


def test_without_runs_nothing_is_printed_on_stdout_and_nothing_created(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch("retinue cost", COST, []) == 0
    captured = capsys.readouterr()
    assert captured.out == "" and "No runs" in captured.err
    assert report(capsys=capsys)["rows"] == []
    assert not (tmp_path / "home").exists()


def test_a_folder_that_does_not_exist_is_a_usage_error(project: Path) -> None:
    with pytest.raises(RetinueError) as caught:
        dispatch("retinue cost", COST, ["--cwd", "nowhere"])
    assert caught.value.exit_code == 2


def test_names_cannot_write_to_the_terminal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(project, ("aaaa1111", None, "evil\x1b[2J\nname", PRICED, Usage(1, 1, 0, 0, 1.0)))
    for by in ("agent", "run", "tree"):
        dispatch("retinue cost", COST, ["--by", by])
        out = capsys.readouterr().out
        assert "\x1b" not in out and len(out.splitlines()) == 3


@pytest.mark.parametrize("by", ["agent", "run", "tree", "day", "model"])
def test_an_answer_that_was_paid_counts_although_its_turn_never_ended(project, capsys, by):
    record(project, *STORY)
    before = report("--by", by, "--json", capsys=capsys)["total"]
    cut_off(project, "eeee0000", Usage(100, 50, 7, 3, 0.25))
    after = report("--by", by, "--json", capsys=capsys)["total"]
    assert (after["runs"], after["input"], after["output"]) == (
        before["runs"] + 1,
        before["input"] + 100,
        before["output"] + 50,
    )
    assert after["cost_usd"] == pytest.approx(before["cost_usd"] + 0.25)
    assert after["first_at"] == before["first_at"]
