"""A run as entries: what each event adds and changes."""

from __future__ import annotations

from retinue.core.events import (
    AssistantEnded,
    Body,
    InboxClosed,
    InboxOpened,
    MessageAdded,
    Retrying,
    RunEnded,
    RunResumed,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, user
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import ToolEffect
from retinue.core.story import Story, StoryStep

CALL = ToolCall("c", "bash", {"command": "make"})


def told(*bodies: Body) -> list[StoryStep]:
    story = Story()
    return [step for seq, body in enumerate(bodies, 1) for step in story.take(body, seq, float(seq))]


def names(steps: list[StoryStep]) -> list[str]:
    return [f"{step.entry.kind} {step.change}" for step in steps]


def answered(*content: Text | Thinking | ToolCall, **facts) -> AssistantEnded:
    return AssistantEnded(1, AssistantMessage(content, **facts))


def ended(call_id: str, text: str = "done", **facts) -> ToolEnded:
    return ToolEnded(call_id, "bash", ToolResult(call_id, "bash", (Text(text),), **facts), ToolEffect(), 7)


def test_streamed_text_grows_and_is_settled_by_the_whole_message() -> None:
    steps = told(TurnStarted(1), TextDelta("The "), TextDelta("ans"), answered(Text("The answer.")))
    assert names(steps) == ["answer added", "answer grew", "answer grew", "answer ended"]
    assert len({id(step.entry) for step in steps}) == 1
    assert [step.piece for step in steps] == ["", "The ", "ans", "wer."]
    assert steps[0].entry.text == "The answer." and steps[0].entry.turn == 1


def test_thoughts_and_texts_keep_their_order_and_what_was_not_streamed_is_added() -> None:
    steps = told(
        ThinkingDelta("hm"),
        TextDelta("Look."),
        answered(Thinking("hm"), Text("Look."), CALL, Thinking("and"), Text("More.")),
    )
    entries = list({id(step.entry): step.entry for step in steps}.values())
    assert [(entry.kind, entry.text) for entry in entries] == [
        ("thinking", "hm"), ("answer", "Look."), ("call", ""), ("thinking", "and"), ("answer", "More."),
    ]  # fmt: skip


def test_a_retry_takes_back_what_was_streamed() -> None:
    steps = told(TextDelta("half"), Retrying(1, 2.0, Failure("server", "Gone."), "half"), answered(Text("whole")))
    assert names(steps) == ["answer added", "answer grew", "answer void", "note added", "answer ended"]
    assert (steps[3].entry.text, steps[3].entry.detail) == ("Gone. Trying again in 2.0 s (attempt 1).", "half")


def test_the_rest_of_an_answer_that_was_cut_off_names_its_beginning() -> None:
    first = answered(Text("one"), stop="length")
    correction = MessageAdded(user("Go on.", "correction"))
    steps = told(first, correction, TextDelta("lost"), Retrying(1, 0, Failure("server", "x")), answered(Text("two")))
    beginning, rest = steps[0].entry, steps[-1].entry
    assert beginning.cut_off and rest.continues is beginning
    assert [step.entry.continues for step in told(first, MessageAdded(user("No.", "steer")), answered(Text("b")))][
        -1
    ] is None


def test_a_call_begins_asks_and_ends() -> None:
    asked, reply = InboxOpened("i", "approval", "run make", "c"), InboxClosed("i", "answered", "allow", "ann", "", "c")
    steps = told(answered(CALL), ToolStarted(CALL), asked, reply, ToolProgress("c", "out"), ended("c", is_error=True))
    call = [step for step in steps if step.entry.kind == "call"]
    assert [step.change for step in call] == ["added", "began", "asked", "answered", "grew", "ended"]
    entry = call[0].entry
    assert (entry.state, entry.approval, entry.asks, entry.duration_ms) == ("failed", "allow by ann", "", 7)
    assert [step.entry.topic for step in steps if step.entry.kind == "note"] == ["asked", "answered"]


def test_calls_of_one_id_get_their_results_in_order() -> None:
    steps = told(answered(CALL, CALL), ToolStarted(CALL), ToolStarted(CALL), ended("c", "first"), ended("c", "second"))
    results = [step.entry.result.text for step in steps if step.change == "ended" and step.entry.result is not None]
    assert results == ["first", "second"] and len({id(step.entry) for step in steps}) == 2


def test_an_event_whose_beginning_was_not_read_has_an_entry_of_its_own() -> None:
    assert names(told(ToolStarted(CALL))) == ["call added", "call began"]
    assert names(told(ended("c"))) == ["call added", "call ended"]


def test_calls_that_never_report_are_cut() -> None:
    for last in (RunResumed(""), RunEnded(Outcome("stopped"))):
        steps = told(answered(CALL), ToolStarted(CALL), TextDelta("x"), last)
        cut = [step.entry for step in steps if step.entry.kind == "call"][-1]
        assert cut.state == "cut" and cut.result is None


def test_what_was_written_when_the_run_ended_stays() -> None:
    assert names(told(TextDelta("so far"), RunEnded(Outcome("stopped")))) == [
        "answer added", "answer grew", "answer ended", "ended added",
    ]  # fmt: skip
