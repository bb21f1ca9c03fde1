"""`retinue worktrees list`, `worktrees clean` and `retinue integrate`: copies of the repository and their branches."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.delegation import LIVE
from retinue.errors import ConfigurationError, LaunchError, UsageError
from retinue.faces.cli.project import add_where, folder, project
from retinue.faces.text import indent, optional
from retinue.settings.places import state_folder

if TYPE_CHECKING:
    from retinue.capabilities.worktree.home import WorktreeRecord
    from retinue.capabilities.worktree.integrate import BranchQueue, IntegrationBranch
    from retinue.capabilities.worktree.save import SavedWork, WorktreeState
    from retinue.guard.git import Git
    from retinue.log.rows import RunRow


def live_runs(state: Path) -> frozenset[str]:
    """Return the runs that the log says are at work, in any process."""
    from retinue.log.query import LogReader

    with LogReader.open(state) as reader:
        return frozenset(row.id for row in reader.list_runs(states=LIVE))


def where_saved(state: Path, row: RunRow, branch: str | None = None) -> list[str]:
    """Return lines that say where the work of an isolated run is: its branch, and the directory if that
    is still there. The work of a run that was cut off is saved by `retinue worktrees clean`."""
    from retinue.capabilities.worktree.home import load, worktrees_folder

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


def _find_swept_branch(state: Path, row: RunRow) -> str | None:
    """Return the branch on which another process saved what a killed run left."""
    from retinue.capabilities.worktree.home import BRANCH, worktrees_folder
    from retinue.guard.git import Git, GitError

    # Starting git for every run that is shown would be slow: only where there were worktrees at all.
    if not worktrees_folder(state).is_dir():
        return None
    words = ("rev-parse", "--verify", "--quiet", "--abbrev-ref", f"{BRANCH}{row.id}")
    try:
        return Git(Path(row.cwd), os.environ).ask(*words)
    except GitError:
        return None


def describe(found: WorktreeState) -> dict[str, Any]:
    record = found.record
    status, reason = "left over", None
    if found.busy:
        status = "working"
    elif record.phase == "kept":
        status = "kept"
    if record.phase == "kept":
        reason = record.reason
    return {
        "run": record.run,
        "agent": record.agent,
        "status": status,
        "path": str(record.path),
        "repository": record.repository,
        "base": record.base,
        "branch": record.branch,
        "reason": reason,
        "at": record.at,
    }


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser)


def execute_list(args: argparse.Namespace) -> int:
    """Worktrees of this project: where agents work apart from the checkout, and what dead ones left.

    retinue worktrees list
    retinue worktrees list --json
    """
    from retinue.capabilities.worktree.save import list_strangers, list_worktrees

    state = project(args)
    every, unknown = list_worktrees(state, live_runs(state)), list_strangers(state)
    if args.json:
        print(json.dumps({"worktrees": [*map(describe, every)], "unknown": [*map(str, unknown)]}))
        return 0
    for each in every:
        facts = describe(each)
        print(f"{each.record.run[:8]}  {facts['status']:<9} {each.record.agent}  {each.record.path}")
        if each.record.branch:
            print(f"          saved on {each.record.branch}")
        if facts["reason"]:
            print(f"          {facts['reason']}")
    for path in unknown:
        print(f"?         unknown   {path}: nothing is known about it, and it is left alone")
    if not every and not unknown:
        print("No worktrees.")
    elif any(not each.busy for each in every):
        print("\nSave what is left over and remove it with: retinue worktrees clean")
    return 0


def configure_clean(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say which ones would be saved and removed")
    add_where(parser)


def execute_clean(args: argparse.Namespace) -> int:
    """Save and remove the worktrees that no running agent has.

    Whatever is in them goes to branches first: changes that nobody committed, and every commit that
    was made there. Commands that a dead agent left running are ended before. A worktree that cannot be
    saved whole stays, and is named with the reason. Those of running agents, and those you have locked
    yourself, are never touched.

        retinue worktrees clean --dry-run
        retinue worktrees clean
    """
    from retinue.capabilities.worktree.save import list_strangers, sweep
    from retinue.log.query import LogReader
    from retinue.runs.cleanup import end_leftovers

    state = project(args)
    if args.dry_run:
        _report_idle(state, as_json=args.json)
        return 0
    done: list[dict[str, Any]] = []
    # Commands that outlived their agents must not write into a folder that is saved and removed.
    with LogReader.open(state) as reader:
        ended = end_leftovers(reader)
    if not args.json:
        print("".join(f"{note}\n" for note in ended), end="")

    def tell(record: WorktreeRecord, saved: SavedWork | None) -> None:
        if saved is None:
            return
        kept = str(saved.kept) if saved.kept is not None else None
        done.append({"run": record.run, "branch": saved.branch, "kept": kept, "notes": list(saved.notes)})
        if not args.json:
            what = optional("stays at {}", kept) or "removed"
            where = optional("saved on {}", saved.branch) or "nothing to save"
            print("\n".join([f"{record.run[:8]}  {what}, {where}", *indent(saved.notes, "          ")]))

    sweep(state, os.environ, lambda: live_runs(state), tell)
    if args.json:
        print(json.dumps({"cleaned": done, "ended": list(ended), "unknown": [*map(str, list_strangers(state))]}))
    elif not done:
        print("Nothing to clean.")
    return 0


def _report_idle(state: Path, *, as_json: bool) -> None:
    from retinue.capabilities.worktree.save import list_worktrees

    idle = [each for each in list_worktrees(state, live_runs(state)) if not each.busy]
    if as_json:
        print(json.dumps({"would_clean": [*map(describe, idle)]}))
        return
    for each in idle:
        print(f"{each.record.run[:8]}  would be saved and removed: {each.record.path}")
    if not idle:
        print("Nothing to clean.")


# Integrate


def configure_integrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("branches", metavar="BRANCH", nargs="*", help="branches, or ids of the runs they are of")
    parser.add_argument("--all", action="store_true", help="every branch of an agent that is neither merged nor parked")
    parser.add_argument("--check", metavar="CMD", help="shell command that must succeed (setting integrate.check)")
    parser.add_argument("--onto", metavar="BRANCH", help="the branch to grow (default: the one checked out)")
    parser.add_argument("--dry-run", action="store_true", help="only say which branches would be taken, in order")
    parser.add_argument("--list", action="store_true", help="what waits, and what was parked and why")
    add_where(parser, "the repository (default: here)")


def execute_integrate(args: argparse.Namespace) -> int:
    """Merge finished branches of agents one at a time: rebase, check, then merge or park with the reason.

    Each branch is rebased onto the target in a worktree apart, the check command runs there, and the
    target moves forwards only if it succeeds. What conflicts or fails is parked and stays untouched;
    naming a parked branch tries it again.

        retinue integrate --all --check "make test"
        retinue integrate retinue-agent-3f2a9c1d-77aa-4c1 --onto develop
        retinue integrate --list               what waits, what was parked and why

    The check command can be set once: retinue settings set integrate.check "make test"
    """
    from retinue.capabilities.worktree.integrate import BranchQueue, IntegrationPlan, check_target, integrate, target_of

    cwd = folder(args.cwd)
    git, state = _open_repository(cwd), state_folder(cwd)
    queue, onto = BranchQueue(state), target_of(git, args.onto)
    if args.list:
        return _list_branches(args, git, onto, queue, state)
    wanted = _find_branches(args, git, onto, queue, state)
    if args.dry_run:
        text = "\n".join(wanted) or "Nothing to do."
        if args.json:
            text = json.dumps({"onto": onto, "would_take": wanted})
        print(text)
        return 0
    _check_consent(git, cwd)
    check_target(git, onto)
    check = args.check or _find_check(cwd)
    plan = IntegrationPlan(git=git, state=state, onto=onto, check=check or None)

    def tell(entry: IntegrationBranch) -> None:
        if not args.json:
            print("\n".join(_branch_lines(entry)), flush=True)

    done = integrate(plan, wanted, tell)
    if args.json:
        from msgspec import to_builtins

        print(json.dumps({"onto": onto, "check": plan.check, "results": to_builtins(done)}))
    elif not done:
        print("Nothing to integrate.")
    elif plan.check is None:
        print("No check command was run: set integrate.check, or give --check.")
    return int(any(entry.state == "parked" for entry in done))


def _find_check(cwd: Path) -> str | None:
    """Return the check command of the settings. Raise ConfigurationError for one of the project's that nobody has
    consented to: it must not run, and without it a branch would be merged unchecked."""
    from retinue.guard.trust import settings_in_effect
    from retinue.guard.trust_subjects import untrusted

    loaded = settings_in_effect(cwd, os.environ)
    if loaded.settings.integrate_check is None:
        for text in untrusted(loaded):
            if "integrate.check" in text:
                raise ConfigurationError(text, remedy="Or say which command must succeed with --check.")
    return loaded.settings.integrate_check


def _open_repository(cwd: Path) -> Git:
    from retinue.capabilities.worktree.worktree import source_of
    from retinue.engine import open_project
    from retinue.runs.consent import has_git_consent

    try:
        return source_of(cwd, os.environ, consented=has_git_consent(open_project(cwd), cwd)).git
    except LaunchError as error:
        raise UsageError(
            f"{cwd} is no repository with commits.", remedy="Start in the repository, or use --cwd."
        ) from error


def _check_consent(git: Git, cwd: Path) -> None:
    """Raise ConfigurationError where git would run filters that nobody consented to: a branch that is checked out or
    merged without the filters it was made with would be wrong."""
    what = git.needing_consent()
    if what:
        raise ConfigurationError(
            f"Files of {cwd} go through programs that the repository's own settings name, and nobody has "
            f"consented to them: {'; '.join(what[:3])}",
            remedy="Look at them, and consent with: retinue trust add .git/config",
        )


def _find_branches(args: argparse.Namespace, git: Git, onto: str, queue: BranchQueue, state: Path) -> list[str]:
    """Return the branches that were asked for. Raise UsageError where a name fits none or several."""
    from retinue.capabilities.worktree.home import BRANCH
    from retinue.capabilities.worktree.integrate import list_pending

    if bool(args.branches) == args.all:
        raise UsageError("Say which branches to integrate.", remedy="Name them, or use --all. See: --list")
    if args.all:
        return list_pending(git, onto, queue, tuple(live_runs(state)))
    known = git.text("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
    found: dict[str, None] = {}
    for name in args.branches:
        alike = [each for each in known if each.startswith(f"{BRANCH}{name}")]
        for exact in (f"{BRANCH}{name}", name):
            if exact in known:
                alike = [exact]
        if len(alike) != 1:
            what = optional("fits several: {}", ", ".join(alike)) or "is no branch here"
            raise UsageError(f"'{name}' {what}.", remedy="See: retinue integrate --list")
        found[alike[0]] = None
    if onto in found:
        raise UsageError(f"'{onto}' cannot be integrated into itself.", remedy="Choose another target with --onto.")
    return list(found)


def _list_branches(args: argparse.Namespace, git: Git, onto: str, queue: BranchQueue, state: Path) -> int:
    from msgspec import to_builtins

    from retinue.capabilities.worktree.integrate import list_pending

    waiting = list_pending(git, onto, queue, tuple(live_runs(state)))
    known: dict[str, list[IntegrationBranch]] = {"parked": [], "merged": []}
    for entry in queue.entries.values():
        if entry.onto == onto and entry.state in known:
            known[entry.state].append(entry)
    if args.json:
        print(json.dumps({"onto": onto, "waiting": waiting, **to_builtins(known)}))
        return 0
    for name in waiting:
        print(f"waiting  {name}")
    for entry in (*known["parked"], *known["merged"]):
        print("\n".join(_branch_lines(entry)))
    if not waiting and not any(known.values()):
        print("Nothing waits to be integrated.")
    return 0


def _branch_lines(entry: IntegrationBranch) -> list[str]:
    if entry.state == "merged":
        note = optional(" ({})", entry.reason)
        return [f"merged   {entry.branch} → {entry.onto} at {(entry.commit or '')[:10]}{note}"]
    lines = [f"parked   {entry.branch}: {entry.reason}"]
    lines += indent(entry.files[:20], "           ")
    return lines + indent(entry.detail.rstrip().splitlines()[-15:], "           | ")
