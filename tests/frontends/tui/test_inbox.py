"""The inbox of the terminal app: every answer by a key, nobody's keys taken, each item answered once."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.text import Text

from retinue.app.rich_text import chop as folded
from retinue.core.permission import APPROVALS, InboxAnswer, InboxItem, InboxRow
from retinue.frontends.tui.editor.prompt import Prompt
from retinue.frontends.tui.screens.dialogs import Ask, Pick
from retinue.frontends.tui.screens.inbox import InboxScreen, about, answers, detail, keys_line, row
from retinue.frontends.tui.screens.inbox_watch import banner
from retinue.frontends.tui.screens.sheet import Rows
from retinue.log.inbox import answer, find, put
from retinue.settings.load import load_settings
from tests.frontends.tui.screen_scene import NOW, at_home, opened, picture, press, put_item, quick, until
from tests.program.conftest import project, serve
from tests.program.model_server import Reply, Request

__all__ = ["project", "serve"]

EDIT = ("edit", {"path": "f0.txt", "edits": [{"old": "beta", "new": "gamma"}]})
ITEM = InboxItem(
    id="aaaa000001",
    kind="approval",
    run_id="r" * 16,
    root_id="r" * 16,
    agent="Explore",
    title="bash: make deploy",
    payload={"tool": "bash", "arguments": {"command": "make deploy"}},
    reason="No rule allows bash.",
    rule="Bash(make deploy:*)",
    created_at=NOW,
)
QUESTION = replace(
    ITEM, id="aaaa000002", kind="question", title="Which one?", options=("red", "green"), rule=None, reason=""
)


def edits(request: Request) -> Reply:
    return Reply(calls=[EDIT]) if request.turn == 0 else Reply(text="done")


@pytest.fixture
def asking(project, serve, monkeypatch):
    serve(edits)
    project.mode = "default"
    at_home(project, monkeypatch)
    quick(monkeypatch)
    return project


async def asked(app, pilot):
    run = await app.retinue.spawn("general-purpose", "edit the file")
    # The keys follow when all of it has been drawn.
    shown = ("gamma", "y once")
    await until(pilot, lambda: isinstance(app.screen, InboxScreen) and all(words in picture(app) for words in shown))
    return run


@pytest.mark.parametrize(
    ("keys", "choice", "changed"),
    [
        (["y"], "allow", True),
        (["r"], "allow-run", True),
        (["a"], "allow-agent", True),
        (["A"], "always", True),
        (["n"], "deny", False),
        (["m", *"not now", "enter"], "deny", False),
        (["enter", "y"], "allow", True),
        (["enter", "down", "down", "down", "down", "enter"], "deny", False),
    ],
)
async def test_every_answer_has_a_key(asking, keys, choice, changed):
    async with opened(asking) as (app, pilot):
        run = await asked(app, pilot)
        await press(pilot, *keys)
        outcome = await run.wait()
        await until(pilot, lambda: not isinstance(app.screen, InboxScreen))
        given = app.retinue.inbox.items(all=True)[0].answer
    assert (given.choice, given.by) == (choice, "terminal app")
    assert given.message == ("not now" if "m" in keys else "")
    assert ("gamma" in (asking.cwd / "f0.txt").read_text()) is changed
    assert bool(outcome.evidence.denials) is not changed


async def test_always_is_a_rule_in_the_settings(asking):
    async with opened(asking) as (app, pilot):
        run = await asked(app, pilot)
        await press(pilot, "A")
        await run.wait()
    local = load_settings(asking.cwd, environment=asking.environment)
    assert "Edit(/f0.txt)" in local.get("permissions.allow")


async def test_what_waits_is_shown_with_its_diff_and_who_asks(asking):
    async with opened(asking) as (app, pilot):
        run = await asked(app, pilot)
        seen = picture(app)
        await press(pilot, "n")
        await run.wait()
    for words in ("general-purpose", run.id[:8], "-beta", "+gamma", "Edit(/f0.txt)", "y once", "1 waiting"):
        assert words in seen


async def test_nobody_loses_keys_while_typing(asking):
    async with opened(asking) as (app, pilot):
        prompt = app.query_one(Prompt)
        prompt.text = "I am just about to"
        run = await app.retinue.spawn("general-purpose", "edit the file")
        await until(pilot, lambda: app.facts.get("inbox") == 1)
        await press(pilot, "y")
        assert not isinstance(app.screen, InboxScreen)
        assert "y" in prompt.text
        assert "F2" in picture(app)
        assert "edit f0.txt" in picture(app)
        await press(pilot, "f2")
        await until(pilot, lambda: "gamma" in picture(app))
        await press(pilot, "y")
        await run.wait()
        await until(pilot, lambda: app.facts.get("inbox") == 0)
        assert (asking.cwd / "f0.txt").read_text().count("gamma") == 1


async def test_a_key_pressed_before_the_item_was_seen_answers_nothing(asking, monkeypatch):
    monkeypatch.setattr(InboxScreen, "settle_seconds", 3600.0)
    async with opened(asking) as (app, pilot):
        run = await asked(app, pilot)
        await press(pilot, "y", "n", "enter")
        assert [item.state for item in app.retinue.inbox.items()] == ["waiting"]
        assert isinstance(app.screen, InboxScreen)
        monkeypatch.setattr(InboxScreen, "settle_seconds", 0.0)
        await press(pilot, "n")
        await run.wait()


async def test_words_typed_into_the_inbox_are_no_answers(asking, monkeypatch):
    async with opened(asking) as (app, pilot):
        run = await asked(app, pilot)
        monkeypatch.setattr(InboxScreen, "settle_seconds", 3600.0)
        app.screen._shown_at -= 7200.0  # it was seen long ago; then someone types
        await press(pilot, *"/inbox")
        assert [item.state for item in app.retinue.inbox.items()] == ["waiting"]
        monkeypatch.setattr(InboxScreen, "settle_seconds", 0.0)
        await press(pilot, "n")
        await run.wait()


async def test_items_of_other_processes_are_there_and_do_not_open_the_inbox(asking):
    async with opened(asking) as (app, pilot):
        await put_item(app, ITEM)
        await put_item(app, QUESTION)
        await until(pilot, lambda: app.facts.get("inbox") == 2)
        assert not isinstance(app.screen, InboxScreen)
        await press(pilot, "f2")
        await until(pilot, lambda: "make deploy" in picture(app))
        assert "2 waiting" in picture(app)
        await press(pilot, "y")
        await until(pilot, lambda: "1 waiting" in picture(app))
        reader = app.retinue.supervisor.project.log.reader
        assert find(reader, ITEM.id).answer.choice == "allow"
        await press(pilot, "2")
        await until(pilot, lambda: not isinstance(app.screen, InboxScreen))
        assert find(reader, QUESTION.id).answer.choice == "green"


async def test_a_question_takes_words(asking):
    async with opened(asking) as (app, pilot):
        await put_item(app, replace(QUESTION, options=()))
        await press(pilot, "f2")
        await until(pilot, lambda: "Which one?" in picture(app))
        await press(pilot, "enter")
        assert isinstance(app.screen, Ask)
        await press(pilot, "enter")
        assert isinstance(app.screen, Ask), "nothing is no answer"
        await press(pilot, *"blue", "enter")
        reader = app.retinue.supervisor.project.log.reader
        await until(pilot, lambda: find(reader, QUESTION.id).state == "answered")
        assert find(reader, QUESTION.id).answer.choice == "blue"


async def test_a_question_with_options_takes_other_words_too(asking):
    async with opened(asking) as (app, pilot):
        await put_item(app, QUESTION)
        await press(pilot, "f2")
        await until(pilot, lambda: "Which one?" in picture(app))
        await press(pilot, "enter")
        assert isinstance(app.screen, Pick)
        await press(pilot, "end", "enter", *"blue", "enter")
        reader = app.retinue.supervisor.project.log.reader
        await until(pilot, lambda: find(reader, QUESTION.id).state == "answered")
        assert find(reader, QUESTION.id).answer.choice == "blue"


async def test_who_comes_second_is_told_who_was_first(asking, monkeypatch):
    async with opened(asking) as (app, pilot):
        await put_item(app, ITEM)
        await press(pilot, "f2")
        await until(pilot, lambda: "make deploy" in picture(app))
        folder = app.retinue.supervisor.project.state
        await asyncio.to_thread(answer, folder, ITEM, InboxAnswer("deny", by="somebody else"))
        await press(pilot, "y")
        await until(pilot, lambda: "somebody else" in picture(app) or "nothing waits" in picture(app))
        assert find(app.retinue.supervisor.project.log.reader, ITEM.id).answer.choice == "deny"
        await press(pilot, "h")
        await until(pilot, lambda: "somebody else" in picture(app))


async def test_an_answer_holds_no_secret(asking):
    async with opened(asking) as (app, pilot):
        await put_item(app, replace(QUESTION, options=()))
        await press(pilot, "f2")
        await until(pilot, lambda: "Which one?" in picture(app))
        secret = "sk-ant-api03-" + "a1B2c3D4" * 11 + "-AAAAAAAA"
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(app.screen, Ask))
        app.screen.query_one("Input").value = f"use {secret}"
        await press(pilot, "enter")
        reader = app.retinue.supervisor.project.log.reader
        await until(pilot, lambda: find(reader, QUESTION.id).state == "answered")
        assert secret not in find(reader, QUESTION.id).answer.choice


async def test_very_many_items_are_counted_and_listed_in_part(asking):
    async with opened(asking) as (app, pilot):
        log = app.retinue.supervisor.project.log
        many = [replace(ITEM, id=f"b{number:09d}", created_at=NOW + number) for number in range(150)]
        await log.transact(lambda connection: [put(connection, item, item.id) for item in many])
        await until(pilot, lambda: app.facts.get("inbox") == 150)
        await press(pilot, "f2")
        await until(pilot, lambda: "150 waiting" in picture(app))
        assert 0 < app.screen.query_one(Rows).option_count < 100


def _widest_line(app) -> int:
    return max(Text(line).cell_len for line in picture(app).splitlines())


async def test_a_very_long_call_is_read_page_by_page(asking):
    async with opened(asking) as (app, pilot):
        lines = [f"+line {number} " + "編集" * 60 for number in range(700)]
        await put_item(app, replace(ITEM, detail="\n".join(["@@ -1 +1 @@", *lines])))
        await press(pilot, "f2")
        await until(pilot, lambda: "line 0" in picture(app))
        await press(pilot, "pagedown")
        await until(pilot, lambda: "line 0" not in picture(app) and "line 3" in picture(app))
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: "+line" in picture(app) and _widest_line(app) <= 60)
        await press(pilot, "pageup", "pageup", "pageup")
        await until(pilot, lambda: "line 0" in picture(app))


@pytest.mark.parametrize("key", ["y", "r", "a", "A"])
async def test_nothing_is_allowed_before_all_of_it_was_on_the_screen(asking, key):
    command = "echo " + "--flag=value " * 40 + "\n" * 60 + "touch EVIL-TAIL"
    long = replace(ITEM, payload={"tool": "bash", "arguments": {"command": command}})
    async with opened(asking) as (app, pilot):
        await put_item(app, long)
        await press(pilot, "f2")
        await until(pilot, lambda: "PgDn shows the rest" in picture(app))
        assert "EVIL-TAIL" not in picture(app) and "y once" not in picture(app)
        await press(pilot, key)
        await press(pilot, "enter", key, "escape")
        assert [item.state for item in app.retinue.inbox.items()] == ["waiting"]
        while "EVIL-TAIL" not in picture(app):
            await press(pilot, "pagedown")
        await until(pilot, lambda: "y once" in picture(app))
        await press(pilot, key)
        await until(pilot, lambda: app.retinue.inbox.items(all=True)[0].answer is not None)


async def test_a_diff_has_its_colours(asking):
    async with opened(asking) as (app, pilot):
        await put_item(app, replace(ITEM, detail="@@ -1 +1 @@\n-old thing\n+new thing"))
        await press(pilot, "f2")
        await until(pilot, lambda: "+new thing" in picture(app))
        found = {
            segment.text.strip(): segment.style.color
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.text.strip() in ("-old thing", "+new thing", "bash: make deploy")
        }
    assert len(found) == 3 and len({str(colour) for colour in found.values()}) == 3


@given(text=st.text(max_size=300), width=st.integers(2, 90))
def test_nothing_of_a_call_is_left_out(text, width):
    line = Text(text.replace("\n", " "))
    rows = folded(line, width)
    assert "".join(row.plain for row in rows) == line.plain
    assert all(row.cell_len <= width for row in rows)


async def test_without_colours_the_chosen_item_is_still_seen(asking, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(asking) as (app, pilot):
        await put_item(app, ITEM)
        await press(pilot, "f2")
        await until(pilot, lambda: "make deploy" in picture(app))
        strip = app.screen._compositor.render_strips()[1]
        assert any(segment.style.underline for segment in strip if segment.text.strip())


# Lines


def listed(item: InboxItem, state="running") -> InboxRow:
    return InboxRow(item, state)


def test_only_answers_that_the_item_takes_are_offered():
    assert [choice.key for choice in answers(ITEM).values()] == ["y", "r", "a", "A", "n", "m"]
    assert [choice.key for choice in answers(replace(ITEM, options=("allow", "deny"))).values()] == ["y", "n", "m"]
    assert answers(QUESTION) == {}
    assert answers(replace(ITEM, state="answered")) == {}
    assert set(APPROVALS) <= set(answers(ITEM))
    assert "1–2 choose" in keys_line(QUESTION)


def test_what_an_agent_chose_cannot_draw_anything_but_itself():
    nasty = "rm \x1b[2J\x1b]0;title\x07 \u202egnp.exe\r\nsecond [bold]not markup[/]"
    item = replace(ITEM, title=nasty, payload={"tool": "bash", "arguments": {"command": nasty}})
    text = "\n".join([about(listed(item), NOW + 5).plain, *(line.plain for line in detail(item))])
    assert "\x1b" not in text and "\u202e" not in text and "\r" not in text
    assert "\\x1b[2J" in text and "[bold]not markup[/]" in text
    for width in (10, 40, 75, 200):
        line = row(listed(item), NOW + 5, width)
        assert line.cell_len <= width and "\x1b" not in line.plain


@pytest.mark.parametrize("width", range(10, 120, 7))
def test_rows_fit_whatever_the_words(width):
    for words in ("編集 " * 40, "e\u0301" * 90, "👩‍👩‍👧" * 30, "\t\tx\n" * 20, ""):
        assert row(listed(replace(ITEM, title=words, agent=words)), time.time(), width).cell_len <= width


def test_an_interrupted_run_and_an_expiry_are_said():
    text = about(listed(replace(ITEM, expires_at=NOW + 90), "interrupted"), NOW).plain
    assert "interrupted" in text and "'deny' in 1m 30s" in text
    assert banner([]) == ""
    assert "and 1 more" in banner([ITEM, QUESTION])


async def test_an_inbox_that_was_opened_by_hand_closes_after_the_last_answer(asking):
    async with opened(asking) as (app, pilot):
        prompt = app.query_one(Prompt)
        prompt.text = "typing"
        run = await app.retinue.spawn("general-purpose", "edit the file")
        await until(pilot, lambda: app.facts.get("inbox") == 1)
        await press(pilot, "f2")
        await until(pilot, lambda: isinstance(app.screen, InboxScreen) and "gamma" in picture(app))
        await press(pilot, "n")
        await run.wait()
        await until(pilot, lambda: not isinstance(app.screen, InboxScreen))
        await press(pilot, "x")
        assert "x" in prompt.text


async def test_an_inbox_without_anything_to_answer_stays_open_to_be_read(asking):
    async with opened(asking) as (app, pilot):
        await press(pilot, "f2")
        await until(pilot, lambda: "nothing waits for an answer" in picture(app))
        await pilot.pause(0.6)
        assert isinstance(app.screen, InboxScreen)


async def test_in_a_high_terminal_the_conversation_stays_in_view(asking):
    async with opened(asking, size=(100, 44)) as (app, pilot):
        run = await asked(app, pilot)
        heading = app.screen.query_one("#heading")
        await until(pilot, lambda: heading.region.y > 22)
        assert app.screen.styles.background.a == 0, "what is below is seen above it"
        assert "No rule allows edit." in picture(app) and "+gamma" in picture(app)
        await pilot.resize_terminal(100, 24)
        await until(pilot, lambda: heading.region.y == 0)
        await press(pilot, "n")
        await run.wait()


SEVERAL = replace(QUESTION, payload={"several": True, "notes": ["warm", ""]}, title="Which **colours**?")


async def test_several_options_are_marked_by_keys_and_sent_with_enter(asking):
    async with opened(asking) as (app, pilot):
        await put_item(app, SEVERAL)
        await press(pilot, "f2")
        await until(pilot, lambda: "1. ☐ red  warm" in picture(app))
        assert "Which colours?" in picture(app)
        await press(pilot, "2", "1", "2", "2")
        await until(pilot, lambda: "1. ☑ red" in picture(app) and "2. ☑ green" in picture(app))
        await press(pilot, "enter")
        await until(pilot, lambda: not isinstance(app.screen, InboxScreen))
        given = app.retinue.inbox.items(all=True)[0].answer
    assert given.choice == "red, green"
