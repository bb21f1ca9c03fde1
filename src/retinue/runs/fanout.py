"""Consent before one run starts very many agents.

Up to `above` agents a run starts as it likes. Then what the next ones will cost is estimated and
a person is asked once for all that are wanted in the same moment; yes covers those and as many
again, no stands for the rest of the run. Where nobody can be asked more are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from retinue.core.clock import SYSTEM_CLOCK, Clock, Timer
from retinue.errors import RetinueError
from retinue.runs.quote import Quote, QuotedAgent

if TYPE_CHECKING:
    from retinue.settings.table import Settings

GATHER_SECONDS = 0.05
ASKED_ABOVE, REFUSED_ABOVE = 32, 1_000

Ask = Callable[[Quote], Awaitable[bool]]
"""Puts a quote before a person, and gives the answer."""


def free_agents(settings: Settings, *, can_ask: bool) -> int | None:
    """How many agents a run starts as it likes; None: any number. A person who is there is asked
    earlier than a program without one is refused, unless the user set a number; a repository can
    only lower it."""
    said, origin = settings.quote_above, settings.origin("quote_above")
    usual = ASKED_ABOVE if can_ask else REFUSED_ABOVE
    if origin.layer == "default":
        return usual
    return said if origin.personal else min(said or usual, usual)


class FanOut:
    """The agents that one run has started. Use from one event loop; close it with the run."""

    def __init__(
        self,
        above: int | None,
        quote: Callable[[Sequence[QuotedAgent]], Quote],
        *,
        ask: Ask | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`above` None: any number. `ask` None: nobody is there, and more are refused."""
        self._above = above
        self._allowed = above
        self._quote = quote
        self._ask = ask
        self._clock = clock
        self._declined: str | None = None
        self._waiting: dict[asyncio.Future[str | None], QuotedAgent] = {}
        self._timer: Timer | None = None
        self._asking: asyncio.Task[None] | None = None
        self.started = 0

    def take(self) -> bool:
        """Count one agent that may be started as one likes. False: ask `admit` for it."""
        free = self._allowed is None or (self.started < self._allowed and not self._waiting)
        if self._declined is not None or not free:
            return False
        self.started += 1
        return True

    async def admit(self, wanted: QuotedAgent) -> str | None:
        """Return when the agent may be started; a text means that it must not be, and why.
        Cancelling takes the wish back."""
        if self._declined is not None or self.take():
            return self._declined
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = wanted
        self._gather()
        try:
            return await answer
        except asyncio.CancelledError:
            if not answer.cancelled() and answer.result() is None:
                self.started -= 1
            raise
        finally:
            self._waiting.pop(answer, None)
            if not self._waiting:
                self.close()

    def close(self) -> None:
        """Nobody waits any more: takes back what was put before a person."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _gather(self) -> None:
        if self._timer is None and self._asking is None:
            self._timer = self._clock.call_later(GATHER_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._asking = asyncio.get_running_loop().create_task(self._settle(list(self._waiting.values())), name="quote")

    async def _settle(self, batch: Sequence[QuotedAgent]) -> None:
        quote = self._estimate(batch)
        agreed = await self._agreed(quote)
        self._asking = None
        if agreed:
            self._allowed = self.started + len(batch) + (self._above or 0)
        else:
            self._declined = self._refusal(quote)
        for answer in [each for each in self._waiting if not each.done()]:
            if self._declined is None:
                if self._allowed is not None and self.started >= self._allowed:
                    self._gather()
                    break
                self.started += 1
            answer.set_result(self._declined)

    def _estimate(self, batch: Sequence[QuotedAgent]) -> Quote:
        try:
            return self._quote(batch)
        except RetinueError as error:
            return Quote(f"What they will cost could not be estimated: {error}", len(batch))

    async def _agreed(self, quote: Quote) -> bool:
        if self._ask is None:
            return False
        try:
            return await self._ask(quote)
        except Exception:  # noqa: BLE001 - who cannot be asked has not agreed, and nobody may wait for ever
            return False

    def _refusal(self, quote: Quote) -> str:
        begun = f"Not started: this run has already started {self.started} agents"
        if self._ask is not None:
            return f"{begun}, and a person declined more of them. Do not try again: go on with what you have."
        return (
            f"{begun}, and more need the consent of a person, who is not there. {quote.text} "
            "Do not try again: go on with what you have. (To allow it, the user can raise quoteAbove; 0 "
            "sets no limit: retinue settings set quoteAbove 0 --user)"
        )
