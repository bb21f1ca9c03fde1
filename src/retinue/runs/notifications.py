"""Telling a parent of the completion of its background runs: each exactly once, alone or in groups.

    async   each completion by itself
    smart   runs started within a moment of each other are announced together; one alone, alone
    group   as smart, and even one run is announced as a group

A group waits for all of its members. From its first completion it waits 30 seconds; what has ended
by then is announced as a partial group, and the rest form a group of their own whose 15 seconds
start at its next completion.

A completion waits a moment before it is announced: a parent that reads the result in that moment
needs no announcement, and completions that gather meanwhile, or while the parent is in a turn, are
announced together. A parent that only waits for its last run is told at once. While a child runs or
its completion has yet to be announced, the parent is kept open. A parent that is gone is told when it
is resumed: what was announced is in its own log (`retinue.runs.resume`); `missed` is called, so that
the parent can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from msgspec import Struct, field

from retinue.core.clock import Clock, Timer
from retinue.core.delegation import JoinMode
from retinue.core.messages import UserMessage
from retinue.loop.controls import Controls
from retinue.runs.notification_text import announcement
from retinue.runs.run import Run

GATHER_SECONDS = 0.1
GROUP_SECONDS = 30.0
STRAGGLER_SECONDS = 15.0


class Delivery(Struct, frozen=True):
    """Ends to announce in one message. `partial`: others of the group still run."""

    runs: tuple[str, ...]
    group: bool = False
    partial: bool = False


class _Group(Struct, eq=False):
    waiting: list[str]
    ended: list[str] = field(default_factory=list)
    timer: Timer | None = None
    stragglers: bool = False


class Joins:
    """The board of one parent. `deliver` is called on the event loop, never inside a call that
    starts or ends a run of another parent."""

    def __init__(self, clock: Clock, deliver: Callable[[Delivery], None]) -> None:
        self._clock = clock
        self._deliver = deliver
        self._gathering: list[str] = []
        self._forced = False
        self._early: list[str] = []
        self._debounce: Timer | None = None
        self._groups: dict[str, _Group] = {}

    @property
    def pending(self) -> bool:
        """Whether an end that is known has not been announced yet."""
        return bool(self._early) or any(group.ended for group in self._groups.values())

    def started(self, run_id: str, mode: JoinMode) -> None:
        if mode == "async":
            return
        self._gathering.append(run_id)
        self._forced = self._forced or mode == "group"
        if self._debounce is not None:
            self._debounce.cancel()
        self._debounce = self._clock.call_later(GATHER_SECONDS, self._gathered)

    def ended(self, run_id: str) -> None:
        if run_id in self._gathering:
            self._early.append(run_id)
            return
        group = self._groups.get(run_id)
        if group is None:
            self._deliver(Delivery((run_id,)))
            return
        self._end(group, run_id)

    def close(self) -> None:
        """Stop all timers and announce at once what is known."""
        for timer in [self._debounce, *(group.timer for group in self._groups.values())]:
            if timer is not None:
                timer.cancel()
        ended = self._early + [run for group in self._all_groups() for run in group.ended]
        self._gathering, self._early, self._groups, self._debounce = [], [], {}, None
        if ended:
            self._deliver(Delivery(tuple(ended), group=len(ended) > 1))

    def _gathered(self) -> None:
        runs, early, forced = self._gathering, self._early, self._forced
        self._gathering, self._early, self._forced, self._debounce = [], [], False, None
        if len(runs) > 1 or forced:
            group = _Group(list(runs))
            self._groups.update(dict.fromkeys(runs, group))
        for run_id in early:
            self.ended(run_id)

    def _end(self, group: _Group, run_id: str) -> None:
        group.waiting.remove(run_id)
        group.ended.append(run_id)
        if not group.waiting:
            self._finish(group, partial=False)
        elif group.timer is None:
            seconds = STRAGGLER_SECONDS if group.stragglers else GROUP_SECONDS
            group.timer = self._clock.call_later(seconds, lambda: self._expired(group))

    def _expired(self, group: _Group) -> None:
        rest = _Group(group.waiting, stragglers=True)
        group.waiting = []
        self._groups.update(dict.fromkeys(rest.waiting, rest))
        self._finish(group, partial=True)

    def _finish(self, group: _Group, *, partial: bool) -> None:
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        for run_id in group.ended:
            self._groups.pop(run_id, None)
        runs, group.ended = tuple(group.ended), []
        self._deliver(Delivery(runs, group=True, partial=partial))

    def _all_groups(self) -> list[_Group]:
        return list({id(group): group for group in self._groups.values()}.values())


HOLD_SECONDS = 0.2


class _Expected(Struct, eq=False):
    """One end that is to come, or on its way. `attempt` tells it from ends before and after."""

    child: Run
    attempt: int
    keeping: ExitStack = field(default_factory=ExitStack)

    @property
    def due(self) -> bool:
        """Whether the parent has yet to hear of this end. A child that was resumed since will
        have another, which is announced instead."""
        return self.attempt == self.child.attempt and not self.child.consumed and not self.child.announced


class _Unheard(Struct, frozen=True, eq=False):
    """A message that the parent may not have heard yet, and what it is about."""

    controls: Controls
    message: UserMessage
    deliveries: tuple[Delivery, ...]
    children: tuple[tuple[Run, int], ...]

    def can_grow(self, controls: Controls) -> bool:
        """Whether later ends may join it. A child that was resumed since cannot be told of anew:
        the message holds the answer that it gave before."""
        return self.controls is controls and all(child.attempt == attempt for child, attempt in self.children)


class Notifications:
    """The post of one parent run, through all its legs."""

    def __init__(
        self,
        parent: Run,
        clock: Clock,
        *,
        show_cost: Callable[[], bool],
        missed: Callable[[], None] = lambda: None,
    ) -> None:
        self._parent = parent
        self._clock = clock
        self._show_cost = show_cost
        self._missed = missed
        self._joins = Joins(clock, self._hold)
        self._expected: dict[str, _Expected] = {}
        self._held: list[Delivery] = []
        self._timer: Timer | None = None
        self._unheard: _Unheard | None = None

    def started(self, child: Run, mode: JoinMode) -> None:
        expected = _Expected(child, child.attempt)
        self._keep_open(expected)
        self._expected[_key(child)] = expected
        self._joins.started(_key(child), mode)

    def ended(self, child: Run) -> None:
        if _key(child) in self._expected:
            self._joins.ended(_key(child))

    def consumed(self, child: Run) -> None:
        """The parent has the result itself: nothing keeps it from ending."""
        child.consumed = True
        expected = self._expected.get(_key(child))
        if expected is not None:
            expected.keeping.close()
        self._take_out(child)

    def _take_out(self, child: Run) -> None:
        """What the parent has read it need not hear, if it has not heard it yet."""
        before = self._unheard
        if before is None or all(each is not child for each, _ in before.children):
            return
        if before.controls.withdraw(before.message):
            self._unheard = None
            rest = tuple(
                (each, attempt) for each, attempt in before.children if each is not child and each.attempt == attempt
            )
            if rest:
                self._announce(before.deliveries, rest)

    def reopened(self) -> None:
        """The parent was resumed, with a new mailbox: it waits for its children again."""
        for expected in self._expected.values():
            expected.keeping.close()
            if expected.due:
                self._keep_open(expected)

    def close(self) -> None:
        """No more post: what was not brought is found in the log when the parent is resumed."""
        self._joins.close()
        self._rest()
        self._held.clear()
        for expected in self._expected.values():
            expected.keeping.close()
        self._expected.clear()

    def _keep_open(self, expected: _Expected) -> None:
        controls = self._parent.controls
        expected.keeping.enter_context(controls.keep_open())
        controls.rested = self._send_if_last

    def _hold(self, delivery: Delivery) -> None:
        self._held.append(delivery)
        if self._timer is None:
            self._timer = self._clock.call_later(HOLD_SECONDS, self._send)
        if self._parent.controls.at_rest:
            self._send_if_last()

    def _send_if_last(self) -> None:
        """Nobody could read a result, and no other end is to come: there is nothing to wait for."""
        if self._held and sum(len(delivery.runs) for delivery in self._held) == len(self._expected):
            self._send()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._rest()
        deliveries, self._held = tuple(self._held), []
        arrived: list[_Expected] = []
        for delivery in deliveries:
            arrived += map(self._expected.pop, delivery.runs)
        unread = tuple((expected.child, expected.attempt) for expected in arrived if expected.due)
        try:
            if unread:
                self._announce(deliveries, unread)
        finally:
            for expected in arrived:
                expected.keeping.close()

    def _announce(self, deliveries: tuple[Delivery, ...], unread: tuple[tuple[Run, int], ...]) -> None:
        controls, before = self._parent.controls, self._unheard
        if before is not None and before.can_grow(controls) and controls.withdraw(before.message):
            known = tuple((child, attempt) for child, attempt in before.children if not child.consumed)
            deliveries, unread = (*before.deliveries, *deliveries), (*known, *unread)
        message = announcement(
            [child.view() for child, _ in unread],
            group=len(unread) > 1 or any(delivery.group for delivery in deliveries),
            partial=any(delivery.partial for delivery in deliveries),
            show_cost=self._show_cost(),
        )
        self._unheard = None
        if not controls.deliver(message):
            self._missed()
            return
        self._unheard = _Unheard(controls, message, deliveries, unread)
        for child, _ in unread:
            child.announced = True


def _key(child: Run) -> str:
    return f"{child.id} {child.attempt}"
