"""Checkpoints: what a call changed, also when nobody lived to say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from audit_bench import Bench, picture

from retinue.capabilities.audit.checkpoint import ScannedRoot
from retinue.capabilities.audit.shadow import CheckpointError, Shadow

HERE = str(Path(__file__).parent)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_nothing_is_made_before_something_changes(tmp_path):
    shadow = Shadow(tmp_path / "checkpoints")
    ScannedRoot(shadow, tmp_path, "run-1")
    assert not (tmp_path / "checkpoints").exists()


async def test_a_command_that_changes_nothing_has_no_effect_on_files(bench):
    bench.put("a.txt", "one\n")
    run = bench.run("run-1")
    assert await run.bash("cat a.txt; touch a.txt") == ()
    assert bench.undo(run) == {}


async def test_the_next_run_begins_with_what_the_last_one_knew(bench):
    for number in range(20):
        bench.put(f"f{number}.txt", "x")
    first = bench.run("run-1")
    await first.bash("true")
    first.checkpoints.close()
    second = bench.run("run-2")
    assert await second.bash("echo y > f3.txt") != ()
    assert {path.name.split("-")[0] for path in (bench.state / "checkpoints" / "index").iterdir()} == {"base", "run"}


def test_of_a_worktree_that_goes_nothing_is_kept_for_the_next(bench):
    worktree = bench.state / "worktrees" / "run-1"
    worktree.mkdir(parents=True)
    (worktree / "a.txt").write_text("a")
    space = ScannedRoot(bench.shadow, worktree, "run-1")
    space.snapshot()
    space.close()
    assert list((bench.shadow.folder / "index").iterdir()) == []


async def test_names_that_are_no_text(bench):
    run = bench.run("run-1")
    touched = await run.bash("printf x > $'b\\xff.txt'; printf y > $'new\\nline'")
    assert len(touched) == 2
    bench.undo(run)
    assert picture(bench.root) == {}


async def test_too_many_files_are_refused_with_the_reason(tmp_path):
    bench = Bench(tmp_path, max_files=5)
    for number in range(6):
        bench.put(f"f{number}", "x")
    with pytest.raises(CheckpointError, match="more than 5 files"):
        bench.run("run-1").checkpoints.begin("call-1", "true")


async def test_without_git_edits_still_work_and_checkpoints_say_why(bench, monkeypatch):
    monkeypatch.setenv("PATH", str(bench.state / "no-programs"))
    bench.put("a.txt", "one\n")
    run = bench.run("run-1")
    with pytest.raises(CheckpointError, match="git is not installed"):
        run.checkpoints.begin("call-1", "true")
    await run.use("read", path="a.txt")
    assert not (await run.use("edit", path="a.txt", edits=[{"old": "one", "new": "two"}])).is_error


async def test_overlapping_calls_of_one_run_share_a_checkpoint(bench):
    run = bench.run("run-1")
    run.checkpoints.begin("call-1", "one")
    run.checkpoints.begin("call-2", "two")
    bench.put("a.txt", "x")
    assert run.checkpoints.end() == ()
    assert len(run.checkpoints.end()) == 1


CUT_OFF = """
import os, signal, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop())
from audit_bench import Bench
bench = Bench(Path(sys.argv[1]))
run = bench.run("run-1")
run.checkpoints.begin("call-1", "a command")
subprocess.run("rm a.txt; echo new > b.txt; chmod 755 c.txt", shell=True, cwd=bench.root, check=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_kill_9_in_a_command_leaves_what_it_did_undoable(bench, tmp_path):
    bench.put("a.txt", "one\n")
    bench.put("c.txt", "three\n")
    before = picture(bench.root)
    killed = subprocess.run([sys.executable, "-c", CUT_OFF, str(tmp_path), HERE], check=False)
    assert killed.returncode == -9
    assert len(bench.store.open_windows(["run-1"])) == 1
    later = bench.put("mine.txt", "a person, later")
    pulse = (bench.state / "checkpoints" / "alive" / "run-1").stat().st_mtime
    os.utime(later, (pulse + 60, pulse + 60))
    done = bench.undo(bench.run("run-1"))
    assert {path: each.fate for path, each in done.items()} == {
        "a.txt": "restored",
        "b.txt": "removed",
        "c.txt": "restored",
        "mine.txt": "kept",
    }
    assert done["mine.txt"].detail == "it changed after the process of this run was last seen alive"
    later.unlink()
    assert picture(bench.root) == before


async def test_a_run_that_is_taken_up_again_records_what_the_cut_off_command_did(bench, tmp_path):
    bench.put("a.txt", "one\n")
    bench.put("c.txt", "three\n")
    subprocess.run([sys.executable, "-c", CUT_OFF, str(tmp_path), HERE], check=False)
    run = bench.run("run-1")
    run.checkpoints.recover()
    assert bench.store.open_windows(["run-1"]) == []
    assert {Path(row.path).name for row in bench.store.of_runs(["run-1"])} == {"a.txt", "b.txt", "c.txt"}


HALF_WRITTEN = """
import os, signal, sys
from pathlib import Path
import retinue.tools.edit as writing
sys.path.insert(0, sys.argv.pop())
from audit_bench import Bench
bench = Bench(Path(sys.argv[1]))
run = bench.run("run-1")
real = writing.replace_entry
def replace(*arguments):
    if sys.argv[2] == "after":
        real(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
writing.replace_entry = replace
import asyncio
async def main():
    await run.use("read", path="a.txt")
    await run.use("edit", path="a.txt", edits=[{"old": "one", "new": "two"}])
asyncio.run(main())
"""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_kill_9_around_an_edit_leaves_the_way_back(bench, tmp_path, when):
    file = bench.put("a.txt", "one\n")
    assert subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(tmp_path), when, HERE], check=False).returncode == -9
    assert file.read_text() == ("one\n" if when == "before" else "two\n")
    fate = bench.undo(bench.run("run-1"))["a.txt"].fate
    assert fate == ("unchanged" if when == "before" else "restored")
    assert file.read_text() == "one\n"
