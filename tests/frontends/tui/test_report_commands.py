"""Commands that tell about the conversation or go to another one: /context, /cost, /export, /memory, /resume, …"""

from __future__ import annotations

import os
import stat

from retinue.app.context import conversation_markdown
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.person_prompt import PersonPrompt
from retinue.core.usage import Usage
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.report_commands import context_lines, cost_lines
from retinue.frontends.tui.screens.memory import MemoryScreen
from retinue.frontends.tui.screens.sessions import SessionsScreen
from retinue.frontends.tui.screens.toolkit import ToolkitScreen
from tests.frontends.tui.watch_scene import picture, until, watching


async def send(pilot, text: str) -> None:
    pilot.app._prompt.put(text)
    await pilot.press("enter")
    await pilot.pause()


async def answered(scene, app, pilot, words: str, answer: str = "Done.") -> None:
    await send(pilot, words)
    await scene.model(words).asked()
    scene.model(words).say(answer)
    await until(pilot, lambda: app.session.state == "idle" and app.session.run.outcome is not None)


async def test_context_says_what_fills_the_window_before_and_after_the_first_answer(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        (tmp_path / "project" / "AGENTS.md").write_text("Use tabs. " * 200)
        await send(pilot, "/context")
        await until(pilot, lambda: "Instruction files" in picture(app) and "Tools" in picture(app))
        assert "Messages" not in picture(app)
        await answered(scene, app, pilot, "hello")
        await send(pilot, "/context")
        await until(pilot, lambda: "Messages" in picture(app) and "Free" in picture(app))


def test_the_table_of_the_context_adds_up_to_the_window() -> None:
    sizes = {"System prompt": 500, "Tools": 1_500, "Memory": 0, "Messages": 98_000}
    lines = context_lines(sizes, "claude", 200_000, counted=101_000)
    assert lines[0] == "claude: 100.0k tokens of 200.0k (50.0 %), estimated"
    assert lines[1].split() == ["System", "prompt", "500", "0.2", "%", "▏"]
    assert "Memory" not in "\n".join(lines)
    assert lines[3].endswith("█" * 12)
    assert lines[4].split()[:2] == ["Free", "100.0k"]
    assert "101.0k" in lines[5]


def card(run_id: str, name: str, root: str, tokens: int, cost: float | None) -> RunCard:
    return RunCard(run_id, root_id=root, agent=name, model="anthropic/a", usage=Usage(tokens, 0, cost_usd=cost))


def test_cost_is_told_by_agent_and_model_and_only_of_this_conversation() -> None:
    cards = [
        card("m", "main", "m", 1_000, 0.01),
        card("a", "Explore", "m", 2_000, 0.02),
        card("b", "Explore", "m", 3_000, 0.03),
        card("o", "main", "o", 9_000, 9.0),
    ]
    lines = cost_lines(cards, "m")
    assert [line.split()[0] for line in lines[:3]] == ["main", "Explore", "together"]
    assert "2 runs" in lines[1]
    assert "5.0k token" in lines[1]
    assert "6.0k token  ~$0.06" in lines[2]
    assert cost_lines(cards, None) == ["Nothing was spent in this conversation yet. All of this project: retinue cost"]


async def test_cost_stays_the_same_after_clear_and_going_back(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await answered(scene, app, pilot, "hello")
        main = app.session.main_id
        before = cost_lines(app.board.cards.values(), main)
        await send(pilot, "/clear")
        await until(pilot, lambda: app.session.main_id is None)
        await send(pilot, "/cost")
        await until(pilot, lambda: "Nothing was spent in this conversation yet." in picture(app))
        await send(pilot, f"/resume {main[:8]}")
        await until(pilot, lambda: app.session.main_id == main)
        assert cost_lines(app.board.cards.values(), main) == before
        await send(pilot, "/cost")
        await until(pilot, lambda: before[-2] in picture(app))


async def test_a_conversation_is_exported_once_and_never_over_a_file(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await send(pilot, "/export")
        await until(pilot, lambda: "There is no conversation to export yet." in picture(app))
        await answered(scene, app, pilot, "hello", "Good **day**.")
        await send(pilot, "/export talk.md")
        await until(pilot, lambda: "Written to" in picture(app))
        written = tmp_path / "project" / "talk.md"
        assert written.read_text() == "# hello\n\n## You\n\nhello\n\n## Agent\n\nGood **day**.\n"
        written.write_text("mine")
        await send(pilot, "/export talk.md")
        await until(pilot, lambda: "is left as it is" in picture(app))
        assert written.read_text() == "mine"


def test_an_export_has_words_calls_and_results_and_no_control_characters() -> None:
    prompt = PersonPrompt("see @a.txt")
    prompt.add("attached_file", "a.txt", "one\ntwo")
    call = ToolCall("c1", "grep", {"pattern": "x\x1b[2J"})
    messages = [
        user(prompt.render()),
        AssistantMessage((Text("Look."), call), "tool_use", Usage(), "m"),
        ToolMessage((ToolResult("c1", "grep", (Text("```\nfound"),)),)),
    ]
    text = conversation_markdown("see @a.txt", messages)
    assert "- file a.txt · 2 lines" in text
    assert "two" not in text
    assert "**grep** pattern: x" in text
    assert "````\n```\nfound\n````" in text
    assert "\x1b" not in text


async def test_screens_open_by_their_commands(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        for text, kind in (("/resume", SessionsScreen), ("/doctor", ToolkitScreen), ("/memory", MemoryScreen)):
            await send(pilot, text)
            await until(pilot, lambda kind=kind: isinstance(app.screen, kind))
            await pilot.press("escape")
            await until(pilot, lambda: len(app.screen_stack) == 1)
        await send(pilot, "/mcp")
        await until(pilot, lambda: "No MCP servers." in picture(app))
        await send(pilot, "/resume zzzz")
        await until(pilot, lambda: "See which there are: /resume" in picture(app))


async def test_memory_lists_what_is_read_and_opens_it_in_the_editor(tmp_path, monkeypatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/edited\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setitem(os.environ, "EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        (tmp_path / "project" / "AGENTS.md").write_text("one\ntwo\n")
        await send(pilot, "/memory")
        await until(pilot, lambda: "read · 2 lines" in picture(app))
        assert "not there yet" in picture(app)
        await pilot.press("enter")
        # A test has no terminal to leave to an editor: that is said, and the app goes on.
        await until(pilot, lambda: "cannot be left" in picture(app) or (tmp_path / "edited").exists())


async def test_new_begins_with_the_words_behind_it_and_init_sends_the_shipped_command(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await answered(scene, app, pilot, "hello")
        first = app.session.main_id
        await send(pilot, "/new something else")
        await scene.model("something else").asked()
        assert app.session.main_id != first
        scene.model("something else").say("Fine.")
        await until(pilot, lambda: app.session.state == "idle")
        await send(pilot, "/new")
        await until(pilot, lambda: app.session.main_id is None)
        await send(pilot, "/init mention the tests")
        request = await scene.model("/init mention the tests").asked()
        assert "Write the file AGENTS.md" in str(request.messages)
        assert "The person adds: mention the tests" in str(request.messages)


async def test_a_conversation_that_rests_is_shortened_when_something_is_said_next(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await answered(scene, app, pilot, "hello", "A long answer. " * 2_000)
        await send(pilot, "/compact the names of files")
        await until(pilot, lambda: "will be compacted with your next message" in picture(app))


async def test_runs_that_read_a_file_are_listed_by_its_path(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        (tmp_path / "project" / "notes.txt").write_text("remember")
        await send(pilot, "look at the notes")
        await scene.model("look at the notes").asked()
        scene.model("look at the notes").call("read", path="notes.txt")
        await scene.model("look at the notes").asked()
        scene.model("look at the notes").say("Done.")
        await until(pilot, lambda: app.session.state == "idle" and app.session.run.outcome is not None)
        await send(pilot, "/touched notes.txt")
        await until(pilot, lambda: f"{app.session.run.id[:8]}  main  look at the notes" in picture(app))
        await send(pilot, "/touched other.txt")
        await until(pilot, lambda: "No run read or wrote other.txt." in picture(app))
