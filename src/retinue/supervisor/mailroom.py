"""Brings the ends of background runs to their parent, each exactly once.

An end waits a moment before it is announced: a parent that reads the result in that moment
needs no announcement. While a child runs or its end is on the way, the parent is kept open. A
parent that is gone hears of it when it is resumed: what was announced stands in its own log.
"""

from __future__ import annotations

from contextlib import ExitStack

from retinue.domain.clock import Clock
from retinue.domain.delegation import JoinMode
from retinue.supervisor.joins import Delivery, Joins
from retinue.supervisor.member import Member
from retinue.supervisor.notify import notification

HOLD_SECONDS = 0.2


class Mailroom:
    """The post of one parent run."""

    def __init__(self, parent: Member, clock: Clock, *, show_cost: bool = False) -> None:
        self._parent = parent
        self._clock = clock
        self._show_cost = show_cost
        self._joins = Joins(clock, self._hold)
        self._members: dict[str, Member] = {}
        self._open: dict[str, ExitStack] = {}

    def started(self, child: Member, mode: JoinMode) -> None:
        stack = ExitStack()
        stack.enter_context(self._parent.handle.controls.keep_open())
        self._members[child.id] = child
        self._open[child.id] = stack
        self._joins.started(child.id, mode)

    def ended(self, child: Member) -> None:
        self._joins.ended(child.id)

    def consumed(self, child: Member) -> None:
        """The parent has read the result itself."""
        child.consumed = True

    def _hold(self, delivery: Delivery) -> None:
        self._clock.call_later(HOLD_SECONDS, lambda: self._send(delivery))

    def _send(self, delivery: Delivery) -> None:
        members = [self._members.pop(run_id) for run_id in delivery.runs]
        unread = [member for member in members if not member.consumed and not member.announced]
        if unread:
            text = notification(
                [member.view() for member in unread],
                group=delivery.group,
                partial=delivery.partial,
                show_cost=self._show_cost,
            )
            if self._parent.handle.controls.steer(text, "notification"):
                for member in unread:
                    member.announced = True
        for member in members:
            self._open.pop(member.id).close()
