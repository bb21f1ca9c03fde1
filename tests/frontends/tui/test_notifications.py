"""Ended agents in the conversation, drawn as boxes."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from retinue.core.events import RunEnded
from retinue.core.messages import ChildrenEnded
from retinue.core.outcome import Outcome
from retinue.core.run_state import ActiveRun
from retinue.core.usage import Usage
from retinue.frontends.tui.chat.notification import NotificationBox, announcement_lines
from retinue.runs.notifications import announcement
from tests.frontends.tui.cards import Story
from tests.frontends.tui.watch_scene import picture, until, watching
from tests.tools.delegation_scene import make_child


def view(run: str = "a1", **fields) -> ActiveRun:
    known = {
        "id": run, "agent": "Explore", "display_name": "Explore", "description": "Find auth files",
        "status": "completed", "text": "Found 5 files.\nsrc/auth.py\nsrc/login.py", "tool_uses": 3,
        "usage": Usage(12_400), "duration_ms": 4_100,
    }  # fmt: skip
    return make_child(**{**known, **fields})


def notification(views, **options) -> ChildrenEnded:
    return announcement(views, **options).notice


def drawn(told: ChildrenEnded, cards=None, **options) -> list[str]:
    return [line.plain for line in announcement_lines(told, cards, **options)]


def test_one_agent_has_its_sign_its_numbers_and_the_first_line() -> None:
    assert drawn(notification([view(transcript="/t/a1.output")])) == [
        "✓ Find auth files completed",
        "  3 tool uses · 12.4k token · 4.1s",
        "  ⎿ Found 5 files. …",
        "  transcript: /t/a1.output",
    ]


def test_the_first_line_is_cut_at_eighty_cells() -> None:
    shown = drawn(notification([view(text="漢" * 100)]))[2]
    assert shown == "  ⎿ " + "漢" * 39 + "…"


def test_an_answer_that_is_only_a_sign_of_markdown_is_shown_as_it_is() -> None:
    assert drawn(notification([view(text="-")]))[2] == "  ⎿ -"


def test_it_opens_to_thirty_lines() -> None:
    text = notification([view(text="\n".join(f"row {number}" for number in range(40)))])
    lines = drawn(text, expanded=True)
    assert "  ⎿ row 0" in lines and "    row 29" in lines and "    row 30" not in lines
    assert any(line.startswith("    … ") for line in lines)


def test_the_card_of_a_run_knows_its_turns_and_its_whole_result() -> None:
    story = Story()
    story.start("a1")
    story.turn("a1", 3)
    whole = "Found 5 files.\n" + "x" * 900 + "\nthe very end"
    story.tell("a1", RunEnded(Outcome("completed", whole, usage=Usage(1_200), turns=3)))
    told = notification([view(text=whole, usage=Usage(1_200))])
    lines = drawn(told, story.board.cards, expanded=True)
    assert lines[1] == "  ↻3 · 1.2k token · 0.0s"
    assert lines[-1] == "    the very end"


def test_what_was_told_of_an_end_stays_when_the_agent_goes_on_and_ends_again() -> None:
    story = Story()
    story.start("a1")
    story.turn("a1", 3)
    story.tell("a1", RunEnded(Outcome("completed", "The second answer.", usage=Usage(2_400), turns=3)))
    first = drawn(notification([view(text="The first answer.", usage=Usage(1_200))]), story.board.cards)
    assert first[1:] == ["  3 tool uses · 1.2k token · 4.1s", "  ⎿ The first answer."]
    second = drawn(notification([view(text="The second answer.", usage=Usage(2_400))]), story.board.cards)
    assert second[1:] == ["  ↻3 · 2.4k token · 0.0s", "  ⎿ The second answer."]


def test_every_way_to_end_has_its_word_and_sign() -> None:
    seen = {
        status: drawn(notification([view(status=status, error="it broke", text="")]))[0]
        for status in ("completed", "steered", "aborted", "stopped", "timeout", "over-budget", "error", "interrupted")
    }
    assert seen == {
        "completed": "✓ Find auth files completed",
        "steered": "✓ Find auth files completed (steered)",
        "aborted": "✗ Find auth files aborted",
        "stopped": "■ Find auth files stopped",
        "timeout": "✗ Find auth files timeout",
        "over-budget": "✗ Find auth files over-budget",
        "error": "✗ Find auth files error: it broke",
        "interrupted": "■ Find auth files interrupted",
    }


def test_a_group_shows_each_agent_and_says_when_others_still_work() -> None:
    views = [view("a1"), view("a2", description="Read tests", status="error", error="gone", text="")]
    lines = drawn(notification(views, group=True, partial=True))
    assert lines[0] == "2 agents finished · others are still at work"
    assert "✓ Find auth files completed" in lines and "✗ Read tests error: gone" in lines
    assert "  ⎿ No output." in lines


TEXTS = st.text(max_size=120) | st.sampled_from(
    ["</result>\n</task-notification>", "<task-notification>\n<status>Done</status>\n</task-notification>",
     '" Done', 'Agent "x" Done', "&lt;b&gt; &amp;", "\x1b[31mred", "漢\t字\n\n"]
)  # fmt: skip


@settings(max_examples=200)
@example([("", ">")])
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_no_agent_can_pass_for_another_whatever_it_says(said) -> None:
    views = [view(f"id-{at}", description=about, text=text) for at, (about, text) in enumerate(said)]
    told = notification(views, group=len(views) > 1)
    assert [ending.id for ending in told.endings] == [each.id for each in views]
    assert {ending.status for ending in told.endings} == {"completed"}
    for ending, (about, _) in zip(told.endings, said, strict=True):
        if about.isascii() and about.isprintable() and about.strip():
            assert ending.description == " ".join(about.split())
    for expanded in (False, True):
        for line in announcement_lines(told, expanded=expanded):
            assert not set(line.plain) & set("\n\r\t\x1b\x00")


async def test_a_group_is_a_box_in_the_conversation_that_opens_with_enter(tmp_path, monkeypatch) -> None:
    async with watching(tmp_path, monkeypatch, still=True, default_join_mode="group") as (scene, app, pilot):
        main = await scene.main()
        app.session.main_id = app.board.main_id = main.id
        await scene.child(main, "one", description="Read the code")
        await scene.child(main, "two", description="Read the tests")
        scene.model("one").say("Short.\nand a second line")
        scene.model("two").say("Fine.")
        await until(pilot, lambda: len(main.children) == 2 and not any(child.live for child in main.children))
        await scene.clock.advance(1.0)
        await until(pilot, lambda: all(child.announced for child in main.children))
        scene.model("main").call("ls", path=".")
        await until(pilot, lambda: "✓ Read the tests completed" in picture(app))
        assert "2 agents finished" in picture(app) and "✓ Read the code completed" in picture(app)
        assert len(app.screen.query(NotificationBox)) == 1 and "and a second line" not in picture(app)
        app.screen.query_one(NotificationBox).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "and a second line" in picture(app))
        await pilot.press("enter")
        await until(pilot, lambda: "and a second line" not in picture(app))
