"""Q01: where worktrees are made, from what, and when not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Timer

import pytest

from retinue.capabilities.worktree.record import load_records
from retinue.capabilities.worktree.worktree import WorktreeRequest, make, reopen
from retinue.errors import LaunchError
from retinue.testing.fixtures import temporary_repository


def test_it_is_private_locked_and_named_after_its_run(scene):
    worktree = scene.make()
    folder = worktree.path
    assert folder.parent == scene.state / "worktrees"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "a.txt").read_text() == "a\n"
    listed = scene.git("worktree", "list", "--porcelain")
    assert str(folder) in listed
    assert f"locked retinue run {worktree.run}, process {os.getpid()}" in listed
    assert worktree.work == folder


def test_two_worktrees_never_share_anything(scene):
    one, two = scene.make(), scene.make()
    scene.shell(one, "echo 1 > a.txt; git checkout -q -b same; git commit -qam one; git stash list; git config x.y z")
    scene.shell(two, "git checkout -q -b same; echo 2 > only-two; git add .; git commit -qm two")
    assert scene.shell(two, "git config x.y || true") == ""
    first, second = scene.finish(one), scene.finish(two)
    assert first.branch != second.branch
    assert scene.show(f"{first.branch}:a.txt") == "1"
    assert scene.show(f"{second.branch}:a.txt") == "a"


def test_one_that_another_git_is_just_making_is_waited_for(scene):
    """git writes `commondir` in two steps, and any other git dies of the half of it."""
    scene.git("worktree", "add", "-q", "--detach", str(scene.path.with_name("theirs")))
    half = scene.path / ".git" / "worktrees" / "theirs" / "commondir"
    whole = half.read_text()
    half.write_text("")
    pending = Timer(0.3, lambda: half.write_text(whole))
    pending.start()
    worktree = scene.make()
    pending.join()
    assert str(worktree.path) in scene.git("worktree", "list", "--porcelain")


def test_the_sub_directory_of_the_caller_is_kept_also_through_links(scene, tmp_path):
    assert scene.make(cwd=scene.path / "sub").work.name == "sub"
    link = tmp_path / "link"
    link.symlink_to(scene.path / "sub")
    worktree = scene.make(cwd=link)
    assert worktree.below == "sub"
    assert (worktree.work / "b.txt").read_text() == "b\n"


def test_a_sub_directory_that_is_in_no_commit_is_made_and_said(scene):
    (scene.path / "new").mkdir()
    worktree = scene.make(cwd=scene.path / "new")
    assert worktree.work.is_dir()
    assert any("new is not in the commit" in note for note in scene.notes)


def test_no_repository_is_refused_and_nothing_is_left(tmp_path):
    (tmp_path / "plain").mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    with pytest.raises(LaunchError, match="in no git repository") as refused:
        make(WorktreeRequest(run="r", cwd=tmp_path / "plain", state=tmp_path / "state", environment=environment), [])
    assert "git init" in refused.value.remedy
    assert not (tmp_path / "state").exists()


def test_no_commits_is_refused(scene, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    scene.repository.git("init", "--quiet", str(empty))
    with pytest.raises(LaunchError, match="has no commits"):
        scene.make(cwd=empty)
    assert load_records(scene.state) == []


@pytest.mark.parametrize("linked", ["state", "worktrees"])
def test_a_linked_state_folder_is_refused(scene, tmp_path, linked):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if linked == "state":
        scene.state.symlink_to(elsewhere)
    else:
        scene.state.mkdir()
        (scene.state / "worktrees").symlink_to(elsewhere)
    with pytest.raises(LaunchError, match="symbolic link"):
        scene.make()
    assert list(elsewhere.iterdir()) == []


def test_a_state_folder_inside_the_checkout_is_refused(scene):
    scene.state = scene.path / "sub" / "state"
    with pytest.raises(LaunchError, match="inside the repository"):
        scene.make()


def test_a_git_folder_or_a_bare_repository_is_refused(scene):
    with pytest.raises(LaunchError):
        scene.make(cwd=scene.path / ".git")


def test_a_failure_half_way_leaves_nothing(scene):
    (scene.path / ".gitattributes").write_text("* filter=broken\n")
    scene.repository.commit("filtered")
    scene.git("config", "filter.broken.smudge", "false")
    scene.git("config", "filter.broken.clean", "cat")
    scene.git("config", "filter.broken.required", "true")
    with pytest.raises(LaunchError, match="could not be made"):
        scene.make(consented=True)
    assert scene.left() == []
    assert "locked" not in scene.git("worktree", "list", "--porcelain")


def test_variables_of_a_calling_git_lead_nowhere(scene, tmp_path):
    """Retinue may be started by a git hook, which has GIT_DIR and GIT_INDEX_FILE set."""
    scene.environment |= {"GIT_DIR": str(tmp_path / "nowhere"), "GIT_INDEX_FILE": str(tmp_path / "index")}
    worktree = scene.make()
    assert (worktree.path / "a.txt").exists()


def test_hooks_of_the_repository_do_not_run(scene, tmp_path):
    hook = scene.path / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    for name in ("pre-commit", "commit-msg", "reference-transaction", "post-commit"):
        (hook.parent / name).write_bytes(hook.read_bytes())
        (hook.parent / name).chmod(0o755)
    worktree = scene.make()
    (worktree.path / "new").write_text("new")
    assert scene.finish(worktree).branch is not None
    assert not (tmp_path / "ran").exists()


def test_uncommitted_changes_stay_behind_unless_asked_for(scene):
    (scene.path / "a.txt").write_text("changed\n")
    (scene.path / "untracked.txt").write_text("new\n")
    (scene.path / "x.log").write_text("ignored\n")
    before = scene.snapshot()
    plain = scene.make()
    assert (plain.path / "a.txt").read_text() == "a\n"
    assert any("worktree.fromDirty" in note for note in scene.notes)
    dirty = scene.make(from_dirty=True)
    assert (dirty.path / "a.txt").read_text() == "changed\n"
    assert (dirty.path / "untracked.txt").read_text() == "new\n"
    assert not (dirty.path / "x.log").exists()
    assert scene.shell(dirty, "git status --porcelain") == ""
    assert scene.snapshot() == before
    assert scene.git("stash", "list") == ""
    assert scene.finish(dirty).branch is None


def test_work_on_uncommitted_changes_is_a_branch_with_both(scene):
    (scene.path / "a.txt").write_text("changed\n")
    (scene.path / "sub" / "b.txt").unlink()
    worktree = scene.make(from_dirty=True)
    (worktree.path / "c.txt").write_text("c\n")
    branch = scene.finish(worktree).branch
    assert scene.git("log", "--format=%s", f"main..{branch}").splitlines() == [
        "retinue: changes of an agent",
        "retinue: uncommitted changes of the main checkout",
    ]
    assert scene.git("diff", "--name-only", f"main..{branch}").splitlines() == ["a.txt", "c.txt", "sub/b.txt"]


def test_ignored_files_are_included_by_pattern(scene, tmp_path):
    files = {".env": "SECRET=1\n", "sub/.env": "deep\n", "build/out.bin": "x", "x.log": "no\n", "plain": "untracked"}
    scene.repository.write(files | {".worktreeinclude": "# what agents need\n/.env\nbuild/*.bin\nplain\n!x.log\n"})
    (scene.path / "build" / "away.bin").symlink_to(tmp_path / "home")
    worktree = scene.make()
    there = worktree.path
    assert (there / ".env").read_text() == "SECRET=1\n"
    assert (there / "build" / "out.bin").read_text() == "x"
    assert not any((there / name).exists() for name in ("sub/.env", "x.log", "plain"))
    assert not (there / "build" / "away.bin").is_symlink()
    assert any("away.bin leads out" in note for note in scene.notes)
    assert scene.finish(worktree).branch is None


def test_changed_included_files_are_named(scene):
    scene.repository.write({".env": "1\n", ".worktreeinclude": ".env\n"})
    worktree = scene.make()
    (worktree.path / ".env").write_text("2 and more\n")
    saved = scene.finish(worktree)
    assert any(".env" in note for note in saved.notes)
    assert (scene.path / ".env").read_text() == "1\n"


def test_it_begins_at_the_remote_branch_when_told(scene, tmp_path):
    with temporary_repository({"r": "1\n"}, path=tmp_path / "remote") as remote:
        scene.git("remote", "add", "origin", str(remote.path))
        worktree = scene.make(base_ref="fresh")
        assert (worktree.path / "r").exists()
        assert scene.finish(worktree).branch is None
    scene.git("remote", "set-url", "origin", str(tmp_path / "gone"))
    (scene.path / ".git" / "FETCH_HEAD").unlink(missing_ok=True)
    cached = scene.make(base_ref="fresh")
    assert (cached.path / "r").exists()
    assert any("could not be fetched" in note for note in scene.notes)


def test_submodules_are_noted(scene, tmp_path):
    with temporary_repository({"s": "1\n"}, path=tmp_path / "module") as module:
        scene.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module.path), "mod")
        scene.repository.commit("with a submodule")
    worktree = scene.make()
    assert any("submodule" in note for note in scene.notes)
    (worktree.path / "n").write_text("n")
    saved = scene.finish(worktree)
    assert saved.remaining_folder is None
    assert scene.git("ls-tree", f"{saved.branch}", "mod").startswith("160000")


def test_names_with_newlines_dashes_and_no_text(scene):
    names = ["-rf", "new\nline", "tab\there", 'quo"te', "sp ace", "*", "--", "ünï"]
    for name in names:
        (scene.path / name).write_text("x")
    (scene.path / os.fsdecode(b"bytes-\xff")).write_text("x")
    scene.repository.commit("odd")
    worktree = scene.make()
    for name in names:
        assert (worktree.path / name).exists(), name
        (worktree.path / name).write_text("y")
    (worktree.path / "-new\n").write_text("z")
    saved = scene.finish(worktree)
    assert saved.remaining_folder is None
    changed = scene.git("diff", "--name-only", "-z", f"main..{saved.branch}").split("\0")
    assert {name for name in changed if name} == {*names, "-new\n"}


def test_a_change_in_the_instant_of_the_checkout_is_saved(scene):
    # Git looks at two times of a file; the other one cannot be set.
    Path(scene.environment["HOME"], ".gitconfig").write_text("[core]\n\ttrustctime = false\n")
    (scene.path / "a").write_text("x")
    scene.repository.commit("one letter")
    worktree = scene.make()
    file, index = worktree.path / "a", worktree.git / "index"
    instant = 1_700_000_000 * 10**9
    os.utime(file, ns=(instant, instant))
    scene.shell(worktree, "git update-index --refresh")
    file.write_text("y")
    for each in (file, index):
        os.utime(each, ns=(instant, instant))
    saved = scene.finish(worktree)
    assert scene.show(f"{saved.branch}:a") == "y"


def test_a_worktree_from_a_worktree_of_ours_goes_home_into_it(scene):
    outer = scene.make()
    (outer.path / "outer.txt").write_text("outer\n")
    scene.shell(outer, "git add -A && git commit -qm outer")
    inner = scene.make(cwd=outer.path)
    (inner.path / "inner.txt").write_text("inner\n")
    assert (inner.path / "outer.txt").exists()
    kept = scene.finish(outer)
    assert kept.remaining_folder == outer.path and inner.run in kept.notes[-1]
    done = scene.finish(inner)
    assert done.remaining_folder is None
    assert scene.shell(outer, f"git show {done.branch}:inner.txt") == "inner\n"
    last = scene.finish(outer)
    assert last.remaining_folder is None
    assert scene.show(f"{last.branch}:outer.txt") == "outer"
    assert "inner" in scene.git("log", "--all", "--name-only", "--format=%s")
    assert scene.left() == []


def test_reopen_takes_up_what_was_kept(scene):
    worktree = scene.make()
    (worktree.path / "x").write_text("x")
    assert scene.finish(worktree, keep="someone is inside").remaining_folder is not None
    again = reopen(scene.state, worktree.run)
    assert again is not None and again.phase == "open" and again.busy()
    (again.path / "y").write_text("y")
    saved = scene.finish(again)
    assert saved.branch == f"retinue-agent-{worktree.run}"
    assert scene.show(f"{saved.branch}:y") == "y"
    assert reopen(scene.state, worktree.run) is None


def test_sha256_repositories_work(scene, tmp_path):
    path = tmp_path / "sha256"
    path.mkdir()
    scene.repository.git("init", "--quiet", "--object-format=sha256", "-b", "main", str(path))
    other = type(scene.repository)(Path(path))
    other.commit("first", {"f": "1\n"})
    worktree = scene.make(cwd=path)
    (worktree.path / "g").write_text("2\n")
    saved = scene.finish(worktree)
    assert saved.remaining_folder is None, saved.notes
    assert other.git("show", f"{saved.branch}:g") == "2"
