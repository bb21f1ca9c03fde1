"""A part of a model's name means the same at every door: the newest of its family that the server lists."""

from __future__ import annotations

import json

import pytest

from retinue.frontends.tui.screens.agents import AgentsScreen, TypesScreen
from retinue.frontends.tui.screens.dialogs import Pick
from retinue.frontends.tui.screens.sheet import Rows
from tests.frontends.tui.screen_scene import at_home, opened, picture, press, quick, until
from tests.program.conftest import Project
from tests.program.model_server import ModelServer, Reply, Request

HAIKU = "claude-haiku-4-5"
LISTED = ("claude-haiku-3-5", HAIKU, "claude-sonnet-4-5", "claude-opus-4-6")
AGENT = "---\nname: cheap\ndescription: Cheap.\nmodel: {model}\n---\nYou are cheap.\n"
CASES = """agent: cheap
cases:
  - name: hello
    task: Say hello.
    fixture: start
    expect:
      ended: completed
"""


def answer(request: Request) -> Reply:
    if request.turn == 0 and "delegate" in json.dumps(request.body["messages"]):
        call = {"agent": "general-purpose", "description": "Say", "prompt": "Say hello.", "model": "haiku"}
        return Reply(calls=[("agent", call)])
    return Reply("Hello.")


@pytest.fixture
def listing(project: Project, serve: object) -> ModelServer:
    server: ModelServer = serve(answer)  # type: ignore[operator]
    server.models = LISTED
    folder = project.cwd / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "cheap.md").write_text(AGENT.format(model="haiku"))
    return server


@pytest.mark.parametrize(
    "words",
    [
        ("run", "general-purpose", "Say hello.", "--model", "haiku"),
        ("run", "cheap", "Say hello."),
        ("-p", "Say hello.", "--model", "anthropic/haiku"),
        ("models", "test", "haiku"),
        ("-p", "Please delegate this."),
    ],
    ids=["run --model", "file", "provider/family", "models test", "call"],
)
def test_the_request_has_the_model_that_the_server_lists(
    project: Project, listing: ModelServer, words: tuple[str, ...]
) -> None:
    done = project.retinue(*words)
    assert done.returncode == 0, done.stderr
    sent = {request.body["model"] for request in listing.requests}
    assert HAIKU in sent and sent <= {HAIKU, "claude-sonnet-4-5"}


def test_resolve_default_and_eval_have_the_model_that_the_server_lists(project: Project, listing: ModelServer) -> None:
    assert project.json("models", "resolve", "haiku", "--json")["model"] == f"anthropic/{HAIKU}"
    (project.cwd / "start").mkdir()
    (project.cwd / "cheap.test.yaml").write_text(CASES)
    done = project.retinue("eval", "cheap", "--cases", "cheap.test.yaml", "--live", "haiku", "--max-usd", "1")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert {request.body["model"] for request in listing.requests} == {HAIKU}
    done = project.retinue("models", "default", "haiku")
    assert f"anthropic/{HAIKU}" in done.stdout, done.stderr


def test_a_scope_narrows_a_family_and_refuses_another(project: Project, listing: ModelServer) -> None:
    settings = project.home / ".retinue" / "settings.json"
    settings.parent.mkdir()
    allowed = ["anthropic/claude-haiku-3-5", "anthropic/claude-sonnet-4-5"]
    settings.write_text(json.dumps({"scopeModels": True, "enabledModels": allowed}))
    for name in ("haiku", "anthropic/haiku"):
        assert project.json("models", "resolve", name, "--json")["model"] == "anthropic/claude-haiku-3-5"
    refused = project.retinue("run", "general-purpose", "Say hello.", "--model", "opus")
    assert refused.returncode == 2 and "Model not in scope" in refused.stderr
    assert listing.requests == []


@pytest.mark.parametrize("allowed", [["*sonnet*"], ["claude-sonnet-4-5"], ["sonnet*", "x/*"]])
def test_a_scope_of_patterns_alone_refuses_every_run(
    project: Project, listing: ModelServer, allowed: list[str]
) -> None:
    settings = project.home / ".retinue" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"scopeModels": True, "enabledModels": allowed}))
    refused = project.retinue("-p", "Say hello.")
    assert refused.returncode != 0
    assert "enabledModels" in refused.stderr and "without patterns" in refused.stderr
    assert listing.requests == []


@pytest.mark.parametrize("name", ["claude", "m", "x/y", "evil/m", "7"])
def test_a_name_that_means_no_single_model_is_refused_before_anything_is_sent(
    project: Project, listing: ModelServer, name: str
) -> None:
    refused = project.retinue("run", "general-purpose", "Say hello.", "--model", name)
    assert refused.returncode == 2
    assert "Model not found" in refused.stderr and f"anthropic/{HAIKU}" in refused.stderr
    assert listing.requests == []


async def test_the_app_and_its_wizard_have_the_model_that_the_server_lists(
    project: Project, listing: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(project, monkeypatch)
    quick(monkeypatch)
    async with opened(project, size=(100, 40)) as (app, pilot):
        await press(pilot, *"/model haiku", "enter")
        await until(pilot, lambda: f"From your next message on: anthropic/{HAIKU}" in picture(app))
        await press(pilot, "f3")
        await until(pilot, lambda: isinstance(app.screen, AgentsScreen))
        menu = app.screen.query_one(Rows)
        await until(pilot, lambda: menu.option_count)
        menu.highlighted = menu.get_option_index("types")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, TypesScreen) and f" {HAIKU} " in picture(app))
        await press(pilot, "n")
        for chosen in ("manual", "project"):
            await _pick(app, pilot, chosen)
        for text in ("helper", "Helps"):
            await until(pilot, lambda: app.screen.query("Input"))
            screen = app.screen
            screen.query_one("Input").value = text  # type: ignore[attr-defined]
            await press(pilot, "enter")
            await until(pilot, lambda before=screen: app.screen is not before)  # type: ignore[misc]
        await _pick(app, pilot, "read-only")
        await until(pilot, lambda: f"haiku · now anthropic/{HAIKU}" in picture(app))


async def _pick(app, pilot, value: str) -> None:  # type: ignore[no-untyped-def]
    await until(pilot, lambda: isinstance(app.screen, Pick) and value in app.screen._values)
    screen = app.screen
    screen.query_one(Rows).highlighted = screen._values.index(value)
    await press(pilot, "enter")
    await until(pilot, lambda: app.screen is not screen)
