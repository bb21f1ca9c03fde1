"""Models in the app: the list to choose from, the welcome of someone without a model, and going on with a real one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue.core.events import Warned
from retinue.frontends.tui.editor.prompt import Prompt
from retinue.frontends.tui.screens.dialogs import Ask, Pick
from retinue.frontends.tui.screens.models import FirstModelScreen, ModelsScreen
from retinue.frontends.tui.screens.sheet import Rows
from retinue.models import setup
from tests.frontends.tui.screen_scene import at_home, opened, press, quick, until
from tests.program.chat_server import ChatServer
from tests.program.conftest import Project, project, serve

__all__ = ["project", "serve"]
KEY = "sk-or-v1-plain-test-key-0002"
SONNET = "anthropic/claude-sonnet-5.5"


@pytest.fixture
def home(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    at_home(project, monkeypatch)
    quick(monkeypatch)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.setattr("retinue.models.keys._keyring", lambda: None)
    return project


def with_ollama(project: Project, server: ChatServer) -> Project:
    """Return the project of a person whose Ollama is at another port."""
    environment = {**project.environment, "OLLAMA_HOST": f"127.0.0.1:{server.port}"}

    class Fixed(Project):
        @property
        def environment(self) -> dict[str, str]:
            return environment

    return Fixed(project.cwd, project.home)


async def open_list(app: Any, pilot: Any) -> ModelsScreen:
    app.on_prompt_submitted(Prompt.Submitted("/model"))
    await until(pilot, lambda: isinstance(app.screen, ModelsScreen) and bool(app.screen._models))
    await until(pilot, lambda: "Enter uses it" in str(app.screen.query_one(".hint").render()))
    screen: ModelsScreen = app.screen
    return screen


async def choose(app: Any, pilot: Any, value: str) -> None:
    await until(pilot, lambda: isinstance(app.screen, Pick) and value in app.screen._values)
    await until(pilot, lambda: app.screen.query_one(Rows).has_focus)
    app.screen.query_one(Rows).highlighted = app.screen._values.index(value)
    await press(pilot, "enter")


async def answer(app: Any, pilot: Any, text: str) -> None:
    await until(pilot, lambda: isinstance(app.screen, Ask))
    screen = app.screen
    await until(pilot, lambda: screen.query_one("Input").has_focus)
    screen.query_one("Input").value = text
    await press(pilot, "enter")
    await until(pilot, lambda: app.screen is not screen)


async def test_a_model_is_picked_from_the_same_list_that_models_list_prints(home: Project) -> None:
    with ChatServer("qwen3:8b", "llama3.2:latest") as server:
        async with opened(with_ollama(home, server)) as (app, pilot):
            screen = await open_list(app, pilot)
            names = [info.full_name for info in screen._models]
            assert names == ["ollama/qwen3:8b", "ollama/llama3.2:latest", "offline/planner"]
            screen.query_one("Input").value = "3.2"
            await until(pilot, lambda: screen.chosen == "ollama/llama3.2:latest")
            await press(pilot, "enter")
            await until(pilot, lambda: app.screen is not screen)
            assert app.session.model == "ollama/llama3.2:latest"


async def test_control_d_makes_the_model_the_default(home: Project) -> None:
    with ChatServer("qwen3:8b") as server:
        async with opened(with_ollama(home, server)) as (app, pilot):
            screen = await open_list(app, pilot)
            await press(pilot, "ctrl+d")
            await until(pilot, lambda: app.screen is not screen)
    assert json.loads((home.home / ".retinue/settings.json").read_text()) == {"model": "ollama/qwen3:8b"}


async def test_a_name_that_means_nothing_is_said_with_the_nearest(home: Project) -> None:
    with ChatServer("qwen3:8b") as server:
        async with opened(with_ollama(home, server)) as (app, pilot):
            app.on_prompt_submitted(Prompt.Submitted("/model qewn3"))
            await until(pilot, lambda: any("Did you mean ollama/qwen3:8b?" in text for text in notices(app)))
            assert app.session.model is None


async def test_names_are_offered_behind_the_command_and_what_was_typed_is_used(home: Project) -> None:
    with ChatServer("qwen3:8b", "qwen3:32b", "llama3.2:latest") as server:
        async with opened(with_ollama(home, server)) as (app, pilot):
            prompt = app.query_one(Prompt)
            prompt.insert("/model qwen3")
            offered = ["ollama/qwen3:8b", "ollama/qwen3:32b"]
            await until(pilot, lambda: [each.text for each in prompt.choices.candidates] == offered)
            await press(pilot, "down", "enter")
            await until(pilot, lambda: app.session.model == "ollama/qwen3:32b")
            prompt.insert("/model llama3.2")
            await until(pilot, lambda: len(prompt.choices.candidates) == 1)
            await press(pilot, "enter")
            await until(pilot, lambda: app.session.model == "ollama/llama3.2:latest")


def notices(app: Any) -> list[str]:
    from retinue.frontends.tui.chat.log import Notice

    return [str(notice.render()) for notice in app.query(Notice)]


async def test_the_first_start_without_a_model_offers_every_way_to_one(home: Project) -> None:
    async with opened(home, first_model=True) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, FirstModelScreen) and len(app.screen._values) > 5)
        values = app.screen._values
        assert [f"key:{name}" in values for name in setup.KEY_PAGES] == [True] * len(setup.KEY_PAGES)
        assert values[-2:] == ["address", "planner"]
        await choose(app, pilot, "planner")
        await until(pilot, lambda: not isinstance(app.screen, FirstModelScreen))
    async with opened(home, first_model=True) as (app, pilot):
        await until(pilot, lambda: app.finder.selection is not None)
        await pilot.pause()
        assert not isinstance(app.screen, FirstModelScreen), "whoever chose the planner is not asked again"


async def test_a_server_on_this_machine_answers_without_any_question(home: Project) -> None:
    with ChatServer("qwen3:8b") as server:
        async with opened(with_ollama(home, server), first_model=True) as (app, pilot):
            await until(pilot, lambda: app.finder.selection is not None)
            await pilot.pause()
            assert not isinstance(app.screen, FirstModelScreen)
            assert app.finder.selection.info.full_name == "ollama/qwen3:8b"


async def test_an_address_and_a_key_are_asked_for_tried_and_kept(home: Project) -> None:
    with ChatServer("corp-70b", key=KEY) as server:
        async with opened(home, first_model=True) as (app, pilot):
            await choose(app, pilot, "address")
            await answer(app, pilot, server.url)
            await answer(app, pilot, "work")
            await until(pilot, lambda: isinstance(app.screen, Ask))
            assert app.screen.query_one("Input").password, "a key is not shown while it is typed"
            await answer(app, pilot, "sk-wrong")
            await until(pilot, lambda: "Check the key" in str(app.screen.query_one(".wrong").render()))
            assert not (home.home / ".retinue/keys.json").exists()
            await choose(app, pilot, "address")
            await answer(app, pilot, server.url)
            await answer(app, pilot, "work")
            await answer(app, pilot, KEY)
            await until(pilot, lambda: app.session.model == "work/corp-70b")
            await until(pilot, lambda: not isinstance(app.screen, FirstModelScreen))
            await app.session.say("Hello")
            assert app.session.run is not None
            outcome = await app.session.run.wait()
            assert outcome.text == "Hello from a real model."
    assert json.loads((home.home / ".retinue/keys.json").read_text())["work"]["key"] == KEY


async def test_a_conversation_of_the_planner_goes_on_with_the_model_that_is_there_now(home: Project) -> None:
    async with opened(home) as (app, _):
        await app.session.say("Hello")
        assert app.session.run is not None
        failure = (await app.session.run.wait()).failure
        assert failure is not None and failure.kind == "no-model" and "retinue models add" in failure.remedy
        run_id = app.session.run.id
    with ChatServer("qwen3:8b") as server:
        async with opened(with_ollama(home, server), resume=run_id) as (app, _):
            await app.session.say("And now?")
            assert app.session.run is not None
            assert (await app.session.run.wait()).text == "Hello from a real model."
            await app.session.say("And again?")
            await app.session.run.wait()
            await app.project.log.flush()
            events = app.project.log.reader.events(run_id)
            said = [event.body.text for event in events if isinstance(event.body, Warned)]
            assert [text for text in said if "until now it was the search planner" in text] == [
                "ollama/qwen3:8b answers from now on; until now it was the search planner."
            ]


async def test_a_conversation_whose_person_chose_the_planner_stays_with_it(home: Project) -> None:
    async with opened(home) as (app, _):
        app.session.model = "offline/planner"
        await app.session.say("Hello")
        assert app.session.run is not None
        await app.session.run.wait()
        run_id = app.session.run.id
    with ChatServer("qwen3:8b") as server:
        async with opened(with_ollama(home, server), resume=run_id) as (app, _):
            await app.session.say("And now?")
            assert app.session.run is not None
            assert "retinue models add" in (await app.session.run.wait()).text
