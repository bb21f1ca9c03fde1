"""The app on a real supervisor whose models say what the test says: runs to watch, keys to press."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from retinue import Retinue
from retinue.frontends.tui.app import RetinueApp
from tests.runs.run_scene import Scene


@asynccontextmanager
async def watching(
    folder: Path, patch: pytest.MonkeyPatch, *, size: tuple[int, int] = (100, 40), still: bool = False, **settings: Any
) -> AsyncIterator[tuple[Scene, RetinueApp, Pilot[int]]]:
    """`still`: for the supervisor time passes only as `scene.clock` is told."""
    scene = Scene(folder, patch, **settings)
    async with Retinue(folder / "project", environment=scene._environment) as retinue:
        scene.supervisor = retinue.supervisor
        if still:
            scene.supervisor.clock = scene.supervisor.project.clock = scene.clock
        app = RetinueApp(retinue)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            yield scene, app, pilot
            for model in scene.models.values():
                model.standing = "over"


async def until(pilot: Pilot[int], seen: Callable[[], object], seconds: float = 20.0) -> None:
    """Lets the app work until `seen` is true."""
    async with asyncio.timeout(seconds):
        while not seen():
            await pilot.pause(0.02)


def picture(app: RetinueApp) -> str:
    """The screen as text, line by line, as it would be on the terminal."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
