"""Makes the pictures of the terminal app in docs/screens/: the real app, on a story that is told to its log.

usage: python -m docs.screens [NAME ...]

Time stands still and nothing moves, so that the same code draws the same pictures. No model is asked.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from docs.screens_story import EDIT, QUESTION, Teller, tell

HERE = Path(__file__).parent / "screens"
NOW = 1_800_000_000.0
SIZE = (100, 30)
MOMENT = [NOW]
"""What time it is in the story."""
AGENTS = {
    "auditor": "description: Looks for holes in authentication\nreadonly: true\ntools: read, grep, find",
    "migrator": "description: Moves one module to the new API\nmodel: sonnet\nisolation: worktree",
    "resting": "description: Not needed at the moment\nenabled: false",
}


@asynccontextmanager
async def app_in(folder: Path) -> AsyncIterator[tuple[Any, Any, Teller]]:
    """The app in a project of its own, with the story told."""
    from retinue import Retinue
    from retinue.frontends.tui.app import RetinueApp
    from retinue.testing import FakeClock

    home, project = folder / "home", folder / "home" / "shop"
    project.mkdir(parents=True)
    (project / ".retinue" / "agents").mkdir(parents=True)
    (home / ".retinue" / "agents").mkdir(parents=True)
    for name, fields in AGENTS.items():
        (project / ".retinue" / "agents" / f"{name}.md").write_text(f"---\nname: {name}\n{fields}\n---\nWork.\n")
    mine = "---\nname: translator\ndescription: Translates what users read\n---\nWork.\n"
    (home / ".retinue" / "agents" / "translator.md").write_text(mine)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "RETINUE_HOME": str(home / ".retinue"),
        "RETINUE_MODEL": "anthropic/claude-sonnet-4-5",
        "RETINUE_REDUCED_MOTION": "1",
        "ANTHROPIC_API_KEY": "none",
        "COLORTERM": "truecolor",
    }
    os.environ.update(environment)
    for name in ("EDITOR", "VISUAL", "NO_COLOR"):
        os.environ.pop(name, None)
    async with Retinue(project, environment=environment) as retinue:
        app = RetinueApp(retinue)
        async with app.run_test(size=SIZE) as pilot:
            teller = Teller(app, later)
            await tell(teller)
            retinue.supervisor.clock = FakeClock(MOMENT[0])
            await settled(pilot)
            yield app, pilot, teller


def later(seconds: float) -> None:
    MOMENT[0] += seconds


async def settled(pilot: Any) -> None:
    """Until the screen does not change any more."""
    last, same = "", 0
    while same < 6:
        await pilot.pause(0.05)
        drawn = pilot.app.export_screenshot()
        same = same + 1 if drawn == last else 0
        last = drawn


async def chat(app: Any, pilot: Any, teller: Teller) -> None:
    await teller.ask(EDIT, MOMENT[0])


async def viewer(app: Any, pilot: Any, teller: Teller) -> None:
    app.watch_run(teller.runs["auth"].run_id)


async def inbox(app: Any, pilot: Any, teller: Teller) -> None:
    for item in (EDIT, QUESTION):
        await teller.ask(item, MOMENT[0])
    await pilot.press("f2")


async def agents(app: Any, pilot: Any, teller: Teller) -> None:
    await pilot.press("f3")
    await settled(pilot)
    await pilot.press("down", "enter")


async def wizard(app: Any, pilot: Any, teller: Teller) -> None:
    await pilot.press("f3", "n", "enter", "enter", *"checker", "enter")
    await pilot.press(*"Checks that every price has a currency", "enter", "down", "enter", "enter", "enter")


async def settings(app: Any, pilot: Any, teller: Teller) -> None:
    await pilot.press(*"/settings turns", "enter")
    await settled(pilot)
    await pilot.press("down")


async def schedules(app: Any, pilot: Any, teller: Teller) -> None:
    await app.retinue.schedules.add(
        "auditor", "What was merged since yesterday, and is it safe?", "24h", name="nightly audit"
    )
    await app.retinue.schedules.add("migrator", "Try the next module again", "+90m", name="try again")
    await pilot.press(*"/schedules", "enter")


async def toolkit(app: Any, pilot: Any, teller: Teller) -> None:
    await pilot.press(*"/toolkit agents", "enter")


Scene = Callable[[Any, Any, Teller], Awaitable[None]]
SCENES: dict[str, Scene] = {
    each.__name__: each for each in (chat, viewer, inbox, agents, wizard, settings, schedules, toolkit)
}


async def draw(name: str) -> str:
    with tempfile.TemporaryDirectory(prefix="retinue-screens-") as folder:
        async with app_in(Path(folder)) as (app, pilot, teller):
            await SCENES[name](app, pilot, teller)
            await settled(pilot)
            return str(app.export_screenshot(title="retinue"))


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(SCENES))
    if unknown:
        print(f"There is no picture {', '.join(unknown)}. There are: {', '.join(SCENES)}.", file=sys.stderr)
        return 2
    HERE.mkdir(exist_ok=True)
    os.environ["TZ"] = "UTC"
    time.tzset()
    time.time = lambda: MOMENT[0]
    for name in names or SCENES:
        MOMENT[0], numbers = NOW, count(0x4AC6B4FB, 0x1F35C)
        secrets.token_hex = lambda size=4, numbers=numbers: f"{next(numbers):0{size * 2}x}"[-size * 2 :]
        (HERE / f"{name}.svg").write_text(asyncio.run(draw(name)), encoding="utf-8")
        print(HERE / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
