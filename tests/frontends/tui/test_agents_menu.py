"""/agents: who runs, which types there are, and changing their files with care."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retinue.agents.catalog import Catalog
from retinue.agents.manage import own_files, remove, reset
from retinue.app.model_choice import ModelLabels
from retinue.errors import ConfigurationError, UsageError
from retinue.frontends.tui.screens.agents import (
    AgentsScreen,
    RunningScreen,
    TypesScreen,
    actions,
    mark,
    menu_rows,
    running_rows,
    type_rows,
)
from retinue.frontends.tui.screens.dialogs import ConfirmScreen, Pick
from retinue.frontends.tui.screens.external_editor import NoEditorError, Write, editor_command
from retinue.frontends.tui.screens.settings import SettingsScreen
from retinue.frontends.tui.screens.sheet import Rows
from retinue.models.providers import Providers
from retinue.settings.load import load_settings
from tests.frontends.tui.cards import Story
from tests.frontends.tui.screen_scene import at_home, opened, picture, press, until
from tests.program.conftest import project, serve
from tests.program.model_server import Reply

__all__ = ["project", "serve"]

MINE = "---\nname: mine\ndescription: Mine alone  # keep\n---\n\nDo it.\n"


@pytest.fixture
def home(project, monkeypatch):
    at_home(project, monkeypatch)
    return project


def agent(project, text: str = MINE, name: str = "mine", user: bool = False) -> Path:
    folder = project.home / ".retinue" / "agents" if user else project.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_bytes(text.encode())
    return path


async def types(app, pilot, name: str) -> None:
    """Opens the list and goes to `name`."""
    await press(pilot, "f3")
    await until(pilot, lambda: isinstance(app.screen, AgentsScreen))
    rows = app.screen.query_one(Rows)
    await until(pilot, lambda: rows.option_count)
    rows.highlighted = rows.get_option_index("types")
    await press(pilot, "enter")
    await until(pilot, lambda: isinstance(app.screen, TypesScreen))
    rows = app.screen.query_one(Rows)
    rows.highlighted = rows.get_option_index(name)
    await pilot.pause()


async def act(app, pilot, action: str) -> None:
    """Chooses an action from those that Enter offers."""
    await press(pilot, "enter")
    await until(pilot, lambda: isinstance(app.screen, Pick))
    pick = app.screen
    assert action in pick._values, pick._values
    pick.query_one(Rows).highlighted = pick._values.index(action)
    await press(pilot, "enter")


# The first page


async def test_the_menu_says_what_there_is(home, serve):
    serve(lambda request: Reply(text="done"))
    async with opened(home) as (app, pilot):
        await press(pilot, "f3")
        first = picture(app)
        assert "Agent types (" in first and "Create new agent" in first and "Settings" in first
        assert "Running agents" not in first, "only when there are some"
        await press(pilot, "f3")
        run = await app.retinue.spawn("general-purpose", "look")
        await run.wait()
        await press(pilot, *"/agents", "enter")
        await until(pilot, lambda: "Running agents (1) — 0 running, 1 done" in picture(app))
        await press(pilot, "enter")
        assert isinstance(app.screen, RunningScreen)
        await press(pilot, "escape", "end", "enter")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        await press(pilot, "escape", "escape")
        assert len(app.screen_stack) == 1


async def test_scheduled_jobs_are_a_row_while_this_session_fires_them(home):
    async with opened(home) as (app, pilot):
        await app.retinue.schedules.add("Explore", "look", "2h")
        await press(pilot, "f3")
        await until(pilot, lambda: "Scheduled jobs (1)" in picture(app))
        await app.retinue.schedules.end()
        await until(pilot, lambda: "Scheduled jobs" not in picture(app))


# Types and what is done with them


async def test_a_built_in_agent_is_disabled_by_a_stub_and_enabled_by_deleting_it(home):
    stub = home.cwd / ".retinue" / "agents" / "Explore.md"
    async with opened(home) as (app, pilot):
        await types(app, pilot, "Explore")
        await act(app, pilot, "disable")
        await until(pilot, stub.exists)
        assert "enabled: false" in stub.read_text()
        await until(pilot, lambda: "✕  Explore" in picture(app))
        await act(app, pilot, "enable")
        await until(pilot, lambda: not stub.exists())
        await until(pilot, lambda: "✕" not in picture(app).replace("✕ disabled", ""))


async def test_switching_an_own_agent_off_and_on_leaves_its_file_as_it_was(home):
    path = agent(home, MINE.replace("\n", "\r\n"))
    before = path.read_bytes()
    async with opened(home) as (app, pilot):
        await types(app, pilot, "mine")
        await press(pilot, "d")
        await until(pilot, lambda: not app.retinue.agents.find("mine").enabled)
        assert b"# keep" in path.read_bytes()
        await press(pilot, "d")
        await until(pilot, lambda: app.retinue.agents.find("mine").enabled)
    assert path.read_bytes() == before


async def test_a_file_that_cannot_be_switched_is_said_and_not_changed(home):
    path = agent(home, "\ufeff" + MINE)
    before = path.read_bytes()
    async with opened(home) as (app, pilot):
        await types(app, pilot, "mine")
        await press(pilot, "d")
        await until(pilot, lambda: "was not changed" in picture(app))
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["project", "user"])
async def test_eject_gives_a_copy_that_means_the_same(home, place):
    folder = home.cwd if place == "project" else home.home
    path = folder / ".retinue" / "agents" / "Plan.md"
    async with opened(home) as (app, pilot):
        before = app.retinue.agents.find("Plan").spec
        await types(app, pilot, "Plan")
        await act(app, pilot, "eject")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await press(pilot, *(["down"] if place == "user" else []), "enter")
        await until(pilot, path.exists)
        await until(pilot, lambda: "is yours now" in picture(app))
        after = app.retinue.agents.find("Plan")
        assert after.path == str(path) and after.spec.prompt == before.prompt and after.spec.tools == before.tools


async def test_deleting_asks_first_and_says_what_counts_now(home):
    path = agent(home, MINE.replace("name: mine", "name: Plan"), "Plan")
    async with opened(home) as (app, pilot):
        await types(app, pilot, "Plan")
        await press(pilot, "delete")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await press(pilot, "enter")
        assert path.exists(), "Enter keeps it"
        await press(pilot, "delete")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await press(pilot, "y")
        await until(pilot, lambda: not path.exists())
        await until(pilot, lambda: "comes from" in picture(app) and "builtin" in picture(app))


async def test_a_built_in_agent_cannot_be_deleted(home):
    async with opened(home) as (app, pilot):
        await types(app, pilot, "Plan")
        await press(pilot, "delete")
        await until(pilot, lambda: "not possible" in picture(app))
        assert Path(app.retinue.agents.find("Plan").path).exists()


async def test_reset_deletes_what_stands_before_the_built_in_agent(home):
    mine = agent(home, MINE.replace("name: mine", "name: Plan"), "Plan")
    users = agent(home, MINE.replace("name: mine", "name: Plan"), "Plan", user=True)
    async with opened(home) as (app, pilot):
        await types(app, pilot, "Plan")
        await act(app, pilot, "reset")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        seen = picture(app)
        assert ".retinue/agents/Plan.md" in seen and "~/" in seen, "both are named"
        await press(pilot, "y")
        await until(pilot, lambda: not mine.exists() and not users.exists())
        await until(pilot, lambda: app.retinue.agents.find("Plan").source == "builtin")


async def test_editing_without_a_terminal_to_leave_happens_in_the_app(home, monkeypatch):
    path = agent(home)
    async with opened(home) as (app, pilot):
        await types(app, pilot, "mine")
        await press(pilot, "e")
        await until(pilot, lambda: isinstance(app.screen, Write))
        area = app.screen.query_one("TextArea")
        area.text = area.text.replace("Do it.", "Do it well.").replace("description:", "descripton:")
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "Saved" in picture(app))
        assert "Do it well." in path.read_text()
        assert "descripton" in picture(app), "lint is heard at once"
        await press(pilot, "e")
        await until(pilot, lambda: isinstance(app.screen, Write))
        await press(pilot, "escape")
        await until(pilot, lambda: "Nothing was changed" in picture(app))


async def test_a_broken_file_is_listed_and_can_be_edited(home):
    path = agent(home, "\0\0", "broken")
    async with opened(home) as (app, pilot):
        failed = [each.path for each in app.retinue.agents.failed if each.problem.severity == "error"]
        assert failed == [str(path)]
        await types(app, pilot, f"failed: {path}")
        assert "broken.md" in picture(app)
        assert "binary" in picture(app)
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, Write))
        app.screen.query_one("TextArea").text = MINE
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "mine" in app.retinue.agents.names)


async def test_everything_about_an_agent_is_shown(home):
    agent(home)
    async with opened(home) as (app, pilot):
        await types(app, pilot, "mine")
        await act(app, pilot, "show")
        await until(pilot, lambda: "Instructions" in picture(app))
        assert "Do it." in picture(app) and "description: honoured" in picture(app)


# Rows


def test_marks_and_actions_follow_where_an_agent_comes_from(home):
    agent(home)
    agent(home, MINE.replace("mine", "theirs"), "theirs", user=True)
    agent(home, MINE.replace("name: mine", "name: Plan"), "Plan")
    agent(home, "---\nname: Explore\nenabled: false\n---\n", "Explore")
    catalog = Catalog.load(home.cwd)
    found = {
        name: (mark(catalog.find(name)), [action for action, _ in actions(catalog.find(name), catalog)])
        for name in ("mine", "theirs", "Plan", "Explore", "reviewer")
    }
    assert found == {
        "mine": ("•", ["edit", "disable", "delete", "show"]),
        "theirs": ("◦", ["edit", "disable", "delete", "show"]),
        "Plan": ("•", ["edit", "disable", "reset", "delete", "show"]),
        "Explore": ("✕", ["enable", "edit", "delete", "show"]),
        "reviewer": (" ", ["eject", "disable", "show"]),
    }


def test_the_model_of_a_type_is_what_it_would_get(home):
    for name, model in (("one", "sonnet"), ("two", "no-such-model-9"), ("three", "inherit")):
        agent(home, MINE.replace("name: mine", f"name: {name}\nmodel: {model}"), name)
    environment = {**home.environment, "ANTHROPIC_API_KEY": "k"}
    settings = load_settings(home.cwd, environment=environment).settings
    label = ModelLabels(Providers(settings, environment))
    catalog = Catalog.load(home.cwd)
    assert label(catalog.find("one")).startswith("claude-sonnet")
    assert label(catalog.find("two")) == "no-such-model-9 (unavailable)"
    assert label(catalog.find("three")) == label(catalog.find("Plan")) == "inherit"


@pytest.mark.parametrize("room", [10, 20, 40, 75, 115, 300])
def test_rows_fit_the_room(home, room):
    agent(home, MINE.replace("Mine alone", "編集 👩‍👩‍👧 " * 20), "wide")
    story = Story()
    story.start("a", description="日本語\t" * 30)
    catalog = Catalog.load(home.cwd)
    rows = [*type_rows(catalog, lambda entry: "inherit" * 9, room), *running_rows(story.board.agents(), room)]
    rows += menu_rows(story.board.agents(), catalog, 3, room)
    assert all(line.cell_len <= room for _, line in rows)


def test_the_menu_counts_running_and_done(home):
    story = Story()
    story.start("a")
    story.start("b")
    story.end("b")
    rows = dict(menu_rows(story.board.agents(), Catalog.load(home.cwd), None, 80))
    assert rows["running"].plain == "Running agents (2) — 1 running, 1 done"
    assert "schedules" not in rows


# Deleting, without a screen


def test_only_the_file_that_was_meant_is_deleted(home):
    path = agent(home)
    other = agent(home, user=True)
    with pytest.raises(ConfigurationError, match="by now"):
        remove("mine", home.cwd, other)
    with pytest.raises(UsageError, match="not yours"):
        remove("Plan", home.cwd, path)
    removed = remove("mine", home.cwd, path)
    assert removed.instead is not None and removed.instead.path == str(other)
    assert remove("mine", home.cwd, other).instead is None


def test_a_reset_needs_a_built_in_agent_and_the_files_one_saw(home):
    agent(home)
    catalog = Catalog.load(home.cwd)
    assert own_files(catalog, catalog.find("mine")) == ()
    path = agent(home, MINE.replace("name: mine", "name: Plan"), "Plan")
    with pytest.raises(ConfigurationError, match="have changed"):
        reset("Plan", home.cwd, ())
    assert reset("Plan", home.cwd, (path,)).instead.source == "builtin"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete anything")
def test_a_file_that_cannot_be_deleted_is_an_error(home):
    path = agent(home)
    path.parent.chmod(0o500)
    try:
        with pytest.raises(ConfigurationError, match="cannot be deleted"):
            remove("mine", home.cwd, path)
    finally:
        path.parent.chmod(0o700)


def test_the_editor_is_the_persons(home):
    path = os.environ["PATH"]
    assert editor_command({"PATH": path, "EDITOR": "sh -c 'true'"}) == ["sh", "-c", "true"]
    assert editor_command({"PATH": path, "VISUAL": "cat", "EDITOR": "sh"}) == ["cat"]
    for bad in ("no-such-editor-9", "'unclosed"):
        with pytest.raises(NoEditorError, match="EDITOR"):
            editor_command({"PATH": path, "EDITOR": bad})
    with pytest.raises(NoEditorError, match="export EDITOR"):
        editor_command({"PATH": "/nowhere"})
