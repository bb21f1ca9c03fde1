"""Budgets of trees of runs: tokens, dollars, turns, tool calls, seconds, spawns.

An account with a limit reserves this amount from the free amount of its parent, and returns the unspent remainder when
it closes. An account without a limit spends from its parent's directly. Every charge reaches every ancestor. Before
each request every ancestor is checked, so that a tree exceeds its budget by at most one request in flight per running
agent (guarantee 7). Amounts are whole numbers, so rounding never changes a sum.

A limit of zero allows nothing; it never means "unlimited". Two amounts are not like money. Seconds pass for all runs at
once, so they are not reserved and the earliest deadline applies. The run that owns a budget may take its own turns from
those that its children have reserved, because it must collect their results. The cost of a model without a price is
unknown, so a budget in dollars refuses such a model, unless a setting allows it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from msgspec.structs import replace

from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.core.format import format_wait
from retinue.core.request import RunRequest
from retinue.core.usage import NO_LIMITS, NOTHING, Budget, LimitName, Limits, Usage, lower
from retinue.errors import LaunchError, OverBudgetError
from retinue.loop.job import Verdict

if TYPE_CHECKING:
    from retinue.models.protocol import ModelInfo
    from retinue.settings.table import Settings


class Pot:
    """A limited amount. `spent` includes all pots below; `reserved` is the unspent amount that pots below have
    reserved. A pot below another reserves its limit there."""

    __slots__ = ("_own_reservation", "limit", "parent", "reserved", "runs", "spent")

    def __init__(self, limit: int, parent: Pot | None, spent: int = 0) -> None:
        """`limit` is the amount that may be spent from now on, in addition to the amount `spent` before."""
        granted = max(limit, 0) if parent is None else max(min(limit, parent.free), 0)
        self.limit = granted + spent
        self.spent = spent
        self.reserved = 0
        self.runs = 0
        """The number of open accounts that spend from it directly."""
        self.parent = parent
        self._own_reservation = granted if parent is not None else 0
        if parent is not None:
            parent.reserved += granted

    @property
    def unspent(self) -> int:
        return max(self.limit - self.spent, 0)

    @property
    def free(self) -> int:
        """The amount that is neither spent nor reserved."""
        return max(self.limit - self.spent - self.reserved, 0)

    def charge(self, amount: int) -> None:
        pot: Pot | None = self
        while pot is not None:
            pot.spent += amount
            if pot.parent is not None:
                used = min(amount, pot._own_reservation)
                pot._own_reservation -= used
                pot.parent.reserved -= used
            pot = pot.parent

    def close(self) -> None:
        """Return the unspent reservation to the parent. Later charges still reach it."""
        if self.parent is not None:
            self.parent.reserved -= self._own_reservation
            self._own_reservation = 0

    def ancestors(self) -> list[Pot]:
        pots, pot = [], self.parent
        while pot is not None:
            pots.append(pot)
            pot = pot.parent
        return pots


__all__ = ["NO_LIMITS", "Account", "Budget"]

BudgetKind = Literal["tokens", "usd", "turns", "tool_calls", "spawns"]

_BUDGET_KINDS: Final[tuple[BudgetKind, ...]] = get_args(BudgetKind)
_LIMIT_NAMES: Final[dict[BudgetKind, LimitName]] = {
    "tokens": "tokens",
    "usd": "cost",
    "turns": "turns",
    "tool_calls": "tool_calls",
    "spawns": "spawns",
}
_UNITS: Final[dict[BudgetKind, str]] = {
    "tokens": "tokens",
    "usd": "dollars",
    "turns": "turns",
    "tool_calls": "tool calls",
    "spawns": "agents",
}
_PICODOLLARS = 10**12
_WRAP_UP_FACTOR = 1.25
"""An agent wraps up when its share of the remainder is less than this many requests like its last one: it must pay for
one more request and the wrap-up."""


class Account:
    """The account of one run; close it with the run. Use it from one event loop. Implements
    `retinue.loop.job.Account`."""

    def __init__(
        self,
        budget: Budget = NO_LIMITS,
        parent: Account | None = None,
        *,
        resumed: Usage | None = None,
        allow_unpriced: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Opening an account below `parent` is charged as a spawn, unless the run was resumed: then the tokens and
        dollars in `resumed` are charged to its own budget, and turns are not."""
        self._clock: Clock = parent._clock if parent is not None else clock
        self._allow_unpriced: bool = parent._allow_unpriced if parent is not None else allow_unpriced
        self._parent = parent
        self._own: dict[BudgetKind, Pot] = {}
        self._pots: dict[BudgetKind, Pot] = dict(parent._pots) if parent is not None else {}
        self._last: dict[BudgetKind, int] = {"turns": 1}
        self._unpriced = False
        self._closed = False
        self._turn_began: float | None = None
        self._slowest_turn_seconds = 0.0
        self.usage = resumed or NOTHING
        """The total usage of this run and all runs below it."""
        if parent is not None and resumed is None:
            parent._pay("spawns", 1)
        self._open(budget, self.usage)
        now = self._clock.monotonic()
        self._deadline = math.inf if budget.seconds is None else now + max(budget.seconds, 0.0)
        if parent is not None:
            self._deadline = min(self._deadline, parent._deadline)

    def _open(self, budget: Budget, before: Usage) -> None:
        spent: dict[BudgetKind, int] = {"tokens": before.total_tokens, "usd": _pico(before.cost_usd or 0.0)}
        for kind in _BUDGET_KINDS:
            value = getattr(budget, kind)
            if value is not None:
                limit = _pico(value) if kind == "usd" else int(value)
                past = spent.get(kind, 0)
                self._own[kind] = self._pots[kind] = Pot(limit - past, self._pots.get(kind), past)
        for pot in self._pots.values():
            pot.runs += 1

    def close(self) -> None:
        """Return the unspent reservations to the parent when the run is over. May be called again."""
        if self._closed:
            return
        self._closed = True
        for pot in self._pots.values():
            pot.runs -= 1
        for pot in self._own.values():
            pot.close()

    # For the loop

    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        account: Account | None = self
        while account is not None and usage is not NOTHING:
            account.usage += usage
            account = account._parent
        # A turn for which the server sent no usage has no tokens, but was not free.
        if usage.cost_usd is None and (usage.context_tokens or turns):
            self._unpriced = True
        if self._pots:
            self._pay_all(usage, turns, tool_calls)
        if self._turn_began is not None:
            self._slowest_turn_seconds = max(self._slowest_turn_seconds, self._clock.monotonic() - self._turn_began)
            self._turn_began = None

    def _pay_all(self, usage: Usage, turns: int, tool_calls: int) -> None:
        cost = _pico(usage.cost_usd or 0.0)
        if usage.context_tokens:
            self._last["tokens"], self._last["usd"] = usage.total_tokens, cost
        self._pay("tokens", usage.total_tokens)
        self._pay("usd", cost)
        self._pay("turns", turns)
        self._pay("tool_calls", tool_calls)

    def verdict(self) -> Verdict | None:
        if not self._pots and self._deadline == math.inf:
            return None
        if self._unpriced and not self._allow_unpriced and "usd" in self._pots:
            why = "the model has no known price, or its server sent no usage"
            text = f"The cost of the last answer is unknown ({why}), so the cost budget cannot be kept. "
            return Verdict("cost", text + "The setting budget.allowUnpriced lets such runs continue.")
        nearly_spent: Verdict | None = None
        for kind in ("tokens", "usd", "turns"):
            if kind in self._pots:
                verdict = self._judge(kind)
                if verdict is not None and not verdict.wrap_up:
                    return verdict
                nearly_spent = nearly_spent or verdict
        if self.calls_left() == 0:
            nearly_spent = nearly_spent or Verdict("tool_calls", self._spent_text("tool_calls"), wrap_up=True)
        time_verdict = self._judge_time()
        if time_verdict is not None and not time_verdict.wrap_up:
            return time_verdict
        self._turn_began = self._clock.monotonic()
        return nearly_spent or time_verdict

    def calls_left(self) -> int | None:
        return self._remaining("tool_calls", owner=True)

    def _pay(self, kind: BudgetKind, amount: int) -> None:
        pot = self._pots.get(kind)
        if pot is not None and amount > 0:
            pot.charge(amount)

    def _judge(self, kind: BudgetKind) -> Verdict | None:
        if self._remaining(kind, owner=True) == 0:
            return Verdict(_LIMIT_NAMES[kind], self._spent_text(kind))
        pot = self._pots[kind]
        available = pot.unspent if kind in self._own else pot.free
        if available <= _WRAP_UP_FACTOR * self._last.get(kind, 0) * max(pot.runs, 1):
            text = f"{_format(kind, available)} of {_format(kind, pot.limit)} {_UNITS[kind]} are left"
            return Verdict(_LIMIT_NAMES[kind], f"The budget is nearly spent: {text}.", wrap_up=True)
        return None

    def _judge_time(self) -> Verdict | None:
        seconds = self._deadline - self._clock.monotonic()
        if seconds <= 0:
            return Verdict("time", "The time budget is spent.")
        if seconds <= _WRAP_UP_FACTOR * self._slowest_turn_seconds:
            return Verdict("time", f"The time budget is nearly spent: {format_wait(seconds)} are left.", wrap_up=True)
        return None

    def _spent_text(self, kind: BudgetKind) -> str:
        pot = self._pots[kind]
        for ancestor in pot.ancestors():
            # Name the empty pot, which may belong to a run above.
            if not pot.unspent:
                break
            pot = ancestor if not ancestor.unspent else pot
        note = "" if not pot.unspent else "; the rest is reserved for agents at work"
        return f"The budget is spent: {_format(kind, pot.spent)} of {_format(kind, pot.limit)} {_UNITS[kind]}{note}."

    # For the supervisor

    def remaining(self) -> Budget:
        """Return the amounts that a child could reserve now; None for unlimited ones."""
        amounts: dict[str, Any] = {kind: self._remaining(kind, owner=False) for kind in _BUDGET_KINDS}
        if amounts["usd"] is not None:
            amounts["usd"] /= _PICODOLLARS
        seconds = None if self._deadline == math.inf else max(self._deadline - self._clock.monotonic(), 0.0)
        return Budget(**amounts, seconds=seconds)

    def refuse_spawn(self) -> str | None:
        """Return why no agent may be started; None if one may. A retry is useless before an agent ends."""
        remaining = self.remaining()
        if remaining.seconds == 0:
            return "Budget limit reached: the time budget is spent."
        for kind in _BUDGET_KINDS:
            if getattr(remaining, kind) == 0:
                return f"Budget limit reached. {self._spent_text(kind)}"
        return None

    def check_model(self, info: ModelInfo) -> None:
        """Raise LaunchError for a model with an unknown price under a budget in dollars."""
        if "usd" in self._pots and info.prices is None and not self._allow_unpriced:
            raise LaunchError(
                f"The price of {info.full_name} is not known, so a budget of "
                f"${self._pots['usd'].limit / _PICODOLLARS:.2f} could not be kept.",
                remedy="Give its price in the setting `models`, limit tokens instead of dollars, "
                "or set budget.allowUnpriced to true.",
            )

    def bounded(self, limits: Limits) -> Limits:
        """Return `limits` with no more time than the tree has left."""
        return replace(limits, seconds=lower(limits.seconds, self.remaining().seconds))

    def _remaining(self, kind: BudgetKind, *, owner: bool) -> int | None:
        """Return the amount that may be spent; None if unlimited. The `owner` of a budget may use the reservations of
        its children, but nobody may use more than the unspent amount of an ancestor."""
        pot = self._pots.get(kind)
        if pot is None:
            return None
        available = pot.unspent if owner and kind in self._own else pot.free
        return min([available, *(ancestor.unspent for ancestor in pot.ancestors())])


def _pico(dollars: float) -> int:
    return round(dollars * _PICODOLLARS)


def _format(kind: BudgetKind, amount: int) -> str:
    return f"{amount / _PICODOLLARS:.4f}" if kind == "usd" else f"{amount}"


BUDGET_LIMITS = ("max_tokens", "max_cost_usd")
"""The limits of a request that are budgets: they apply to the whole tree, and leave one turn to wrap up."""


def open_account(
    request: RunRequest,
    model: ModelInfo,
    settings: Settings,
    parent: Account | None,
    clock: Clock,
    resumed: Usage | None = None,
) -> Account:
    """Return the account of a run. Raise OverBudgetError if the parent cannot pay for another agent, and LaunchError
    for a budget in dollars with a model without a price."""
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
    """Return the budget of a tree from the settings `budget.*`."""
    return Budget(
        tokens=settings.budget_tokens,
        usd=settings.budget_usd,
        tool_calls=settings.budget_tool_calls,
        spawns=settings.budget_spawns,
    )


def _budget(request: RunRequest, settings: Settings, *, root: bool) -> Budget:
    """Return the tightest budget of the call, the file and, for a tree, the settings."""
    tokens, usd = request.limits.get("max_tokens"), request.limits.get("max_cost_usd")
    budgets = [request.budget, request.spec.budget]
    if tokens is not None or usd is not None:
        budgets.append(Budget(tokens=None if tokens is None else int(tokens), usd=usd))
    if root:
        budgets.append(of_settings(settings))
    tightest = NO_LIMITS
    for budget in budgets:
        if budget is not None and budget != NO_LIMITS:
            tightest = budget if tightest is NO_LIMITS else tightest.within(budget)
    return tightest
