"""What the commands on worktrees share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.states import LIVE

if TYPE_CHECKING:
    from retinue.capabilities.worktree.sweep import Found
    from retinue.log.rows import RunRow


def live_runs(state: Path) -> frozenset[str]:
    """The runs that the log says are at work, in any process."""
    from retinue.log.query import Reader

    with Reader.open(state) as reader:
        return frozenset(row.id for row in reader.list_runs(states=LIVE))


def where_saved(state: Path, row: RunRow, branch: str | None = None) -> list[str]:
    """Lines that say where the work of an isolated run is: its branch, and the directory if that
    is still there. One that was cut off is saved by `retinue worktrees clean`."""
    from retinue.capabilities.worktree.record import load, place

    record = load(place(state) / f"{row.id}.json")
    branch = branch or (record.branch if record is not None else None) or _swept(state, row)
    lines = [f"Branch   {branch}", f"Merge    git merge {branch}    (or: retinue integrate {row.id})"] if branch else []
    return lines + ([f"Worktree {record.path}"] if record is not None else [])


def _swept(state: Path, row: RunRow) -> str | None:
    """The branch on which another process saved what a killed run left. Asked of git only where
    there were worktrees at all."""
    import os

    from retinue.capabilities.worktree.home import BRANCH
    from retinue.capabilities.worktree.record import place
    from retinue.guard.git import Git, GitError

    if not place(state).is_dir():
        return None
    try:
        return Git(Path(row.cwd), os.environ).ask(
            "rev-parse", "--verify", "--quiet", "--abbrev-ref", f"{BRANCH}{row.id}"
        )
    except GitError:
        return None


def describe(found: Found) -> dict[str, Any]:
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
