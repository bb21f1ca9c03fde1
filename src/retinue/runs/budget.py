"""Budgets of trees of runs: tokens, dollars, turns, tool calls, seconds, spawns.

An account with a limit of its own sets that much aside from what its parent has left, and returns
what it did not spend when it closes; one without a limit spends from its parent's directly. Every
charge reaches every ancestor. Before each request every ancestor is asked, so that a tree exceeds
its budget by at most one request in flight per running agent (guarantee 7). Amounts are whole
numbers, so that rounding loses and adds nothing, however large the tree.

Nothing left means nothing, never "unlimited". Two things are not like money: seconds pass for
all runs at once, so none are set aside and the earliest deadline counts; and the run that owns a
budget may take its own turns from what its children have set aside, because it has to collect their
results. What a model without a price costs is unknown, so it is refused where dollars are
counted, unless a setting allows it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

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
    """A limit that someone set. `spent` includes everything below; `held` is what children have
    set aside and not spent yet. A pot below another has set its limit aside there."""

    __slots__ = ("_reserved", "held", "limit", "parent", "runs", "spent")

    def __init__(self, limit: int, parent: Pot | None, spent: int = 0) -> None:
        """`limit` is what this pot may spend from now on, beyond what was `spent` before."""
        granted = max(limit, 0) if parent is None else max(min(limit, parent.free), 0)
        self.limit = granted + spent
        self.spent = spent
        self.held = 0
        self.runs = 0
        """Open accounts that spend from it directly."""
        self.parent = parent
        self._reserved = granted if parent is not None else 0
        if parent is not None:
            parent.held += granted

    @property
    def unspent(self) -> int:
        return max(self.limit - self.spent, 0)

    @property
    def free(self) -> int:
        """What nobody has spent or set aside."""
        return max(self.limit - self.spent - self.held, 0)

    def charge(self, amount: int) -> None:
        pot: Pot | None = self
        while pot is not None:
            pot.spent += amount
            if pot.parent is not None:
                used = min(amount, pot._reserved)
                pot._reserved -= used
                pot.parent.held -= used
            pot = pot.parent

    def close(self) -> None:
        """What was set aside and not spent goes back. What is still spent counts above, too."""
        if self.parent is not None:
            self.parent.held -= self._reserved
            self._reserved = 0

    def above(self) -> list[Pot]:
        found, pot = [], self.parent
        while pot is not None:
            found.append(pot)
            pot = pot.parent
        return found


__all__ = ["NO_LIMITS", "Account", "Budget"]

Kind = Literal["tokens", "usd", "turns", "tool_calls", "spawns"]

_KINDS: Final[tuple[Kind, ...]] = ("tokens", "usd", "turns", "tool_calls", "spawns")
_LIMITS: Final[dict[Kind, LimitName]] = {
    "tokens": "tokens",
    "usd": "cost",
    "turns": "turns",
    "tool_calls": "tool_calls",
    "spawns": "spawns",
}
_WORDS: Final[dict[Kind, str]] = {
    "tokens": "tokens",
    "usd": "dollars",
    "turns": "turns",
    "tool_calls": "tool calls",
    "spawns": "agents",
}
_DOLLAR = 10**12
_MARGIN = 1.25
"""An agent wraps up when its share of what is left would not clearly pay for one more request
like its last one and another to wrap up."""


class Account:
    """The account of one run, as long as the run goes on: close it with the run. Use from one
    event loop. Fits `retinue.loop.job.Account`."""

    def __init__(
        self,
        budget: Budget = NO_LIMITS,
        parent: Account | None = None,
        *,
        resumed: Usage | None = None,
        allow_unpriced: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Opening one below `parent` counts as a spawn, unless it is `resumed`: then tokens and
        dollars that it had spent before count against its own budget, and turns do not."""
        self._clock: Clock = parent._clock if parent is not None else clock
        self._allow_unpriced: bool = parent._allow_unpriced if parent is not None else allow_unpriced
        self._parent = parent
        self._own: dict[Kind, Pot] = {}
        self._pots: dict[Kind, Pot] = dict(parent._pots) if parent is not None else {}
        self._last: dict[Kind, int] = {"turns": 1}
        self._unpriced = False
        self._closed = False
        self._asked_at: float | None = None
        self._slowest = 0.0
        self.usage = resumed or NOTHING
        """Everything this run and the runs below it have spent, for ever growing."""
        if parent is not None and resumed is None:
            parent._pay("spawns", 1)
        self._open(budget, self.usage)
        now = self._clock.monotonic()
        self._deadline = math.inf if budget.seconds is None else now + max(budget.seconds, 0.0)
        if parent is not None:
            self._deadline = min(self._deadline, parent._deadline)

    def _open(self, budget: Budget, before: Usage) -> None:
        spent: dict[Kind, int] = {"tokens": before.total_tokens, "usd": _pico(before.cost_usd or 0.0)}
        for kind in _KINDS:
            value = getattr(budget, kind)
            if value is not None:
                limit = _pico(value) if kind == "usd" else int(value)
                past = spent.get(kind, 0)
                self._own[kind] = self._pots[kind] = Pot(limit - past, self._pots.get(kind), past)
        for pot in self._pots.values():
            pot.runs += 1

    def close(self) -> None:
        """The run is over: what it set aside and did not spend goes back to its parent. Again
        does nothing."""
        if self._closed:
            return
        self._closed = True
        for pot in self._pots.values():
            pot.runs -= 1
        for pot in self._own.values():
            pot.close()

    # What the loop does

    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        account: Account | None = self
        while account is not None and usage is not NOTHING:
            account.usage += usage
            account = account._parent
        # A turn whose server sent no usage has no tokens either, and was not free.
        if usage.cost_usd is None and (usage.context_tokens or turns):
            self._unpriced = True
        if self._pots:
            self._pay_all(usage, turns, tool_calls)
        if self._asked_at is not None:
            self._slowest = max(self._slowest, self._clock.monotonic() - self._asked_at)
            self._asked_at = None

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
            # Nothing limits it.
            return None
        if self._unpriced and not self._allow_unpriced and "usd" in self._pots:
            why = "the model has no known price, or its server sent no usage"
            told = f"What the last answer cost is not known ({why}), so the cost budget cannot be kept. "
            return Verdict("cost", told + "The setting budget.allowUnpriced lets such runs go on.")
        near: Verdict | None = None
        for kind in ("tokens", "usd", "turns"):
            if kind in self._pots:
                found = self._judge(kind)
                if found is not None and not found.wrap_up:
                    return found
                near = near or found
        if self.calls_left() == 0:
            near = near or Verdict("tool_calls", self._spent_text("tool_calls"), wrap_up=True)
        late = self._judge_time()
        if late is not None and not late.wrap_up:
            return late
        self._asked_at = self._clock.monotonic()
        return near or late

    def calls_left(self) -> int | None:
        return self._left("tool_calls", owner=True)

    def _pay(self, kind: Kind, amount: int) -> None:
        pot = self._pots.get(kind)
        if pot is not None and amount > 0:
            pot.charge(amount)

    def _judge(self, kind: Kind) -> Verdict | None:
        left = self._left(kind, owner=True)
        if left == 0:
            return Verdict(_LIMITS[kind], self._spent_text(kind))
        pot = self._pots[kind]
        mine = pot.unspent if kind in self._own else pot.free
        if mine <= _MARGIN * self._last.get(kind, 0) * max(pot.runs, 1):
            text = f"{_shown(kind, mine)} of {_shown(kind, pot.limit)} {_WORDS[kind]} are left"
            return Verdict(_LIMITS[kind], f"The budget is nearly spent: {text}.", wrap_up=True)
        return None

    def _judge_time(self) -> Verdict | None:
        left = self._deadline - self._clock.monotonic()
        if left <= 0:
            return Verdict("time", "The time budget is spent.")
        if left <= _MARGIN * self._slowest:
            return Verdict("time", f"The time budget is nearly spent: {format_wait(left)} are left.", wrap_up=True)
        return None

    def _spent_text(self, kind: Kind) -> str:
        pot = self._pots[kind]
        for above in pot.above():
            # The pot to name is the one that is empty: it may be that of a run above.
            if not pot.unspent:
                break
            pot = above if not above.unspent else pot
        note = "" if not pot.unspent else "; the rest is set aside for agents at work"
        return f"The budget is spent: {_shown(kind, pot.spent)} of {_shown(kind, pot.limit)} {_WORDS[kind]}{note}."

    # What the supervisor asks

    def remaining(self) -> Budget:
        """What a child could set aside now; None where nothing limits it."""
        left: dict[str, Any] = {kind: self._left(kind, owner=False) for kind in _KINDS}
        if left["usd"] is not None:
            left["usd"] /= _DOLLAR
        seconds = None if self._deadline == math.inf else max(self._deadline - self._clock.monotonic(), 0.0)
        return Budget(**left, seconds=seconds)

    def refuse_spawn(self) -> str | None:
        """Why no agent may be started; None if one may. Nobody may retry before something ends."""
        left = self.remaining()
        if left.seconds == 0:
            return "Budget limit reached: the time budget is spent."
        for kind in _KINDS:
            if getattr(left, kind) == 0:
                return f"Budget limit reached. {self._spent_text(kind)}"
        return None

    def check_model(self, info: ModelInfo) -> None:
        """Raise LaunchError where dollars are counted and the model's price is not known."""
        if "usd" in self._pots and info.prices is None and not self._allow_unpriced:
            raise LaunchError(
                f"The price of {info.full_name} is not known, so a budget of "
                f"${self._pots['usd'].limit / _DOLLAR:.2f} could not be kept.",
                remedy="Give its price in the setting `models`, limit tokens instead of dollars, "
                "or set budget.allowUnpriced to true.",
            )

    def bounded(self, limits: Limits) -> Limits:
        """`limits` with no more time than the tree has left."""
        return replace(limits, seconds=lower(limits.seconds, self.remaining().seconds))

    def _left(self, kind: Kind, *, owner: bool) -> int | None:
        """What may still be spent. As `owner` of a budget a run reaches into what its children
        have set aside; nobody ever goes beyond what an ancestor has not spent."""
        pot = self._pots.get(kind)
        if pot is None:
            return None
        mine = pot.unspent if owner and kind in self._own else pot.free
        return min([mine, *(each.unspent for each in pot.above())])


def _pico(dollars: float) -> int:
    return round(dollars * _DOLLAR)


def _shown(kind: Kind, amount: int) -> str:
    return f"{amount / _DOLLAR:.4f}" if kind == "usd" else f"{amount}"


BUDGETED = ("max_tokens", "max_cost_usd")
"""Limits of a request that are budgets: they apply to the whole tree, and leave one turn to wrap up."""


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
