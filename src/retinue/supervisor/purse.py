"""Opens the account of a run: the budget it brings, below the one of whoever started it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.domain.clock import Clock
from retinue.domain.request import RunRequest
from retinue.domain.usage import Usage
from retinue.errors import LaunchError
from retinue.supervisor.budget import NO_LIMITS, Account, Budget, allows_unpriced

if TYPE_CHECKING:
    from retinue.models.protocol import ModelInfo
    from retinue.settings.table import Settings

BUDGETED = frozenset({"max_cost_usd", "max_tokens"})
"""Limits of a request that are budgets: they hold for the whole tree, and leave one turn to wrap up."""


def open_account(
    request: RunRequest,
    model: ModelInfo,
    settings: Settings,
    parent: Account | None,
    clock: Clock,
    resumed: Usage | None = None,
) -> Account:
    """Raises LaunchError when the parent has nothing left to start an agent with, and when a
    budget in dollars meets a model without a price."""
    if parent is not None and resumed is None:
        reason = parent.refuse_spawn()
        if reason is not None:
            raise LaunchError(reason, remedy="Finish with what you have, or ask for a larger budget.")
    account = Account(
        _budget(request, settings, root=parent is None),
        parent,
        resumed=resumed,
        allow_unpriced=allows_unpriced(settings),
        clock=clock,
    )
    try:
        account.check_model(model)
    except BaseException:
        account.close()
        raise
    return account


def _budget(request: RunRequest, settings: Settings, *, root: bool) -> Budget:
    said = request.limits
    tokens = said.get("max_tokens")
    of_call = Budget(tokens=None if tokens is None else int(tokens), usd=said.get("max_cost_usd"))
    raw = request.spec.extra.get("budget")
    of_file = NO_LIMITS if raw is None else Budget.read(raw)
    of_settings = Budget.of_settings(settings) if root else NO_LIMITS
    return of_call.within(of_file).within(of_settings)
