"""A new agent: step by step, or written by an agent. Leaving at any step leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.agents.catalog import Catalog
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.manage import WRITER_TURNS, brief, fields, look
from retinue.frontends.tui.screens.agents import AgentsScreen
from retinue.frontends.tui.screens.dialogs import Ask, ConfirmScreen, Pick
from retinue.frontends.tui.screens.external_editor import Write
from retinue.frontends.tui.screens.inbox import InboxScreen
from retinue.frontends.tui.screens.sheet import Rows
from retinue.frontends.tui.screens.wizard import GenerateScreen
from tests.frontends.tui.screen_scene import at_home, opened, picture, press, quick, until
from tests.program.conftest import project, serve
from tests.program.model_server import Reply, Request

__all__ = ["project", "serve"]

GOOD = "---\nname: helper\ndescription: Helps with tests\ntools: read\n---\n\nYou help.\n"


@pytest.fixture
def home(project, monkeypatch):
    at_home(project, monkeypatch)
    quick(monkeypatch)
    return project


def target(project, user: bool = False) -> Path:
    return (project.home if user else project.cwd) / ".retinue" / "agents" / "helper.md"


async def started(app, pilot) -> None:
    await press(pilot, "f3")
    await until(pilot, lambda: isinstance(app.screen, AgentsScreen))
    await press(pilot, "n")
    await until(pilot, lambda: isinstance(app.screen, Pick))


async def pick(app, pilot, value: str) -> None:
    await until(pilot, lambda: isinstance(app.screen, Pick) and value in app.screen._values)
    screen = app.screen
    screen.query_one(Rows).highlighted = screen._values.index(value)
    await press(pilot, "enter")
    await until(pilot, lambda: app.screen is not screen)


async def ask(app, pilot, text: str) -> None:
    await until(pilot, lambda: isinstance(app.screen, Ask))
    screen = app.screen
    screen.query_one("Input").value = text
    await press(pilot, "enter")
    await until(pilot, lambda: app.screen is not screen)


async def write(app, pilot, text: str | None = None) -> None:
    await until(pilot, lambda: isinstance(app.screen, Write))
    screen = app.screen
    if text is not None:
        screen.query_one("TextArea").text = text
    await press(pilot, "ctrl+s")
    await until(pilot, lambda: app.screen is not screen)


STEPS = [
    (pick, "manual"),
    (pick, "project"),
    (ask, "helper"),
    (ask, 'Helps: with "tests" # always'),
    (pick, "custom"),
    (ask, "read, edit"),
    (pick, "custom"),
    (ask, "openai/gpt-5.5: x"),
    (pick, "high"),
    (write, "You help.\n\nAlways."),
]


async def test_step_by_step(home):
    async with opened(home) as (app, pilot):
        await started(app, pilot)
        for how, value in STEPS:
            await how(app, pilot, value)
        await until(pilot, lambda: "Written: .retinue/agents/helper.md" in picture(app))
        spec = app.retinue.agents.find("helper").spec
    assert spec.description == 'Helps: with "tests" # always', "a colon and a # survive"
    assert spec.tools.allow == ("read", "edit")
    assert (spec.model.name, spec.model.thinking) == ("openai/gpt-5.5: x", "high")
    assert spec.prompt == "You help.\n\nAlways."
    assert target(home).exists()


async def test_a_personal_agent_with_what_is_proposed(home):
    async with opened(home) as (app, pilot):
        await started(app, pilot)
        await pick(app, pilot, "manual")
        await pick(app, pilot, "user")
        await ask(app, pilot, "helper")
        await ask(app, pilot, "Helps")
        await pick(app, pilot, "read-only")
        await pick(app, pilot, "inherit")
        await pick(app, pilot, "inherit")
        await write(app, pilot)
        await until(pilot, lambda: "Written: ~/.retinue/agents/helper.md" in picture(app))
        spec = app.retinue.agents.find("helper").spec
    text = target(home, user=True).read_text()
    assert spec.tools.allow == ("read", "grep", "find", "ls")
    assert "model" not in text and "thinking" not in text
    assert "You are helper" in spec.prompt


@pytest.mark.parametrize("done", range(len(STEPS)))
async def test_leaving_at_any_step_leaves_nothing_behind(home, done):
    async with opened(home) as (app, pilot):
        await started(app, pilot)
        for how, value in STEPS[:done]:
            await how(app, pilot, value)
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(app.screen, AgentsScreen))
    assert not (home.cwd / ".retinue").exists()


async def test_a_name_that_cannot_be_one_is_asked_again(home):
    async with opened(home) as (app, pilot):
        await started(app, pilot)
        await pick(app, pilot, "manual")
        await pick(app, pilot, "project")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        for bad in ("../evil", "a:b", "con", "   "):
            app.screen.query_one("Input").value = bad
            await press(pilot, "enter")
            assert isinstance(app.screen, Ask)
        assert "Say something" in picture(app)


async def test_a_file_that_exists_is_replaced_only_after_a_yes(home):
    path = target(home)
    path.parent.mkdir(parents=True)
    path.write_text(GOOD)
    async with opened(home) as (app, pilot):
        for answer, replaced in (("n", False), ("y", True)):
            await press(pilot, "f3")
            await press(pilot, "n")
            for how, value in STEPS[:3]:
                await how(app, pilot, value)
            await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
            await press(pilot, answer)
            if replaced:
                for how, value in STEPS[3:]:
                    await how(app, pilot, value)
                await until(pilot, lambda: "Written" in picture(app))
            await until(pilot, lambda: isinstance(app.screen, AgentsScreen))
            assert (path.read_text() != GOOD) is replaced
            await press(pilot, "escape")


# Written by an agent


def writes(content: str, path: Path):
    def reply(request: Request) -> Reply:
        call = ("write", {"path": str(path), "content": content})
        return Reply(calls=[call]) if request.turn == 0 else Reply(text="It helps.")

    return reply


async def described(app, pilot) -> None:
    await started(app, pilot)
    await pick(app, pilot, "generate")
    await pick(app, pilot, "project")
    await ask(app, pilot, "helper")
    await write(app, pilot, "It helps with {tests}.")


async def approve(app, pilot) -> None:
    """Files of agents are protected: writing one is asked about in every mode."""
    await until(pilot, lambda: isinstance(app.screen, InboxScreen) and "y once" in picture(app))
    await press(pilot, "y")


async def test_an_agent_writes_it_and_the_file_is_checked(home, serve):
    server = serve(writes(GOOD, target(home)))
    async with opened(home) as (app, pilot):
        await described(app, pilot)
        await approve(app, pilot)
        await until(pilot, lambda: "Written: .retinue/agents/helper.md" in picture(app))
        assert app.retinue.agents.find("helper").spec.tools.allow == ("read",)
        row = app.retinue.runs[0]
        assert row.agent == "general-purpose"
    task = str(server.requests[0].body["messages"][0])
    assert "It helps with {tests}." in task and str(target(home)) in task
    for field in DIALECTS["retinue"].fields:
        assert f"`{field.key}`" in task, "every field is documented"


async def test_the_person_approves_what_it_writes(home, serve):
    serve(writes(GOOD, target(home)))
    home.mode = "default"
    async with opened(home) as (app, pilot):
        await described(app, pilot)
        await until(pilot, lambda: isinstance(app.screen, InboxScreen) and "You help." in picture(app))
        await press(pilot, "y")
        await until(pilot, lambda: "Written: .retinue/agents/helper.md" in picture(app))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "was not written"),
        ("\0\0", "is no agent"),
        (GOOD.replace("name: helper", "name: other"), "calls itself 'other'"),
    ],
)
async def test_what_is_no_such_agent_is_said(home, serve, content, words):
    serve(writes(content, target(home)) if content is not None else lambda request: Reply(text="Too hard."))
    async with opened(home) as (app, pilot):
        await described(app, pilot)
        if content is not None:
            await approve(app, pilot)
        await until(pilot, lambda: words in " ".join(picture(app).split()))
        if content is None:
            assert "Too hard." in picture(app)


async def test_it_has_few_turns(home, serve):
    server = serve(lambda request: Reply(calls=[("read", {"path": f"f{request.turn % 5}.txt"})]))
    async with opened(home) as (app, pilot):
        await described(app, pilot)
        await until(pilot, lambda: "was not written" in " ".join(picture(app).split()), 60)
        limits = app.retinue.supervisor.settings
        assert WRITER_TURNS <= len(server.requests) <= WRITER_TURNS + limits.grace_turns + 1
        assert app.retinue.runs[0].ended in ("steered", "aborted")


async def test_esc_stops_the_writing_agent(home, serve):
    serve(lambda request: Reply(hang=True))
    async with opened(home) as (app, pilot):
        await described(app, pilot)
        await until(pilot, lambda: isinstance(app.screen, GenerateScreen) and "general-purpose" in picture(app))
        await until(pilot, lambda: app.retinue.runs and app.retinue.runs[0].state == "running")
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(app.screen, AgentsScreen))
        assert app.retinue.runs[0].ended == "stopped"
    assert not target(home).exists()


# Without a screen


def test_what_a_person_wrote_fills_no_marks(tmp_path):
    text = brief("x", "{path} {fields} {nothing}", tmp_path / "x.md", ["read"])
    assert "> {path} {fields} {nothing}" in text
    assert fields() in text and "{" not in text.replace("{path} {fields} {nothing}", "")


def test_looking_at_what_was_written(tmp_path):
    path = tmp_path / "helper.md"
    assert "was not written" in look(path, "helper").problem
    path.write_text(GOOD)
    assert look(path, "helper").problem == ""
    path.write_text(GOOD.replace("description:", "descripton:"))
    found = look(path, "helper")
    assert not found.problem and any(each.key == "descripton" for each in found.findings)


def test_the_new_agent_is_seen_by_everybody(home):
    target(home).parent.mkdir(parents=True)
    target(home).write_text(GOOD)
    assert "helper" in Catalog.load(home.cwd).names
