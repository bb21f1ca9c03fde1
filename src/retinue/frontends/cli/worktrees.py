"""`retinue worktrees list`, `worktrees clean` and `retinue integrate`: copies of the repository and their branches."""

from __future__ import annotations

import argparse

from retinue.app.text import indent, optional
from retinue.app.worktrees import (
    CleanedWorktree,
    Integration,
    IntegrationBranch,
    PlannedBranches,
    clean_worktrees,
    list_idle,
    list_worktrees,
)
from retinue.errors import UsageError
from retinue.frontends.cli.project import add_where, folder, project, write_values


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser)


def execute_list(args: argparse.Namespace) -> int:
    """List the worktrees of this project: where agents work apart from the checkout, and what dead
    ones left.

        retinue worktrees list
        retinue worktrees list --json
    """
    report = list_worktrees(project(args))
    if args.json:
        write_values(report)
        return 0
    for worktree in report.worktrees:
        print(f"{worktree.run[:8]}  {worktree.status:<9} {worktree.agent}  {worktree.path}")
        if worktree.branch:
            print(f"          saved on {worktree.branch}")
        if worktree.reason:
            print(f"          {worktree.reason}")
    for path in report.unknown:
        print(f"?         unknown   {path}: it has no record and is not touched")
    if not report.worktrees and not report.unknown:
        print("No worktrees.")
    elif any(worktree.status != "working" for worktree in report.worktrees):
        print("\nSave and remove unused ones with: retinue worktrees clean")
    return 0


def configure_clean(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only print the worktrees that would be removed")
    add_where(parser)


def execute_clean(args: argparse.Namespace) -> int:
    """Save and remove the worktrees that no running agent uses.

    Their contents are saved on branches first: uncommitted changes, and every commit. Remaining
    commands of a dead agent are ended before. A worktree that cannot be saved completely is kept,
    and listed with the reason. Worktrees of running agents, and those you have locked yourself, are
    never touched.

        retinue worktrees clean --dry-run
        retinue worktrees clean
    """
    state = project(args)
    if args.dry_run:
        idle = list_idle(state)
        if args.json:
            write_values(idle)
            return 0
        for worktree in idle.would_clean:
            print(f"{worktree.run[:8]}  would be saved and removed: {worktree.path}")
        if not idle.would_clean:
            print("Nothing to clean.")
        return 0

    def tell(done: CleanedWorktree) -> None:
        if not args.json:
            what = optional("stays at {}", done.kept) or "removed"
            where = optional("saved on {}", done.branch) or "nothing to save"
            print("\n".join([f"{done.run[:8]}  {what}, {where}", *indent(done.notes, "          ")]))

    report = clean_worktrees(state, lambda ended: print("\n".join(ended)) if ended and not args.json else None, tell)
    if args.json:
        write_values(report)
    elif not report.cleaned:
        print("Nothing to clean.")
    return 0


# Integrate


def configure_integrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("branches", metavar="BRANCH", nargs="*", help="branches, or ids of the runs they are of")
    parser.add_argument("--all", action="store_true", help="every branch of an agent that is neither merged nor parked")
    parser.add_argument("--check", metavar="CMD", help="shell command that must succeed (setting integrate.check)")
    parser.add_argument("--onto", metavar="BRANCH", help="the target branch (default: the one checked out)")
    parser.add_argument(
        "--dry-run", action="store_true", help="only print the branches that would be integrated, in order"
    )
    parser.add_argument("--list", action="store_true", help="list waiting and parked branches, with the reasons")
    add_where(parser, "the repository (default: here)")


def execute_integrate(args: argparse.Namespace) -> int:
    """Merge finished branches of agents one at a time: rebase, check, then merge or park with the
    reason.

    Each branch is rebased onto the target in a separate worktree, where the check command runs. The
    target advances only if it succeeds. A branch that conflicts or fails is parked and not changed;
    naming a parked branch tries it again.

        retinue integrate --all --check "make test"
        retinue integrate retinue-agent-3f2a9c1d-77aa-4c1 --onto develop
        retinue integrate --list               waiting and parked branches

    The check command can be set once: retinue settings set integrate.check "make test"
    """
    work = Integration(folder(args.cwd), args.onto)
    if args.list:
        return _print_branches(work, as_json=args.json)
    if bool(args.branches) == args.all:
        raise UsageError("Say which branches to integrate.", remedy="Name them, or use --all. See: --list")
    branches = work.pending() if args.all else work.find(args.branches)
    if args.dry_run:
        if args.json:
            write_values(PlannedBranches(work.onto, branches))
        else:
            print("\n".join(branches) or "Nothing to do.")
        return 0

    def tell(entry: IntegrationBranch) -> None:
        if not args.json:
            print("\n".join(_branch_lines(entry)), flush=True)

    report = work.run(branches, args.check, tell)
    if args.json:
        write_values(report)
    elif not report.results:
        print("Nothing to integrate.")
    elif report.check is None:
        print("No check command was run: set integrate.check, or give --check.")
    return int(any(entry.state == "parked" for entry in report.results))


def _print_branches(work: Integration, *, as_json: bool) -> int:
    branches = work.branches()
    if as_json:
        write_values(branches)
        return 0
    for name in branches.waiting:
        print(f"waiting  {name}")
    for entry in (*branches.parked, *branches.merged):
        print("\n".join(_branch_lines(entry)))
    if not (branches.waiting or branches.parked or branches.merged):
        print("Nothing waits to be integrated.")
    return 0


def _branch_lines(entry: IntegrationBranch) -> list[str]:
    if entry.state == "merged":
        note = optional(" ({})", entry.reason)
        return [f"merged   {entry.branch} → {entry.onto} at {(entry.commit or '')[:10]}{note}"]
    lines = [f"parked   {entry.branch}: {entry.reason}"]
    lines += indent(entry.files[:20], "           ")
    return lines + indent(entry.detail.rstrip().splitlines()[-15:], "           | ")
