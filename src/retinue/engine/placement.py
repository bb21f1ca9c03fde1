"""Which worker serves which attempt of a run: the five verbs of an engine.

An engine keeps a queue and gives each attempt to one worker. It keeps nothing of what runs do: that is in the log,
and the log alone decides who may write to a run. So an engine that gives an attempt to two workers, or to
one that is too late, does no harm: one of them is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from retinue.core.placement import Attempt

Serve = Callable[[Attempt], Awaitable[None]]


class Placement(Protocol):
    """An engine: `local` in one process, `cluster` over a database."""

    async def offer(self, attempt: Attempt) -> bool:
        """Let some worker serve `attempt`. Return False when this or a later attempt was offered before."""

    async def withdraw(self, attempt: Attempt) -> None:
        """Take back what nobody serves yet. One that is served is left to its worker, which finds in the log that the
        run has ended."""

    async def beat(self) -> None:
        """Say that this worker lives, and what it can serve."""

    async def take(self, serve: Serve) -> None:
        """Serve attempts, as many at once as this worker may, until cancelled. An attempt is held until
        `serve` returns."""

    async def dead(self) -> list[Attempt]:
        """Return what is to be offered again: the next attempt of each run whose worker is gone, or which waits for a
        kind of worker that is not there any more."""
