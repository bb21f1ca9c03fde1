"""Settings in the terminal app: typed, checked, explained, written to the file one chooses."""

from __future__ import annotations

import json

import pytest

from retinue.app.settings import as_text, choices, problem
from retinue.frontends.tui.screens.dialogs import Ask, Pick
from retinue.frontends.tui.screens.external_editor import Write
from retinue.frontends.tui.screens.settings import SettingsScreen, about, setting_rows
from retinue.frontends.tui.screens.sheet import HEADING, Rows
from retinue.settings.load import load_settings, raw_value
from retinue.settings.table import fields
from tests.frontends.tui.screen_scene import at_home, opened, picture, press, until
from tests.program.conftest import project

__all__ = ["project"]


@pytest.fixture
def home(project, monkeypatch):
    at_home(project, monkeypatch)
    return project


async def at(app, pilot, name: str) -> None:
    app.action_open_screen("settings")
    await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
    rows = app.screen.query_one(Rows)
    await until(pilot, lambda: rows.option_count)
    rows.highlighted = rows.get_option_index(name)
    await pilot.pause()


def file(project, target: str):
    folder = project.home if target == "user" else project.cwd
    path = folder / ".retinue" / ("settings.local.json" if target == "local" else "settings.json")
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("target", ["project", "local", "user"])
async def test_a_number_is_typed_and_written_where_one_chose(home, target):
    async with opened(home) as (app, pilot):
        await at(app, pilot, "maxConcurrent")
        await press(pilot, *["w"] * ("project", "local", "user").index(target), "enter")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        assert "1 to 1024" in picture(app), "what is accepted is said"
        app.screen.query_one("Input").value = "many"
        await press(pilot, "enter")
        assert isinstance(app.screen, Ask) and "must be" in picture(app)
        app.screen.query_one("Input").value = "7"
        await press(pilot, "enter")
        await until(pilot, lambda: "maxConcurrent = 7" in picture(app))
        assert app.retinue.supervisor.queue.limit == 7, "it holds at once"
    written = {name: file(home, name) for name in ("project", "local", "user")}
    assert written.pop(target) == {"maxConcurrent": 7}
    assert not any(written.values())


async def test_words_are_chosen_and_everything_else_in_the_file_stays(home):
    path = home.cwd / ".retinue" / "settings.json"
    path.parent.mkdir()
    path.write_text('{"unknownThing": [1, 2], "fleetView": true}')
    async with opened(home) as (app, pilot):
        await at(app, pilot, "widgetMode")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await press(pilot, "home", "enter")
        await until(pilot, lambda: 'widgetMode = "all"' in picture(app))
        assert app.retinue.supervisor.settings.widget_mode == "all"
    assert json.loads(path.read_text()) == {"unknownThing": [1, 2], "fleetView": True, "widgetMode": "all"}


async def test_an_object_is_edited_as_json_until_it_is_right(home):
    async with opened(home) as (app, pilot):
        await at(app, pilot, "providers")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, Write))
        app.screen.query_one("TextArea").text = '{"box": {"baseUrl": 3}}'
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, Write) and "providers.box.baseUrl" in picture(app))
        app.screen.query_one("TextArea").text = '{"box": {"baseUrl": "http://127.0.0.1:9"}}'
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        await until(pilot, lambda: file(home, "project") is not None)
    assert file(home, "project") == {"providers": {"box": {"baseUrl": "http://127.0.0.1:9"}}}


async def test_unset_brings_back_what_lies_under_it(home):
    (home.cwd / ".retinue").mkdir()
    (home.cwd / ".retinue" / "settings.json").write_text('{"graceTurns": 9}')
    async with opened(home) as (app, pilot):
        await at(app, pilot, "graceTurns")
        assert "from      project" in picture(app)
        await press(pilot, "u")
        await until(pilot, lambda: "graceTurns = 5" in picture(app))
    assert file(home, "project") == {}


async def test_a_stronger_layer_is_named(home, monkeypatch):
    (home.cwd / ".retinue").mkdir()
    (home.cwd / ".retinue" / "settings.local.json").write_text('{"graceTurns": 9}')
    async with opened(home) as (app, pilot):
        await at(app, pilot, "graceTurns")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        app.screen.query_one("Input").value = "3"
        await press(pilot, "enter")
        await until(pilot, lambda: "no effect here" in " ".join(picture(app).split()))
        assert app.retinue.supervisor.settings.grace_turns == 9


async def test_a_file_that_cannot_be_written_leaves_it_to_the_session(home):
    path = home.cwd / ".retinue" / "settings.json"
    path.parent.mkdir()
    path.write_text("{ broken")
    told = []
    async with opened(home) as (app, pilot):
        app.retinue.events.on("subagents:settings_changed", told.append)
        await at(app, pilot, "maxConcurrent")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        app.screen.query_one("Input").value = "6"
        await press(pilot, "enter")
        await until(pilot, lambda: "session only; failed to persist" in " ".join(picture(app).split()))
        assert app.retinue.supervisor.queue.limit == 6
    assert path.read_text() == "{ broken"
    assert [each["persisted"] for each in told] == [False]


async def test_turning_scheduling_off_stops_it_at_once(home):
    async with opened(home) as (app, pilot):
        assert app.retinue.schedules.active
        await at(app, pilot, "schedulingEnabled")
        for wanted, active in (("end", False), ("home", True)):
            await press(pilot, "enter")
            await until(pilot, lambda: isinstance(app.screen, Pick))
            await press(pilot, wanted, "enter")
            await until(pilot, lambda active=active: app.retinue.schedules.active is active)


async def test_finding_settings_by_words(home):
    async with opened(home) as (app, pilot):
        await press(pilot, *"/settings web", "enter")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        assert "find: web" in picture(app)
        await press(pilot, "slash", *"graceTurns", "enter")
        await until(pilot, lambda: "graceTurns" in picture(app))
        ids = [each.id for each in app.screen.query_one(Rows).options if not each.id.startswith(HEADING)]
        assert ids == ["graceTurns"]
        await press(pilot, "slash", *"nosuchword", "enter")
        await until(pilot, lambda: "Nothing has these words" in picture(app))
        await press(pilot, "enter", "u", "slash", "enter")
        await until(pilot, lambda: app.screen.query_one(Rows).option_count > 50)


# Rows


@pytest.mark.parametrize("room", [10, 30, 75, 115])
def test_every_setting_is_a_row_that_fits(home, room):
    loaded = load_settings(home.cwd, environment=home.environment)
    rows = setting_rows(loaded, (), room)
    assert {key for key, _ in rows if not key.startswith(HEADING)} == set(fields())
    assert len({key for key, _ in rows}) == len(rows)
    assert all(line.cell_len <= max(room, 20) for _, line in rows)


@pytest.mark.parametrize("name", sorted(fields()))
def test_every_default_can_be_typed_as_it_is_shown(home, name):
    field = fields()[name]
    loaded = load_settings(home.cwd, environment=home.environment)
    assert about(loaded.explain(name)).plain.startswith(name)
    text = as_text(field, field.default)
    if choices(field) is not None:
        assert all(not problem(field, value) for value, _ in choices(field))
    if text and field.default not in ((), {}):
        assert problem(field, text) == "", (text, raw_value(field, text))


def test_a_hidden_secret_is_never_written_over_the_real_one(home):
    field = fields()["providers"]
    shown = as_text(field, {"box": {"baseUrl": "http://x", "apiKey": "sk-secret"}})
    assert "sk-secret" not in shown
    assert "would be lost" in problem(field, shown)
