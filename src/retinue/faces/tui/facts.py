"""The feed from the log to the screen, and the facts of the status line.

Every event arrives once, in order, and is painted at most twenty times a second. No fact is gathered
by a slow question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.events import Event
from retinue.errors import StateError
from retinue.faces.tui.statusline import Facts, branch_of

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp
    from retinue.faces.tui.board.board import Board
    from retinue.log.follow import Subscription
    from retinue.log.query import LogReader
    from retinue.log.store import Log


BRANCH_SECONDS = 5.0


class FactFinder:
    def __init__(self, app: RetinueApp) -> None:
        self._app = app
        self._branch = ""
        self._branch_at = -BRANCH_SECONDS
        self._looking: asyncio.Task[None] | None = None
        self._windows: dict[str, int | None] = {}
        self._transcripts: dict[str, str] = {}

    def facts(self) -> Facts:
        from retinue import __version__

        app = self._app
        self._look()
        main = app.board.cards.get(app.talk.main_id or "")
        running, queued = app.board.counts()
        spent = sum(card.usage.cost_usd or 0.0 for card in app.board.cards.values())
        model = (app.session.model if app.talk is app.session else None) or (main.model if main else "")
        settings = app.retinue.supervisor.settings
        return Facts(
            state=app.talk.state,
            session_id=app.talk.main_id or "",
            transcript=self._transcript(app.talk.main_id),
            model=model,
            cwd=str(app.project.cwd),
            project=str(app.project.cwd),
            branch=self._branch,
            mode=str(settings.permissions_default_mode or "default"),
            cost_usd=round(spent, 6),
            tokens=sum(card.usage.total_tokens for card in app.board.cards.values()),
            context_tokens=main.context_tokens if main else 0,
            window=self.window(model) if model else None,
            running=running,
            queued=queued,
            inbox=int(app.facts.get("inbox", 0)),
            version=__version__,
            extra={name: value for name, value in app.facts.items() if name != "inbox"},
        )

    def window(self, model: str) -> int | None:
        """How large the context of a model is, by its full name; remembered."""
        if model not in self._windows:
            from retinue.models.providers import Providers

            project = self._app.project
            provider, _, name = model.partition("/")
            found = Providers(project.settings.settings, project.environment).get(provider)
            info = Providers(project.settings.settings, project.environment).info(found, name) if found else None
            self._windows[model] = info.window if info is not None else None
        return self._windows[model]

    def _transcript(self, run_id: str | None) -> str:
        if run_id is None:
            return ""
        if run_id not in self._transcripts:
            node = self._app.retinue.supervisor.members.get(run_id)
            self._transcripts[run_id] = (node.handle.launch.transcript or "") if node is not None else ""
        return self._transcripts[run_id]

    def _look(self) -> None:
        """The branch, from a thread, now and then."""
        if time.monotonic() - self._branch_at < BRANCH_SECONDS or self._looking is not None:
            return
        self._looking = asyncio.create_task(self._find_branch(), name="branch for the status line")

    async def _find_branch(self) -> None:
        try:
            self._branch = await asyncio.to_thread(branch_of, self._app.project.cwd)
        finally:
            self._branch_at, self._looking = time.monotonic(), None


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


def remember(board: Board, reader: LogReader, root_id: str) -> None:
    """Shows the board a conversation of the log and its newest agents, as they stand."""
    rows = reader.list_runs(root_id=root_id, limit=REMEMBERED)
    if all(row.id != root_id for row in rows):
        rows.append(reader.run(root_id))
    for row in reversed(rows):
        for _, event in reader.ordered(row.id, SUMMARY):
            board.take(event)
        if row.state == "interrupted":
            board.lost(row.id, row.updated_at)
