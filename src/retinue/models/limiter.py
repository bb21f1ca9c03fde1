"""One limiter for each account at a provider, shared by every run of the process and, through
files, by every process of the user: a refusal that one run meets is respected by all.

A run passes its gate before each request. While nothing is wrong that costs a few microseconds
and starts no task, thread or timer.

    gate_for(provider, account, prefix) ─▶ LimiterGate          limiter_queue   which request waits for what
                                             │                  limiter_pace    how fast, how many
         every run of the process ───────────┤                  limiter_prefix  cold prompt caches
         every process of the user ──────────┘                  limiter_shared  files between processes
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.models.limiter_pace import SharedLimits
from retinue.models.limiter_prefix import CACHING, shared_prefix
from retinue.models.limiter_queue import Limiter, LimiterGate, LimiterState, Waiting

if TYPE_CHECKING:
    from retinue.models.providers import Provider

__all__ = ["LimiterGate", "LimiterState", "Limiters", "account_of", "process_limiters", "shared_prefix"]

_LOGGER = logging.getLogger("retinue")


class Limiters:
    """Every account of this process. Use from one event loop."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        draw: Callable[[], float] = random.random,
        warn: Callable[[str], None] = _LOGGER.warning,
    ) -> None:
        """`home` is RETINUE_HOME, through which processes tell each other; None: they do not."""
        self._clock = clock
        self._draw = draw
        self._shared = SharedLimits(home, warn)
        self._limiters: dict[tuple[str, str], Limiter] = {}

    def gate_for(
        self, provider_id: str, account: str, prefix_key: str | None = None, *, waiting: Waiting | None = None
    ) -> LimiterGate:
        """The gate for one run. Costs nothing until it is passed. `prefix_key` (see
        `shared_prefix`) staggers cold starts at providers that cache."""
        family = provider_id.removesuffix("-responses")  # one key, one quota, two wire formats
        limiter = self._limiters.get((family, account))
        if limiter is None:
            key = blake2b(f"{family}\0{account}".encode(), digest_size=12).hexdigest()
            limiter = Limiter(family, key, self._clock, self._draw, self._shared)
            self._limiters[family, account] = limiter
        prefix = None
        if prefix_key is not None and provider_id in CACHING:
            prefix = limiter.prefixes.get(prefix_key, self._clock.monotonic())
        return LimiterGate(limiter, prefix, waiting)

    def states(self) -> list[LimiterState]:
        """The state of every account, for people."""
        return [limiter.state() for limiter in self._limiters.values()]


_OF_PROCESS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, Limiters]] = WeakKeyDictionary()


def process_limiters(home: Path) -> Limiters:
    """The limiters that everything on the running event loop shares, whatever its project."""
    by_home = _OF_PROCESS.setdefault(asyncio.get_running_loop(), {})
    limiters = by_home.get(home)
    if limiters is None:
        limiters = by_home[home] = Limiters(home)
    return limiters


def account_of(provider: Provider) -> str:
    """Who pays at a provider: a digest of key and address, from which neither can be read."""
    text = f"{provider.api_key}{provider.helper or ''}\0{provider.base_url}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=12).hexdigest()
