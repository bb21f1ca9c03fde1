"""The app on a real supervisor, for tests of its screens: a project of its own, keys pressed by a pilot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot

from retinue import Retinue
from retinue.core import version
from retinue.core.permission import InboxItem
from retinue.frontends.tui import working
from retinue.frontends.tui.app import RetinueApp
from retinue.frontends.tui.chat import welcome
from retinue.frontends.tui.screens.inbox import InboxScreen
from retinue.log.inbox import put
from retinue.testing import FakeClock
from tests.frontends.tui.watch_scene import picture, until

__all__ = ["NOW", "SnapApp", "at_home", "opened", "picture", "press", "put_item", "quick", "until"]

NOW = 1_800_000_000.0


@asynccontextmanager
async def opened(
    project: Any, *, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[tuple[RetinueApp, Pilot[int]]]:
    async with Retinue(project.cwd, environment=project.environment) as retinue:
        app = RetinueApp(retinue, **options)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            yield app, pilot


class SnapApp(RetinueApp):
    """For pictures: opens its supervisor itself, and time stands still in it."""

    def __init__(self, project: Any, **environment: str) -> None:
        retinue = Retinue(project.cwd, environment={**project.environment, **environment})
        retinue.supervisor.clock = FakeClock(NOW)
        super().__init__(retinue)
        self.motion = False

    async def run_async(self, **options: Any) -> int | None:
        async with self.retinue:
            return await super().run_async(**options)


def at_home(project: Any, patch: pytest.MonkeyPatch) -> None:
    """What reads the environment of the process sees that of the project."""
    for name, value in project.environment.items():
        patch.setenv(name, value)
    for name in ("VISUAL", "EDITOR", "NO_COLOR"):
        patch.delenv(name, raising=False)
    # Pictures of the first screen must not depend on where and at which hour the test runs, or on the release.
    patch.setattr(welcome, "tip_for", lambda now: welcome.TIPS[0])
    patch.setattr(welcome, "short_folder", lambda folder, home: "~/project")
    patch.setattr(version, "__version__", "1.2.3")
    patch.setattr(working, "format_wait", lambda seconds: "12s")


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Keys one after the other, each when the one before has done its work."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


async def put_item(app: RetinueApp, item: InboxItem) -> None:
    """As a run of another process would."""
    await app.retinue.supervisor.project.log.transact(lambda connection: put(connection, item, item.id))


def quick(patch: pytest.MonkeyPatch) -> None:
    """Keys answer at once: a test has seen what it answers."""
    patch.setattr(InboxScreen, "settle_seconds", 0.0)
