"""Answers that hold for one round of the event loop.

Many runs that start at once all ask the same: which agents there are, which model a name means,
which branch is checked out. In one round nothing else of this process can happen, so one answer
is right for all of them; in the next round it is asked anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Round:
    """Empty again in every round. Without a running event loop nothing is kept."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """What was kept under `key` in this round, or None."""
        return self._known.get(key)

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """What `find` gives, which is not None; it is called once in this round."""
        known: T | None = self._known.get(key)
        return self.keep(key, find()) if known is None else known

    def keep(self, key: Hashable, value: T) -> T:
        with contextlib.suppress(RuntimeError):
            if not self._known:
                asyncio.get_running_loop().call_soon(self._known.clear)
            self._known[key] = value
        return value
