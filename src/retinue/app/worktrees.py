"""Worktrees that agents work in: list them, clean up those of dead agents, and merge their branches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.capabilities.worktree.integrate import BranchQueue, IntegrationPlan, check_target, list_pending, target_of
from retinue.capabilities.worktree.integrate import IntegrationBranch as IntegrationBranch
from retinue.capabilities.worktree.integrate import integrate as integrate_plan
from retinue.capabilities.worktree.record import BRANCH_PREFIX, WorktreeRecord, load, worktrees_folder
from retinue.capabilities.worktree.save import SavedWork, list_strangers, sweep
from retinue.capabilities.worktree.save import list_worktrees as list_records
from retinue.capabilities.worktree.worktree import source_of
from retinue.cluster import open_project
from retinue.core.delegation import LIVE
from retinue.errors import ConfigurationError, LaunchError, UsageError
from retinue.guard.git import Git, GitError
from retinue.guard.trust import settings_in_effect, untrusted
from retinue.log.query import LogReader
from retinue.models.keys import environment
from retinue.runs.cleanup import end_leftovers
from retinue.settings.places import state_folder

if TYPE_CHECKING:
    from retinue.core.run_state import RunState


class WorktreeView(Struct, frozen=True, kw_only=True):
    """A worktree that an agent uses or has left. `reason` is the reason why it was kept."""

    run: str
    agent: str
    status: str
    path: str
    repository: str
    base: str
    branch: str | None
    reason: str | None
    at: float


class WorktreeList(Struct, frozen=True):
    """The worktrees of a project. Folders in `unknown` have no record and are not touched."""

    worktrees: list[WorktreeView]
    unknown: list[str]


class IdleWorktrees(Struct, frozen=True):
    """The worktrees that no running agent uses."""

    would_clean: list[WorktreeView]


class CleanedWorktree(Struct, frozen=True):
    """A worktree whose work was saved. `kept` is its folder if that could not be removed."""

    run: str
    branch: str | None
    kept: str | None
    notes: Sequence[str]


class CleanReport(Struct, frozen=True):
    """The cleaned worktrees. `ended` lists the remaining commands of dead agents that were ended."""

    cleaned: list[CleanedWorktree]
    ended: Sequence[str]
    unknown: list[str]


class BranchList(Struct, frozen=True):
    """The branches of agents, by state."""

    onto: str
    waiting: list[str]
    parked: list[IntegrationBranch]
    merged: list[IntegrationBranch]


class PlannedBranches(Struct, frozen=True):
    """The branches that would be integrated, in order."""

    onto: str
    would_take: list[str]


class IntegrationReport(Struct, frozen=True):
    """The result of each integrated branch."""

    onto: str
    check: str | None
    results: Sequence[IntegrationBranch]


def _live_runs(state: Path) -> frozenset[str]:
    """Return the live runs in the log, of any process."""
    with LogReader.open(state) as reader:
        return frozenset(row.id for row in reader.list_runs(states=LIVE))


def _view(record: WorktreeRecord, live: Collection[str]) -> WorktreeView:
    is_kept = record.phase == "kept"
    status = "kept" if is_kept else "left over"
    return WorktreeView(
        run=record.run,
        agent=record.agent,
        status="working" if _is_in_use(record, live) else status,
        path=str(record.path),
        repository=record.repository,
        base=record.base,
        branch=record.branch,
        reason=record.reason if is_kept else None,
        at=record.at,
    )


def _is_in_use(record: WorktreeRecord, live: Collection[str]) -> bool:
    return record.run in live or record.busy()


def list_worktrees(state: Path) -> WorktreeList:
    """Return the worktrees of the project with that state folder."""
    live = _live_runs(state)
    views = [_view(record, live) for record in list_records(state)]
    return WorktreeList(views, [*map(str, list_strangers(state))])


def list_idle(state: Path) -> IdleWorktrees:
    """Return the worktrees that `clean_worktrees` would save and remove."""
    live = _live_runs(state)
    return IdleWorktrees([_view(record, live) for record in list_records(state) if not _is_in_use(record, live)])


def clean_worktrees(
    state: Path, started: Callable[[Sequence[str]], None], cleaned: Callable[[CleanedWorktree], None]
) -> CleanReport:
    """Save and remove the worktrees that no running agent uses. `started` is called with the commands that were ended
    before, `cleaned` with each worktree."""
    done: list[CleanedWorktree] = []
    # Commands that outlived their agents must not write into a folder that is saved and removed.
    with LogReader.open(state) as reader:
        ended = end_leftovers(reader)
    started(ended)

    def tell(record: WorktreeRecord, saved: SavedWork | None) -> None:
        if saved is not None:
            folder = str(saved.remaining_folder) if saved.remaining_folder is not None else None
            done.append(CleanedWorktree(record.run, saved.branch, folder, saved.notes))
            cleaned(done[-1])

    sweep(state, environment(), lambda: _live_runs(state), tell)
    return CleanReport(done, ended, [*map(str, list_strangers(state))])


def where_saved(state: Path, row: RunState, branch: str | None = None) -> list[str]:
    """Return lines that state where the work of an isolated run is: its branch, and its folder if that exists. The work
    of an interrupted run is saved by `retinue worktrees clean`."""
    record = load(worktrees_folder(state) / f"{row.id}.json")
    if not branch and record is not None:
        branch = record.branch
    branch = branch or _find_swept_branch(state, row)
    lines = []
    if branch:
        lines += [f"Branch   {branch}", f"Merge    git merge {branch}    (or: retinue integrate {row.id})"]
    if record is not None:
        lines.append(f"Worktree {record.path}")
    return lines


def _find_swept_branch(state: Path, row: RunState) -> str | None:
    """Return the branch on which another process saved the work of a killed run."""
    # Starting git for every displayed run would be slow, so only do it if there are worktrees.
    if not worktrees_folder(state).is_dir():
        return None
    words = ("rev-parse", "--verify", "--quiet", "--abbrev-ref", f"{BRANCH_PREFIX}{row.id}")
    try:
        return Git(Path(row.cwd), environment()).ask(*words)
    except GitError:
        return None


# Integration


class Integration:
    """Branches of agents in one repository, and the branch `onto` that they are merged into."""

    def __init__(self, cwd: Path, onto: str | None = None) -> None:
        """Raise UsageError if there is no repository, or the target is not a branch."""
        try:
            from retinue.runs.project import has_git_consent

            self._git = source_of(cwd, environment(), consented=has_git_consent(open_project(cwd), cwd)).git
        except LaunchError as error:
            raise UsageError(
                f"{cwd} is not a repository with commits.", remedy="Start in the repository, or use --cwd."
            ) from error
        self._cwd = cwd
        self._state = state_folder(cwd)
        self._queue = BranchQueue(self._state)
        self.onto = target_of(self._git, onto)

    def pending(self) -> list[str]:
        """Return every branch of an agent that is neither merged nor parked."""
        return list_pending(self._git, self.onto, self._queue, tuple(_live_runs(self._state)))

    def branches(self) -> BranchList:
        """Return the branches by state."""
        entries: dict[str, list[IntegrationBranch]] = {"parked": [], "merged": []}
        for entry in self._queue.entries.values():
            if entry.onto == self.onto and entry.state in entries:
                entries[entry.state].append(entry)
        return BranchList(self.onto, self.pending(), **entries)

    def find(self, names: Iterable[str]) -> list[str]:
        """Find branches by their names, or by the ids of their runs. Raise UsageError if a name matches none or
        several."""
        branch_names = self._git.text("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
        branches: dict[str, None] = {}
        for name in names:
            alike = [branch for branch in branch_names if branch.startswith(f"{BRANCH_PREFIX}{name}")]
            for exact in (f"{BRANCH_PREFIX}{name}", name):
                if exact in branch_names:
                    alike = [exact]
            if len(alike) != 1:
                problem = f"fits several: {', '.join(alike)}" if alike else "is no branch here"
                raise UsageError(f"'{name}' {problem}.", remedy="See: retinue integrate --list")
            branches[alike[0]] = None
        if self.onto in branches:
            raise UsageError(
                f"'{self.onto}' cannot be integrated into itself.", remedy="Choose another target with --onto."
            )
        return list(branches)

    def run(
        self, branches: Sequence[str], check: str | None, tell: Callable[[IntegrationBranch], None]
    ) -> IntegrationReport:
        """Merge branches one at a time; `tell` is called with each result. `check` is a command that must succeed, or
        None for that of the settings. Raise ConfigurationError for programs without consent."""
        self._check_consent()
        check_target(self._git, self.onto)
        check = check or self._configured_check()
        plan = IntegrationPlan(git=self._git, state=self._state, onto=self.onto, check=check or None)
        return IntegrationReport(self.onto, plan.check, integrate_plan(plan, list(branches), tell))

    def _configured_check(self) -> str | None:
        """Return the check command of the settings. Raise ConfigurationError if the project sets one without consent:
        it must not run, and without it a branch would be merged unchecked."""
        loaded = settings_in_effect(self._cwd, environment())
        if loaded.settings.integrate_check is None:
            for text in untrusted(loaded, "integrate.check"):
                raise ConfigurationError(text, remedy="Or say which command must succeed with --check.")
        return loaded.settings.integrate_check

    def _check_consent(self) -> None:
        """Raise ConfigurationError if git would run filters without consent. Without its filters, a branch would be
        checked out or merged incorrectly."""
        filters = self._git.needing_consent()
        if filters:
            raise ConfigurationError(
                f"Files of {self._cwd} go through programs that the repository's own settings name, and nobody has "
                f"consented to them: {'; '.join(filters[:3])}",
                remedy="Look at them, and consent with: retinue trust add .git/config",
            )
