"""One kind of budget along a chain of runs: what is spent, what is set aside for children.

Amounts are whole numbers, so that nothing is lost or gained by rounding, however large the tree.
"""

from __future__ import annotations


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
