"""The conversation on the screen: what is said, streamed, done, folded, and stays quick."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from textual.app import App

from retinue.app.rich_text import clean, diff_of
from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    MessageAdded,
    Retrying,
    RunEnded,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, user
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import ToolEffect
from retinue.core.story import Entry
from retinue.frontends.tui.board.calls import heading
from retinue.frontends.tui.chat.answer import Answer, Notice, Said
from retinue.frontends.tui.chat.folded import Folded, ToolBlock, report
from retinue.frontends.tui.chat.log import CUT_BLOCKS, MAX_BLOCKS, ChatLog


class Page(App[None]):
    CSS = "#chat { height: 1fr; } .folded { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self.chat = ChatLog()
        self.seq = 0

    def compose(self):
        yield self.chat

    def event(self, body: Body) -> Event:
        self.seq += 1
        return Event("r", None, "r", self.seq, 0.0, body)

    def push(self, *bodies: Body) -> None:
        for body in bodies:
            self.chat.push(self.event(body))


def picture(app: App) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot, seen: Callable[[], object]) -> None:
    for _ in range(500):
        if seen():
            return
        await pilot.pause(0.01)
    raise AssertionError(picture(pilot.app))


def answered(text: str, *calls: ToolCall, thought: str = "") -> AssistantEnded:
    content = (*((Thinking(thought),) if thought else ()), *((Text(text),) if text else ()), *calls)
    return AssistantEnded(1, AssistantMessage(content))


def result(call: ToolCall, text: str, *, error: bool = False, effect: ToolEffect | None = None) -> ToolEnded:
    return ToolEnded(
        call.id, call.name, ToolResult(call.id, call.name, (Text(text),), error), effect or ToolEffect(), 5
    )


async def test_streamed_markdown_is_what_the_answer_says_in_the_end() -> None:
    app = Page()
    async with app.run_test(size=(80, 24)) as pilot:
        text = "# Title\n\nSome *words* and `code`.\n\n```python\nx = 1\n```\n\n- one\n- two\n"
        for sign in text:
            app.push(TextDelta(sign))
        app.push(answered(text))
        await until(pilot, lambda: app.query(Answer) and app.query_one(Answer).source == text)
        await until(pilot, lambda: "Title" in picture(app) and "x = 1" in picture(app))
        assert len(app.query(Answer)) == 1


async def test_an_answer_that_differs_from_what_was_streamed_wins() -> None:
    app = Page()
    async with app.run_test() as pilot:
        app.push(TextDelta("half of"), answered("The whole answer"))
        await until(pilot, lambda: app.query(Answer) and app.query_one(Answer).source == "The whole answer")


def cut_off(text: str) -> AssistantEnded:
    return AssistantEnded(1, AssistantMessage((Text(text),), stop="length"))


GO_ON = MessageAdded(user("Go on where it stopped.", "correction"))


async def test_an_answer_that_goes_on_after_the_output_limit_is_one_paragraph() -> None:
    app = Page()
    async with app.run_test() as pilot:
        app.push(TextDelta("Half of the sen"), cut_off("Half of the sen"), GO_ON)
        app.push(TextDelta("tence "), TextDelta("here."), answered("tence here."), RunEnded(Outcome("completed")))
        await until(pilot, lambda: "Half of the sentence here." in picture(app))
        assert len(app.query(Answer)) == 1
        app.push(MessageAdded(user("next")), TextDelta("Another"), answered("Another one."))
        await until(pilot, lambda: "Another one." in picture(app))
        assert [each.source for each in app.query(Answer)] == ["Half of the sentence here.", "Another one."]


async def test_an_answer_that_went_on_is_one_paragraph_from_the_log_too() -> None:
    app = Page()
    async with app.run_test() as pilot:
        bodies = [MessageAdded(user("hello")), cut_off("Half of the sen"), GO_ON, answered("tence here.")]
        await app.chat.show([app.event(body) for body in bodies])
        await until(pilot, lambda: "Half of the sentence here." in picture(app))
        assert len(app.query(Answer)) == 1


DROPPED = Retrying(1, 0.5, Failure("dropped", "The connection was lost."), most=4)


@pytest.mark.parametrize("from_log", [False, True])
async def test_what_a_dropped_stream_had_said_goes_when_it_is_tried_again(from_log: bool) -> None:
    app = Page()
    attempt = (ThinkingDelta("hm"), TextDelta("This answer is half way throu"))
    bodies = (*attempt, DROPPED, *attempt, DROPPED, *attempt, answered("This answer is whole."))
    async with app.run_test(size=(80, 24)) as pilot:
        if from_log:
            await app.chat.show([app.event(body) for body in bodies])
        else:
            app.push(*bodies)
        await until(pilot, lambda: [each.source for each in app.query(Answer)] == ["This answer is whole."])
        assert len(app.query(Folded)) == 1 and len(app.query(Notice)) == 2


async def test_the_part_before_the_output_limit_outlives_a_dropped_stream() -> None:
    app = Page()
    async with app.run_test() as pilot:
        app.push(TextDelta("First "), cut_off("First "), GO_ON, TextDelta("sec"), DROPPED, TextDelta("second."))
        app.push(answered("second."))
        await until(pilot, lambda: [each.source for each in app.query(Answer)] == ["First second."])


async def test_thinking_is_folded_and_opens_with_enter() -> None:
    app = Page()
    async with app.run_test() as pilot:
        app.push(ThinkingDelta("deep "), ThinkingDelta("thought here"), answered("Done."))
        await until(pilot, lambda: "thinking · 3 words" in picture(app))
        assert "deep thought" not in picture(app)
        app.query_one(Folded).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "deep thought here" in picture(app))
        await pilot.press("enter")
        await until(pilot, lambda: "deep thought here" not in picture(app))


async def test_a_conversation_from_the_log_shows_thoughts_too() -> None:
    app = Page()
    async with app.run_test() as pilot:
        bodies = [MessageAdded(user("hello")), answered("Hi.", thought="be kind")]
        await app.chat.show([app.event(body) for body in bodies])
        await until(pilot, lambda: "Hi." in picture(app))
        assert "❯ hello" in picture(app) and "thinking · 2 words" in picture(app)


async def test_a_call_is_one_line_that_says_how_it_went() -> None:
    app = Page()
    read = ToolCall("c1", "read", {"path": "src/app.py"})
    bash = ToolCall("c2", "bash", {"command": "make test"})
    async with app.run_test() as pilot:
        app.push(ToolStarted(read), ToolStarted(bash))
        await until(pilot, lambda: "● read src/app.py" in picture(app))
        app.push(ToolProgress("c2", "collecting\n"), result(read, "a\nb\nc"))
        app.push(result(bash, "boom", error=True, effect=ToolEffect("failed", command="make test", exit_code=2)))
        await until(pilot, lambda: "✗ bash make test · exit 2" in picture(app))
        assert "✓ read src/app.py · 3 lines" in picture(app)
        app.chat.fold_all()
        await until(pilot, lambda: "$ make test" in picture(app) and "boom" in picture(app))
        app.chat.fold_all()
        await until(pilot, lambda: "boom" not in picture(app))


@pytest.mark.parametrize(("lines", "missing"), [(1, 0), (40, 0), (41, 1), (100, 60)])
def test_a_report_is_whole_up_to_forty_lines_and_shows_its_ends_beyond(lines: int, missing: int) -> None:
    text = "\n".join(f"line {number}" for number in range(lines))
    drawn = report(text).plain
    assert ("──" in drawn) == bool(missing)
    if missing:
        assert f"── {missing} more lines ──" in drawn
        assert len(drawn.split("\n")) == 41
        assert drawn.startswith("line 0\n") and drawn.endswith(f"\nline {lines - 1}")
    else:
        assert drawn == text


async def test_a_long_report_opens_with_its_ends_then_whole_and_one_at_work_is_no_success() -> None:
    app = Page()
    async with app.run_test(size=(80, 80)) as pilot:
        call = ToolCall("c", "get_subagent_result", {"agent_id": "x"})
        text = "\n".join(f"line {number}" for number in range(60))
        app.push(answered("", call), ToolStarted(call), result(call, text))
        await until(pilot, lambda: "✓ result of agent" in picture(app))
        app.query_one(ToolBlock).focus()
        await pilot.press("enter")
        await until(pilot, lambda: "── 20 more lines ──" in picture(app) and "line 59" in picture(app))
        assert "line 30" not in picture(app)
        await pilot.press("enter")
        await until(pilot, lambda: "line 30" in picture(app))
        await pilot.press("enter")
        await until(pilot, lambda: "line 59" not in picture(app))
        still = ToolCall("d", "get_subagent_result", {"agent_id": "y"})
        said = "Agent: y\nType: Agent | Status: queued | Tool uses: 0\n\nThe agent has not started yet."
        app.push(answered("", still), ToolStarted(still), result(still, said))
        await until(pilot, lambda: picture(app).count("result of agent") == 2)
        await until(pilot, lambda: "● result of agent" in picture(app))
        assert picture(app).count("✓ result of agent") == 1


async def test_a_call_that_waits_for_a_person_and_is_denied_says_so() -> None:
    app = Page()
    call = ToolCall("c1", "bash", {"command": "rm -rf build"})
    async with app.run_test() as pilot:
        app.push(ToolStarted(call), InboxOpened("i1", "approval", "run it", "c1"))
        await until(pilot, lambda: "? bash rm -rf build · waits for your answer" in picture(app))
        app.push(InboxClosed("i1", "answered", "deny", "terminal", call_id="c1"))
        app.push(result(call, "denied", error=True, effect=ToolEffect("failed", denied="no")))
        await until(pilot, lambda: "⊘ bash rm -rf build · denied" in picture(app))


async def test_an_edit_is_open_and_shows_the_change() -> None:
    app = Page()
    call = ToolCall("c1", "edit", {"path": "a.py", "edits": [{"old": "x = 1", "new": "x = 2"}]})
    async with app.run_test() as pilot:
        app.push(ToolStarted(call))
        await until(pilot, lambda: "-x = 1" in picture(app) and "+x = 2" in picture(app))
        app.push(result(call, "Made the edit in a.py:\n@@ line 3 @@\n-x = 1\n+x = 2\n y = 3"))
        await until(pilot, lambda: "@@ line 3 @@" in picture(app))


def test_edits_in_other_dialects_are_diffs_too() -> None:
    claude = ToolCall("c", "Edit", {"file_path": "a", "old_string": "one", "new_string": "two"})
    assert diff_of(claude).plain.splitlines()[-2:] == ["-one", "+two"]
    written = diff_of(ToolCall("c", "Write", {"file_path": "a", "content": "l1\nl2"}))
    assert written.plain == "+l1\n+l2"
    assert diff_of(ToolCall("c", "edit", {"edits": [{"old": 1}, "x"]})) is None
    assert diff_of(ToolCall("c", "read", {"path": "a"})) is None


async def test_the_end_of_a_run_says_why_it_failed() -> None:
    from retinue.core.outcome import Failure

    app = Page()
    async with app.run_test() as pilot:
        failure = Failure("authentication", "The key is wrong.", "Set ANTHROPIC_API_KEY.")
        app.push(RunEnded(Outcome("error", failure=failure)))
        await until(pilot, lambda: "The key is wrong. Set ANTHROPIC_API_KEY." in picture(app))
        app.push(RunEnded(Outcome("stopped")), Compacted("manual", "summarised", 9_000, 1_000, ()))
        await until(pilot, lambda: "9,000 to 1,000 tokens" in picture(app) and "Interrupted." in picture(app))


async def test_a_long_conversation_keeps_the_screen_small() -> None:
    app = Page()
    async with app.run_test() as pilot:
        for number in range(MAX_BLOCKS + CUT_BLOCKS + 50):
            app.push(MessageAdded(user(f"message {number}")))
        await until(pilot, lambda: f"message {MAX_BLOCKS + CUT_BLOCKS + 49}" in picture(app))
        await until(pilot, lambda: len(app.chat.children) <= MAX_BLOCKS + CUT_BLOCKS)
        assert any(isinstance(child, Notice) for child in app.chat.children)


async def test_who_scrolled_up_is_not_pulled_down() -> None:
    app = Page()
    async with app.run_test(size=(40, 10)) as pilot:
        for number in range(30):
            app.push(MessageAdded(user(f"message {number}")))
        await until(pilot, lambda: "message 29" in picture(app))
        app.chat.scroll_home(animate=False)
        await pilot.pause()
        app.push(MessageAdded(user("newest")))
        await pilot.pause(0.1)
        assert "message 0" in picture(app) and "newest" not in picture(app)


NASTY = st.text(
    alphabet=st.sampled_from("ab漢é👩‍👧\x1b[31m\x9b\t\n\r\x00\u202e*_`#>-|[]()!<&~$\\ 1.🇩🇪"),
    max_size=200,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(NASTY, min_size=1, max_size=12))
async def test_no_text_of_a_model_breaks_the_screen(pieces: list[str]) -> None:
    app = Page()
    async with app.run_test(size=(40, 12)) as pilot:
        call = ToolCall("c", pieces[0][:20] or "x", {"command": pieces[-1], "path": pieces[0]})
        app.push(MessageAdded(user(pieces[0])), *(TextDelta(piece) for piece in pieces), answered("".join(pieces)))
        app.push(ToolStarted(call), ToolProgress("c", pieces[-1]), result(call, pieces[-1]))
        app.push(MessageAdded(user("the end")))
        await until(pilot, lambda: len(app.query(Said)) == 2)
        app.chat.fold_all()
        await pilot.pause()
        assert not any(ord(sign) < 32 and sign != "\n" for sign in picture(app))


@given(st.text())
def test_cleaned_text_has_nothing_that_moves_the_cursor(text: str) -> None:
    assert not any((ord(sign) < 32 and sign != "\n") or 0x7F <= ord(sign) < 0xA0 for sign in clean(text))


def test_a_heading_is_one_line_whatever_the_arguments() -> None:
    assert heading(ToolCall("c", "bash", {"command": "a\nb\x1b[31m"})) == "bash a b"
    assert len(heading(ToolCall("c", "bash", {"command": "x" * 1_000}))) < 120
    block = ToolBlock(Entry("call", call=ToolCall("c", "odd", {"deep": {"a": [1, 2]}})))
    Console(quiet=True).print(block.body())
