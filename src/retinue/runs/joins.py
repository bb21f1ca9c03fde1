"""When the ends of background runs are announced to their parent: alone, or together.

    async   each end by itself
    smart   runs started within a breath of each other are announced together; one alone, alone
    group   as smart, and even one run is announced as a group

A group waits for all of its members. From its first end on it waits 30 seconds; what has ended
by then is announced as a partial group, and the stragglers form one of their own whose 15
seconds start at its next end. Every end is announced exactly once, whatever the mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from retinue.core.clock import Clock, Timer
from retinue.core.delegation import JoinMode
from retinue.core.lean import dataclass

GATHER_SECONDS = 0.1
GROUP_SECONDS = 30.0
STRAGGLER_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """Ends to announce in one message. `partial`: others of the group still run."""

    runs: tuple[str, ...]
    group: bool = False
    partial: bool = False


@dataclass(slots=True, eq=False)
class _Group:
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
        """Stops all timers and announces what is known at once."""
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
