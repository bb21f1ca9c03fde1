"""What the status line may say, gathered without asking anything slow."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from retinue.faces.tui.statusline import Facts, branch_of

if TYPE_CHECKING:
    from retinue.faces.tui.app import RetinueApp

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
        settings = app.crew.supervisor.settings
        return Facts(
            state=app.talk.state,
            session_id=app.talk.main_id or "",
            transcript=self._transcript(app.talk.main_id),
            model=model,
            cwd=str(app.world.cwd),
            project=str(app.world.cwd),
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

            world = self._app.world
            provider, _, name = model.partition("/")
            found = Providers(world.settings.settings, world.environment).get(provider)
            info = Providers(world.settings.settings, world.environment).info(found, name) if found else None
            self._windows[model] = info.window if info is not None else None
        return self._windows[model]

    def _transcript(self, run_id: str | None) -> str:
        if run_id is None:
            return ""
        if run_id not in self._transcripts:
            member = self._app.crew.supervisor.members.get(run_id)
            self._transcripts[run_id] = (member.handle.launch.transcript or "") if member is not None else ""
        return self._transcripts[run_id]

    def _look(self) -> None:
        """The branch, from a thread, now and then."""
        if time.monotonic() - self._branch_at < BRANCH_SECONDS or self._looking is not None:
            return
        self._looking = asyncio.create_task(self._find_branch(), name="branch for the status line")

    async def _find_branch(self) -> None:
        try:
            self._branch = await asyncio.to_thread(branch_of, self._app.world.cwd)
        finally:
            self._branch_at, self._looking = time.monotonic(), None
