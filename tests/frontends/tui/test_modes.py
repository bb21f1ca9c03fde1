"""Permission modes in the app: shift+tab chooses, the status line shows, the main agent follows."""

from __future__ import annotations

import pytest

from retinue.app.modes import MODE_ENTRIES, mode_words, next_mode
from retinue.settings.table import PERMISSION_MODES as KNOWN
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.watch_scene import picture, until, watching


def status(app) -> str:
    return picture(app).splitlines()[-1]


def test_every_mode_there_is_has_words_of_its_own() -> None:
    assert tuple(sorted(entry.mode for entry in MODE_ENTRIES)) == tuple(sorted(KNOWN))
    assert len({entry.words for entry in MODE_ENTRIES}) == len(MODE_ENTRIES)
    assert mode_words("nosuch") == "nosuch"


@pytest.mark.parametrize(
    ("mode", "started_with", "following"),
    [
        ("default", "default", "acceptEdits"),
        ("acceptEdits", "default", "plan"),
        ("plan", "default", "default"),
        ("plan", "bypassPermissions", "bypassPermissions"),
        ("bypassPermissions", "bypassPermissions", "default"),
        ("bypassPermissions", "default", "default"),
    ],
)
def test_nobody_gets_to_bypass_by_a_key_unless_the_app_was_started_so(mode, started_with, following) -> None:
    assert next_mode(mode, started_with) == following


async def test_shift_tab_cycles_and_the_next_message_has_the_mode(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, permissions_default_mode="default") as (scene, app, pilot):
        await until(pilot, lambda: "asks before changes" in status(app))
        await pilot.press("shift+tab")
        await until(pilot, lambda: "accepts edits" in status(app))
        await pilot.press("shift+tab")
        await until(pilot, lambda: "plans only" in status(app))
        await type_in(pilot, "hello")
        request = await scene.model("hello").asked()
        assert "Plan mode" in request.system
        assert "exit_plan" in {tool.name for tool in request.tools}
        assert "edit" not in {tool.name for tool in request.tools}


async def test_a_running_agent_gets_the_mode_at_its_next_call(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, permissions_default_mode="default") as (scene, app, pilot):
        await type_in(pilot, "hello")
        model = scene.model("hello")
        await model.asked()
        await pilot.press("shift+tab")
        await until(pilot, lambda: app.session.run.mode == "acceptEdits")
        model.call("write", path="made.txt", content="made")
        request = await model.asked()
        assert (app.project.cwd / "made.txt").read_text() == "made"
        await pilot.press("shift+tab")
        await until(pilot, lambda: app.session.run.mode == "plan")
        model.call("write", path="other.txt", content="made")
        request = await model.asked()
        assert "The mode is plan" in str(request.messages)
        assert not (app.project.cwd / "other.txt").exists()
        assert "exit_plan" in {tool.name for tool in request.tools}
        await pilot.press("shift+tab")
        await until(pilot, lambda: app.session.run.mode == "default" and "asks before" in status(app))
        model.say("Done.")
        await until(pilot, lambda: app.session.state == "idle")


async def test_the_mode_chosen_between_two_messages_holds_for_the_second_and_is_recorded(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, permissions_default_mode="default") as (scene, app, pilot):
        await type_in(pilot, "hello")
        model = scene.model("hello")
        await model.asked()
        model.say("There.")
        await until(pilot, lambda: app.session.state == "idle" and "There." in picture(app))
        await pilot.press("shift+tab", "shift+tab")
        await until(pilot, lambda: "plans only" in status(app))
        await type_in(pilot, "make a plan")
        request = await model.asked()
        assert "switched to plan mode" in str(request.messages)
        names = {tool.name for tool in request.tools}
        assert "exit_plan" in names and "edit" not in names
        model.say("A plan.")
        await until(pilot, lambda: app.session.state == "idle" and "A plan." in picture(app))
        run_id = app.session.main_id
        await type_in(pilot, "/clear")
        await until(pilot, lambda: "A plan." not in picture(app))
        app.session.mode = "default"
        await app.open_session(run_id)
        assert app.session.mode == "plan"


async def test_in_another_screen_shift_tab_changes_no_mode(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, permissions_default_mode="default") as (_, app, pilot):
        await pilot.press("f1")
        await until(pilot, lambda: "Keys" in picture(app))
        await pilot.press("shift+tab")
        await pilot.pause()
        assert app.session.mode == "default"
