"""Runs that begin with the same words: one goes first, so that the others find its cache warm.

A provider's prompt cache can be read once the first answer to that prompt has begun. So while the
first request with a cold prefix is on its way, others with the same prefix wait for its first
word, but not for long; a run that is alone never waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, TypeVar

from retinue.core.clock import Timer
from retinue.core.tool import ToolSpec

if TYPE_CHECKING:
    from retinue.models.providers import Provider

CACHING = frozenset(
    {"anthropic", "openai", "openai-responses", "azure", "gemini", "deepseek", "xai", "moonshot", "openrouter"}
)
WARM_SECONDS = 240.0
"""Providers keep a prefix for five minutes after its last use."""
LEAST_TOKENS = 1_024
"""No provider caches shorter prompts."""
LEAST_WAIT, LONGEST_WAIT = 2.0, 10.0

W = TypeVar("W")


class Prefix(Generic[W]):
    """One prefix. `leader` asks first; `followers` wait for its first word."""

    __slots__ = ("followers", "leader", "led_at", "timer", "warm_until")

    def __init__(self) -> None:
        self.warm_until = 0.0
        self.leader: object | None = None
        self.led_at = 0.0
        self.followers: list[W] = []
        self.timer: Timer | None = None


class Prefixes(Generic[W]):
    """The prefixes of one account, and how long first words took there."""

    _MOST = 256

    def __init__(self) -> None:
        self._known: dict[str, Prefix[W]] = {}
        self._first_words: deque[float] = deque(maxlen=16)

    def get(self, key: str, now: float) -> Prefix[W]:
        prefix = self._known.get(key)
        if prefix is None:
            if len(self._known) >= self._MOST:
                self._known = {
                    each: old for each, old in self._known.items() if old.leader is not None or old.warm_until > now
                }
            prefix = self._known[key] = Prefix()
        return prefix

    def followers(self) -> list[W]:
        return [waiter for prefix in self._known.values() for waiter in prefix.followers]

    def patience(self) -> float:
        """How long to wait for a leader: somewhat longer than first words usually take."""
        usual = 1.5 * sorted(self._first_words)[len(self._first_words) // 2] if self._first_words else 0.0
        return min(max(usual, LEAST_WAIT), LONGEST_WAIT)

    def took(self, seconds: float) -> None:
        self._first_words.append(seconds)


def shared_prefix(provider: Provider, model: str, system: str, tools: Sequence[ToolSpec]) -> str | None:
    """The key of what every request of a run begins with; None where waiting for a warm cache
    could not pay: the provider has none, it is this machine, or the prefix is too short."""
    if provider.id not in CACHING or provider.local:
        return None
    from retinue.models.tokens import overhead

    if overhead(system, tools) < LEAST_TOKENS:
        return None
    import orjson

    digest = blake2b(digest_size=12)
    for part in (provider.id, model, system):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    for tool in tools:
        digest.update(tool.name.encode() + tool.description.encode("utf-8", "surrogatepass"))
        digest.update(orjson.dumps(tool.parameters, default=dict))
    return digest.hexdigest()
