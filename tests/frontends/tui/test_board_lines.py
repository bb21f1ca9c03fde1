"""The list of agents as lines: cases W01, W02, W04 and what must never happen."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from retinue.core.events import MessageAdded
from retinue.core.messages import user
from retinue.frontends.tui.board.panel_lines import (
    MAX_LIST_ROWS,
    AgentSelection,
    Look,
    agent_lines,
    listed_agents,
    selectable,
)
from tests.frontends.tui.cards import Story


def drawn(story: Story, **look: object) -> list[str]:
    look.setdefault("width", 100)
    made = Look(**look)
    cards = listed_agents(story.board, story.now, made)
    return [line.plain for line in agent_lines(story.board, cards, story.now, 0, made)]


def rows_of(story: Story) -> list:
    return selectable(story.board, listed_agents(story.board, story.now, Look()))


def test_nothing_to_show_is_no_line_at_all() -> None:
    assert drawn(Story()) == []


def test_modes_choose_who_is_shown() -> None:
    story = Story()
    story.start("fore", background=False)
    assert drawn(story, mode="background") == []
    assert len(drawn(story, mode="all", display="compact")) == 2
    assert drawn(story, mode="off") == []


def test_a_row_has_turns_tools_tokens_and_time() -> None:
    story = Story()
    story.start("a", limits={"max_turns": 30})
    story.call("a", "read")
    story.called("a", "read")
    story.turn("a", 5)
    story.now += 12.3
    assert "↻5≤30 · 1 tool use · 1.2k token · 12.3s" in drawn(story)[1]


def test_the_activity_is_grouped_by_tool() -> None:
    story = Story()
    story.start("a")
    for number in range(3):
        story.call("a", "Read", f"r{number}")
    story.call("a", "grep", "g")
    assert drawn(story)[2].endswith("reading 3 files, searching…")


def test_without_a_tool_the_first_words_are_the_activity() -> None:
    story = Story()
    story.start("a")
    assert drawn(story)[2].endswith("thinking…")
    story.say("a", "\n\nThe parser is in src.\nMore")
    assert drawn(story)[2].endswith("The parser is in src.")


def test_the_queue_is_one_row_before_the_hidden_count() -> None:
    story = Story()
    for number in range(20):
        story.start(f"r{number}")
    for number in range(7):
        story.create(f"q{number}")
    lines = drawn(story)
    assert len(lines) == MAX_LIST_ROWS
    assert "20 running · 7 queued" in lines[0]
    assert "7 queued" in lines[-2]
    assert "+11 more (11 running)" in lines[-1]


def test_finished_rows_age_by_turns_and_by_time() -> None:
    story = Story()
    for run, ended in (("good", "completed"), ("bad", "error")):
        story.start(run)
        story.end(run, ended)
    assert len(drawn(story)) == 3
    story.call("main", "read", "m1")
    assert [("good" in line, "bad" in line) for line in drawn(story)[1:]] == [(False, True)]
    story.call("main", "read", "m2")
    assert drawn(story) == []


def test_finished_rows_age_by_the_clock_too() -> None:
    story = Story()
    for run, ended in (("good", "completed"), ("bad", "stopped")):
        story.start(run)
        story.end(run, ended)
    story.now += 31
    assert ["bad" in line for line in drawn(story)[1:]] == [True]
    story.now += 90
    assert drawn(story) == []


def test_a_resumed_run_gets_its_line_again() -> None:
    from retinue.core.events import RunResumed

    story = Story()
    story.start("a")
    story.end("a")
    story.now += 31
    assert drawn(story) == []
    story.tell("a", RunResumed("go on"))
    story.end("a")
    assert len(drawn(story)) == 2


def test_the_queue_comes_before_finished_rows_and_after_working_ones() -> None:
    story = Story()
    story.start("done", description="over")
    story.end("done")
    story.start("busy", description="at work")
    story.create("next", description="not yet")
    lines = drawn(story, display="compact")
    assert ["at work" in lines[1], "1 queued" in lines[2], "over" in lines[3]] == [True] * 3
    assert [line[:3] for line in lines[1:]] == ["├─ ", "├─ ", "└─ "]


def test_everything_that_fits_is_shown_without_a_footer() -> None:
    story = Story()
    for number in range(11):
        story.start(f"r{number}")
    assert len(drawn(story)) == 12 and not any("more" in line for line in drawn(story))
    story.start("one-too-many")
    assert drawn(story)[-1] == "└─ +2 more (2 running)"


def test_a_failure_in_the_footer_counts_as_finished() -> None:
    story = Story()
    for number in range(11):
        story.start(f"r{number}")
    story.start("bad")
    story.end("bad", "error")
    story.create("later")
    assert drawn(story)[-1] == "└─ +3 more (2 running, 1 finished)"
    assert "1 queued" in drawn(story)[-2]


def test_a_finished_branch_with_someone_at_work_stands_with_the_working() -> None:
    story = Story()
    story.start("parent", description="the parent")
    story.start("child", parent="parent", depth=2, description="the child")
    story.end("parent")
    story.start("other", description="the other")
    story.end("other")
    story.create("later")
    lines = drawn(story, display="compact")
    found = [next(word for word in ("parent", "child", "queued", "other") if word in line) for line in lines[1:]]
    assert found == ["parent", "child", "queued", "other"]


def test_the_agents_of_an_earlier_conversation_are_no_orphans() -> None:
    story = Story(main="second")
    story.create("first", parent=None, depth=0, agent="main")
    story.start("left-over", parent="first")
    assert [("left-over" in line, "orphan" in line) for line in drawn(story)[1:2]] == [(True, False)]


def test_children_hang_below_their_parents() -> None:
    story = Story()
    story.start("parent")
    story.start("child", parent="parent", depth=2)
    story.start("grandchild", parent="child", depth=3)
    story.start("other")
    lines = drawn(story, display="compact")
    assert "depth 3/3" in lines[0]
    assert [re.match(r"[│├└─ ]*", line)[0] for line in lines[1:]] == ["├─ ", "│  └─ ", "│     └─ ", "└─ "]


def test_an_orphan_is_a_root_and_says_so() -> None:
    story = Story()
    story.start("lost", parent="nobody", depth=2)
    assert "⚠ orphan" in drawn(story)[1]


def test_a_finished_parent_stays_while_a_descendant_lives() -> None:
    story = Story()
    story.start("parent")
    story.start("child", parent="parent", depth=2)
    story.end("parent")
    story.now += 500
    assert len(drawn(story, display="compact")) == 3
    story.end("child")
    story.now += 500
    assert drawn(story) == []


def test_auto_is_compact_where_rich_does_not_fit() -> None:
    story = Story()
    story.start("a")
    assert len(drawn(story, width=100)) == 3
    assert len(drawn(story, width=87)) == 2
    for number in range(6):
        story.start(f"r{number}")
    assert len(drawn(story, width=100)) == 8


def test_a_finished_duration_is_frozen() -> None:
    story = Story()
    story.start("a")
    story.now += 5
    story.end("a")
    story.now += 10
    assert "5.0s" in drawn(story)[1]


def test_status_is_told_by_shape_and_not_by_colour_alone() -> None:
    story = Story()
    for ended in ("completed", "stopped", "error"):
        story.start(ended)
        story.end(ended, ended)
    assert [line[3] for line in drawn(story)[1:]] == ["✓", "■", "✗"]


def test_those_that_have_begun_can_be_selected_in_the_order_of_their_rows() -> None:
    story = Story()
    story.start("a", description="first")
    story.now += 1
    story.start("b", description="second")
    story.create("waiting")
    assert [card.id for card in rows_of(story)] == ["a", "b"]


def test_the_selection_clamps_and_leaves_above_the_first() -> None:
    story = Story()
    story.start("a")
    story.start("b")
    state, rows = AgentSelection(), rows_of(story)
    assert state.enter(rows) and state.chosen(rows).id == "a"
    state.move(1, rows)
    state.move(1, rows)
    assert state.chosen(rows).id == "b"
    state.move(-1, rows)
    state.move(-1, rows)
    assert state.selected is None
    assert not AgentSelection().enter([])


def test_the_selected_one_is_visible_however_many_there_are() -> None:
    story = Story()
    for number in range(20):
        story.start(f"r{number}", description=f"task-{number}")
        story.now += 1
    assert not any("task-17" in line for line in drawn(story))
    lines = drawn(story, selected="r17")
    assert any("❯" in line and "task-17" in line for line in lines) and len(lines) <= MAX_LIST_ROWS


def test_the_next_one_is_selected_where_the_selected_one_has_gone() -> None:
    story = Story()
    story.start("a")
    story.start("b")
    state = AgentSelection()
    state.enter(rows_of(story))
    story.end("a")
    story.now += 60
    assert state.index(rows_of(story)) == 0 and state.selected == "b"


def test_a_finished_run_lingers_then_goes_unless_it_is_open() -> None:
    story = Story()
    story.start("a")
    story.end("a")
    assert len(drawn(story)) == 2
    story.now += 60
    assert drawn(story) == []
    assert len(drawn(story, pinned="a")) == 2


@pytest.mark.parametrize("ended", ["completed", "error", "stopped"])
def test_finished_ones_leave_when_the_person_speaks_again(ended) -> None:
    story = Story()
    story.start("main", None, 0, agent="main")
    story.start("a")
    story.end("a", ended)
    assert "1 finished" in drawn(story)[0]
    story.tell("main", MessageAdded(user("told", "notification")))
    assert len(drawn(story)) == 2
    story.tell("main", MessageAdded(user("and now?", "follow-up")))
    assert drawn(story) == []


def test_agents_in_the_foreground_are_in_the_list() -> None:
    story = Story()
    story.start("a", background=False)
    assert drawn(story)[0] == "● Agents  1 running"
    assert drawn(story, mode="background") == []


NASTY = st.text(alphabet=st.sampled_from("ab漢字é👩‍👧\x1b[31m\t\n\r\x00\u202e\u200b 🇩🇪"), max_size=40)
STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "start", "turn", "call", "say", "end"]), st.integers(0, 30), NASTY),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 130), st.sampled_from(["auto", "rich", "compact"]))
def test_no_line_is_ever_too_wide_nor_are_there_too_many(steps, width, display) -> None:
    story = Story()
    for action, number, text in steps:
        run = f"r{number}"
        if action in ("create", "start"):
            getattr(story, action)(
                run, parent=f"r{number // 2}" if number % 3 else "main", description=text, color=text
            )
        elif action == "turn":
            story.turn(run, number)
        elif action == "call":
            story.call(run, text or "read", f"c{number}")
        elif action == "say":
            story.say(run, text)
        else:
            story.end(run, "error" if number % 2 else "completed")
        story.now += 0.5
    lines = drawn(story, width=width, display=display)
    assert len(lines) <= MAX_LIST_ROWS
    chosen = drawn(story, width=width, display=display, selected="r7", hint="enter opens · esc back")
    assert len(chosen) <= MAX_LIST_ROWS
    for line in [*lines, *chosen]:
        assert cell_len(line) <= width
        assert not re.search(r"[\x00-\x1f\x7f]", line)
    hidden = re.search(r"\+(\d+) more", lines[-1]) if lines and width > 30 else None
    wanted = [card for card in story.board.shown(story.now) if card.status != "queued"]
    extra = sum("⎿" in line for line in lines) + any("◦ " in line for line in lines) + bool(hidden)
    if lines and width > 30:
        assert len(lines) - 1 - extra + (int(hidden[1]) if hidden else 0) == len(wanted)
