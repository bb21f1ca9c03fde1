"""The orders in which runs call capabilities. It imports nothing, because every command of the program loads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Capabilities:
    """All capabilities of a project in their three orders. `plan` is the order of everything but wrapping and
    finishing; `wrap` lists what is put around tools from the inside out; `finish` is the order at a run's end."""

    def __init__(self, plan: Sequence[object] = (), wrap: Sequence[str] = (), finish: Sequence[str] = ()) -> None:
        self.names = {type(each).__module__.rpartition(".")[2]: each for each in plan}
        self._orders = {"plan": list(plan)}
        self._orders["wrap"] = [self.names[name] for name in wrap]
        self._orders["finish"] = [self.names[name] for name in finish]
        self._known: dict[tuple[str, str], tuple[Any, ...]] = {}

    def with_innermost(self, more: Sequence[object]) -> Capabilities:
        """Return these capabilities and `more`, which are put around tools before the others."""
        made = Capabilities([*self._orders["plan"], *more])
        made._orders["wrap"] = [*more, *self._orders["wrap"]]
        made._orders["finish"] = list(self._orders["finish"])
        return made

    def each(self, method: str, order: str = "plan") -> tuple[Any, ...]:
        """Return the method of every capability that overrides it, so that the others cost nothing."""
        known = self._known.get((method, order))
        if known is None:
            overriding = [each for each in self._orders[order] if method in type(each).__dict__]
            known = self._known[method, order] = tuple(getattr(each, method) for each in overriding)
        return known
