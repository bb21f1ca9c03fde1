"""Requests through a limiter on a clock that stands still: who is out, who waits, in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from retinue.core.outcome import Failure
from retinue.models.limiter import Limiter, LimiterGate, Limiters
from retinue.testing import FakeClock, settle


def busy(retry_after: float | None = None) -> Failure:
    return Failure("rate_limit", "429: slow down", status=429, retry_after=retry_after)


class Request:
    """One attempt, driven as `Retrying` drives it."""

    def __init__(self, gate: LimiterGate, name: str, log: list[str]) -> None:
        self.gate, self.name, self._log = gate, name, log
        self.closed: Failure | None = None
        self._end: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        self.closed = await self.gate.before()
        if self.closed is not None:
            return
        self._log.append(self.name)
        failure = None
        try:
            failure = await self._end
        finally:
            await self.gate.after(failure)

    def end(self, failure: Failure | None = None) -> None:
        self._end.set_result(failure)

    @property
    def out(self) -> bool:
        return self.name in self._log and not self.task.done()

    @property
    def waits(self) -> bool:
        return self.name not in self._log and not self.task.done()


class Fleet:
    """Limiters with everything a test looks at."""

    def __init__(self, draw: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = FakeClock()
        self.limiters = Limiters(clock=self.clock, draw=draw)
        self.sent: list[str] = []
        self.requests: list[Request] = []

    def gate(self, provider: str = "anthropic", account: str = "me", prefix: str | None = None) -> LimiterGate:
        return self.limiters.gate_for(provider, account, prefix)

    async def ask(self, count: int = 1, gate: LimiterGate | None = None, **place: str) -> list[Request]:
        """That many requests at once, each of a run of its own, named in order of arrival."""
        made = []
        for _ in range(count):
            name = f"r{len(self.requests)}"
            made.append(Request(gate or self.gate(**place), name, self.sent))
            self.requests.append(made[-1])
        await settle()
        return made

    async def end(self, requests: list[Request], failure: Failure | None = None) -> None:
        for request in requests:
            request.end(failure)
        await settle()

    @property
    def state(self) -> Limiter:
        return self.limiters.limiter("anthropic", "me")

    def out(self) -> int:
        return sum(request.out for request in self.requests)

    async def finish(self) -> None:
        """Lets every request that is left end well, however long that takes."""
        for _ in range(10_000):
            left = [request for request in self.requests if not request.task.done()]
            if not left:
                return
            await self.end([request for request in left if request.out])
            await self.clock.advance(1.0)
        raise AssertionError(f"{len(left)} requests are stuck: {self.state}")
