"""`retinue worktrees list` and `worktrees clean`."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.delegation import LIVE
from retinue.faces.cli.project import add_where, project

if TYPE_CHECKING:
    from retinue.capabilities.worktree.home import WorktreeRecord
    from retinue.capabilities.worktree.save import SavedWork
    from retinue.capabilities.worktree.sweep import WorktreeState
    from retinue.log.rows import RunRow


def live_runs(state: Path) -> frozenset[str]:
    """The runs that the log says are at work, in any process."""
    from retinue.log.query import LogReader

    with LogReader.open(state) as reader:
        return frozenset(row.id for row in reader.list_runs(states=LIVE))


def where_saved(state: Path, row: RunRow, branch: str | None = None) -> list[str]:
    """Lines that say where the work of an isolated run is: its branch, and the directory if that
    is still there. One that was cut off is saved by `retinue worktrees clean`."""
    from retinue.capabilities.worktree.home import load, place

    record = load(place(state) / f"{row.id}.json")
    branch = branch or (record.branch if record is not None else None) or _swept(state, row)
    lines = [f"Branch   {branch}", f"Merge    git merge {branch}    (or: retinue integrate {row.id})"] if branch else []
    return lines + ([f"Worktree {record.path}"] if record is not None else [])


def _swept(state: Path, row: RunRow) -> str | None:
    """The branch on which another process saved what a killed run left. Asked of git only where
    there were worktrees at all."""
    import os

    from retinue.capabilities.worktree.home import BRANCH, place
    from retinue.guard.git import Git, GitError

    if not place(state).is_dir():
        return None
    try:
        return Git(Path(row.cwd), os.environ).ask(
            "rev-parse", "--verify", "--quiet", "--abbrev-ref", f"{BRANCH}{row.id}"
        )
    except GitError:
        return None


def describe(found: WorktreeState) -> dict[str, Any]:
    record = found.record
    status = "working" if found.busy else "kept" if record.phase == "kept" else "left over"
    return {
        "run": record.run,
        "agent": record.agent,
        "status": status,
        "path": str(record.path),
        "repository": record.repository,
        "base": record.base,
        "branch": record.branch,
        "reason": record.reason if record.phase == "kept" else None,
        "at": record.at,
    }


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser)


def execute_list(args: argparse.Namespace) -> int:
    """Worktrees of this project: where agents work apart from the checkout, and what dead ones left.

    retinue worktrees list
    retinue worktrees list --json
    """
    from retinue.capabilities.worktree.sweep import found, strangers

    state = project(args)
    every, unknown = found(state, live_runs(state)), strangers(state)
    if args.json:
        print(json.dumps({"worktrees": [describe(each) for each in every], "unknown": [str(path) for path in unknown]}))
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
    from retinue.capabilities.worktree.sweep import found, strangers, sweep

    state = project(args)
    if args.dry_run:
        idle = [each for each in found(state, live_runs(state)) if not each.busy]
        if args.json:
            print(json.dumps({"would_clean": [describe(each) for each in idle]}))
        for each in idle if not args.json else ():
            print(f"{each.record.run[:8]}  would be saved and removed: {each.record.path}")
        if not idle and not args.json:
            print("Nothing to clean.")
        return 0
    done: list[dict[str, Any]] = []
    ended = _end_leftovers(state)
    for note in ended if not args.json else ():
        print(note)

    def tell(record: WorktreeRecord, saved: SavedWork | None) -> None:
        if saved is None:
            return
        kept = str(saved.kept) if saved.kept is not None else None
        done.append({"run": record.run, "branch": saved.branch, "kept": kept, "notes": list(saved.notes)})
        if not args.json:
            what = f"stays at {kept}" if kept else "removed"
            print(f"{record.run[:8]}  {what}" + (f", saved on {saved.branch}" if saved.branch else ", nothing to save"))
            print("\n".join(f"          {note}" for note in saved.notes), end="\n" if saved.notes else "")

    sweep(state, os.environ, lambda: live_runs(state), tell)
    if args.json:
        unknown = [str(path) for path in strangers(state)]
        print(json.dumps({"cleaned": done, "ended": list(ended), "unknown": unknown}))
    elif not done:
        print("Nothing to clean.")
    return 0


def _end_leftovers(state: Path) -> tuple[str, ...]:
    """A command that outlived its agent must not write into a folder that is saved and removed."""
    from retinue.log.query import LogReader
    from retinue.runs.cleanup import end_leftovers

    with LogReader.open(state) as reader:
        return end_leftovers(reader)
