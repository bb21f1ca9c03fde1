"""Workspaces of runs that work on another machine, as git bundles.

Out: the checkout as it is, uncommitted and untracked files included, as one commit on its HEAD with the history below.
Back: the commits that the run has made, which the sender's repository does not have. Nothing touches
the user's index, branches or stash on the way out; on the way back one new branch appears.

Ignored files and the contents of submodules do not travel. All functions block: call them in a thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from retinue.capabilities.worktree.home import BRANCH, WorktreeRecord
from retinue.capabilities.worktree.repository import commit_tree, copy_index, guarded_git, open_git, tree_of
from retinue.capabilities.worktree.worktree import CHECKOUT_SECONDS, source_of
from retinue.errors import LaunchError, StateError
from retinue.guard.git import Git, GitError
from retinue.settings.places import private_folder

MOST_BYTES = 512 * 2**20
"""A larger bundle is refused: it would hold up everyone who shares the database."""
_BASE = "refs/heads/retinue-base"
_SAVED = "refs/heads/retinue-saved"
_SHALLOW = "refs/retinue/shallow"
"""Where the history of a shallow clone ends, as the file that git keeps of it."""
_READY = "retinue-ready"


class PackedWorkspace(Struct, frozen=True):
    """`root` is the checkout's top folder on the sender's machine, `head` the commit it is at."""

    root: Path
    commit: str
    head: str


@contextmanager
def snapshot(
    cwd: Path, environment: Mapping[str, str], *, consented: bool = False
) -> Iterator[tuple[PackedWorkspace, Git]]:
    """Yield the checkout as it is now, and git in a repository that has it as one commit. Raise LaunchError."""
    source = source_of(cwd, environment, consented=consented)
    with tempfile.TemporaryDirectory(prefix="retinue-pack-") as place:
        folder = Path(place) / "pack.git"
        try:
            git = _new_repository(folder, source.top, environment)
            (folder / "objects" / "info" / "alternates").write_bytes(os.fsencode(source.common / "objects") + b"\n")
            for name in ("info/exclude", "shallow"):
                if (source.common / name).is_file():
                    shutil.copyfile(source.common / name, folder / name)
            theirs, committed = source.git.text("rev-parse", "--git-path", "index", f"{source.head}^{{tree}}").split(
                "\n"
            )
            tree = tree_of(git, copy_index(source.git.folder / theirs, Path(place) / "index"))
            commit = source.head
            if tree != committed:
                commit = commit_tree(git, tree, source.head, "retinue: uncommitted changes of the main checkout")
        except (GitError, OSError) as error:
            raise LaunchError(
                f"The workspace could not be packed for another machine: {error}",
                remedy="Nothing has changed. Run it here, without --on cluster.",
            ) from error
        yield PackedWorkspace(source.top, commit, source.head), git


def bundle(git: Git, *refs: str, without: str | None = None) -> bytes:
    """Return a bundle of `refs` without what `without` reaches. Raise StateError when it is too large."""
    with tempfile.NamedTemporaryFile(prefix="retinue-bundle-") as file:
        limits = [f"^{without}"] if without is not None else []
        git("bundle", "create", "--quiet", file.name, *refs, *limits, seconds=CHECKOUT_SECONDS)
        size = os.path.getsize(file.name)  # noqa: PTH202 - git has replaced the file
        if size > MOST_BYTES:
            raise StateError(
                f"The workspace has {size // 2**20} MB, and at most {MOST_BYTES // 2**20} travel through the database.",
                remedy="Keep large files out of the repository, or run it here.",
            )
        return Path(file.name).read_bytes()


def pack(git: Git, commit: str) -> bytes:
    """Return the bundle of a snapshot."""
    git("update-ref", _BASE, commit)
    if git.git_dir is None or not (git.git_dir / "shallow").is_file():
        return bundle(git, _BASE)
    git("update-ref", _SHALLOW, git.text("hash-object", "-w", str(git.git_dir / "shallow")))
    return bundle(git, _BASE, _SHALLOW)


def unpack(folder: Path, commit: str, load: Callable[[], bytes | None], environment: Mapping[str, str]) -> Path:
    """Return a checkout of `commit` in `folder`, made from a bundle unless it is there. Several runs share it: each
    works in a worktree of its own."""
    if (folder / ".git" / _READY).is_file():
        return folder
    data = load()
    if data is None:
        raise StateError(f"The workspace {commit[:12]} is not in the database.")
    private_folder(folder.parent)
    making = Path(tempfile.mkdtemp(prefix=f"{folder.name[:12]}-", dir=folder.parent))
    try:
        git = Git(making, environment)
        git("init", "--quiet")
        _put_shallow(git, _unbundle(git, data))
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


def put_branch(checkout: Path, run_id: str, commit: str, data: bytes, environment: Mapping[str, str]) -> None:
    """Let the worktree of a run that is taken over begin where its last machine has saved it."""
    git = Git(checkout, environment)
    _unbundle(git, data)
    git("update-ref", f"refs/heads/{BRANCH}{run_id}", commit)


def save(
    record: WorktreeRecord, environment: Mapping[str, str], base: str, last: str, turn: int
) -> tuple[str, bytes] | None:
    """Return the worktree as it is, as a commit on its HEAD and a bundle of what is new since `base`; None when
    nothing has changed since the commit `last`. The agent's index and branches are left alone."""
    with guarded_git(record, environment) as git:
        index = copy_index(record.git / "index", record.path.with_name(f"{record.run}.travel"))
        try:
            tree = tree_of(git, index, record.included)
        finally:
            index.unlink(missing_ok=True)
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
        git("update-ref", _SAVED, commit)
        return commit, bundle(git, _SAVED, without=base)


def collect_branch(root: Path, branch: str, commit: str, data: bytes, environment: Mapping[str, str]) -> str:
    """Put what a run has made into the sender's repository as a new branch, and return its name. A name that is taken
    by something else gets a number."""
    git = Git(root, environment)
    _unbundle(git, data)
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


def _new_repository(folder: Path, checkout: Path, environment: Mapping[str, str]) -> Git:
    # By hand: one git less to start before a run is sent.
    for each in ("objects/info", "refs/heads", "info"):
        (folder / each).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    return Git(checkout, environment, git_dir=folder)


def _unbundle(git: Git, data: bytes) -> dict[str, str]:
    """Return the refs that were in the bundle, with what they name."""
    with tempfile.NamedTemporaryFile(prefix="retinue-bundle-") as file:
        file.write(data)
        file.flush()
        said = git("bundle", "unbundle", file.name, seconds=CHECKOUT_SECONDS).decode()
    return {ref: name for name, ref in (line.split(" ", 1) for line in said.splitlines())}


def _put_shallow(git: Git, refs: Mapping[str, str]) -> None:
    if _SHALLOW in refs:
        (git.folder / ".git" / "shallow").write_bytes(git("cat-file", "blob", refs[_SHALLOW]))
