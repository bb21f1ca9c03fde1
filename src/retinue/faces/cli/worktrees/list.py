from __future__ import annotations

import argparse
import json

from retinue.faces.cli.runs.common import add_where, project
from retinue.faces.cli.worktrees.common import describe, live_runs


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
