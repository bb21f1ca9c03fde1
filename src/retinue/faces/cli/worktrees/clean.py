from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.faces.cli.runs.common import add_where, project
from retinue.faces.cli.worktrees.common import describe, live_runs

if TYPE_CHECKING:
    from retinue.capabilities.worktree.record import Record
    from retinue.capabilities.worktree.save import Saved


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

    def tell(record: Record, saved: Saved | None) -> None:
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
    from retinue.log.query import Reader
    from retinue.runs.leftovers import end_leftovers

    with Reader.open(state) as reader:
        return end_leftovers(reader)
