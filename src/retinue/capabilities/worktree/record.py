"""The record of a worktree on disk, and the saving of its commits in the repository it was made from.

    <state>/worktrees/<run>        the checkout the agent works in
    <state>/worktrees/<run>.git    its repository: own refs, config and new objects
    <state>/worktrees/<run>.json   the record, from which any later process can finish it
    <state>/worktrees/<run>.lock   locked while a process creates, saves or removes it

No existing branch is overwritten: a name that is taken gets a number. Only the branch of an earlier attempt of the same
run is moved, and only forwards from where that attempt saved it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.programs import Owner, locked_file, this_process
from retinue.guard.git import Git, GitError
from retinue.settings.places import private_folder

Phase = Literal["making", "open", "kept", "removing"]
"""making: not usable yet. open: a run works in it. kept: the run has ended, and the folder stays for a reason.
removing: all its work is saved elsewhere, and it is being deleted."""


class WorktreeRecord(Struct, frozen=True, kw_only=True):
    """A worktree. `repository` is the checkout it was made from and `common` the .git folder of that; `base` is the
    commit it started at; `below` is the subfolder in which the run works."""

    run: str
    folder: str
    repository: str
    common: str
    base: str
    below: str = ""
    agent: str = ""
    description: str = ""
    phase: Phase = "making"
    branch: str | None = None
    tip: str | None = None
    """The commit of `branch` when it was last saved. The branch is moved only from there."""
    config: str = ""
    """The configuration of its repository, with the settings that were in effect and had consent at its creation."""
    included: Mapping[str, list[int]] = field(default_factory=dict)
    """The ignored files that were copied into it, with size and time."""
    reason: str = ""
    """The reason why it was kept."""
    owner: Owner | None = None
    at: float = 0.0

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def git(self) -> Path:
        return self.path.with_name(f"{self.run}.git")

    @property
    def file(self) -> Path:
        return self.path.with_name(f"{self.run}.json")

    @property
    def work(self) -> Path:
        """The working directory of the run."""
        return self.path / self.below if self.below else self.path

    def busy(self) -> bool:
        """Return whether the process that owns the worktree is alive."""
        return self.owner is not None and self.owner.alive(this_process())

    def elsewhere(self) -> bool:
        """Return whether another live process owns the worktree."""
        here, owner = this_process(), self.owner
        if owner is None or not owner.alive(here):
            return False
        return (owner.pid, owner.started, owner.space) != (here.pid, here.started, here.space)


def store(record: WorktreeRecord) -> WorktreeRecord:
    """Write the record atomically, and sync it to the disk before the next step."""
    new = record.file.with_suffix(".json.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(msgspec.to_builtins(record), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(record.file)
    return record


def load(file: Path) -> WorktreeRecord | None:
    """Return the record in `file`; None if it contains none. Its folder is beside the file."""
    try:
        data: Any = json.loads(file.read_text("utf-8"))
        record = msgspec.convert(data, WorktreeRecord)
    except (OSError, ValueError, TypeError):
        return None
    if record.run != file.stem:
        return None
    return replace(record, folder=str(file.with_name(record.run)))


def worktrees_folder(state: Path) -> Path:
    """Return the folder of a project's worktrees; it is not created here."""
    return state / "worktrees"


def load_records(state: Path) -> list[WorktreeRecord]:
    """Return every worktree of a project, oldest first. Other files are ignored."""
    try:
        files = sorted(worktrees_folder(state).glob("*.json"))
    except OSError:
        return []
    return sorted(filter(None, map(load, files)), key=lambda record: record.at)


@contextlib.contextmanager
def hold_lock(state: Path, run: str, *, wait: bool = True) -> Iterator[bool]:
    """Lock the worktree of `run`, so that only one process changes it. Without `wait`, yield False if another process
    has the lock."""
    path = private_folder(worktrees_folder(state)) / f"{run}.lock"
    # Windows has no such lock and cannot remove an open file; the owner in the record must suffice.
    if sys.platform == "win32":
        yield True
        return
    while True:
        with locked_file(path, None if wait else 0) as descriptor:
            if descriptor is None:
                yield False
                return
            try:
                is_current = os.path.samestat(os.fstat(descriptor), path.lstat())
            except FileNotFoundError:
                is_current = False
            # If the last holder removed the file meanwhile, the new file must be locked.
            if not is_current:
                continue
            try:
                yield True
            finally:
                # Without a record the lock is no longer needed.
                if not path.with_suffix(".json").exists():
                    path.unlink(missing_ok=True)
            return


BRANCH_PREFIX = "retinue-agent-"
_LOOSE_OBJECT = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
MAX_REF_NUMBERS = 1000
LOCK_SECONDS = 2.0
"""Git holds the lock of a ref for some milliseconds, and waits at most 0.1 s for another."""


def save_commits(record: WorktreeRecord, git: Git, main: Git, head: str) -> tuple[WorktreeRecord, list[str]]:
    """Save all commits of a worktree in the repository it was made from. `head` is its present commit. Return the
    record with the branch of the work, and notes. Raise GitError if a commit
    would not be reachable afterwards."""
    commits = made_commits(record, git)
    tips = set(commits).difference(*commits.values()) | ({head} & set(commits))
    remote: set[str] = set()
    branches: dict[str, str] = {}
    listed = git("for-each-ref", "--format=%(objectname) %(refname)").decode("utf-8", "surrogateescape")
    for line in listed.splitlines():
        sha, ref = line.split(" ", 1)
        if ref.startswith("refs/remotes/"):
            remote.add(sha)
        if "/heads/" in ref:
            branches.setdefault(sha, ref.removeprefix("refs/heads/"))
    # A commit that a remote has is reachable in the user's repository as well.
    unsaved = sorted(tips - (remote - {head}))
    notes: list[str] = []
    if not unsaved:
        return record, notes
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--upload-pack=git-upload-pack", "--stdin")
    main.having(GIT_ALLOW_PROTOCOL="file")("fetch", *options, str(record.git), stdin=_one_a_line(unsaved))
    _copy_large_files(record)
    _unlock_names(record)
    if head in commits:
        record = replace(record, branch=_save_branch(record, main, head), tip=head)
    hidden = 0
    for other in unsaved:
        own = branches.get(other)
        if other == head:
            continue
        if own is None:
            hidden += 1
            _create_ref(record, main, f"refs/retinue/{record.run}/{hidden}", other)
            continue
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", own).strip("-.")[:100].removesuffix(".lock") or "branch"
        # A branch that was saved into this worktree keeps its name.
        if not plain.startswith(BRANCH_PREFIX):
            plain = f"{BRANCH_PREFIX}{record.run}-{plain}"
        name = _create_ref(record, main, f"refs/heads/{plain}", other)
        notes.append(f"its branch {own} is saved as {name.removeprefix('refs/heads/')}")
    if hidden:
        notes.append(f"{hidden} abandoned commits are kept under refs/retinue/{record.run}/")
    refs = ("--branches", "--tags", "--remotes", "--glob=refs/retinue/*")
    unreachable = main("rev-list", "--max-count=1", "--stdin", "--not", *refs, stdin=_one_a_line(unsaved))
    if unreachable.strip():
        raise GitError(("rev-list",), f"commit {unreachable.decode().strip()} would not be reachable")
    return record, notes


def made_commits(record: WorktreeRecord, git: Git) -> dict[str, list[str]]:
    """Return every commit that was made in the worktree, with its parents: all commits whose objects are in its own
    repository, even without a ref. The commit it started at is excluded."""
    own = record.git / "objects"
    names = []
    for file in own.glob("[0-9a-f][0-9a-f]/*"):
        if _LOOSE_OBJECT.fullmatch(file.name):
            names.append(f"{file.parent.name}{file.name}")
    for pack in own.glob("pack/*.idx"):
        for entry in git("show-index", stdin=pack.read_bytes()).splitlines():
            names.append(entry.split()[1].decode())
    if not names:
        return {}
    check = "--batch-check=%(objecttype) %(objectname)"
    lines = git("cat-file", check, stdin=_one_a_line(names)).decode().splitlines()
    commits = {line.split()[1] for line in lines if line.startswith("commit ")} - {record.base}
    if not commits:
        return {}
    listed = git("rev-list", "--no-walk=unsorted", "--parents", "--stdin", stdin=_one_a_line(sorted(commits)))
    parents = {}
    for line in listed.decode().splitlines():
        commit, *parents[commit] = line.split()
    return parents


def _one_a_line(names: list[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def merge_hint(branch: str) -> str:
    return f"git merge {branch}"


def _save_branch(record: WorktreeRecord, main: Git, head: str) -> str:
    before = record.branch
    if before is not None and record.tip is not None and checkout_of(main, before) is None:
        old = main.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{before}")
        if old == head:
            return before
        if old == record.tip and main.holds("merge-base", "--is-ancestor", old, head):
            main("update-ref", "-m", "retinue: saved", f"refs/heads/{before}", head, old)
            return before
    return _create_ref(record, main, f"refs/heads/{BRANCH_PREFIX}{record.run}", head).removeprefix("refs/heads/")


def checkout_of(git: Git, branch: str) -> Path | None:
    """Return the worktree in which `branch` is checked out; moving only the branch would leave its files behind."""
    for block in git.text("worktree", "list", "--porcelain").split("\n\n"):
        lines = block.split("\n")
        if f"branch refs/heads/{branch}" in lines:
            return Path(lines[0].removeprefix("worktree "))
    return None


def _create_ref(record: WorktreeRecord, main: Git, ref: str, sha: str) -> str:
    """Create a ref at `sha` and return its name: `ref`, with a number if that name is taken."""
    nothing = "0" * len(sha)
    for number in range(1, MAX_REF_NUMBERS):
        name = ref if number == 1 else f"{ref}-{number}"
        command = ("update-ref", "-m", "retinue: saved", name, sha, nothing)
        if main.ask(*command) is not None:
            return name
        there = main.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if there == sha or (there is None and _unlock_names(record) and main.ask(*command) is not None):
            return name
        if there is None and number > 3:
            break
    # The name is not the problem: this attempt raises git's own error.
    main("update-ref", "-m", "retinue: saved", f"{ref}-saved", sha, nothing)
    return f"{ref}-saved"


def _unlock_names(record: WorktreeRecord) -> bool:
    """Remove the locks that a killed git of ours left on refs of this run. Only this run writes these refs, and no
    later attempt could. Return False if there was none."""
    refs = Path(record.common) / "refs"
    locks = [
        *(refs / "heads").glob(f"{BRANCH_PREFIX}{record.run}*.lock"),
        *(refs / "retinue" / record.run).glob("*.lock"),
    ]
    until = time.monotonic() + LOCK_SECONDS
    for lock in locks:
        while lock.exists() and time.monotonic() < until:
            time.sleep(0.02)
        lock.unlink(missing_ok=True)
    return bool(locks)


def _copy_large_files(record: WorktreeRecord) -> None:
    """Copy the files that git-lfs stores beside the commits."""
    ours, theirs = record.git / "lfs" / "objects", Path(record.common) / "lfs" / "objects"
    for file in ours.rglob("*"):
        target = theirs / file.relative_to(ours)
        if file.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
