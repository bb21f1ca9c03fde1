"""The first screen: what a newcomer reads before the first word is said."""

from __future__ import annotations

from retinue.core.version import __version__
from retinue.frontends.tui.chat.welcome import NO_MODEL, WelcomeFacts, short_folder, tip_for, welcome_rows
from tests.frontends.tui.screen_scene import SnapApp, at_home
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.watch_scene import picture, until, watching
from tests.program.conftest import project  # noqa: F401 - a fixture


def test_what_is_not_known_yet_is_said_to_be_looked_for() -> None:
    rows = dict(welcome_rows(WelcomeFacts("1.0", "~/project", "asks before changes")))
    assert rows["model"] == rows["loaded"] == "…"
    assert rows["folder"] == "~/project"


def test_the_rows_say_model_key_mode_folder_and_what_was_loaded() -> None:
    facts = WelcomeFacts("1.0", "~/p", "plans only", "main", "a/b", "key from A_KEY", ("2 agents", "AGENTS.md"), "tip")
    assert welcome_rows(facts) == [
        ("model", "a/b · key from A_KEY"),
        ("mode", "plans only · shift+tab for another"),
        ("folder", "~/p ⎇ main"),
        ("loaded", "2 agents · AGENTS.md"),
    ]


def test_a_folder_below_the_home_is_short(tmp_path) -> None:
    assert short_folder(tmp_path / "a" / "b", tmp_path) == "~/a/b"
    assert short_folder(tmp_path, tmp_path) == "~"
    assert short_folder(tmp_path, tmp_path / "other") == str(tmp_path)


def test_the_tip_changes_with_the_hour() -> None:
    assert tip_for(0.0) == tip_for(3_599.0) != tip_for(3_600.0)


async def test_the_first_screen_shows_model_and_files_and_comes_back_after_clear(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        (app.project.cwd / "AGENTS.md").write_text("Be brief.")
        await until(pilot, lambda: "agents · " in picture(app) and "claude-sonnet-4-5" in picture(app))
        assert f"Retinue {__version__}" in picture(app)
        assert "claude-sonnet-4-5" in picture(app).splitlines()[-1], "the status line has the model from the start"
        await type_in(pilot, "hello")
        await scene.model("hello").asked()
        scene.model("hello").say("There.")
        await until(pilot, lambda: app.session.state == "idle" and "There." in picture(app))
        await type_in(pilot, "/clear")
        await until(pilot, lambda: "There." not in picture(app) and "Retinue" in picture(app))
        assert "claude-sonnet-4-5" in picture(app).splitlines()[-1]


async def test_without_a_model_the_first_screen_says_so(project, monkeypatch) -> None:  # noqa: F811
    at_home(project, monkeypatch)
    app = SnapApp(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: NO_MODEL in picture(app))
        assert "no AGENTS.md or CLAUDE.md" in picture(app)
