"""Opens the account of a run: the budget it brings, below the one of whoever started it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.clock import Clock
from retinue.core.request import RunRequest
from retinue.core.usage import Budget, Usage
from retinue.errors import ConfigurationError, OverBudgetError
from retinue.runs.budget import NO_LIMITS, Account

if TYPE_CHECKING:
    from retinue.models.protocol import ModelInfo
    from retinue.settings.load import Loaded
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
    """Raise OverBudgetError when the parent has nothing left to start an agent with, and
    LaunchError when a budget in dollars meets a model without a price."""
    if parent is not None and resumed is None:
        reason = parent.refuse_spawn()
        if reason is not None:
            raise OverBudgetError(reason, remedy="Finish with what you have, or ask for a larger budget.")
    account = Account(
        _budget(request, settings, root=parent is None),
        parent,
        resumed=resumed,
        allow_unpriced=settings.budget_allow_unpriced,
        clock=clock,
    )
    try:
        account.check_model(model)
    except BaseException:
        account.close()
        raise
    return account


def of_settings(settings: Settings) -> Budget:
    """The budget of a whole tree, as `budget.*` has it."""
    return Budget(
        tokens=settings.budget_tokens,
        usd=settings.budget_usd,
        tool_calls=settings.budget_tool_calls,
        spawns=settings.budget_spawns,
    )


def check_readable(loaded: Loaded) -> None:
    """Raise ConfigurationError for a limit in the settings that does not hold: it must not become no limit."""
    wrong = [
        str(problem)
        for problem in loaded.problems
        if _is_limit(problem.field) and not problem.message.startswith("has no effect")
    ]
    if wrong:
        raise ConfigurationError(
            f"A limit cannot be applied, and nothing runs without it: {'; '.join(dict.fromkeys(wrong))}.",
            remedy="Correct it or take it out. All that there are: retinue settings list",
        )


_FORMER_LIMITS = frozenset({"sandbox.cpuSeconds", "sandbox.fileMb", "sandbox.processes"})
_FORMER_VARIABLES = frozenset(f"RETINUE_SANDBOX_{name}" for name in ("CPU_SECONDS", "FILE_MB", "PROCESSES"))


def _is_limit(name: str) -> bool:
    """Return whether a key of a file, or a variable, sets a budget of a tree or once limited the sandbox."""
    if name in _FORMER_LIMITS or name in _FORMER_VARIABLES:
        return True
    return name.partition(".")[0] == "budget" or name.startswith("RETINUE_BUDGET_")


def _budget(request: RunRequest, settings: Settings, *, root: bool) -> Budget:
    """The tightest of what the call, the file and, for a whole tree, the settings allow."""
    said = request.limits
    tokens, usd = said.get("max_tokens"), said.get("max_cost_usd")
    some = [request.budget, request.spec.budget]
    if tokens is not None or usd is not None:
        some.append(Budget(tokens=None if tokens is None else int(tokens), usd=usd))
    if root:
        some.append(of_settings(settings))
    budget = NO_LIMITS
    for each in some:
        if each is not None and each != NO_LIMITS:
            budget = each if budget is NO_LIMITS else budget.within(each)
    return budget
