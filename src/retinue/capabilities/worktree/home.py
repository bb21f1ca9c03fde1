"""Bringing the commits of a worktree into the repository it was made from, and its record on disk.

    <state>/worktrees/<run>        the checkout the agent works in
    <state>/worktrees/<run>.git    its repository: own refs, config and new objects
    <state>/worktrees/<run>.json   the record, from which any later process can finish it
    <state>/worktrees/<run>.lock   held while one process makes, saves or removes it

Nothing that exists is overwritten: a name that is taken gets a number. Only the branch that an
earlier attempt of the same run left is moved, forwards, from exactly where that attempt left it.
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
"""making: not usable yet. open: a run works in it. kept: the run is over and something stays.
removing: everything in it is reachable elsewhere, and it is being deleted."""


class WorktreeRecord(Struct, frozen=True, kw_only=True):
    """`repository` is the checkout it was made from, `common` that one's .git folder; `base` the
    commit it started at; `below` the folder in it that the run works in."""

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
    """The commit of `branch` when it was last saved: it is only ever moved from there."""
    config: str = ""
    """The settings of its repository: what was in effect, and consented to, when it was made."""
    included: Mapping[str, list[int]] = field(default_factory=dict)
    """Ignored files that were copied in: size and time."""
    reason: str = ""
    """Why it was kept."""
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
        """Return whether the process that has the worktree still lives."""
        return self.owner is not None and self.owner.alive(this_process())

    def elsewhere(self) -> bool:
        """Return whether another process than this one has the worktree and lives."""
        here, owner = this_process(), self.owner
        if owner is None or not owner.alive(here):
            return False
        return (owner.pid, owner.started, owner.space) != (here.pid, here.started, here.space)


def store(record: WorktreeRecord) -> WorktreeRecord:
    """Write the record whole or not at all, and to the disk before anything is done because of it."""
    new = record.file.with_suffix(".json.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(msgspec.to_builtins(record), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(record.file)
    return record


def load(file: Path) -> WorktreeRecord | None:
    """Return the record in `file`; None when it holds none. The folder is where the file is now."""
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
    """Return every worktree of a project, oldest first. Other files are passed over."""
    try:
        files = sorted(worktrees_folder(state).glob("*.json"))
    except OSError:
        return []
    return sorted(filter(None, map(load, files)), key=lambda record: record.at)


@contextlib.contextmanager
def hold_lock(state: Path, run: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of the worktree of `run`: only one process at a time works on it. Without `wait` yield False
    when another one has the lock."""
    path = private_folder(worktrees_folder(state)) / f"{run}.lock"
    # Windows has no such lock and cannot remove an open file: the owner in the record has to do.
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
            # Its last holder removed the file while this process waited: lock the new one.
            if not is_current:
                continue
            try:
                yield True
            finally:
                # Without a record there is nothing left to lock.
                if not path.with_suffix(".json").exists():
                    path.unlink(missing_ok=True)
            return


BRANCH = "retinue-agent-"
_LOOSE = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
MAX_NAMES = 1000
LOCK_SECONDS = 2.0
"""A git at work holds a name for some milliseconds, and waits no longer than 0.1 s for another."""


def bring_home(record: WorktreeRecord, git: Git, main: Git, head: str) -> tuple[WorktreeRecord, bool, list[str]]:
    """Bring all commits of a worktree into the repository it was made from. `head` is its present commit. Return the
    record with the branch that has the work, whether that is new or was moved, and notes. Raise GitError when any
    of them would not be reachable afterwards."""
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
        return record, False, notes
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--upload-pack=git-upload-pack", "--stdin")
    main.having(GIT_ALLOW_PROTOCOL="file")("fetch", *options, str(record.git), given=_one_a_line(unsaved))
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
        # A branch that came home into this one keeps its name.
        if not plain.startswith(BRANCH):
            plain = f"{BRANCH}{record.run}-{plain}"
        name = _create_ref(record, main, f"refs/heads/{plain}", other)
        notes.append(f"its branch {own} is saved as {name.removeprefix('refs/heads/')}")
    if hidden:
        notes.append(f"{hidden} abandoned commits are kept under refs/retinue/{record.run}/")
    refs = ("--branches", "--tags", "--remotes", "--glob=refs/retinue/*")
    unreachable = main("rev-list", "--max-count=1", "--stdin", "--not", *refs, given=_one_a_line(unsaved))
    if unreachable.strip():
        raise GitError(("rev-list",), f"commit {unreachable.decode().strip()} would not be reachable")
    return record, head in commits, notes


def made_commits(record: WorktreeRecord, git: Git) -> dict[str, list[str]]:
    """Return every commit that was made in the worktree, with its parents: those whose objects are in its
    own repository, whatever refs or reflogs say. The commit it began at is not one of them."""
    own = record.git / "objects"
    names = []
    for file in own.glob("[0-9a-f][0-9a-f]/*"):
        if _LOOSE.fullmatch(file.name):
            names.append(f"{file.parent.name}{file.name}")
    for pack in own.glob("pack/*.idx"):
        for entry in git("show-index", given=pack.read_bytes()).splitlines():
            names.append(entry.split()[1].decode())
    if not names:
        return {}
    check = "--batch-check=%(objecttype) %(objectname)"
    lines = git("cat-file", check, given=_one_a_line(names)).decode().splitlines()
    commits = {line.split()[1] for line in lines if line.startswith("commit ")} - {record.base}
    if not commits:
        return {}
    listed = git("rev-list", "--no-walk=unsorted", "--parents", "--stdin", given=_one_a_line(sorted(commits)))
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
    return _create_ref(record, main, f"refs/heads/{BRANCH}{record.run}", head).removeprefix("refs/heads/")


def checkout_of(git: Git, branch: str) -> Path | None:
    """Return the worktree in which `branch` is checked out: moving only the branch would put it out of step."""
    for block in git.text("worktree", "list", "--porcelain").split("\n\n"):
        lines = block.split("\n")
        if f"branch refs/heads/{branch}" in lines:
            return Path(lines[0].removeprefix("worktree "))
    return None


def _create_ref(record: WorktreeRecord, main: Git, ref: str, sha: str) -> str:
    """Create a ref at `sha` and return its name: `ref`, or with a number after it when that is
    taken by something else."""
    nothing = "0" * len(sha)
    for number in range(1, MAX_NAMES):
        name = ref if number == 1 else f"{ref}-{number}"
        command = ("update-ref", "-m", "retinue: saved", name, sha, nothing)
        if main.ask(*command) is not None:
            return name
        there = main.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if there == sha or (there is None and _unlock_names(record) and main.ask(*command) is not None):
            return name
        if there is None and number > 3:
            break
    # Not a matter of the name: git says itself what is wrong.
    main("update-ref", "-m", "retinue: saved", f"{ref}-saved", sha, nothing)
    return f"{ref}-saved"


def _unlock_names(record: WorktreeRecord) -> bool:
    """Remove the lock that a git of ours left on a name of this run when it was killed: nobody
    else has reason to write to these names, and no later attempt could. False if there was none."""
    refs = Path(record.common) / "refs"
    locks = [*(refs / "heads").glob(f"{BRANCH}{record.run}*.lock"), *(refs / "retinue" / record.run).glob("*.lock")]
    until = time.monotonic() + LOCK_SECONDS
    for lock in locks:
        while lock.exists() and time.monotonic() < until:
            time.sleep(0.02)
        lock.unlink(missing_ok=True)
    return bool(locks)


def _copy_large_files(record: WorktreeRecord) -> None:
    """Copy what git-lfs stored beside the commits."""
    ours, theirs = record.git / "lfs" / "objects", Path(record.common) / "lfs" / "objects"
    for file in ours.rglob("*"):
        target = theirs / file.relative_to(ours)
        if file.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
