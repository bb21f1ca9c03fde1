"""Text that goes in and out: the clipboard, what was said before, several lines, the person's own editor."""

from __future__ import annotations

import pytest

from retinue.app.conversation import code_blocks
from retinue.app.prompt_history import PromptHistory
from retinue.frontends.tui.chat.log import Said
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.watch_scene import picture, until, watching

ANSWER = "Here:\n\n```python\nprint(1)\n```\n\nand\n\n~~~sh\nls -l\n~~~\nDone."


async def answered(scene, app, pilot) -> None:
    await type_in(pilot, "hello")
    await scene.model("hello").asked()
    scene.model("hello").say(ANSWER)
    await until(pilot, lambda: app.session.state == "idle" and "Done." in picture(app))


async def test_copy_takes_the_answer_as_it_was_written_or_its_last_code_block(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "/copy")
        await until(pilot, lambda: "There are 0 answers to copy." in picture(app))
        await answered(scene, app, pilot)
        await type_in(pilot, "/copy")
        await until(pilot, lambda: f"Copied {len(ANSWER)} characters" in picture(app))
        assert app.clipboard == ANSWER
        await type_in(pilot, "/copy code")
        await until(pilot, lambda: "Copied 5 characters" in picture(app))
        assert app.clipboard == "ls -l"
        await type_in(pilot, "/copy 2")
        await until(pilot, lambda: "There are 1 answer to copy." in picture(app))
        await type_in(pilot, "/copy all of it")
        await until(pilot, lambda: "Say /copy, /copy 2" in picture(app))


async def test_marking_text_with_the_mouse_copies_it_and_ctrl_c_does_not_warn(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await answered(scene, app, pilot)
        await pilot.mouse_down(Said, offset=(2, 0))
        await pilot.hover(Said, offset=(7, 0))
        await pilot.mouse_up(Said, offset=(7, 0))
        await until(pilot, lambda: "hello" in app.clipboard)
        await until(pilot, lambda: "to the clipboard" in picture(app))
        app._clipboard = ""
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "hello" in app.clipboard)
        assert "Press Ctrl+C again" not in picture(app)
        assert not app.screen.get_selected_text(), "the next one is no copy any more"
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Press Ctrl+C again to quit." in picture(app))


async def test_a_backslash_before_enter_is_a_new_line(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        app._prompt.put("one\\")
        await pilot.press("enter", "t", "w", "o")
        assert app._prompt.text == "one\ntwo"
        await pilot.press("enter")
        await scene.model("one\ntwo").asked()


async def test_ctrl_r_searches_what_was_said_before_and_enter_takes_it_without_sending(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        for words in ("fix the parser", "write tests", "fix the lexer"):
            app._prompt.past.add(words)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "❯ fix the lexer" in picture(app))
        await pilot.press("f", "i", "x")
        await until(pilot, lambda: "write tests" not in picture(app))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "❯ fix the parser" in picture(app))
        await pilot.press("enter")
        assert app._prompt.text == "fix the parser"
        assert app.session.main_id is None
        # Esc leaves the search and what was typed.
        await pilot.press("ctrl+r", "escape")
        assert app._prompt.text == "fix the parser" and not app._prompt.choices.open


async def test_ctrl_g_without_an_editor_says_so_and_keeps_the_draft(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        monkeypatch.setenv("VISUAL", "no-such-editor")
        app.project.environment = {**app.project.environment, "VISUAL": "no-such-editor"}
        app._prompt.put("a draft")
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "no-such-editor" in picture(app))
        assert app._prompt.text == "a draft"


async def test_words_are_walked_and_deleted_as_in_a_shell(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch) as (_, app, pilot):
        app._prompt.put("one two three")
        await pilot.press("alt+left", "alt+backspace")
        assert app._prompt.text == "one three"
        await pilot.press("ctrl+underscore")
        assert app._prompt.text == "one two three"


def test_code_blocks_of_an_answer_in_order() -> None:
    assert code_blocks(ANSWER) == ["print(1)", "ls -l"]
    assert code_blocks("no block, `code` only") == []


def test_history_finds_all_words_newest_first_and_each_once(tmp_path) -> None:
    history = PromptHistory(tmp_path / "history.jsonl")
    for words in ("Fix a", "run b", "fix c", "Fix a"):
        history.add(words)
    assert history.find("FIX") == ["Fix a", "fix c"]
    assert history.find("nothing like it") == []
    assert history.find("", most=2) == ["Fix a", "fix c"]


@pytest.mark.parametrize("count", [74_001])
async def test_what_no_terminal_takes_is_not_said_to_be_copied(tmp_path, monkeypatch, count) -> None:
    from retinue.frontends.tui.clipboard import copy_text

    async with watching(tmp_path, monkeypatch) as (_, app, _pilot):
        assert "Not copied" in copy_text(app, "x" * count)
        assert app.clipboard == ""
