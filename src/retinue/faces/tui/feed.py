"""From the log to the screen: every event once, in order, painted at most twenty times a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.events import Event
from retinue.errors import StateError

if TYPE_CHECKING:
    from retinue.faces.tui.board.board import Board
    from retinue.log.follow import Subscription
    from retinue.log.query import Reader
    from retinue.log.store import Log

Take = Callable[[Event], None]
REMEMBERED = 50
SUMMARY = ("run.created", "run.started", "run.resumed", "turn.ended", "run.ended")
BATCH = 100
"""Events taken in one go before the keyboard gets its turn again."""


class Feed:
    """Of all runs of this process, and of a tree of another one while it is watched. `take` is
    called for every event and must be quick; what it raises goes to `failed`, since nobody would
    see a feed that stands still."""

    def __init__(self, log: Log, take: Take, failed: Callable[[Exception], object] | None = None) -> None:
        self._log = log
        self._take = take
        self._failed = failed
        self._subscription: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._subscription = self._log.subscribe()
        self._tasks.append(asyncio.create_task(self._follow(self._subscription), name="feed of the terminal app"))

    def watch(self, folder: Path, root_id: str) -> None:
        """From now on also the runs below `root_id`, which another process runs."""
        from retinue.log.follow import follow_tree

        self.unwatch()
        self._watching = asyncio.create_task(self._follow(follow_tree(folder, root_id)), name="feed of another process")

    def unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._tasks.append(self._watching)
            self._watching = None

    async def close(self) -> None:
        self.unwatch()
        if self._subscription is not None:
            self._subscription.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, events: AsyncIterator[Event]) -> None:
        taken = 0
        try:
            async for event in events:
                self._take(event)
                taken += 1
                if taken % BATCH == 0:
                    await asyncio.sleep(0)
        except StateError:  # a log that cannot be read is reported by those who write runs
            return
        except Exception as error:
            if self._failed is None:
                raise
            self._failed(error)


def remember(board: Board, reader: Reader, root_id: str) -> None:
    """Shows the board a conversation of the log and its newest agents, as they stand."""
    rows = reader.list_runs(root_id=root_id, limit=REMEMBERED)
    if all(row.id != root_id for row in rows):
        rows.append(reader.run(root_id))
    for row in reversed(rows):
        for _, event in reader.ordered(row.id, SUMMARY):
            board.take(event)
        if row.state == "interrupted":
            board.lost(row.id, row.updated_at)
