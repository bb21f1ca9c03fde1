"""The integration queue: one branch at a time, checked, merged or parked with the reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.capabilities.worktree.integrate import (
    BranchQueue,
    IntegrationPlan,
    check_target,
    integrate,
    list_pending,
    target_of,
)
from retinue.errors import StateError, UsageError
from retinue.guard.git import Git


def branch(scene, name: str, files: dict[str, str]) -> str:
    """A finished branch of an agent."""
    worktree = scene.make(name)
    for path, text in files.items():
        (worktree.path / path).write_text(text)
    made = scene.finish(worktree).branch
    assert made is not None
    return made


def plan(scene, **options) -> IntegrationPlan:
    return IntegrationPlan(git=Git(scene.path, scene.environment), state=scene.state, onto="main", **options)


def run(scene, *branches: str, **options):
    return integrate(plan(scene, **options), branches, lambda entry: None)


def clean(scene) -> bool:
    return scene.git("worktree", "list").count("\n") == 0 and not list((scene.state / "integrate").iterdir())


def test_branches_are_rebased_one_after_the_other_and_the_checkout_moves_along(scene):
    one, two = branch(scene, "one", {"one": "1\n"}), branch(scene, "two", {"two": "2\n"})
    scene.repository.commit("meanwhile", {"three": "3\n"})
    done = run(scene, one, two, check="test -f three")
    assert [entry.state for entry in done] == ["merged", "merged"]
    assert scene.git("log", "--merges", "--format=%s") == ""
    assert sorted(path.name for path in scene.path.iterdir() if path.is_file()) == [
        ".gitignore", "a.txt", "one", "three", "two",
    ]  # fmt: skip
    assert scene.git("status", "--porcelain") == ""
    assert scene.git("rev-parse", one) and clean(scene)


def test_a_conflict_is_parked_with_its_files_and_blocks_nobody(scene):
    one, two = branch(scene, "one", {"a.txt": "one\n", "x": "x"}), branch(scene, "two", {"two": "2\n"})
    scene.repository.commit("theirs", {"a.txt": "theirs\n"})
    first, second = run(scene, one, two)
    assert (first.state, first.files) == ("parked", ("a.txt",))
    assert "conflicts" in first.reason and second.state == "merged"
    assert (scene.path / "a.txt").read_text() == "theirs\n"
    assert clean(scene)


def test_a_failing_check_is_parked_with_the_end_of_its_output(scene):
    bad = branch(scene, "bad", {"bad": "1\n"})
    before = scene.snapshot()
    (entry,) = run(scene, bad, check="seq 5000; echo broken >&2; exit 3")
    assert entry.state == "parked" and "exit code 3" in entry.reason
    assert entry.detail.endswith("5000\nbroken\n") and len(entry.detail) <= 4000
    assert scene.snapshot() == before and clean(scene)


def test_parked_ones_are_listed_and_not_taken_again_until_they_change(scene):
    bad, good = branch(scene, "bad", {"bad": "1\n"}), branch(scene, "good", {"good": "1\n"})
    git = Git(scene.path, scene.environment)
    assert list_pending(git, "main", BranchQueue(scene.state)) == [bad, good]
    run(scene, bad, good, check="test ! -f bad")
    queue = BranchQueue(scene.state)
    assert [queue.entries[name].state for name in (bad, good)] == ["parked", "merged"]
    assert list_pending(git, "main", queue) == []
    scene.git("branch", "-f", bad, "main~1")
    assert list_pending(git, "main", queue) == []  # its commits are in main
    assert [entry.state for entry in run(scene, bad)] == ["merged"]


def test_a_rebased_branch_counts_as_merged_although_its_commits_are_others(scene):
    one = branch(scene, "one", {"one": "1\n"})
    scene.repository.commit("meanwhile", {"three": "3\n"})
    run(scene, one)
    assert list_pending(Git(scene.path, scene.environment), "main", BranchQueue(scene.state)) == []
    (again,) = run(scene, one)
    assert again.state == "merged" and "already" in again.reason


def test_a_dirty_target_checkout_is_refused_before_anything(scene):
    branch(scene, "one", {"one": "1\n"})
    (scene.path / "a.txt").write_text("mine\n")
    with pytest.raises(UsageError, match="uncommitted changes"):
        check_target(Git(scene.path, scene.environment), "main")


def test_an_untracked_file_in_the_way_parks_and_is_not_overwritten(scene):
    one = branch(scene, "one", {"one": "theirs\n"})
    (scene.path / "one").write_text("mine\n")
    (entry,) = run(scene, one)
    assert entry.state == "parked" and (scene.path / "one").read_text() == "mine\n"


def test_a_target_that_is_not_checked_out_moves_alone(scene):
    one = branch(scene, "one", {"one": "1\n"})
    scene.git("branch", "develop")
    before = scene.snapshot()["files"]
    git = Git(scene.path, scene.environment)
    (entry,) = integrate(IntegrationPlan(git=git, state=scene.state, onto="develop"), [one], lambda entry: None)
    assert entry.state == "merged" and scene.git("show", "develop:one") == "1"
    assert scene.snapshot()["files"] == before


def test_a_target_that_moves_during_the_check_is_rebased_again(scene):
    one = branch(scene, "one", {"one": "1\n"})
    script = f"cd {scene.path} && test -f late || (echo l > late && git add late && git commit -qm late)"
    scene.git("config", "user.name", "x")
    scene.git("config", "user.email", "x@example.invalid")
    (entry,) = run(scene, one, check=script)
    assert entry.state == "merged"
    assert scene.git("log", "--format=%s").splitlines()[1] == "late"


def test_what_a_check_starts_does_not_outlive_it(scene, tmp_path):
    one = branch(scene, "one", {"one": "1\n"})
    run(scene, one, check=f"sleep 300 & echo $! > {tmp_path}/pid")
    pid = int((tmp_path / "pid").read_text())
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        if b") Z" in Path(f"/proc/{pid}/stat").read_bytes():
            break
        time.sleep(0.01)
    else:
        pytest.fail("still running")


def test_what_a_killed_git_had_begun_to_register_is_removed(scene):
    one = branch(scene, "one", {"one": "1\n"})
    (scene.state / "integrate" / "retinue-integrate-dead").mkdir(parents=True)
    entry = scene.path / ".git" / "worktrees" / "retinue-integrate-dead"
    entry.mkdir(parents=True)
    (entry / "locked").write_text("initializing")
    assert [each.state for each in run(scene, one)] == ["merged"]
    assert not entry.exists() and clean(scene)


def test_only_one_integrates_at_a_time(scene):
    with BranchQueue.open(scene.state), pytest.raises(StateError, match="Another process"):
        run(scene)


def test_a_detached_head_has_no_target(scene):
    scene.git("checkout", "-q", "--detach")
    with pytest.raises(UsageError, match="detached"):
        target_of(Git(scene.path, scene.environment), None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_or_a_kill_leaves_the_target_alone(scene, tmp_path, number):
    one = branch(scene, "one", {"one": "1\n"})
    before = scene.snapshot()
    environment = scene.environment | {"RETINUE_HOME": str(tmp_path / "r")}
    process = subprocess.Popen(
        [sys.executable, "-m", "retinue", "integrate", one, "--check", f"touch {tmp_path}/started; sleep 60"],
        cwd=scene.path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )  # fmt: skip
    while not (tmp_path / "started").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert scene.snapshot() == before
    done = subprocess.run(
        [sys.executable, "-m", "retinue", "integrate", "--all", "--json"],
        cwd=scene.path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [result["state"] for result in report["results"]] == ["merged"]
    assert report["check"] is None
    assert scene.git("worktree", "list").count("\n") == 0
