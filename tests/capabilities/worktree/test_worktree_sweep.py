"""Worktrees of dead processes: saved and removed, unless someone has taken them up meanwhile."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.capabilities.worktree.worktree_scene import Scene

from retinue.capabilities.worktree import save as worktree_save
from retinue.capabilities.worktree.record import WorktreeRecord, hold_lock, load, store
from retinue.capabilities.worktree.repository import remove_folder
from retinue.capabilities.worktree.save import SavedWork, finish, list_strangers, list_worktrees, sweep
from retinue.capabilities.worktree.worktree import reopen


def die(worktree: WorktreeRecord) -> None:
    """Its process is gone."""
    record = load(worktree.file)
    assert record is not None and record.owner is not None
    with subprocess.Popen(["true"]) as process:
        process.wait()
    store(replace(record, owner=replace(record.owner, id="gone", pid=process.pid, started="0")))


def swept(scene: Scene, after: Callable[[str], None] = lambda run: None) -> dict[str, SavedWork | None]:
    told: dict[str, SavedWork | None] = {}

    def tell(record, saved):
        told[record.run] = saved
        after(record.run)

    sweep(scene.state, scene.environment, lambda: (), tell)
    return told


def test_sweep_saves_what_dead_processes_left_and_leaves_the_living_alone(scene):
    busy, dead = scene.make(), scene.make()
    (dead.path / "x").write_text("x")
    die(dead)
    (scene.state / "worktrees" / "stranger").mkdir()
    assert [each.busy() for each in list_worktrees(scene.state)].count(True) == 1
    told = swept(scene)
    assert list(told) == [dead.run]
    assert scene.show(f"{told[dead.run].branch}:x") == "x"
    assert busy.path.is_dir()
    assert [path.name for path in list_strangers(scene.state)] == ["stranger"]
    assert (scene.state / "worktrees" / "stranger").is_dir()


def test_one_that_is_taken_up_while_others_are_swept_is_left_alone(scene):
    first, second = scene.make(), scene.make()
    for each in (first, second):
        (each.path / "x").write_text("x")
        die(each)
    told = swept(scene, lambda run: reopen(scene.state, second.run) and None)
    assert told[first.run] is not None and told.get(second.run) is None
    assert (second.path / "x").exists()
    (second.path / "y").write_text("y")
    assert scene.show(f"{scene.finish(second).branch}:y") == "y"


def test_what_another_process_has_taken_up_is_not_finished_here(scene):
    worktree = scene.make()
    (worktree.path / "x").write_text("x")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        owner = replace(worktree.owner, id="other", pid=process.pid, started=started)
        store(replace(worktree, owner=owner))
        saved = scene.finish(worktree)
        assert saved.remaining_folder == worktree.path and f"process {process.pid}" in saved.notes[0]
        assert load(worktree.file).owner == owner
        process.communicate(b"\n")
    assert scene.finish(worktree).remaining_folder is None


def test_a_worktree_in_which_others_still_work_is_not_swept(scene):
    worktree = scene.make()
    (worktree.path / "x").write_text("x")
    assert scene.finish(worktree, keep="runs still work in it: 1").remaining_folder
    assert [each.busy() for each in list_worktrees(scene.state)] == [True]
    assert swept(scene) == {} and worktree.path.is_dir()


def test_a_worktree_that_another_process_works_on_is_passed_over(scene):
    worktree = scene.make()
    die(worktree)
    with hold_lock(scene.state, worktree.run):
        assert finish(scene.state, worktree.run, scene.environment, leftover=True) is None
    assert worktree.path.is_dir()


def test_a_lock_that_was_removed_while_one_waited_for_it_is_not_taken(scene):
    entered, order = threading.Event(), []
    worktree = scene.make()

    def second() -> None:
        with hold_lock(scene.state, worktree.run):
            order.append("second")
            assert (scene.state / "worktrees" / f"{worktree.run}.lock").exists()
            entered.set()

    with hold_lock(scene.state, worktree.run):
        thread = threading.Thread(target=second)
        thread.start()
        assert not entered.wait(0.1)
        worktree.file.unlink()  # so that the lock goes with this block
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_commits_that_come_home_into_one_that_is_being_saved_are_not_lost(scene, monkeypatch):
    """The inner worktree is finished after the outer one has looked at its commits."""
    outer = scene.make()
    inner = scene.make(cwd=outer.path)
    scene.shell(inner, "echo i > i; git add i; git commit -qm inner")
    sha = scene.shell(inner, "git rev-parse HEAD").strip()
    real = worktree_save.save_commits

    def then_inner(record, *rest):
        brought = real(record, *rest)
        if record.run == outer.run:
            monkeypatch.setattr(worktree_save, "save_commits", real)
            assert scene.finish(inner).remaining_folder is None
        return brought

    monkeypatch.setattr(worktree_save, "save_commits", then_inner)
    assert scene.finish(outer).remaining_folder == outer.path
    assert scene.finish(outer).remaining_folder is None and scene.left() == []
    assert sha in scene.git("rev-list", "--all").split()


def test_locks_that_a_killed_git_left_in_its_repository_do_not_keep_it(scene):
    worktree = scene.make()
    scene.shell(worktree, "git checkout -q -b side; echo x > x; git add x; git commit -qm side; echo y > y")
    for name in ("HEAD.lock", "index.lock", "refs/heads/side.lock", "packed-refs.lock", "config.lock"):
        (worktree.git / name).write_text("")
    die(worktree)
    told = swept(scene)[worktree.run]
    assert told.remaining_folder is None, told.notes
    assert scene.show(f"{told.branch}:y") == "y"


def test_a_lock_that_a_killed_git_left_on_its_branch_is_waited_for_and_removed(scene):
    worktree = scene.make()
    scene.shell(
        worktree, "echo x > x; git add x; git commit -qm one; git checkout -q -b side; git commit -qm y --allow-empty"
    )
    scene.shell(worktree, "git checkout -q --detach main; echo z > z; git add z; git commit -qm two")
    heads, hidden = scene.path / ".git/refs/heads", scene.path / ".git/refs/retinue" / worktree.run
    hidden.mkdir(parents=True)
    branch = f"retinue-agent-{worktree.run}"
    locks = [heads / f"{branch}.lock", heads / f"{branch}-side.lock", hidden / "1.lock"]
    for lock in locks:
        lock.write_text("")
    other = heads / "retinue-agent-other.lock"
    other.write_text("")
    saved = scene.finish(worktree)
    assert (saved.branch, saved.remaining_folder) == (branch, None)
    assert not any(lock.exists() for lock in locks) and other.exists()
    assert scene.show(f"{branch}:z") == "z" and scene.show(f"{branch}-side:x") == "x"


def test_a_git_that_is_killed_while_it_names_the_branch_leaves_nothing_in_the_way(scene, tmp_path):
    program, lock = tmp_path / "bin" / "git", scene.path / ".git/refs/heads/retinue-agent-00000001-0000-4aa.lock"
    program.parent.mkdir()
    killed = f"touch {tmp_path}/killed {lock}; exit 137"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *update-ref*refs/heads/*) [ -e {tmp_path}/killed ] || {{ {killed}; }} ;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    worktree = scene.make()
    (worktree.path / "x").write_text("x")
    scene.environment["PATH"] = f"{program.parent}:{scene.environment['PATH']}"
    saved = scene.finish(worktree)
    assert (tmp_path / "killed").exists() and not lock.exists()
    assert (saved.branch, saved.remaining_folder) == (f"retinue-agent-{worktree.run}", None)


def test_one_that_is_taken_up_again_has_no_locks_of_a_killed_git(scene):
    worktree = scene.make()
    die(worktree)
    (worktree.git / "index.lock").write_text("")
    assert reopen(scene.state, worktree.run) is not None
    scene.shell(worktree, "echo x > x; git add x; git commit -qm mine")


@pytest.mark.parametrize("left", ["locked", "gitdir", "HEAD"])
def test_what_a_killed_git_had_begun_to_register_is_removed(scene, left):
    worktree = scene.make()
    store(replace(worktree, phase="making"))
    die(worktree)
    entry = scene.path / ".git" / "worktrees" / worktree.run
    for path in entry.iterdir():
        if path.name != left:
            remove_folder(path)
    (entry / "locked").write_text("initializing")
    swept(scene)
    assert scene.left() == [] and not entry.exists()


def test_the_entry_of_another_worktree_is_not_removed_for_its_name(scene, tmp_path):
    other = tmp_path / "elsewhere" / "the-run"
    scene.git("worktree", "add", "-q", "--detach", str(other))
    worktree = scene.make("the-run")
    scene.finish(worktree)
    assert (scene.path / ".git" / "worktrees" / "the-run").is_dir() and scene.left() == []
    assert scene.git("worktree", "list").count("\n") == 1


def test_a_lock_of_a_user_is_found_under_whatever_name_git_gave(scene, tmp_path):
    scene.git("worktree", "add", "-q", "--detach", str(tmp_path / "elsewhere" / "the-run"))
    worktree = scene.make("the-run")
    scene.git("worktree", "unlock", worktree.folder)
    scene.git("worktree", "lock", "--reason", "mine", worktree.folder)
    saved = scene.finish(worktree)
    assert saved.remaining_folder and "locked by you" in saved.notes[0]


def test_small_files_of_processes_that_died_early_are_removed(scene):
    folder = scene.state / "worktrees"
    scene.finish(scene.make())
    for name in ("one.lock", "two.json.new", "three.index", "three.index.lock"):
        (folder / name).write_text("")
    (folder / "four.aside").mkdir()
    swept(scene)
    assert scene.left() == []


def test_a_repository_without_a_record_is_shown_and_never_touched(scene):
    worktree = scene.make()
    scene.shell(worktree, "echo x > x; git add x; git commit -qm mine")
    worktree.file.write_text("{ half a rec")
    swept(scene)
    names = [worktree.run, f"{worktree.run}.git", f"{worktree.run}.json"]
    assert [path.name for path in list_strangers(scene.state)] == names
    assert worktree.git.is_dir() and worktree.path.is_dir()
