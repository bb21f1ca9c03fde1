"""Blocking file work off the event loop, without leaving any of it half done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], stop: Event | None = None) -> T:
    """Runs `work` in a thread. A cancelled caller still waits for it to end, so that what it
    does to files is whole before anyone goes on; work that may be long watches `stop`."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await settled(task)
        raise


async def settled(task: Awaitable[Any]) -> None:
    """Waits until `task` is over, however often the waiter is cancelled meanwhile."""
    future = asyncio.ensure_future(task)
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()
