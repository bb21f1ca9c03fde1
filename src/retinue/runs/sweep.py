"""Forgets runs that ended long ago. Nothing is lost: whoever asks for one again finds it in the log.

A run stays in memory while it lives, while anything below it lives, while its parent has yet to
hear of its end, and for ten minutes after that end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.clock import Timer

if TYPE_CHECKING:
    from retinue.runs.crew import Supervisor
    from retinue.runs.member import Member

KEEP_SECONDS = 600.0
SWEEP_SECONDS = 60.0


class Sweeper:
    """Of one supervisor. `watch` when a run has ended; it looks until there is nothing to forget."""

    def __init__(self, crew: Supervisor) -> None:
        self._crew = crew
        self._timer: Timer | None = None

    def watch(self) -> None:
        if self._timer is None:
            self._timer = self._crew.clock.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        before = self._crew.clock.now() - KEEP_SECONDS
        for member in reversed(list(self._crew.members.values())):  # children before their parents
            if member.finished is not None and member.finished <= before and _is_done_with(member):
                self._crew.forget(member)
        if any(not member.live for member in self._crew.members.values()):
            self.watch()


def _is_done_with(member: Member) -> bool:
    if any(child.live for child in member.descendants()):
        return False
    parent = member.parent
    return parent is None or not parent.live or not member.background or member.consumed or member.announced
