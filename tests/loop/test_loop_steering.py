"""Steering, follow-ups, and keeping a run open: delivered once, in order, or refused."""

import asyncio

import pytest

from retinue.core.events import AssistantEnded, MessageAdded, RunEnded, ToolsEnded, TurnEnded
from retinue.core.messages import UserMessage
from retinue.core.usage import Limits
from retinue.errors import UsageError
from retinue.loop import Controls
from retinue.testing import (
    Call,
    Do,
    Expect,
    FakeClock,
    FakeTool,
    ScriptedModel,
    Turn,
    Wait,
    check_prefix,
    drive,
    settle,
)

TOOL = FakeTool("look", lambda: "seen")


def said(run, origin):
    return [added.message.text for added in run.of(MessageAdded) if added.message.origin == origin]


async def test_steering_comes_after_the_tool_results_and_before_the_next_request():
    controls = Controls()
    with ScriptedModel(
        Turn(Do(lambda: controls.steer("only in src/")), Call("look")), Turn(Expect("only in src/"), "ok")
    ) as model:
        run = await drive(model, tools=[TOOL], controls=controls)
    kinds = [body.type for body in run.bodies]
    assert kinds.index("tools.ended") < kinds.index("turn.ended") < kinds.index("message.added", 1)
    assert [m.type for m in model.requests[1].messages] == ["user", "assistant", "tool", "user"]
    check_prefix(model.requests)


async def test_steering_sent_before_the_run_starts_is_delivered_in_order_once():
    controls = Controls()
    for text in "one", "two", "three":
        assert controls.steer(text)
    assert controls.pending_steer
    model = ScriptedModel(Turn(Call("look")), "ok")
    run = await drive(model, tools=[TOOL], controls=controls)
    assert said(run, "steer") == ["one", "two", "three"]
    assert [m.text for m in model.requests[0].messages] == ["do it", "one", "two", "three"]
    assert not controls.pending_steer


@pytest.mark.parametrize("moment", [AssistantEnded, TurnEnded])
async def test_steering_after_the_final_answer_is_not_lost(moment):
    controls = Controls()

    def watch(body):
        if isinstance(body, moment) and not said_it:
            said_it.append(controls.steer("one more thing"))

    said_it = []
    with ScriptedModel("first answer", Turn(Expect("one more thing"), "second answer")) as model:
        run = await drive(model, controls=controls, watch=watch)
    assert (run.outcome.text, run.outcome.turns) == ("second answer", 2)


async def test_steering_a_run_that_has_ended_is_refused():
    controls = Controls()
    answers = []

    def watch(body):
        if isinstance(body, RunEnded):
            answers.extend([controls.steer("x"), controls.follow_up("x"), controls.stop(), controls.compact()])

    await drive(ScriptedModel("done"), controls=controls, watch=watch)
    assert answers == [False, False, False, False] and controls.ended


async def test_follow_ups_wait_until_the_run_would_end():
    controls = Controls()
    controls.follow_up("and then?")
    controls.follow_up("and after that?")
    with ScriptedModel(
        Turn(Call("look")), "first", Turn(Expect(lambda r: r.messages[-2].text == "and then?"), "second")
    ) as model:
        run = await drive(model, tools=[TOOL], controls=controls)
    assert said(run, "follow-up") == ["and then?", "and after that?"]
    assert run.outcome.text == "second"


async def test_steering_goes_before_follow_ups():
    controls = Controls()

    def watch(body):
        if isinstance(body, AssistantEnded) and body.turn == 1:
            controls.follow_up("later")
            controls.steer("sooner")

    model = ScriptedModel("a", Turn(Expect("sooner"), "b"), Turn(Expect("later"), "c"))
    with model:
        run = await drive(model, controls=controls, watch=watch)
    assert run.outcome.text == "c"


async def test_a_run_kept_open_waits_for_its_notifications():
    controls = Controls()
    with ScriptedModel("waiting for the others", Turn(Expect("child 1 is done"), "all done")) as model:
        with controls.keep_open():
            task = asyncio.create_task(drive(model, controls=controls))
            await settle()
            assert not task.done()
            controls.follow_up("child 1 is done", "notification")
            await settle()
            assert not task.done(), "still held"
        run = await task
    assert run.outcome.text == "all done"
    assert said(run, "notification") == ["child 1 is done"]


async def test_a_run_kept_open_can_be_stopped_and_runs_out_of_time():
    controls = Controls()
    with controls.keep_open():
        task = asyncio.create_task(drive(ScriptedModel("so far"), controls=controls))
        await settle()
        controls.stop("enough")
        run = await task
        assert (run.outcome.ended, run.outcome.text) == ("stopped", "so far")
    controls, clock = Controls(), FakeClock()
    with controls.keep_open():
        task = asyncio.create_task(
            drive(ScriptedModel("so far"), controls=controls, clock=clock, limits=Limits(seconds=100))
        )
        await clock.advance(101)
        assert (await task).outcome.limit == "time"


async def test_steering_beyond_the_turn_limit_comes_with_the_wrap_up():
    controls = Controls()

    def watch(body):
        if isinstance(body, AssistantEnded) and body.turn == 1:
            controls.steer("also this")

    with ScriptedModel("answer", "answer to both") as model:
        run = await drive(model, controls=controls, watch=watch, limits=Limits(max_turns=1))
    assert [m.origin for m in model.requests[1].messages if isinstance(m, UserMessage)] == ["task", "steer", "wrap-up"]
    assert run.outcome.ended == "steered"


async def test_controls_belong_to_one_run():
    controls = Controls()
    await drive(ScriptedModel("done"), controls=controls)
    clock = FakeClock()
    with pytest.raises(RuntimeError, match="one run"):
        await drive(ScriptedModel("done"), controls=controls, clock=clock)
    assert clock.pending == 0


async def test_a_run_that_could_not_start_leaves_its_mailbox_and_clock_alone():
    controls, clock = Controls(), FakeClock()
    with pytest.raises(UsageError):
        await drive(ScriptedModel(), controls=controls, clock=clock, schema={"type": "nonsense"})
    assert clock.pending == 0 and not controls.ended
    controls.steer("said before")
    run = await drive(ScriptedModel("done"), controls=controls, clock=clock)
    assert said(run, "steer") == ["said before"]


async def test_waiting_that_began_before_the_run_counts():
    controls, clock, gate = Controls(), FakeClock(), asyncio.Event()
    with controls.waiting():
        task = asyncio.create_task(
            drive(
                ScriptedModel(Turn(Wait(gate), "done")), controls=controls, clock=clock, limits=Limits(idle_seconds=5)
            )
        )
        await clock.advance(60)
        assert not task.done()
    gate.set()
    assert (await task).outcome.ended == "completed"


async def test_steering_during_a_tool_call_waits_for_its_result():
    controls = Controls()

    async def work():
        controls.steer("faster")
        await asyncio.sleep(0)
        return "worked"

    with ScriptedModel(Turn(Call("work")), Turn(Expect("faster"), "ok")) as model:
        run = await drive(model, tools=[FakeTool("work", work)], controls=controls)
    assert len(run.of(ToolsEnded)) == 1
