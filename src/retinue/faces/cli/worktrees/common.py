"""What the commands on worktrees share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.domain.states import LIVE

if TYPE_CHECKING:
    from retinue.workspace.worktree_sweep import Found


def live_runs(state: Path) -> frozenset[str]:
    """The runs that the log says are at work, in any process."""
    from retinue.log.query import Reader

    with Reader.open(state) as reader:
        return frozenset(row.id for row in reader.list_runs(states=LIVE))


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
