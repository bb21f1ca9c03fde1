"""A checkout to another machine and back, as git bundles between real repositories."""

import os
import subprocess
from pathlib import Path

import pytest

from retinue.cluster.workspace_store import bundle, unbundle
from retinue.cluster.workspaces import collect_branch, put_branch, snapshot, unpack
from retinue.errors import LaunchError
from retinue.guard.git import Git

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@t")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def carried(repository, ref, without=None):
    """Return what puts a ref of one repository into another."""
    data = bundle(repository, ref, without)
    return lambda git: unbundle(git, data)


def carried_snapshot(repository, commit):
    repository("update-ref", "refs/heads/snapshot", commit)
    return carried(repository, "refs/heads/snapshot")


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text("secret.env\n")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def test_uncommitted_files_travel_ignored_ones_do_not_and_nothing_here_changes(here, tmp_path):
    (here / "a.txt").write_text("two\n")
    (here / "new.txt").write_text("new\n")
    (here / "secret.env").write_text("KEY=1\n")
    before = (git(here, "status", "--porcelain"), git(here, "for-each-ref"), (here / ".git" / "index").read_bytes())
    with snapshot(here, ENVIRONMENT) as (packed, repository):
        data = carried_snapshot(repository, packed.commit)
    assert packed.head == git(here, "rev-parse", "HEAD") != packed.commit
    there = unpack(tmp_path / "there", packed.commit, data, ENVIRONMENT)
    assert sorted(path.name for path in there.iterdir()) == [".git", ".gitignore", "a.txt", "new.txt"]
    assert (there / "a.txt").read_text() == "two\n"
    assert git(there, "log", "--format=%s").splitlines()[1:] == ["first"]
    assert unpack(there, packed.commit, lambda _: pytest.fail("it is there"), ENVIRONMENT) == there
    after = (git(here, "status", "--porcelain"), git(here, "for-each-ref"), (here / ".git" / "index").read_bytes())
    assert after == before


def test_the_branch_comes_back_and_takes_no_name_that_is_taken(here, tmp_path):
    with snapshot(here, ENVIRONMENT) as (packed, repository):
        data = carried_snapshot(repository, packed.commit)
    there = unpack(tmp_path / "there", packed.commit, data, ENVIRONMENT)
    git(there, "checkout", "-qb", "work")
    (there / "a.txt").write_text("three\n")
    git(there, "commit", "-qam", "work")
    tip = git(there, "rev-parse", "HEAD")
    back = carried(Git(there, ENVIRONMENT), "refs/heads/work", packed.head)
    assert collect_branch(here, "work", tip, back, ENVIRONMENT) == "work"
    assert git(here, "show", "work:a.txt") == "three"
    assert collect_branch(here, "work", tip, back, ENVIRONMENT) == "work", "again is the same"
    git(here, "branch", "-f", "work", "main")
    assert collect_branch(here, "work", tip, back, ENVIRONMENT) == "work-2"
    assert git(here, "branch", "--show-current") == "main"


def test_a_run_that_is_taken_over_begins_at_what_was_saved(here, tmp_path):
    with snapshot(here, ENVIRONMENT) as (packed, repository):
        data = carried_snapshot(repository, packed.commit)
    one = unpack(tmp_path / "one", packed.commit, data, ENVIRONMENT)
    (one / "a.txt").write_text("after turn 1\n")
    git(one, "commit", "-qam", "saved")
    saved = git(one, "rev-parse", "HEAD")
    more = carried(Git(one, ENVIRONMENT), "refs/heads/retinue-base", packed.commit)
    two = unpack(tmp_path / "two", packed.commit, data, ENVIRONMENT)
    put_branch(two, "run-1", saved, more, ENVIRONMENT)
    assert git(two, "show", "retinue-agent-run-1:a.txt") == "after turn 1"


def test_a_folder_without_a_repository_cannot_travel(tmp_path):
    with pytest.raises(LaunchError, match="no git repository"), snapshot(tmp_path, ENVIRONMENT):
        pass


def test_a_shallow_clone_travels_with_the_end_of_its_history(here, tmp_path):
    (here / "a.txt").write_text("second\n")
    git(here, "commit", "-qam", "second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", here.as_uri(), str(clone))
    (clone / "a.txt").write_text("changed\n")
    with snapshot(clone, ENVIRONMENT) as (packed, repository):
        data = carried_snapshot(repository, packed.commit)
    there = unpack(tmp_path / "there", packed.commit, data, ENVIRONMENT)
    assert (there / "a.txt").read_text() == "changed\n"
    assert git(there, "log", "--format=%s").splitlines()[1:] == ["second"]
    git(there, "commit", "-q", "--allow-empty", "-m", "work")
    back = carried(Git(there, ENVIRONMENT), "refs/heads/retinue-base", packed.head)
    tip = git(there, "rev-parse", "HEAD")
    assert collect_branch(clone, "work", tip, back, ENVIRONMENT) == "work"
    assert git(clone, "log", "--format=%s", "work").splitlines()[0] == "work"


def test_submodules_travel_as_the_commits_they_are_at_and_nothing_more(here, tmp_path):
    inner = tmp_path / "inner"
    git(tmp_path, "clone", "-q", str(here), str(inner))
    git(here, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "lib")
    git(here, "commit", "-qm", "with a submodule")
    (here / "lib" / "a.txt").write_text("changed in the submodule\n")
    (here / "b.txt").write_text("beside it\n")
    with snapshot(here, ENVIRONMENT) as (packed, repository):
        data = carried_snapshot(repository, packed.commit)
    there = unpack(tmp_path / "there", packed.commit, data, ENVIRONMENT)
    assert (there / "b.txt").read_text() == "beside it\n"
    assert list((there / "lib").iterdir()) == []
    assert git(there, "ls-tree", "HEAD", "lib").split()[:3] == ["160000", "commit", git(inner, "rev-parse", "HEAD")]
