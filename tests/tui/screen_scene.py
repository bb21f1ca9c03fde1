"""The app on a real crew, for tests of its screens: a project of its own, keys pressed by a pilot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot

from retinue import Retinue
from retinue.faces.tui.app import RetinueApp
from retinue.faces.tui.screens.inbox import InboxScreen
from retinue.testing import FakeClock

NOW = 1_800_000_000.0


@asynccontextmanager
async def opened(
    project: Any, *, size: tuple[int, int] = (80, 24), clock: bool = False, **options: Any
) -> AsyncIterator[tuple[RetinueApp, Pilot[int]]]:
    """`clock`: time stands still, for screens that show how long ago something was."""
    async with Retinue(project.cwd, environment=project.environment) as crew:
        if clock:
            crew.supervisor.clock = FakeClock(NOW)
        app = RetinueApp(crew, **options)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            yield app, pilot


def at_home(project: Any, patch: pytest.MonkeyPatch) -> None:
    """What reads the environment of the process sees that of the project."""
    for name, value in project.environment.items():
        patch.setenv(name, value)
    for name in ("VISUAL", "EDITOR"):
        patch.delenv(name, raising=False)


async def until(pilot: Pilot[int], seen: Callable[[], object], seconds: float = 20.0) -> None:
    """Lets the app work until `seen` is true."""
    async with asyncio.timeout(seconds):
        while not seen():
            await pilot.pause(0.02)


def picture(app: RetinueApp) -> str:
    """The screen as text, line by line, as it would be on the terminal."""
    lines = []
    for strip in app.screen._compositor.render_strips():
        lines.append("".join(segment.text for segment in strip).rstrip())
    return "\n".join(lines)


def quick(patch: pytest.MonkeyPatch) -> None:
    """Keys answer at once: a test has seen what it answers."""
    patch.setattr(InboxScreen, "settle_seconds", 0.0)
