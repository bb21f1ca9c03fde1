"""Merge finished branches of agents one at a time: rebase, check, then merge or park with the reason.

Each branch is rebased onto the target in a worktree apart, the check command runs there, and the
target moves forwards only if it succeeds. What conflicts or fails is parked and stays untouched;
naming a parked branch tries it again.

    retinue integrate --all --check "make test"
    retinue integrate retinue-agent-3f2a9c1d-77aa-4c1 --onto develop
    retinue integrate --list               what waits, what was parked and why

The check command can be set once: retinue settings set integrate.check "make test"
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.errors import ConfigurationError, UsageError
from retinue.faces.cli.project import folder
from retinue.faces.cli.worktrees import live_runs
from retinue.settings.places import state_folder

if TYPE_CHECKING:
    from retinue.capabilities.worktree.integrate import BranchQueue, IntegrationBranch
    from retinue.guard.git import Git


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("branches", metavar="BRANCH", nargs="*", help="branches, or ids of the runs they are of")
    parser.add_argument("--all", action="store_true", help="every branch of an agent that is neither merged nor parked")
    parser.add_argument("--check", metavar="CMD", help="shell command that must succeed (setting integrate.check)")
    parser.add_argument("--onto", metavar="BRANCH", help="the branch to grow (default: the one checked out)")
    parser.add_argument("--dry-run", action="store_true", help="only say which branches would be taken, in order")
    parser.add_argument("--list", action="store_true", help="what waits, and what was parked and why")
    parser.add_argument("--cwd", metavar="DIR", help="the repository (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def execute(args: argparse.Namespace) -> int:
    from retinue.capabilities.worktree.integrate import BranchQueue, IntegrationPlan, check_target, integrate, target_of

    cwd = folder(args.cwd)
    git, state = _repository(cwd), state_folder(cwd)
    queue, onto = BranchQueue(state), target_of(git, args.onto)
    if args.list:
        return _list(args, git, onto, queue, state)
    wanted = _wanted(args, git, onto, queue, state)
    if args.dry_run:
        print(json.dumps({"onto": onto, "would_take": wanted}) if args.json else "\n".join(wanted) or "Nothing to do.")
        return 0
    _check_consent(git, cwd)
    check_target(git, onto)
    check = args.check or _check_set(cwd)
    plan = IntegrationPlan(git=git, state=state, onto=onto, check=check or None)

    def tell(entry: IntegrationBranch) -> None:
        if not args.json:
            print("\n".join(_lines(entry)), flush=True)

    done = integrate(plan, wanted, tell)
    if args.json:
        from retinue.core.codec import to_data

        print(json.dumps({"onto": onto, "check": plan.check, "results": [to_data(entry) for entry in done]}))
    elif not done:
        print("Nothing to integrate.")
    elif plan.check is None:
        print("No check command was run: set integrate.check, or give --check.")
    return 1 if any(entry.state == "parked" for entry in done) else 0


def _check_set(cwd: Path) -> str | None:
    """The command of the settings. One of the project's that nobody has consented to is neither
    run nor passed over: a branch would be merged unchecked."""
    from retinue.capabilities.trust.attach import settings_in_effect
    from retinue.guard.trust_subjects import untrusted

    loaded = settings_in_effect(cwd, os.environ)
    withheld = [text for text in untrusted(loaded) if "integrate.check" in text]
    if withheld and loaded.settings.integrate_check is None:
        raise ConfigurationError(withheld[0], remedy="Or say which command must succeed with --check.")
    return loaded.settings.integrate_check


def _repository(cwd: Path) -> Git:
    from retinue.capabilities.trust.attach import has_git_consent
    from retinue.capabilities.worktree.worktree import source_of
    from retinue.errors import LaunchError
    from retinue.runs.project import Project

    try:
        return source_of(cwd, os.environ, consented=has_git_consent(Project(cwd), cwd)).git
    except LaunchError as error:
        raise UsageError(
            f"{cwd} is no repository with commits.", remedy="Start in the repository, or use --cwd."
        ) from error


def _check_consent(git: Git, cwd: Path) -> None:
    """A branch that is checked out or merged without the filters it was made with would be wrong."""
    what = git.needing_consent()
    if what:
        raise ConfigurationError(
            f"Files of {cwd} go through programs that the repository's own settings name, and nobody has "
            f"consented to them: {'; '.join(what[:3])}",
            remedy="Look at them, and consent with: retinue trust add .git/config",
        )


def _wanted(args: argparse.Namespace, git: Git, onto: str, queue: BranchQueue, state: Path) -> list[str]:
    from retinue.capabilities.worktree.home import BRANCH
    from retinue.capabilities.worktree.integrate import pending

    if bool(args.branches) == args.all:
        raise UsageError("Say which branches to integrate.", remedy="Name them, or use --all. See: --list")
    if args.all:
        return pending(git, onto, queue, tuple(live_runs(state)))
    known = git.text("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
    found = []
    for name in args.branches:
        exact = [each for each in (name, f"{BRANCH}{name}") if each in known][:1]
        alike = exact or [each for each in known if each.startswith(f"{BRANCH}{name}")]
        if len(alike) != 1:
            what = f"fits several: {', '.join(alike)}" if alike else "is no branch here"
            raise UsageError(f"'{name}' {what}.", remedy="See: retinue integrate --list")
        found += alike
    if onto in found:
        raise UsageError(f"'{onto}' cannot be integrated into itself.", remedy="Choose another target with --onto.")
    return list(dict.fromkeys(found))


def _list(args: argparse.Namespace, git: Git, onto: str, queue: BranchQueue, state: Path) -> int:
    from retinue.capabilities.worktree.integrate import pending
    from retinue.core.codec import to_data

    waiting = pending(git, onto, queue, tuple(live_runs(state)))
    known = [entry for entry in queue.entries.values() if entry.onto == onto]
    parked = [entry for entry in known if entry.state == "parked"]
    merged = [entry for entry in known if entry.state == "merged"]
    if args.json:
        lists = {"parked": parked, "merged": merged}
        data = {name: [to_data(entry) for entry in entries] for name, entries in lists.items()}
        print(json.dumps({"onto": onto, "waiting": waiting, **data}))
        return 0
    for name in waiting:
        print(f"waiting  {name}")
    for entry in (*parked, *merged):
        print("\n".join(_lines(entry)))
    if not waiting and not known:
        print("Nothing waits to be integrated.")
    return 0


def _lines(entry: IntegrationBranch) -> list[str]:
    if entry.state == "merged":
        note = f" ({entry.reason})" if entry.reason else ""
        return [f"merged   {entry.branch} → {entry.onto} at {(entry.commit or '')[:10]}{note}"]
    lines = [f"parked   {entry.branch}: {entry.reason}"]
    lines += [f"           {name}" for name in entry.files[:20]]
    return lines + [f"           | {line}" for line in entry.detail.rstrip().splitlines()[-15:]]
