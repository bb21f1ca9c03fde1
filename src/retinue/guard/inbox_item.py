"""An item of the inbox while it waits: who asks, who is asked, and by which policy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from retinue.core.events import Body
from retinue.core.inbox import InboxAnswer, InboxItem
from retinue.core.lean import dataclass

if TYPE_CHECKING:
    from retinue.log.rows import RunPlace
    from retinue.loop.controls import Controls


@dataclass(slots=True, eq=False)
class Asker:
    """`record` writes an event of the run down; `leftovers` says that an earlier attempt of it asked
    things of which nothing came yet."""

    place: RunPlace
    agent: str
    controls: Controls
    record: Callable[[Body], None]
    leftovers: bool = False
    description: str = ""
    """What the run works on, in a few words."""
    resting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Entered while the run waits for a person, so that other runs may use its slot."""


NOBODY = "Nobody is there to ask, and the policy for that is to deny (setting permissions.headless)."

Approver = Callable[[InboxItem], Awaitable[InboxAnswer | None]]
"""Puts an item before someone. None leaves it to others; being cancelled means that someone else
has answered."""


def new_item_id() -> str:
    return os.urandom(5).hex()


@dataclass(frozen=True, slots=True)
class InboxPolicy:
    """What happens while no person can answer, and how long an item waits for one."""

    headless: Literal["deny", "wait"] = "deny"
    expiry_seconds: float = 3600.0


@dataclass(slots=True, eq=False)
class Asked:
    """An item that waits in this process. `users` are the calls that wait for it."""

    item: InboxItem
    mark: str
    party: Asker
    call_id: str | None
    done: asyncio.Future[InboxItem]
    covered: Callable[[], bool] | None = None
    granted: Callable[[InboxAnswer], Awaitable[None]] | None = None
    task: asyncio.Task[InboxAnswer] | None = None
    users: int = 0
    adopted: bool = False
    errands: list[asyncio.Task[None]] = field(default_factory=list)


def subject(item: InboxItem) -> object:
    """What makes two items the same: the call or question, without the id of the call."""
    return {name: value for name, value in item.payload.items() if name != "call_id"}


async def cancelled(errands: list[asyncio.Task[None]]) -> None:
    """Cancel them all and wait: a terminal takes its question back, and says so."""
    for errand in errands:
        errand.cancel()
    if errands:
        await asyncio.wait(errands)
