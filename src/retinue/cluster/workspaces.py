"""Checkouts of runs that work on another machine, as commits.

The sender packs the present checkout, with uncommitted and untracked files, as one commit on its HEAD. It receives the
new commits of the run. Packing changes nothing in the user's index, branches or stash; receiving adds one new branch.

Ignored files and the contents of submodules are not sent. `workspace_store.py` transports the commits. All functions
block: call them in a thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from retinue.capabilities.worktree.record import BRANCH_PREFIX, WorktreeRecord
from retinue.capabilities.worktree.repository import (
    commit_tree,
    copied_index,
    guarded_git,
    open_git,
    tree_of,
)
from retinue.capabilities.worktree.worktree import CHECKOUT_SECONDS, source_of
from retinue.cluster.cluster_tables import StoredWorkspace
from retinue.errors import LaunchError, StateError
from retinue.guard.git import Git, GitError, make_repository
from retinue.settings.places import private_folder

_BASE = "refs/heads/retinue-base"
_READY = "retinue-ready"
FetchCommit = Callable[[Git], None]
"""Fetches a sent commit into a repository."""


@contextmanager
def snapshot(
    cwd: Path, environment: Mapping[str, str], *, consented: bool = False
) -> Iterator[tuple[StoredWorkspace, Git]]:
    """Yield the present checkout as a commit, and git in a repository that has this commit. Raise LaunchError."""
    source = source_of(cwd, environment, consented=consented)
    with tempfile.TemporaryDirectory(prefix="retinue-pack-") as temporary:
        folder = Path(temporary) / "pack.git"
        try:
            make_borrower(folder, source.common, str(source.common / "objects"), "info/exclude", "shallow")
            git = Git(source.top, environment, git_dir=folder)
            theirs, committed = source.git.text("rev-parse", "--git-path", "index", f"{source.head}^{{tree}}").split(
                "\n"
            )
            with copied_index(source.git.folder / theirs, Path(temporary) / "index") as index:
                tree = tree_of(git, index)
            commit = source.head
            if tree != committed:
                commit = commit_tree(git, tree, source.head, "retinue: uncommitted changes of the main checkout")
        except (GitError, OSError) as error:
            raise LaunchError(
                f"The workspace could not be packed for another machine: {error}",
                remedy="Nothing has changed. Run it here, without --on cluster.",
            ) from error
        yield StoredWorkspace("base", commit, source.head), git


def make_borrower(folder: Path, source: Path, objects: str, *names: str) -> None:
    """Create a repository that shares the objects in the folder `objects`, with copies of the named files of
    `source`."""
    make_repository(folder)
    (folder / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def unpack(folder: Path, commit: str, fetch: FetchCommit, environment: Mapping[str, str]) -> Path:
    """Return the checkout of `commit` in `folder`, created if it is missing. Several runs share it: each works in its
    own worktree."""
    if (folder / ".git" / _READY).is_file():
        return folder
    private_folder(folder.parent)
    making = Path(tempfile.mkdtemp(prefix=f"{folder.name[:12]}-", dir=folder.parent))
    try:
        git = Git(making, environment)
        git("init", "--quiet")
        _share_objects(git, folder.parent)
        fetch(git)
        git("update-ref", _BASE, commit)
        git("symbolic-ref", "HEAD", _BASE)
        git("read-tree", "--reset", "-u", commit, seconds=CHECKOUT_SECONDS)
        (making / ".git" / _READY).touch()
        making.rename(folder)
    except OSError:
        # Another run of this worker was faster.
        if not (folder / ".git" / _READY).is_file():
            raise
    except GitError as error:
        raise StateError(f"The workspace {commit[:12]} could not be unpacked: {error}") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def put_branch(checkout: Path, run_id: str, commit: str, fetch: FetchCommit, environment: Mapping[str, str]) -> None:
    """Let the worktree of a taken-over run begin with the files that its last machine has saved."""
    git = Git(checkout, environment)
    fetch(git)
    git("update-ref", f"refs/heads/{BRANCH_PREFIX}{run_id}", commit)


def save(
    record: WorktreeRecord,
    environment: Mapping[str, str],
    base: str,
    last: str,
    turn: int,
    send: Callable[[Git, str], None],
) -> str | None:
    """Pass the present worktree to `send`, as a commit on its HEAD, and return the commit; None if nothing has changed
    since the commit `last`, or since `base`. The agent's index and branches stay unchanged."""
    with guarded_git(record, environment) as guarded:
        # Not in the agent's own object folder, which is sent back at the end: this commit is not the agent's work.
        git = guarded.having(
            GIT_OBJECT_DIRECTORY=str(Path(record.common) / "objects"),
            GIT_ALTERNATE_OBJECT_DIRECTORIES=str(record.git / "objects"),
        )
        with copied_index(record.git / "index", record.path.with_name(f"{record.run}.travel")) as index:
            tree = tree_of(git, index, record.included)
        head = open_git(record, environment).text("rev-parse", "HEAD")
        if (
            git.text("rev-parse", f"{last}^{{tree}}") == tree
            and git.ask("merge-base", "--is-ancestor", head, last) is not None
        ):
            return None
        commit = head
        if tree != git.text("rev-parse", f"{head}^{{tree}}"):
            commit = commit_tree(git, tree, head, f"retinue: files after turn {turn}")
        if commit == base:
            return None
        send(git, commit)
        return commit


def collect_branch(root: Path, branch: str, commit: str, fetch: FetchCommit, environment: Mapping[str, str]) -> str:
    """Put the commits of a run into the sender's repository as a new branch, and return its name. A name that another
    commit has gets a number."""
    git = Git(root, environment)
    fetch(git)
    name, number = branch, 1
    while True:
        there = git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{name}^{{commit}}")
        if there == commit:
            return name
        if there is None:
            git("update-ref", "-m", "retinue: work of an agent on another machine", f"refs/heads/{name}", commit, "")
            return name
        number += 1
        name = f"{branch}-{number}"


def _share_objects(git: Git, checkouts: Path) -> None:
    """Link the objects of the newest checkout into a new one, so that they need not be sent again. Each checkout stays
    complete if the other is removed."""
    objects = git.folder / ".git" / "objects"
    unfinished = shutil.ignore_patterns("tmp_*", "info")
    try:
        ready = [file for file in checkouts.glob(f"*/.git/{_READY}") if not file.with_name("shallow").exists()]
        if not ready:
            return
        newest = max(ready, key=lambda file: file.stat().st_mtime).parent
        shutil.copytree(newest / "objects", objects, copy_function=os.link, ignore=unfinished, dirs_exist_ok=True)
        git("update-ref", "refs/retinue/shared", newest.parent.name)
    except (OSError, GitError):
        # The other checkout is being removed: all objects are fetched then.
        shutil.rmtree(objects)
        (objects / "pack").mkdir(parents=True)
        (objects / "info").mkdir()
