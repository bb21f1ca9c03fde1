"""/permissions and /plan in the app: modes explained, rules with their files, added and removed."""

from __future__ import annotations

import json

import pytest

from retinue.app.permissions import rule_problem
from retinue.errors import UsageError
from retinue.frontends.tui.screens.dialogs import Ask, ConfirmScreen, Pick
from retinue.frontends.tui.screens.permissions import PermissionsScreen
from retinue.frontends.tui.screens.sheet import Rows
from retinue.settings.write import Append, Remove, save_settings
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.watch_scene import picture, until, watching


async def opened(app, pilot) -> None:
    await type_in(pilot, "/permissions")
    await until(pilot, lambda: isinstance(app.screen, PermissionsScreen) and "Rules" in picture(app))


async def choose(app, pilot, beginning: str) -> None:
    rows = app.screen.query_one(Rows)
    ids = [rows.get_option_at_index(number).id for number in range(rows.option_count)]
    rows.highlighted = next(number for number, each in enumerate(ids) if each.startswith(beginning))
    await pilot.pause()


def test_what_is_no_rule_is_said() -> None:
    assert rule_problem("Bash(npm test:*)") == ""
    assert "closing parenthesis" in rule_problem("Bash(npm")


def test_one_entry_of_a_list_is_removed_and_the_others_stay(tmp_path) -> None:
    where = {"cwd": tmp_path, "target": "user", "environment": {"RETINUE_HOME": str(tmp_path / "home")}}
    for rule in ("Read", "Bash(ls)"):
        save_settings({"permissions.allow": Append(rule)}, **where)
    for entry, left in (("nosuch", ["Read", "Bash(ls)"]), ("Read", ["Bash(ls)"])):
        saved = save_settings({"permissions.allow": Remove(entry)}, **where)
        assert json.loads(saved.path.read_text())["permissions"]["allow"] == left
    save_settings({"permissions.allow": Remove("Bash(ls)")}, **where)
    assert "allow" not in saved.path.read_text()
    with pytest.raises(UsageError):
        save_settings({"nosuch": Remove("x")}, **where)


async def test_modes_are_explained_and_chosen_but_for_those_that_need_an_option(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, permissions_default_mode="default") as (_, app, pilot):
        await opened(app, pilot)
        await choose(app, pilot, "mode: plan")
        assert "asks you to approve it" in picture(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.session.mode == "plan" and "●  plan" in picture(app))
        await choose(app, pilot, "mode: bypassPermissions")
        await pilot.press("enter")
        await until(pilot, lambda: "is not chosen by a key. Start with it: retinue" in picture(app))
        assert app.session.mode == "plan"


async def test_a_rule_is_added_shown_with_its_file_and_removed(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, permissions_default_mode="default") as (_, app, pilot):
        await opened(app, pilot)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        app.screen.query_one("Input").value = "Bash(make test:*)"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, PermissionsScreen) and "from now on" in picture(app))
        assert "Bash(make test:*)" in picture(app) and "my settings" in picture(app)
        await choose(app, pilot, "rule: 0")
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, PermissionsScreen) and "was removed" in picture(app))
        assert "0 rules" in picture(app)


async def test_a_rule_of_another_program_is_shown_and_left_alone(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, permissions_default_mode="default") as (_, app, pilot):
        folder = app.project.cwd / ".claude"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps({"permissions": {"deny": ["Read(.env)"]}}))
        await opened(app, pilot)
        await until(pilot, lambda: "Read(.env)" in picture(app))
        await choose(app, pilot, "rule: 0")
        await pilot.press("d")
        await until(pilot, lambda: "is not from Retinue's settings" in picture(app))


async def test_plan_with_words_begins_the_main_agent_in_plan_mode(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, permissions_default_mode="default") as (scene, app, pilot):
        await type_in(pilot, "/plan tidy up")
        request = await scene.model("tidy up").asked()
        assert "Plan mode" in request.system
        await until(pilot, lambda: "plans only" in picture(app))
