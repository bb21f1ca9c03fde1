"""The integration queue: branches of agents are rebased, checked, and merged or parked, one at a time.

Each branch is rebased in a temporary worktree, and the project's check command runs there. Only then the target is
moved forwards to exactly the commit that was checked. A branch that fails is parked with the reason and is not changed.
If the process is killed at any point, the target is either unchanged or at a checked commit. The result of each branch
is stored in the project's state folder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.worktree.record import BRANCH_PREFIX, checkout_of
from retinue.capabilities.worktree.repository import find_entries, identity, remove_folder
from retinue.core.programs import STDOUT, Popen, TimeoutExpired, locked_file, open_program, prepare
from retinue.errors import StateError, UsageError
from retinue.guard.git import Git, GitError, clean, paths
from retinue.settings.places import private_folder

_QUEUE_FILE = "integrate.json"


class IntegrationBranch(Struct, frozen=True, kw_only=True):
    """The result of one branch at `tip`. A parked one has a reason, and `files` in conflict or the end of the check's
    output; a merged one has the `commit` of the target after it."""

    branch: str
    tip: str
    onto: str
    state: Literal["merged", "parked"]
    reason: str = ""
    detail: str = ""
    files: tuple[str, ...] = ()
    commit: str | None = None
    at: float = 0.0

    def because(self, reason: str, detail: str = "", files: tuple[str, ...] = ()) -> IntegrationBranch:
        return replace(self, state="parked", reason=reason, detail=detail, files=files)

    def merged(self, commit: str, reason: str = "") -> IntegrationBranch:
        return replace(self, state="merged", commit=commit, reason=reason)


class BranchQueue:
    """The results by branch. `open` locks the queue for changes."""

    def __init__(self, state: Path) -> None:
        self._path = state / _QUEUE_FILE
        self.entries: dict[str, IntegrationBranch] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            for data in json.loads(self._path.read_text("utf-8")).values():
                entry = msgspec.convert(data, IntegrationBranch)
                self.entries[entry.branch] = entry

    @classmethod
    @contextlib.contextmanager
    def open(cls, state: Path) -> Iterator[BranchQueue]:
        """Open the queue for changes. Raise StateError while another process integrates."""
        with locked_file(private_folder(state) / "integrate.lock", 0) as descriptor:
            if descriptor is None:
                raise StateError("Another process is integrating in this project.", remedy="Wait for it.")
            yield cls(state)

    def settled(self, branch: str, tip: str, onto: str) -> IntegrationBranch | None:
        """Return the result of the branch, if there is one for its present commit."""
        entry = self.entries.get(branch)
        return entry if entry is not None and (entry.tip, entry.onto) == (tip, onto) else None

    def put(self, entry: IntegrationBranch) -> None:
        self.entries[entry.branch] = entry
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(msgspec.to_builtins(self.entries)), "utf-8")
        new.replace(self._path)


MAX_CHECK_OUTPUT = 4000
MAX_CHECK_SECONDS = 3600.0
MAX_MOVED_TARGETS = 3
_CHECKOUT_LARGE_FILES = {"GIT_LFS_SKIP_SMUDGE": "0"}
"""Large files must be checked out, because people work in these checkouts."""


class IntegrationPlan(Struct, frozen=True, kw_only=True):
    """`onto` is the target branch; `check` is a shell command that must succeed, or None."""

    git: Git
    state: Path
    onto: str
    check: str | None = None


def list_pending(git: Git, onto: str, queue: BranchQueue, busy: Sequence[str] = ()) -> list[str]:
    """Return the branches of agents that are not in `onto`, oldest first, without those whose present commit was merged
    or parked already and those of live runs."""
    listed = git.text("for-each-ref", "--sort=committerdate", "--format=%(objectname) %(refname:short)",
                      f"--no-merged=refs/heads/{onto}", f"refs/heads/{BRANCH_PREFIX}*")  # fmt: skip
    pending = []
    for line in listed.splitlines():
        tip, name = line.split(" ", 1)
        if queue.settled(name, tip, onto) is None and not any(run in name for run in busy):
            pending.append(name)
    return pending


def target_of(git: Git, onto: str | None) -> str:
    """Return the target branch: the given one, or the one checked out here. Raise UsageError."""
    name = onto or git.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    if not name:
        raise UsageError("HEAD is detached: there is no branch to integrate into.", remedy="Name one with --onto.")
    if git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{name}") is None:
        raise UsageError(f"There is no branch '{name}' here.", remedy="See: git branch")
    return name


def check_target(git: Git, onto: str) -> Path | None:
    """Return the checkout of `onto`, if it has one. Raise UsageError when that has uncommitted changes."""
    where = checkout_of(git, onto)
    if where is not None and git.at(where)("status", "--porcelain", "-z", "--untracked-files=no"):
        raise UsageError(
            f"{where} has uncommitted changes, and '{onto}' is checked out there.",
            remedy="Commit or stash them first: nothing was integrated.",
        )
    return where


def integrate(
    plan: IntegrationPlan, branches: Sequence[str], tell: Callable[[IntegrationBranch], None]
) -> list[IntegrationBranch]:
    """Integrate the branches one after another; `tell` gets each result at once. Raise StateError if another process is
    integrating in this project."""
    done: list[IntegrationBranch] = []
    with BranchQueue.open(plan.state) as queue:
        # Remains of a killed process: this process has the lock, so they are unused.
        for folder in (plan.state / "integrate").glob("retinue-integrate-*"):
            _remove(plan, folder)
        for branch in branches:
            entry = _integrate_one(plan, branch)
            queue.put(entry)
            done.append(entry)
            tell(entry)
    return done


def _integrate_one(plan: IntegrationPlan, branch: str) -> IntegrationBranch:
    tip = plan.git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    entry = IntegrationBranch(branch=branch, tip=tip or "", onto=plan.onto, state="parked", at=time.time())
    if tip is None:
        return entry.because("there is no such branch")
    try:
        for _ in range(MAX_MOVED_TARGETS):
            result = _attempt(plan, entry)
            if result is not None:
                return result
    except (GitError, OSError) as error:
        return entry.because(f"git failed: {error}")
    return entry.because(f"'{plan.onto}' moved while it was being checked, {MAX_MOVED_TARGETS} times in a row")


def _attempt(plan: IntegrationPlan, entry: IntegrationBranch) -> IntegrationBranch | None:
    """Return the result of the branch; None if the target has moved meanwhile."""
    base = plan.git.text("rev-parse", f"refs/heads/{plan.onto}")
    folder = Path(tempfile.mkdtemp(prefix="retinue-integrate-", dir=private_folder(plan.state / "integrate")))
    try:
        plan.git("worktree", "add", "--quiet", "--detach", "--force", str(folder), entry.tip)
        inside = plan.git.at(folder)
        inside = inside.having(**identity(inside), **_CHECKOUT_LARGE_FILES)
        conflicts = _rebase(inside, base)
        if conflicts is not None:
            return entry.because("it conflicts with the target", files=tuple(conflicts))
        rebased = inside.text("rev-parse", "HEAD")
        if rebased == base:
            return entry.merged(base, "everything in it is in the target already")
        failed = _check(plan, folder)
        if failed is not None:
            return entry.because(*failed)
        return entry.merged(rebased) if _advance(plan, base, rebased) else None
    finally:
        _remove(plan, folder)


def _rebase(git: Git, base: str) -> list[str] | None:
    """Rebase. Return None on success, otherwise the files in conflict; then nothing has changed."""
    options = ("-c", "rebase.autoStash=false", "-c", "rebase.updateRefs=false", "-c", "rerere.enabled=false")
    try:
        git(*options, "rebase", "--quiet", "--no-verify", "--no-autosquash", base)
    except GitError:
        files = paths(git("diff", "--name-only", "--diff-filter=U", "-z"))
        git.ask("rebase", "--abort")
        if not files:
            raise
        return files
    return None


def _check(plan: IntegrationPlan, folder: Path) -> tuple[str, str] | None:
    """Return why the check failed, and the end of its output; None on success. All programs that it started are
    ended."""
    if plan.check is None:
        return None
    environment = clean(plan.git.environment)
    # Variables of git would lead a git that the check starts to another repository.
    for name in [name for name in environment if name.startswith("GIT_") or name == "LC_ALL"]:
        del environment[name]
    with tempfile.TemporaryFile() as output:
        program = prepare(
            ["/bin/sh", "-c", plan.check],
            clearance="person",
            environment=environment,
            cwd=folder,
        )
        started = open_program(program, stdout=output, stderr=STDOUT)
        try:
            code = started.wait(MAX_CHECK_SECONDS)
            why = f"the check failed with exit code {code}" if code else ""
        except TimeoutExpired:
            why = f"the check took longer than {MAX_CHECK_SECONDS:g} s"
        finally:
            _end(started)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - MAX_CHECK_OUTPUT))
        return (why, output.read().decode("utf-8", "replace")) if why else None


def _end(process: Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (OSError, AttributeError):
        process.kill()
    process.wait()


def _advance(plan: IntegrationPlan, base: str, rebased: str) -> bool:
    """Move the target forwards; return False if it has moved meanwhile. A checkout of the target is updated with it, or
    neither changes."""
    where = checkout_of(plan.git, plan.onto)
    if where is None:
        try:
            plan.git("update-ref", "-m", "retinue: integrated", f"refs/heads/{plan.onto}", rebased, base)
        except GitError:
            if plan.git.text("rev-parse", f"refs/heads/{plan.onto}") == base:
                raise
            return False
        return True
    there = plan.git.at(where).having(**_CHECKOUT_LARGE_FILES)
    if there.text("rev-parse", "HEAD") != base:
        return False
    if there("status", "--porcelain", "-z", "--untracked-files=no"):
        raise GitError(("merge",), f"{where} has uncommitted changes by now")
    there("merge", "--quiet", "--ff-only", "--no-verify", rebased)
    return True


def _remove(plan: IntegrationPlan, folder: Path) -> None:
    if plan.git.ask("worktree", "remove", "--force", "--force", str(folder)) is None:
        for entry in find_entries(plan.git.folder / plan.git.text("rev-parse", "--git-common-dir"), folder):
            remove_folder(entry)
    remove_folder(folder)
