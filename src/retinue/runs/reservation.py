"""What a run that works on another machine may spend there, set aside before it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.usage import NO_LIMITS, Budget
from retinue.runs.budget import Account, of_settings

if TYPE_CHECKING:
    from retinue.core.request import RunRequest
    from retinue.settings.table import Settings


def set_aside(request: RunRequest, settings: Settings, parent: Account | None) -> RunRequest:
    """Return the request of a run that works on another machine with all that it may spend there: nobody can ask this
    process then. Of what the tree has left it gets the share of one agent of those that work at once."""
    if parent is None:
        most = of_settings(settings)
    else:
        left, share = parent.remaining(), max(settings.max_concurrent, 1)
        most = Budget(
            tokens=_part(left.tokens, share),
            usd=None if left.usd is None else left.usd / share,
            turns=_part(left.turns, share),
            tool_calls=_part(left.tool_calls, share),
            seconds=left.seconds,
            spawns=_part(left.spawns, share),
        )
    if most == NO_LIMITS:
        return request
    return replace(request, budget=most if request.budget is None else request.budget.within(most))


def _part(amount: int | None, share: int) -> int | None:
    return None if amount is None else -(-amount // share)
