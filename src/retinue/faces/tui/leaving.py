"""Leaving the app while runs live: they stop, they go on without it, or one stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from retinue.faces.tui.board.text import fit, one_line

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp
    from retinue.supervisor.crew import Supervisor
    from retinue.supervisor.member import Member

Leaving = Literal["quit", "keep"]
SHOWN = 8


def live_runs(supervisor: Supervisor) -> list[Member]:
    """Everything of this process that would end with it."""
    return [member for member in supervisor.members.values() if member.live]


async def way_out(app: RetinueApp, live: Sequence[Member], *, may_keep: bool) -> Leaving | None:
    """None when the person stays. Asks nothing when nothing runs."""
    if not live:
        return "quit"
    count = f"{len(live)} run{'s' if len(live) != 1 else ''} still at work."
    rows = [fit(one_line(f"{each.name or each.handle.agent}: {each.description}"), 60) for each in live[:SHOWN]]
    rows += [f"… and {len(live) - SHOWN} more"] if len(live) > SHOWN else []
    choices = [("keep", "k", "let them go on without the app")] if may_keep else []
    choices += [("quit", "s", "stop them and quit"), ("stay", "c", "stay here")]
    chosen = await app.visit("confirm", count, choices, "\n".join(rows))
    return chosen if chosen in ("quit", "keep") else None
