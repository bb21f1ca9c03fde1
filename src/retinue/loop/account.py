"""What a run may spend besides its own limits: an account it shares with others.

The loop charges every request and asks before the next one. It does not know what an account is
made of; the supervisor gives each run the one that belongs to its place in the tree.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from retinue.core.limits import LimitName
from retinue.core.usage import Usage


class Verdict(NamedTuple):
    """Why there may be no ordinary request. With `wrap_up` there may be one more, in which the
    agent is asked to come to its end; without, none."""

    limit: LimitName
    text: str
    wrap_up: bool = False


class Account(Protocol):
    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        """Something was spent. Never refuses: it has happened."""
        ...

    def verdict(self) -> Verdict | None:
        """Asked before each request; None: go on."""
        ...

    def calls_left(self) -> int | None:
        """How many tool calls may still be made; None: any number."""
        ...


class Unlimited:
    """The account of a run that shares nothing."""

    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        return None

    def verdict(self) -> None:
        return None

    def calls_left(self) -> None:
        return None


UNLIMITED = Unlimited()
