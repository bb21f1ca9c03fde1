"""How the menus and the inbox look, at the smallest size that is supported and at a large one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from retinue.frontends.tui.screens.agents import TypesScreen
from retinue.frontends.tui.screens.inbox import InboxScreen
from retinue.frontends.tui.screens.schedules import SchedulesScreen
from retinue.frontends.tui.screens.settings import SettingsScreen
from retinue.frontends.tui.screens.toolkit import ToolkitScreen
from tests.frontends.tui.screen_scene import NOW, SnapApp, at_home, picture, press, put_item, quick, until
from tests.frontends.tui.test_inbox import ITEM, QUESTION
from tests.program.conftest import project

__all__ = ["project"]

DIFF = """--- src/app/server.py
+++ src/app/server.py
@@ -12,4 +12,5 @@
 def handle(request):
-    return authenticate(request)
+    user = authenticate(request)
+    return respond(user)
 # 編集されたファイル"""
EDIT = replace(
    ITEM,
    id="aaaa000000",
    title="edit src/app/server.py",
    agent="implementer",
    detail=DIFF,
    payload={"tool": "edit", "arguments": {"path": "src/app/server.py"}},
    rule="Edit(/src/app/server.py)",
    reason="No rule allows edit.",
    created_at=NOW - 42,
)


@pytest.fixture
def place(project, monkeypatch):
    at_home(project, monkeypatch)
    quick(monkeypatch)
    folder = project.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True)
    for name, more in (("auditor", "readonly: true\ntools: read, grep"), ("fixer", "model: no-such-model")):
        text = f"---\nname: {name}\ndescription: The {name} of this project\n{more}\n---\nWork.\n"
        (folder / f"{name}.md").write_text(text)
    (folder / "resting.md").write_text("---\nname: resting\ndescription: Not now\nenabled: false\n---\nx\n")
    own = project.home / ".retinue" / "agents"
    own.mkdir(parents=True)
    (own / "translator.md").write_text("---\nname: translator\ndescription: 翻訳する\n---\nx\n")
    return project


async def inbox(app, pilot) -> None:
    for item in (EDIT, replace(ITEM, created_at=NOW - 7), replace(QUESTION, created_at=NOW - 3)):
        await put_item(app, item)
    app.push_screen(InboxScreen())
    await until(pilot, lambda: "3 waiting" in picture(app) and "respond" in picture(app))


async def question(app, pilot) -> None:
    await put_item(app, replace(QUESTION, created_at=NOW - 3))
    app.push_screen(InboxScreen())
    await until(pilot, lambda: "Which one?" in picture(app))
    await press(pilot, "enter")
    await until(pilot, lambda: "Other words" in picture(app))


async def every_answer(app, pilot) -> None:
    await inbox(app, pilot)
    await press(pilot, "enter")
    await until(pilot, lambda: "Allow this call" in picture(app))


async def menu(app, pilot) -> None:
    await app.retinue.schedules.add("auditor", "look", "2h", name="morning look")
    await press(pilot, "f3")
    await until(pilot, lambda: "Scheduled jobs (1)" in picture(app))


async def types(app, pilot) -> None:
    app.push_screen(TypesScreen())
    await until(pilot, lambda: "translator" in picture(app))


async def actions(app, pilot) -> None:
    await types(app, pilot)
    await press(pilot, "enter")
    await until(pilot, lambda: "Edit the file" in picture(app))


async def delete(app, pilot) -> None:
    await types(app, pilot)
    await press(pilot, "delete")
    await until(pilot, lambda: "Delete it" in picture(app))


async def wizard(app, pilot) -> None:
    await press(pilot, "f3", "n", "enter", "enter", *"helper", "enter", *"Helps", "enter", "enter", "enter", "enter")
    await until(pilot, lambda: "Its instructions" in picture(app))


async def settings(app, pilot) -> None:
    app.push_screen(SettingsScreen("grace"))
    await until(pilot, lambda: "graceTurns" in picture(app))


async def typing(app, pilot) -> None:
    await settings(app, pilot)
    await press(pilot, "enter", "x", "enter")
    await until(pilot, lambda: "graceTurns must be" in picture(app))


async def schedules(app, pilot) -> None:
    retinue = app.retinue
    await retinue.schedules.add("auditor", "What changed since yesterday?", "2h", name="morning look")
    job = await retinue.schedules.add("fixer", "Fix what is broken", "+30m", name="look again")
    await retinue.schedules.enable(job.id, False)
    await retinue.supervisor.project.log.transact(
        lambda db: db.execute(
            "UPDATE schedules SET id=CASE name WHEN 'morning look' THEN 'aaaa1111' ELSE 'bbbb2222' END"
        )
    )
    app.push_screen(SchedulesScreen())
    await until(pilot, lambda: "bbbb2222" in picture(app))


async def toolkit(app, pilot) -> None:
    app.push_screen(ToolkitScreen("agents"))
    await until(pilot, lambda: "[PROJECT]" in picture(app))


Way = Callable[[SnapApp, object], Awaitable[None]]
LARGE = (inbox, types, settings)
"""Those that look different where there is room."""
WAYS: list[Way] = [
    inbox,
    question,
    every_answer,
    menu,
    types,
    actions,
    delete,
    wizard,
    settings,
    typing,
    schedules,
    toolkit,
]


@pytest.mark.parametrize(
    ("way", "size"),
    [pytest.param(way, (80, 24), id=f"{way.__name__}-80x24") for way in WAYS]
    + [pytest.param(way, (120, 40), id=f"{way.__name__}-120x40") for way in LARGE],
)
def test_picture(place, snap_compare, way, size):
    async def before(pilot) -> None:
        await way(pilot.app, pilot)
        await pilot.pause()

    assert snap_compare(SnapApp(place, RETINUE_DISABLE_BUILTIN_AGENTS="1"), terminal_size=size, run_before=before)
