"""All projects of this user that have a log, and the feeds of those in use."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec import Struct

from retinue.app.feed import Feed
from retinue.core.permission import InboxItem
from retinue.core.run_state import RunState
from retinue.errors import UsageError
from retinue.log.database import log_folders
from retinue.log.inbox import locate
from retinue.log.overview import LogOverview, overview
from retinue.log.query import LogReader, everywhere, find_run
from retinue.settings.places import home as home
from retinue.settings.places import private_folder as private_folder
from retinue.settings.places import retinue_state
from retinue.settings.places import state_folder as state_folder


class UnknownProjectError(UsageError):
    """There is no project with that id and a log."""

    code = "UNKNOWN_PROJECT"


class ProjectView(Struct, frozen=True, kw_only=True):
    """One project. `id` names it in requests. `current` marks the served one."""

    id: str
    cwd: str
    current: bool
    runs: int
    live: int
    waiting: int
    updated_at: float | None


class Projects:
    """The projects that requests may name: the served one and those with a log. No other folder is reachable."""

    def __init__(self, cwd: Path) -> None:
        self.current = Feed(cwd.resolve())
        self._feeds: dict[Path, Feed] = {self.current.folder: self.current}

    async def views(self) -> list[ProjectView]:
        """Return all projects: the served one first, then by last use."""
        return await asyncio.to_thread(self._views)

    def _views(self) -> list[ProjectView]:
        views = []
        seen = dict(everywhere(retinue_state(), overview))
        seen.setdefault(self.current.folder, LogOverview(None, 0, 0, 0, None))
        for folder, summary in seen.items():
            current = folder == self.current.folder
            cwd = str(self.current.cwd) if current else summary.cwd
            if cwd is not None:
                views.append(
                    ProjectView(
                        id=folder.name,
                        cwd=cwd,
                        current=current,
                        runs=summary.runs,
                        live=summary.live,
                        waiting=summary.waiting,
                        updated_at=summary.updated_at,
                    )
                )
        return sorted(views, key=lambda view: (not view.current, -(view.updated_at or 0.0)))

    async def feed(self, project: str | None = None) -> Feed:
        """Return the feed of a project by its id; by default that of the served one. Raise UnknownProjectError."""
        if project is None or project == self.current.folder.name:
            return self.current
        for folder in await asyncio.to_thread(log_folders, retinue_state()):
            # The id is compared with existing folders, never joined to a path.
            if folder.name == project:
                return await self._feed_in(folder)
        raise UnknownProjectError(f"There is no project '{project}'.", remedy="GET /v1/projects lists them.")

    async def of_run(self, run_id: str) -> tuple[Feed, RunState]:
        """Find a run by its id, a prefix of it, or `@name` in the served project. Return its feed and the run."""
        if run_id.startswith("@"):
            return self.current, await self.current.find(run_id)
        folder, row = await asyncio.to_thread(find_run, retinue_state(), run_id, self.current.folder)
        return await self._feed_in(folder), row

    async def of_item(self, item_id: str) -> tuple[Feed, InboxItem]:
        """Find an inbox item by its id or a prefix of it. Return its feed and the item."""
        folder, item = await asyncio.to_thread(locate, retinue_state(), item_id, self.current.folder)
        return await self._feed_in(folder), item

    async def close(self) -> int:
        """Stop the runs that this process started, and return their number."""
        stopped = 0
        for feed in self._feeds.values():
            stopped += await feed.close()
        return stopped

    async def _feed_in(self, folder: Path) -> Feed:
        feed = self._feeds.get(folder)
        if feed is None:
            cwd = await asyncio.to_thread(_cwd_of, folder)
            feed = self._feeds[folder] = Feed(Path(cwd or folder), folder)
        return feed


def _cwd_of(folder: Path) -> str | None:
    with LogReader.open(folder) as reader:
        return overview(reader).cwd
