"""Turns, tool calls, repeated failures and budgets (cases K)."""

import itertools

import pytest

from retinue.core.events import LimitReached, MessageAdded, TurnEnded
from retinue.core.messages import ToolMessage
from retinue.core.tool import failed
from retinue.core.usage import Limits
from retinue.log.replay import Conversation
from retinue.loop import Controls
from retinue.testing import Call, Expect, FakeTool, ScriptedModel, Turn, check_prefix, drive

TOOL = FakeTool("look", lambda **_: "seen")


def busy(turns):
    return [Turn("working", Call("look")) for _ in range(turns)]


def wrap_ups(run):
    return [added.message.text for added in run.of(MessageAdded) if added.message.origin == "wrap-up"]


async def test_below_the_limit_nothing_happens():
    run = await drive(ScriptedModel(*busy(2), "done"), tools=[TOOL], limits=Limits(max_turns=5))
    assert (run.outcome.ended, run.outcome.limit) == ("completed", None)
    assert not wrap_ups(run) and not run.of(LimitReached)


async def test_an_end_exactly_on_the_last_turn_is_completed():
    run = await drive(ScriptedModel(*busy(2), "done"), tools=[TOOL], limits=Limits(max_turns=3))
    assert run.outcome.ended == "completed" and not wrap_ups(run)


async def test_at_the_limit_one_wrap_up_and_an_end_within_grace_is_steered():
    with ScriptedModel(*busy(3), Turn(Expect("3 turns"), "wrapped up")) as model:
        run = await drive(model, tools=[TOOL], limits=Limits(max_turns=3))
    assert (run.outcome.ended, run.outcome.limit, run.outcome.text) == ("steered", "turns", "wrapped up")
    assert run.outcome.ok and len(wrap_ups(run)) == 1
    assert [(limit.limit, limit.action) for limit in run.of(LimitReached)] == [("turns", "wrap-up")]
    check_prefix(model.requests)


@pytest.mark.parametrize("grace", [1, 2, 5])
async def test_after_the_grace_turns_the_run_is_aborted(grace):
    with ScriptedModel(*busy(2 + grace)) as model:
        run = await drive(model, tools=[TOOL], limits=Limits(max_turns=2, grace_turns=grace))
    assert (run.outcome.ended, run.outcome.limit) == ("aborted", "turns")
    assert (run.outcome.text, run.outcome.partial) == ("working", True)
    assert run.outcome.turns == 2 + grace
    assert len(wrap_ups(run)) == 1, "never repeated"
    assert [(limit.limit, limit.action) for limit in run.of(LimitReached)] == [("turns", "wrap-up"), ("turns", "end")]
    assert [ended.turn for ended in run.of(TurnEnded)] == list(range(1, 3 + grace)), "each turn is reported"


async def test_the_last_turn_of_the_grace_may_still_be_the_answer():
    run = await drive(ScriptedModel(*busy(3), "at last"), tools=[TOOL], limits=Limits(max_turns=2, grace_turns=2))
    assert (run.outcome.ended, run.outcome.text) == ("steered", "at last")


async def test_without_a_limit_a_run_may_take_as_long_as_it_takes():
    for limits in (Limits(repeated_calls=None), Limits(max_turns=0, repeated_calls=None)):
        run = await drive(ScriptedModel(*busy(60), "done"), tools=[TOOL], limits=limits)
        assert (run.outcome.ended, run.outcome.turns) == ("completed", 61)


async def test_tools_stay_usable_in_the_grace_turns_and_the_last_one_asks_for_the_answer():
    ran: list[int] = []
    look = FakeTool("look", lambda n: ran.append(n) or "seen")
    turns = [Turn(Call("look", {"n": n})) for n in range(6)]
    with ScriptedModel(*turns, "at last") as model:
        run = await drive(model, tools=[look], limits=Limits(max_turns=2, grace_turns=5))
    assert ran == list(range(6)) and (run.outcome.ended, run.outcome.text) == ("steered", "at last")
    assert [request.tool_choice for request in model.requests] == ["auto"] * 6 + ["none"]
    assert all(request.tools == model.requests[0].tools for request in model.requests), "the prefix stays cached"


@pytest.mark.parametrize(
    "limits", [Limits(max_turns=1, grace_turns=1), Limits(max_tool_calls=0)], ids=["one turn of grace", "no calls left"]
)
async def test_the_last_turn_is_for_the_answer(limits):
    with ScriptedModel(*busy(1), "at last") as model:
        await drive(model, tools=[TOOL], limits=limits)
    assert [request.tool_choice for request in model.requests] == ["auto", "none"]


async def test_a_result_that_is_handed_in_by_a_call_may_be_handed_in_on_the_last_turn():
    with ScriptedModel(*busy(1), Turn(Call("submit_result", {"ok": True}))) as model:
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        run = await drive(model, tools=[TOOL], schema=schema, limits=Limits(max_turns=1, grace_turns=1))
    assert model.requests[-1].tool_choice == "auto"
    assert run.outcome.value == {"ok": True}


async def test_grace_is_at_least_one_turn_and_a_negative_limit_counts_as_one():
    run = await drive(ScriptedModel(*busy(2)), tools=[TOOL], limits=Limits(max_turns=1, grace_turns=0))
    assert (run.outcome.ended, run.outcome.turns) == ("aborted", 2)
    run = await drive(ScriptedModel(*busy(1), "done"), tools=[TOOL], limits=Limits(max_turns=-4))
    assert (run.outcome.ended, run.outcome.turns) == ("steered", 2)


async def test_turn_limits_apply_again_to_a_resumed_run():
    run = await drive(
        ScriptedModel(*busy(3), "done"), tools=[TOOL], limits=Limits(max_turns=5), past=Conversation(turn=4)
    )
    assert (run.outcome.ended, run.outcome.turns) == ("completed", 8)


async def test_max_tool_calls_refuses_the_rest_asks_for_the_end_and_gets_it():
    model = ScriptedModel(
        Turn(Call("look"), Call("look")),
        Turn(Call("look"), Call("look"), Call("look")),
        Turn(Expect("3 tool calls"), "the end"),
    )
    run = await drive(model, tools=[TOOL], limits=Limits(max_tool_calls=3))
    assert (run.outcome.ended, run.outcome.limit, run.outcome.tool_uses) == ("steered", "tool_calls", 3)
    last = [m for m in run.messages if isinstance(m, ToolMessage)][-1]
    assert [result.is_error for result in last.results] == [False, True, True]
    assert "Not run" in last.results[1].text
    assert len(wrap_ups(run)) == 1


async def test_a_run_that_uses_exactly_its_tool_calls_is_completed():
    run = await drive(
        ScriptedModel(Turn(Call("look"), Call("look")), "done"), tools=[TOOL], limits=Limits(max_tool_calls=2)
    )
    assert run.outcome.ended == "completed"


async def test_max_tool_calls_ends_a_run_that_will_not_listen():
    run = await drive(ScriptedModel(*busy(4)), tools=[TOOL], limits=Limits(max_tool_calls=1, grace_turns=2))
    assert (run.outcome.ended, run.outcome.limit, run.outcome.tool_uses) == ("aborted", "tool_calls", 1)
    assert len(wrap_ups(run)) == 1


async def test_the_turn_limit_and_the_tool_limit_share_one_wrap_up_and_the_nearer_end():
    run = await drive(
        ScriptedModel(*busy(6)), tools=[TOOL], limits=Limits(max_tool_calls=1, max_turns=4, grace_turns=2)
    )
    assert (run.outcome.ended, run.outcome.turns) == ("aborted", 4)
    assert len(wrap_ups(run)) == 1


def bad(times):
    return [Turn(Call("look", {"b": 1, "a": [1, 2]}), f"try {n}") for n in range(times)]


FAILING = FakeTool("look", lambda **_: failed("no such file"))


async def test_the_same_failing_call_is_warned_once_and_then_ends_the_run():
    with ScriptedModel(*bad(5)) as model:
        run = await drive(model, tools=[FAILING], limits=Limits(repeated_calls=5))
    outcome = run.outcome
    assert (outcome.ended, outcome.limit, outcome.failure.kind) == ("error", "repeated_calls", "limit")
    texts = [m.results[0].text for m in run.messages if isinstance(m, ToolMessage)]
    assert ["ends the run" in text for text in texts] == [False, False, False, True, False]
    assert [(limit.limit, limit.action) for limit in run.of(LimitReached)] == [("repeated_calls", "end")]


async def test_the_count_of_failures_starts_anew_after_anything_else():
    other = Turn(Call("look", {"a": 2}))
    run = await drive(ScriptedModel(*bad(3), other, *bad(3), "done"), tools=[FAILING], limits=Limits(repeated_calls=4))
    assert run.outcome.ended == "completed"
    answers = itertools.chain([failed("x")] * 3, ["fine"], [failed("x")] * 3)
    run = await drive(
        ScriptedModel(*bad(7), "done"),
        tools=[FakeTool("look", lambda **_: next(answers))],
        limits=Limits(repeated_calls=4),
    )
    assert run.outcome.ended == "completed"


async def test_equal_calls_of_one_turn_count_once_and_key_order_does_not_matter():
    five = Turn(*[Call("look", {"a": 1, "b": 2})] * 5)
    run = await drive(ScriptedModel(five, "done"), tools=[FAILING], limits=Limits(repeated_calls=3))
    assert run.outcome.ended == "completed"
    swapped = Turn(Call("look", {"b": 2, "a": 1}))
    run = await drive(ScriptedModel(five, swapped, five), tools=[FAILING], limits=Limits(repeated_calls=3))
    assert run.outcome.limit == "repeated_calls"


async def test_unknown_tools_and_garbage_count_as_failing_calls_too():
    for call in (Call("nope"), Call("look", broken="{")):
        run = await drive(ScriptedModel(*[Turn(call)] * 3), tools=[TOOL], limits=Limits(repeated_calls=3))
        assert run.outcome.limit == "repeated_calls"


async def test_steering_that_a_limit_leaves_undelivered_is_in_the_notes():
    controls = Controls()

    def watch(body):
        if isinstance(body, TurnEnded) and body.turn == 2:
            assert controls.steer("look at b.py instead")

    run = await drive(
        ScriptedModel(*busy(2)),
        tools=[TOOL],
        limits=Limits(max_turns=1, grace_turns=1),
        controls=controls,
        watch=watch,
    )
    assert run.outcome.ended == "aborted"
    assert "look at b.py instead" in run.outcome.notes[0]
    assert not controls.steer("too late")


async def test_the_same_call_with_the_same_result_again_and_again_ends_the_run():
    with ScriptedModel(*busy(10)) as model:
        run = await drive(model, tools=[TOOL], limits=Limits(repeated_calls=5))
    assert (run.outcome.ended, run.outcome.limit) == ("error", "repeated_calls")
    assert run.outcome.failure.message == (
        "The agent made the same call of look 10 times in a row, with the same result each time."
    )
    warned = model.requests[-1].messages[-1]
    assert isinstance(warned, ToolMessage) and "one more ends the run" in warned.results[0].text


async def test_a_call_whose_result_changes_may_be_repeated():
    counter = itertools.count()
    changing = FakeTool("look", lambda **_: f"seen {next(counter)}")
    run = await drive(ScriptedModel(*busy(15), "done"), tools=[changing], limits=Limits(repeated_calls=5))
    assert run.outcome.ended == "completed"


async def test_another_call_in_between_starts_the_count_anew():
    other = Turn(Call("look", {"path": "elsewhere"}))
    run = await drive(ScriptedModel(*busy(9), other, *busy(9), "done"), tools=[TOOL], limits=Limits(repeated_calls=5))
    assert run.outcome.ended == "completed"
