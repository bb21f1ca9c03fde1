"""What runs of long ago have left goes, by itself or when told; what they did stays in the log."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from pathlib import Path

from tests.program.model_server import Reply
from tests.program.test_worktree import script, state

DAY = 24 * 3600


def change(project, serve, name: str) -> str:
    """A run that writes a file by a tool and one by a command. Gives its id."""
    calls = [("write", {"path": f"{name}.txt", "content": name}), ("bash", {"command": f"echo {name} > {name}.out"})]
    serve(script(calls, "done"))
    assert project.retinue("run", "general-purpose", name).returncode == 0
    return project.json("runs", "list", "--json")["runs"][0]["id"]


def age(project, run_id: str, days: float) -> None:
    """As if the run had ended that long ago."""
    folder, at = state(project), time.time() - days * DAY
    with sqlite3.connect(folder / "log.db") as log:
        log.execute("UPDATE runs SET updated_at=?, ended_at=? WHERE id=?", (at, at, run_id))
    with sqlite3.connect(folder / "checkpoints" / "ledger.db") as ledger:
        ledger.execute("UPDATE changes SET at=? WHERE run_id=?", (at, run_id))
        ledger.execute("UPDATE windows SET began=?, ended=? WHERE run_id=?", (at, at, run_id))
    (folder / "checkpoints" / "looked").unlink(missing_ok=True)


def refs(project) -> set[str]:
    return {path.name for path in (state(project) / "checkpoints" / "shadow.git" / "refs" / "retinue").iterdir()}


def test_the_next_process_removes_checkpoints_after_thirty_days(project, serve):
    old, kept = change(project, serve, "old"), change(project, serve, "kept")
    age(project, old, 31)
    age(project, kept, 29)
    new = change(project, serve, "new")
    assert refs(project) - {"kept"} == {kept, new}
    done = project.retinue("runs", "undo", old)
    assert done.returncode == 1 and "cannot be undone any more" in done.stderr and "checkpoints.keepDays" in done.stderr
    assert (project.cwd / "old.txt").exists()
    assert "old.txt" in project.retinue("runs", "effects", old).stdout
    for run, name in ((kept, "kept"), (new, "new")):
        assert project.retinue("runs", "undo", run).returncode == 0
        assert not (project.cwd / f"{name}.txt").exists() and not (project.cwd / f"{name}.out").exists()


def test_once_a_day_is_enough_and_zero_days_keep_them_for_ever(project, serve):
    first = change(project, serve, "first")
    age(project, first, 400)
    (state(project) / "checkpoints" / "looked").touch()
    second = change(project, serve, "second")
    (project.home / ".retinue" / "settings.json").write_text(json.dumps({"checkpoints": {"keepDays": 0}}))
    (state(project) / "checkpoints" / "looked").unlink()
    third = change(project, serve, "third")
    assert refs(project) - {"kept"} == {first, second, third}


def test_prune_says_first_and_then_removes_and_the_log_stays(project, serve):
    old, new = change(project, serve, "old"), change(project, serve, "new")
    age(project, old, 100)
    outputs = state(project) / "outputs" / old
    outputs.mkdir(parents=True, exist_ok=True)
    (outputs / "long.txt").write_text("x" * 100_000)
    would = project.json("runs", "prune", "--older-than", "90", "--dry-run", "--json")
    assert (would["runs"], would["checkpointsOf"], would["files"]) == (1, 1, 2) and outputs.exists()
    assert "would be removed: checkpoints of 1 runs" in project.retinue("runs", "prune", "--dry-run").stdout
    done = project.json("runs", "prune", "--older-than", "90", "--json")
    assert done["bytes"] > 100_000 and not outputs.exists() and refs(project) - {"kept"} == {new}
    assert {row["id"] for row in project.json("runs", "list", "--json")["runs"]} == {old, new}
    assert project.retinue("runs", "show", old).returncode == 0
    assert "Nothing to remove" in project.retinue("runs", "prune").stdout
    serve(lambda request: Reply("went on"))
    assert "went on" in project.retinue("runs", "resume", old, "more").stdout
    assert project.retinue("runs", "undo", new).returncode == 0


def test_a_run_that_was_forgotten_and_taken_up_is_undone_from_there(project, serve):
    run = change(project, serve, "one")
    age(project, run, 50)
    project.json("runs", "prune", "--json")
    serve(lambda request: Reply("ok") if request.turn > 2 else Reply("", [("bash", {"command": "echo two > two.out"})]))
    assert project.retinue("runs", "resume", run, "more").returncode == 0
    done = project.retinue("runs", "undo", run)
    assert done.returncode == 0 and "were not undone: their checkpoints were removed" in done.stderr
    assert not (project.cwd / "two.out").exists() and (project.cwd / "one.out").exists()


def test_nothing_is_thrown_away_while_a_run_is_at_work(project, serve):
    old = change(project, serve, "old")
    age(project, old, 50)
    reached, over = threading.Event(), threading.Event()

    def answer(request) -> Reply:
        reached.set()
        over.wait(60)
        return Reply("done")

    serve(answer)
    process = project.start("run", "general-purpose", "wait")
    assert reached.wait(60)
    assert project.json("runs", "prune", "--json")["checkpointsOf"] == 1
    assert (state(project) / "checkpoints" / "uncollected").exists()
    over.set()
    process.communicate(timeout=60)
    project.json("runs", "prune", "--json")
    assert not Path(state(project) / "checkpoints" / "uncollected").exists()


def events(project, run_id: str) -> list[str]:
    document = json.loads(project.retinue("runs", "show", run_id, "--json").stdout)
    return [event["type"] for event in document["events"]]


def test_prune_removes_events_when_told_and_keeps_the_sums(project, serve):
    old, new = change(project, serve, "old"), change(project, serve, "new")
    age(project, old, 100)
    cost = project.json("cost", "--json")
    whole = events(project, new)
    would = project.json("runs", "prune", "--older-than", "90", "--events", "--dry-run", "--json")
    assert would["eventsOf"] == 1 and events(project, old) == whole
    done = project.json("runs", "prune", "--older-than", "90", "--events", "--json")
    assert (done["eventsOf"], done["logBusy"]) == (1, False) and done["events"] == len(whole) - 2
    assert events(project, old) == ["run.created", "run.ended", "run.pruned"] and events(project, new) == whole
    assert project.json("cost", "--json") == cost
    assert "removed to save space" in project.retinue("runs", "show", old).stdout
    assert "removed to save space" in project.retinue("runs", "effects", old).stderr
    refused = project.retinue("runs", "resume", old, "more")
    assert refused.returncode == 1 and "cannot be resumed" in refused.stderr
    assert project.json("runs", "prune", "--older-than", "90", "--events", "--json")["eventsOf"] == 0


def test_events_go_by_themselves_after_the_days_of_the_setting(project, serve):
    old = change(project, serve, "old")
    age(project, old, 8)
    change(project, serve, "unset")
    assert "run.pruned" not in events(project, old)
    (project.home / ".retinue" / "settings.json").write_text(json.dumps({"log": {"keepDays": 7}}))
    new = change(project, serve, "new")
    assert events(project, old)[-1] == "run.pruned" and "run.pruned" not in events(project, new)
