"""Whatever moment a process died in, its events give back a conversation that can go on."""

import log_stories as stories
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.core.events import (
    AssistantEnded,
    Compacted,
    Event,
    MessageAdded,
    Retrying,
    Rewound,
    RunEnded,
    RunResumed,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolsEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Warned,
)
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, ToolMessage, user
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import ToolEffect
from retinue.core.usage import Usage
from retinue.log.replay import current_branch, describe_call, replay


def is_answered(messages):
    """Every call has exactly one result, in call order, right behind it; no result without one."""
    waiting = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert waiting
            assert [answer.call_id for answer in message.results] == waiting
            waiting = []
        else:
            assert not waiting
            waiting = [made.id for made in message.tool_calls] if isinstance(message, AssistantMessage) else []
            assert not isinstance(message, AssistantMessage) or message.content
    return not waiting


@st.composite
def turns(draw, number, ids):
    """One turn as a loop makes it, and what it adds to the conversation."""
    bodies, added = [TurnStarted(number)], []
    bodies += [TextDelta("…")] * draw(st.integers(0, 2))
    if draw(st.booleans()):
        bodies.append(Retrying(1, 0.1, Failure("overloaded", "busy"), "lost"))
    calls = [ToolCall(draw(ids), "bash", {"command": "x"}) for _ in range(draw(st.integers(0, 4)))]
    ids_here = [made.id for made in calls]
    calls = [made for index, made in enumerate(calls) if made.id not in ids_here[:index]]
    fails = draw(st.integers(0, 5)) == 0
    content = (*draw(st.sampled_from([(), (Text("words"),), (Thinking("hm", "sig"), Text("w"))])), *calls)
    failure = Failure("dropped", "cut") if fails else None
    message = AssistantMessage(content, "error" if fails else "end", Usage(3, 2), "m", failure)
    bodies.append(AssistantEnded(number, message))
    kept = tuple(part for part in content if not isinstance(part, ToolCall)) if fails else content
    if kept:
        added.append(AssistantMessage(kept, message.stop, message.usage, "m", failure))
    if calls and not fails:
        results = [stories.result(made, f"result of {made.id}") for made in calls]
        work = [(ToolStarted(made), ToolProgress(made.id, "…")) for made in calls]
        bodies += [body for pair in work for body in pair]
        for index in draw(st.permutations(range(len(calls)))):
            bodies.append(ToolEnded(calls[index].id, "bash", results[index], ToolEffect(), 1))
        bodies.append(ToolsEnded(ToolMessage(tuple(results))))
        added.append(ToolMessage(tuple(results)))
    bodies.append(TurnEnded(number, Usage(3, 2), Usage(3 * number, 2 * number)))
    return bodies, added, fails


@st.composite
def runs(draw):
    """A whole run: its bodies, and the conversation after each turn that was completed."""
    ids = st.sampled_from(["a", "b", "c", "call_0", "d"])
    bodies, messages = stories.opening("task"), [user("task")]
    after = {len(bodies): list(messages)}
    for number in range(1, draw(st.integers(1, 5)) + 1):
        turn, added, failed = draw(turns(number, ids))
        if messages and isinstance(messages[-1], AssistantMessage) and messages[-1].failure and added:
            messages.pop()
        bodies += turn
        messages += added
        after[len(bodies)] = list(messages)
        match draw(st.sampled_from(["steer", "compact", "resume", "warn", "nothing"])) if not failed else "steer":
            case "steer":
                bodies.append(MessageAdded(user("steer", "steer")))
                messages.append(user("steer", "steer"))
            case "compact":
                messages = [user("task"), user("summary", "summary")]
                bodies.append(Compacted("threshold", "summarised", 9, 1, tuple(messages)))
            case "resume":
                ended = RunEnded(Outcome("stopped", usage=Usage(3 * number, 2 * number)))
                bodies += [ended, RunResumed("more"), MessageAdded(user("more", "follow-up"))]
                messages.append(user("more", "follow-up"))
            case "warn":
                bodies.append(Warned("w", "something"))
        after[len(bodies)] = list(messages)
    bodies.append(stories.ending())
    return bodies, after


@given(runs(), st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_cut_gives_a_conversation_that_can_go_on(run, data):
    bodies, after = run
    cut = data.draw(st.integers(0, len(bodies)))
    past = replay(bodies[:cut])
    assert is_answered(past.messages)
    last = max((place for place in after if place <= cut), default=0)
    if last:
        assert list(past.messages[: len(after[last])]) == after[last] or _superseded(past.messages, after[last])
    started = {body.call.id for body in _last_turn(bodies[:cut]) if isinstance(body, ToolStarted)}
    ended = {body.call_id for body in _last_turn(bodies[:cut]) if isinstance(body, ToolEnded)}
    if past.unknown or past.unrun:
        assert {made.id for made in past.unknown} == started - ended
        open_calls = {call.id for call in (*past.unknown, *past.unrun)}
        assert {result.call_id for result in past.messages[-1].results} - open_calls == ended
    assert replay([*bodies[:cut], RunResumed("on")]).messages == past.messages
    again = replay([*bodies[:cut], RunResumed("on"), MessageAdded(user("on")), TurnStarted(99)])
    assert again.messages == (*past.messages, user("on"))
    assert again.usage == past.usage
    assert again.outcome is None


def _superseded(messages, expected):
    """A failed answer gives way to the next one, if nobody spoke in between."""
    return expected[-1:] and isinstance(expected[-1], AssistantMessage) and expected[-1].failure is not None


def _last_turn(bodies):
    begins = [index for index, body in enumerate(bodies) if isinstance(body, TurnStarted)]
    return bodies[begins[-1] :] if begins else []


@given(runs())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_whole_stream_gives_the_whole_conversation(run):
    bodies, after = run
    past = replay(Event("r", None, "r", n, 1.0, body) for n, body in enumerate(bodies))
    assert list(past.messages) == after[len(bodies) - 1]
    assert past.outcome == bodies[-1].outcome
    assert not past.unknown
    assert not past.unrun


def test_finished_calls_keep_their_results_and_the_others_say_what_is_known():
    calls = [stories.call(1), stories.call(2, "bash", command="make install"), stories.call(3)]
    bodies = [
        *stories.opening(),
        TurnStarted(1),
        AssistantEnded(1, stories.answer("Working.", calls)),
        ToolStarted(calls[0]),
        ToolStarted(calls[1]),
        ToolEnded("call_1", "read", stories.result(calls[0], "the file"), ToolEffect(), 1),
    ]
    past = replay(bodies, "half an answer")
    first, second, third = past.messages[-1].results
    assert (first.text, first.is_error) == ("the file", False)
    assert second.is_error
    assert "unknown" in second.text
    assert "bash(command='make install')" in second.text
    assert third.is_error
    assert "not run" in third.text
    assert past.unknown == (calls[1],)
    assert past.unrun == (calls[2],)
    assert (past.turn, past.tool_uses, past.partial) == (1, 1, "half an answer")
    assert past.usage == stories.answer().usage


def test_calls_that_share_an_id_are_told_apart_by_their_order():
    made = ToolCall("same", "read", {"path": "x"})
    bodies = [
        *stories.opening(),
        TurnStarted(1),
        AssistantEnded(1, stories.answer("", [made, made, made])),
        ToolStarted(made),
        ToolStarted(made),
        ToolEnded("same", "read", stories.result(made, "first"), ToolEffect(), 1),
    ]
    past = replay(bodies)
    assert [answer.text[:10] for answer in past.messages[-1].results] == ["first", "The effect", "This call "]


def test_a_run_that_was_cut_before_its_task_was_said_still_knows_it():
    past = replay([stories.created("the task")])
    assert past.messages == ()
    assert past.created.task == "the task"
    assert past.started is None


def test_a_compaction_that_left_calls_open_is_closed():
    made = stories.call(1)
    kept = (user("task"), stories.answer("", [made]), user("later", "steer"), ToolMessage((stories.result(made),)))
    past = replay([*stories.opening(), Compacted("overflow", "pruned", 9, 3, kept)])
    assert is_answered(past.messages)
    assert len(past.messages) == 4


def test_a_call_on_one_line():
    assert describe_call(ToolCall("1", "bash", {"command": "ls", "timeout": 3})) == "bash(command='ls', timeout=3)"
    assert describe_call(ToolCall("1", "bash", {}, broken="{oops")) == "bash('{oops')"
    assert len(describe_call(ToolCall("1", "write", {"content": "x" * 10**6}))) < 200


def test_going_back_leaves_out_what_lies_between_and_counts_it_all_the_same():
    def said(seq, text):
        return [Event("r", None, "r", seq, 0.0, MessageAdded(user(text)))]

    def turn(seq, number, text):
        bodies = [
            TurnStarted(number),
            AssistantEnded(number, AssistantMessage((Text(text),))),
            TurnEnded(number, Usage(10), Usage(10 * number), 5),
        ]
        return [Event("r", None, "r", seq + at, 0.0, body) for at, body in enumerate(bodies)]

    events = [*said(1, "one"), *turn(2, 1, "first"), *said(5, "two"), *turn(6, 2, "second")]
    back = Event("r", None, "r", 9, 0.0, Rewound(4))
    past = replay([*events, back])
    assert [message.text for message in past.messages] == ["one", "first"]
    assert (past.turn, past.usage) == (2, Usage(20))
    # What was being written when a process died belongs to the part that was left.
    assert replay([*events, back], "half an answ").partial == ""
    # Forward again, to the end of that part.
    again = Event("r", None, "r", 10, 0.0, Rewound(8, ("a.txt",)))
    there = replay([*events, back, again])
    assert [message.text for message in there.messages][:4] == ["one", "first", "two", "second"]
    assert "a.txt" in there.messages[4].text
    assert [event.seq for event in current_branch([*events, back, again])] == [*range(1, 9), 10]
