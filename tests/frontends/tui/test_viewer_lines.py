"""Case W03 without a screen: rows that are exactly as wide as the box, and what its keys do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.app.rich_text import plain_of
from retinue.core.events import (
    AssistantEnded,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    MessageAdded,
    Retrying,
    RunCreated,
    RunEnded,
    RunStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Warned,
)
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, user
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.request import RunOptions
from retinue.core.usage import Usage
from retinue.frontends.tui.board.cards import RunCard
from retinue.frontends.tui.board.story import RunStory
from retinue.frontends.tui.board.viewer import (
    KEYS,
    VIEWS,
    Moment,
    Pages,
    Viewer,
    bindings,
    box_rows,
    content_height,
    content_width,
)


class Told(RunStory):
    """A story that is told body by body, one second after another."""

    def __init__(self) -> None:
        super().__init__(RunCard("run-1"))
        self.seq = 0

    def tell(self, *bodies) -> Told:
        for body in bodies:
            self.seq += 1
            self.take(Event("run-1", "main", "main", self.seq, 1_000.0 + self.seq, body))
        return self


def begun(task: str = "find it", prompt: str = "You look.", **options) -> Told:
    spec = {"prompt": prompt, "display_name": "Explore", "path": "/p/.retinue/agents/explore.md"}
    options.setdefault("description", "Find auth files")
    created = RunCreated("Explore", task, spec, "", "offline/planner", "/p", 1, RunOptions(**options))
    return Told().tell(created, RunStarted("offline/planner", ("read", "bash"), "/p"), MessageAdded(user(task)))


def lines_of(story: RunStory, view: str = "transcript", width: int = 80) -> list[str]:
    viewer = Viewer(view=view)
    return [plain_of(line) for line in Pages().lines(story, viewer, width, Moment(1_100.0))]


def box(story: RunStory, viewer: Viewer, width: int, height: int = 20) -> list[str]:
    moment = Moment(1_100.0)
    lines = Pages().lines(story, viewer, content_width(width), moment)
    viewer.measure(len(lines), content_height(story.card, height))
    rows = box_rows(story.card, viewer, lines, width, moment)
    assert all(row.cell_len == width for row in rows)
    return [row.plain for row in rows]


def answer(*content, failure=None) -> AssistantEnded:
    return AssistantEnded(1, AssistantMessage(content, failure=failure))


def test_the_transcript_names_who_speaks_with_rules_between() -> None:
    call = ToolCall("c", "read", {"path": "src/app.py", "limit": 3})
    story = begun().tell(
        TurnStarted(1),
        answer(Thinking("where?"), Text("I look."), call),
        ToolStarted(call),
        ToolEnded("c", "read", ToolResult("c", "read", (Text("x" * 600),)), ToolEffect(), 5),
    )
    lines = lines_of(story)
    assert [line for line in lines if line.startswith("[")] == [
        "[User]", "[Thinking]", "[Assistant]", "[Tool: read] src/app.py:1-3", "[Result] read",
    ]  # fmt: skip
    assert lines.count("───") == 4
    assert sum(line.count("x") for line in lines if not line.startswith("[")) == 500
    assert "… 100 more characters" in lines
    assert lines[-1] == "▍ thinking…"


def test_an_edit_is_shown_as_a_diff() -> None:
    call = ToolCall("c", "edit", {"path": "a.py", "old_string": "one\ntwo", "new_string": "one\nthree"})
    lines = lines_of(begun().tell(answer(call)))
    assert "-two" in lines and "+three" in lines


def test_an_unfinished_answer_is_seen_and_replaced_by_the_whole() -> None:
    story = begun().tell(TurnStarted(1), ThinkingDelta("hm"))
    assert "[Thinking]" in lines_of(story)
    story.tell(TextDelta("The answer "), TextDelta("is"))
    assert "The answer is" in lines_of(story) and "hm" not in lines_of(story)
    story.tell(answer(Text("The answer is 42.")))
    assert "The answer is 42." in lines_of(story) and "The answer is" not in lines_of(story)


def test_a_retry_voids_what_was_streamed_and_keeps_it_readable() -> None:
    story = begun().tell(TurnStarted(1), TextDelta("half"), Retrying(1, 2.0, Failure("server", "Gone."), "half"))
    lines = lines_of(story)
    assert "! Gone. Trying again in 2.0 s (attempt 1). What it had said: half" in lines
    assert "[Assistant]" not in lines


def test_what_happens_beside_the_conversation_is_noted() -> None:
    story = begun().tell(
        InboxOpened("i", "approval", "run make"),
        InboxClosed("i", "answered", "allow", "person"),
        Compacted("threshold", "pruned", 9_000, 1_000, ()),
        Warned("code", "mind this"),
        MessageAdded(user("only src", "steer")),
        RunEnded(Outcome("error", "so far", partial=True, failure=Failure("server", "It broke.", "Try again."))),
    )
    lines = lines_of(story)
    assert "! waits for an answer: run make" in lines and "! allow by person" in lines
    assert "! The conversation was shortened: 9,000 to 1,000 tokens." in lines
    assert "! mind this" in lines and "[User] steer" in lines
    assert "! error: It broke. Try again." in lines


def test_a_tool_at_work_shows_its_newest_line() -> None:
    call = ToolCall("c", "bash", {"command": "make"})
    story = begun().tell(answer(call), ToolStarted(call), ToolProgress("c", "one\ntwo\n"))
    assert lines_of(story)[-2:] == ["  two", "▍ running…"]


def test_the_prompt_view_has_the_instructions_and_the_task() -> None:
    lines = lines_of(begun("the whole\ntask"), "prompt")
    assert lines[1:3] == ["the whole", "task"] and lines[-1] == "You look."


def test_the_effects_view_says_what_tools_did_and_what_nobody_knows() -> None:
    lost, ran = ToolCall("c1", "bash", {"command": "make deploy"}), ToolCall("c2", "write", {"path": "a"})
    effect = ToolEffect(writes=(TouchedPath("/p/a.py", None, "h"),), allowed="mode bypassPermissions")
    story = begun().tell(
        TurnStarted(1), ToolStarted(lost), ToolStarted(ran),
        ToolEnded("c2", "write", ToolResult("c2", "write", (Text("ok"),)), effect, 5),
        RunEnded(Outcome("stopped")),
    )  # fmt: skip
    text = "\n".join(lines_of(story, "effects"))
    assert "UNKNOWN EFFECT make deploy" in text and "+ a.py" in text and "mode bypassPermissions" in text
    assert lines_of(begun(), "effects") == ["No tool calls."]


def test_the_output_view_has_the_result_its_value_and_why_it_failed() -> None:
    assert lines_of(begun().tell(TextDelta("on my way")), "output") == ["[So far] the run has not ended", "on my way"]
    done = begun().tell(RunEnded(Outcome("completed", "It is **there**.", value={"n": 1})))
    assert lines_of(done, "output")[:2] == ["[Result]", "It is **there**."]
    assert '  "n": 1' in lines_of(done, "output")
    failed = begun().tell(RunEnded(Outcome("timeout", "half", partial=True, failure=Failure("timeout", "Too slow."))))
    assert "[Result] partial: it did not succeed" in lines_of(failed, "output")
    assert "Too slow." in lines_of(failed, "output")


def test_the_info_view_lists_what_is_known() -> None:
    story = begun(model="haiku", name="explorer").tell(TurnEnded(2, Usage(10, 5, 3, 1), Usage(10, 5, 3, 1), 9))
    text = "\n".join(lines_of(story, "info"))
    for fact in ("run-1", "Explore @explorer", "offline/planner", "haiku", "explore.md", "16 token", "read, bash"):
        assert fact in text


def test_the_info_view_knows_no_tokens_where_no_server_has_counted() -> None:
    def tokens(story: RunStory) -> str:
        return next(line.split(maxsplit=1)[1] for line in lines_of(story, "info") if line.startswith("tokens"))

    story = begun().tell(RunStarted("gw/some", ("read",), "/p"), TurnStarted(1))
    assert tokens(story) == "0 token", "nothing is due yet"
    story.tell(TurnEnded(1, Usage(), Usage()), RunEnded(Outcome("completed", "Hi.", turns=1, model="gw/some")))
    assert tokens(story) == "unknown"
    assert tokens(begun().tell(TurnEnded(1, Usage(), Usage()))) == "0 token", "the planner uses none"


def test_the_header_has_name_description_and_numbers_and_how_it_was_asked_for() -> None:
    story = begun(model="haiku", thinking="high", limits={"max_turns": 9}).tell(
        TurnEnded(2, Usage(1_200), Usage(1_200))
    )
    rows = box(story, Viewer(), 100)
    assert "Explore  Find auth files · ↻2≤9 · 1.2k token" in rows[1]
    assert "↳ haiku · thinking: high · max turns: 9" in rows[2]


def test_a_box_too_narrow_to_read_is_no_box() -> None:
    for width in range(6):
        assert box_rows(RunCard("r"), Viewer(), [], width, Moment(0.0)) == []


def test_the_viewport_never_has_fewer_than_three_rows() -> None:
    rows = box(begun(), Viewer(), 40, height=1)
    assert len(rows) == 9


HARD = st.one_of(
    st.just(""),
    st.text(max_size=80),
    st.text(alphabet="漢字かな👩‍👧🇩🇪\x1b[31m\t |\u202e\ud800", max_size=60),
    st.sampled_from(
        ["https://example.org/" + "a" * 300, "| a | b |\n|---|---|\n| 漢 | 1 |", "\x1b]0;t\x07x", "é" * 90]
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("uatrsnp"), HARD), max_size=12), st.integers(6, 140), st.sampled_from(VIEWS),
       HARD)  # fmt: skip
def test_no_row_is_ever_wider_or_narrower_than_the_box(parts, width, view, named) -> None:
    story = begun(task=named, prompt=named, description=named)
    for kind, text in parts:
        call = ToolCall("c", text or "read", {"path": text, "other": [text]})
        bodies = {
            "u": [MessageAdded(user(text, "steer"))],
            "a": [answer(Text(text))],
            "t": [answer(call), ToolStarted(call)],
            "r": [ToolEnded("c", text, ToolResult("c", text, (Text(text),)), ToolEffect(command=text), 1)],
            "s": [TextDelta(text)],
            "n": [Warned("w", text)],
            "p": [ToolProgress("c", text)],
        }
        story.tell(*bodies[kind])
    viewer = Viewer(view=view, query=named)
    for row in box(story, viewer, width):
        row.encode()
    story.tell(RunEnded(Outcome("error", named, failure=Failure("server", named))))
    box(story, viewer, width)


# Keys


def seen(total: int = 100, height: int = 10, **fields) -> Viewer:
    viewer = Viewer(**fields)
    viewer.measure(total, height)
    return viewer


def test_it_follows_until_someone_scrolls_up_and_end_follows_again() -> None:
    viewer = seen()
    assert viewer.top == 90
    viewer.measure(120, 10)
    assert viewer.top == 110
    viewer.press("up")
    viewer.measure(200, 10)
    assert viewer.top == 109 and not viewer.follow
    viewer.press("end")
    assert viewer.top == 190 and viewer.follow
    viewer.measure(205, 10)
    assert viewer.top == 195


def test_scrolling_down_to_the_end_follows_again() -> None:
    viewer = seen()
    viewer.press("pageup")
    viewer.press("pagedown")
    assert viewer.follow


@pytest.mark.parametrize(
    ("key", "top"),
    [("k", 49), ("up", 49), ("j", 51), ("down", 51), ("pageup", 41), ("shift+up", 41), ("pagedown", 59),
     ("shift+down", 59), ("home", 0), ("end", 90)],
)  # fmt: skip
def test_the_keys_that_scroll(key: str, top: int) -> None:
    viewer = seen()
    viewer.scroll(-40)
    viewer.press(key)
    assert viewer.top == top


def test_stopping_takes_the_key_twice_and_any_other_disarms() -> None:
    viewer = seen()
    assert viewer.press("x", can_stop=True) is None and viewer.armed
    assert viewer.press("x", can_stop=True) == "stop" and not viewer.armed
    viewer.press("x", can_stop=True)
    viewer.press("j", can_stop=True)
    assert viewer.press("x", can_stop=True) is None
    viewer.press("f12", can_stop=True)
    assert viewer.press("x", can_stop=True) is None


def test_a_run_that_has_ended_can_be_neither_stopped_nor_steered() -> None:
    viewer = seen()
    assert [viewer.press(key) for key in ("x", "x", "enter")] == [None] * 3
    assert viewer.mode == "reading" and not viewer.armed
    footer = box(begun().tell(RunEnded(Outcome("completed", "fine"))), Viewer(), 100)[-2]
    assert "stop" not in footer and "steer" not in footer


def test_a_run_that_ends_while_the_key_is_armed_is_not_stopped() -> None:
    viewer = seen()
    viewer.press("x", can_stop=True)
    assert viewer.press("x", can_stop=False) is None


def test_scroll_keys_are_inert_while_someone_types() -> None:
    viewer = seen()
    assert viewer.press("enter", can_steer=True) == "compose"
    top = viewer.top
    assert [viewer.press(key, can_stop=True) for key in ("up", "pageup", "home", "q", "x", "x")] == [None] * 6
    viewer.scroll(-3)
    assert viewer.top == top
    viewer.read()
    viewer.press("up")
    assert viewer.top == top - 1


def test_keys_of_ones_own_with_defaults_for_the_rest_and_some_always() -> None:
    keys = bindings({"viewer.up": "w", "viewer.close": "ctrl+w, escape", "viewer.stop": "  "})
    assert keys["w"] == "up" and "up" not in keys
    assert keys["ctrl+w"] == keys["escape"] == "close" and "q" not in keys
    assert keys["x"] == "stop" and keys["k"] == "up" and keys["shift+up"] == "page_up"
    assert set(bindings().values()) == set(KEYS)


def test_views_are_switched_by_number_by_letter_and_by_tab() -> None:
    viewer = seen()
    for number, view in enumerate(VIEWS, 1):
        viewer.press(str(number))
        assert viewer.view == view
    viewer.press("e")
    assert viewer.view == "effects"
    viewer.press("tab")
    assert viewer.view == "output"
    viewer.press("shift+tab")
    assert viewer.view == "effects"


def test_each_view_remembers_where_one_was_and_scrolling_one_does_not_unfollow_the_other() -> None:
    viewer = seen()
    viewer.press("2")
    viewer.measure(50, 10)
    viewer.press("j")
    assert (viewer.top, viewer.follow) == (1, True)
    viewer.press("1")
    viewer.measure(130, 10)
    assert viewer.top == 120
    viewer.press("2")
    viewer.measure(50, 10)
    assert viewer.top == 1


def test_searching_goes_from_match_to_match_around_the_end() -> None:
    story = begun().tell(answer(Text("\n".join(f"line {n} {'Needle' if n % 20 == 7 else ''}" for n in range(100)))))
    viewer, moment = Viewer(), Moment(1_100.0)
    lines = Pages().lines(story, viewer, 60, moment)
    viewer.measure(len(lines), 10)
    viewer.press("home")
    assert viewer.press("slash") == "search"
    viewer.search(" needle ", lines)
    assert len(viewer.matches) == 5 and viewer.match == 0 and not viewer.follow
    shown = []
    for _ in range(5):
        viewer.press("n")
        shown.append(viewer.match)
        assert viewer.top <= viewer.matches[viewer.match] < viewer.top + 10
    assert shown == [1, 2, 3, 4, 0]
    viewer.press("N")
    assert viewer.match == 4
    assert "match 5/5" in box(story, viewer, 100)[-2]
    viewer.press("slash")
    viewer.search("nothing like it", lines)
    assert viewer.matches == () and "no nothing like it" in box(story, viewer, 100)[-2]
    viewer.press("slash")
    viewer.search("", lines)
    assert viewer.query == ""


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from([*bindings(), "1", "3", "f5", "o"]), max_size=60), st.integers(0, 300), st.integers(1, 40)
)
def test_no_keys_ever_lead_outside(keys, total, height) -> None:
    viewer = Viewer()
    for key in keys:
        viewer.measure(total, height)
        viewer.press(key, can_stop=True, can_steer=True)
        viewer.read()
        assert 0 <= viewer.top <= max(total - height, 0)


def test_following_a_long_run_draws_only_what_is_new() -> None:
    story = begun()
    for number in range(2_000):
        story.tell(answer(Text(f"word {number}")))
    pages, viewer, moment = Pages(), Viewer(), Moment(1_100.0)
    before = list(pages.lines(story, viewer, 80, moment))
    slices = 1
    while pages.behind:
        before = list(pages.lines(story, viewer, 80, moment))
        slices += 1
    assert slices == 41 and len(before) > 4_000
    story.tell(answer(Text("the last")))
    after = pages.lines(story, viewer, 80, moment)
    same = [one is other for one, other in zip(before, after, strict=False)]
    assert all(same[:-1]) and "the last" in [plain_of(line) for line in after]


def test_of_a_long_output_the_viewer_keeps_what_it_shows() -> None:
    story = begun()
    for number in range(20):
        call = ToolCall(f"c{number}", "read", {"path": "a.txt"})
        result = ToolResult(call.id, "read", (Text("x" * 100_000),))
        story.tell(TurnStarted(number + 1), ToolStarted(call), ToolEnded(call.id, "read", result, ToolEffect(), 5))
    assert "… 99,500 more characters" in lines_of(story)
    kept = sum(len(entry.result.text) for entry in story.calls)
    assert kept < 20_000
    assert any("read" in line for line in lines_of(story, "effects"))
