"""Brings the ends of background runs to their parent, each exactly once.

An end waits a moment before it is announced: a parent that reads the result in that moment
needs no announcement. While a child runs or its end is on the way, the parent is kept open. A
parent that is gone hears of it when it is resumed: what was announced stands in its own log
(`retinue.supervisor.recover`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import field

from retinue.domain.clock import Clock, Timer
from retinue.domain.delegation import JoinMode
from retinue.domain.lean import dataclass
from retinue.supervisor.joins import Delivery, Joins
from retinue.supervisor.member import Member
from retinue.supervisor.notify import notification

HOLD_SECONDS = 0.2


@dataclass(slots=True, eq=False)
class _Expected:
    """One end that is to come, or on its way. `leg` tells it from ends before and after."""

    child: Member
    leg: int
    keeping: ExitStack = field(default_factory=ExitStack)

    @property
    def due(self) -> bool:
        """Whether the parent has yet to hear of this end. A child that was resumed since will
        have another, which is announced instead."""
        return self.leg == self.child.leg and not self.child.consumed and not self.child.announced


class Mailroom:
    """The post of one parent run, through all its legs."""

    def __init__(self, parent: Member, clock: Clock, *, show_cost: Callable[[], bool]) -> None:
        self._parent = parent
        self._clock = clock
        self._show_cost = show_cost
        self._joins = Joins(clock, self._hold)
        self._expected: dict[str, _Expected] = {}
        self._holds: dict[Delivery, Timer] = {}

    def started(self, child: Member, mode: JoinMode) -> None:
        expected = _Expected(child, child.leg)
        expected.keeping.enter_context(self._parent.handle.controls.keep_open())
        self._expected[_key(child)] = expected
        self._joins.started(_key(child), mode)

    def ended(self, child: Member) -> None:
        if _key(child) in self._expected:
            self._joins.ended(_key(child))

    def consumed(self, child: Member) -> None:
        """The parent has the result itself: nothing keeps it from ending."""
        child.consumed = True
        expected = self._expected.get(_key(child))
        if expected is not None:
            expected.keeping.close()

    def reopened(self) -> None:
        """The parent was resumed, with a new mailbox: it waits for its children again."""
        for expected in self._expected.values():
            expected.keeping.close()
            if expected.due:
                expected.keeping.enter_context(self._parent.handle.controls.keep_open())

    def close(self) -> None:
        """No more post: what was not brought is found in the log when the parent is resumed."""
        self._joins.close()
        for timer in self._holds.values():
            timer.cancel()
        self._holds.clear()
        for expected in self._expected.values():
            expected.keeping.close()
        self._expected.clear()

    def _hold(self, delivery: Delivery) -> None:
        self._holds[delivery] = self._clock.call_later(HOLD_SECONDS, lambda: self._send(delivery))

    def _send(self, delivery: Delivery) -> None:
        self._holds.pop(delivery, None)
        arrived = [self._expected.pop(key) for key in delivery.runs]
        unread = [expected.child for expected in arrived if expected.due]
        try:
            if unread:
                text = notification(
                    [child.view() for child in unread],
                    group=delivery.group,
                    partial=delivery.partial,
                    show_cost=self._show_cost(),
                )
                if self._parent.handle.controls.steer(text, "notification"):
                    for child in unread:
                        child.announced = True
        finally:
            for expected in arrived:
                expected.keeping.close()


def _key(child: Member) -> str:
    return f"{child.id} {child.leg}"
