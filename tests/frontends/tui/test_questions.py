"""Questions in the conversation: drawn, never as the model reads them, with their answer."""

from __future__ import annotations

import pytest

from retinue.core.events import InboxClosed, InboxOpened, MessageAdded, ToolStarted
from retinue.core.messages import ChildAsked, ToolCall, notification
from retinue.frontends.tui.board.questions import questions_of, without_frames
from retinue.frontends.tui.chat.question import QuestionBox
from retinue.frontends.tui.screens.inbox import InboxScreen
from tests.frontends.tui.cards import Story
from tests.frontends.tui.screen_scene import quick
from tests.frontends.tui.test_app import type_in
from tests.frontends.tui.test_chat import Page, result
from tests.frontends.tui.watch_scene import picture, until, watching

ASKED = ChildAsked("a", "Explore: Count uses", "Count **tests** <too>?", ("Yes, count them", "No"))


@pytest.mark.parametrize(
    ("choice", "state", "said"),
    [("No", "answered", "→ No"), ("", "withdrawn", "→ answered by the main agent")],
)
async def test_the_question_of_an_agent_is_a_box_that_ends_with_its_answer(choice, state, said) -> None:
    app = Page()
    story = Story()
    story.start("a")
    app.chat._board = story.board
    async with app.run_test(size=(80, 24)) as pilot:
        app.push(MessageAdded(notification("An agent asks.", ASKED)))
        await until(pilot, lambda: "Explore: Count uses asks" in picture(app))
        seen = picture(app)
        assert "Count tests <too>?" in seen and "1. Yes, count them" in seen and "F2 to answer" in seen
        assert "agent-question" not in seen and "steer_subagent" not in seen
        app.chat.paint(0.0, lambda model: None)
        story.tell("a", InboxOpened("i", "question", "Count?", "c"))
        app.chat.paint(0.0, lambda model: None)
        assert not app.query_one(QuestionBox).is_settled
        story.tell("a", InboxClosed("i", state, choice, "terminal app", call_id="c"))
        app.chat.paint(0.0, lambda model: None)
        await until(pilot, lambda: said in picture(app))
        assert "F2 to answer" not in picture(app)


def test_other_messages_of_the_harness_lose_their_tags() -> None:
    assert without_frames("<system-reminder>\nBe &lt;kind&gt;.\n</system-reminder>") == "Be <kind>."
    assert without_frames("<note>one</note>\n\ntwo") == "one\n\ntwo"


def test_questions_are_read_in_our_form_and_in_that_of_claude_code() -> None:
    own = {"question": "Which?", "options": ["a"], "notes": ["n"], "several": True}
    option = {"label": "a", "description": "n"}
    theirs = {"questions": [{"question": "Which?", "options": [option], "multiSelect": True}]}
    assert questions_of(ToolCall("c", "ask_user", own)) == questions_of(ToolCall("c", "AskUserQuestion", theirs))
    assert questions_of(ToolCall("c", "ask_user", {"questions": ["Why?", 3]}))[0].text == "Why?"


async def test_the_main_agent_asks_and_the_answer_is_in_the_conversation(tmp_path, monkeypatch) -> None:
    quick(monkeypatch)
    async with watching(tmp_path, monkeypatch) as (scene, app, pilot):
        await type_in(pilot, "go")
        model = scene.model("go")
        await model.asked()
        first = {"question": "Which database?", "options": [{"label": "SQLite", "description": "one file"}, "Postgres"]}
        second = {"question": "Which parts?", "options": ["Login", "Search"], "multiSelect": True}
        model.call("ask_user", questions=[first, second])
        await until(pilot, lambda: isinstance(app.screen, InboxScreen) and "1. SQLite  one file" in picture(app))
        await pilot.press("2")
        await until(pilot, lambda: isinstance(app.screen, InboxScreen) and "1. ☐ Login" in picture(app))
        await pilot.press("1", "2", "enter")
        await until(pilot, lambda: "→ Which parts? Login, Search" in picture(app))
        assert "→ Which database? Postgres" in picture(app)
        await model.asked()


async def test_a_question_of_the_main_agent_shows_its_options_until_it_is_answered() -> None:
    app = Page()
    call = ToolCall("c", "ask_user", {"question": "Which **one**?", "options": ["red", "green"]})
    async with app.run_test(size=(80, 24)) as pilot:
        app.push(ToolStarted(call), InboxOpened("i", "question", "Which one?", "c"))
        await until(pilot, lambda: "? question for you" in picture(app) and "F2 to answer" in picture(app))
        assert "Which one?" in picture(app) and "2. green" in picture(app)
        app.push(InboxClosed("i", "answered", "red", "terminal app", call_id="c"), result(call, "Answer of ada: red"))
        await until(pilot, lambda: "→ red" in picture(app))
        assert "2. green" not in picture(app) and "Answer of" not in picture(app)
