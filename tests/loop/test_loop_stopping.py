"""Stopping, closing and cancelling at every point: nothing dangles, nothing goes on."""

import asyncio
from contextlib import aclosing

import pytest

from retinue.core.events import AssistantEnded, RunEnded, TextDelta, ToolEnded, ToolsEnded, ToolStarted
from retinue.core.usage import Limits
from retinue.log.replay import replay
from retinue.loop import Controls, run_loop
from retinue.testing import (
    SCRIPTED,
    Call,
    Do,
    FakeTool,
    Hang,
    Say,
    ScriptedModel,
    Turn,
    check_history,
    drive,
    job,
    settle,
)


async def forever():
    await asyncio.Event().wait()


async def start(model, **options):
    controls, bodies = Controls(), []
    task = asyncio.create_task(drive(model, controls=controls, watch=bodies.append, **options))
    await settle()
    return controls, bodies, task


async def test_stopping_while_the_model_streams_keeps_what_it_said():
    controls, _, task = await start(ScriptedModel(Turn(Say("half an answer", chunks=4), Hang())))
    assert controls.stop("not needed any more")
    run = await task
    outcome = run.outcome
    assert (outcome.ended, outcome.text, outcome.partial) == ("stopped", "half an answer", True)
    assert outcome.failure.message == "not needed any more" and outcome.exit_code == 130
    assert run.of(AssistantEnded)[0].message.stop == "aborted"
    assert run.messages[-1].text == "half an answer"


async def test_stopping_before_the_model_said_anything_leaves_no_empty_message():
    controls, _, task = await start(ScriptedModel(Turn(Hang())))
    controls.stop()
    run = await task
    assert [m.type for m in run.messages] == ["user"]
    assert (run.outcome.text, run.outcome.partial) == ("", False)


async def test_stopping_among_tools_gives_every_call_its_result():
    tools = [
        FakeTool("quick", lambda: "quick"),
        FakeTool("slow", forever),
        FakeTool("alone", lambda: "x", exclusive=True),
    ]
    model = ScriptedModel(Turn("working", Call("quick"), Call("slow"), Call("alone"), Call("quick")))
    controls, _, task = await start(model, tools=tools)
    controls.stop()
    run = await task
    [ended] = run.of(ToolsEnded)
    texts = [result.text for result in ended.message.results]
    assert texts[0] == "quick"
    assert "while running" in texts[1] and "Not run" in texts[2] and "Not run" in texts[3]
    assert run.outcome.ended == "stopped" and run.outcome.text == "working"
    assert run.outcome.evidence.unknown_effects == ("slow {}",)
    assert run.outcome.tool_uses == 2, "only the calls that were made"


async def test_stopping_between_the_start_of_a_call_and_the_call():
    ran = []
    controls = Controls()

    def watch(body):
        if isinstance(body, ToolStarted):
            controls.stop()

    model = ScriptedModel(Turn(Call("t"), Call("t")))
    run = await drive(model, tools=[FakeTool("t", lambda: ran.append(1) or "x")], controls=controls, watch=watch)
    assert not ran and run.outcome.ended == "stopped"
    assert [ended.effect.status for ended in run.of(ToolEnded)] == ["failed"]


async def test_stopping_a_run_that_has_not_started():
    controls = Controls()
    controls.stop("never mind")
    with ScriptedModel() as model:
        run = await drive(model, controls=controls)
    assert [body.type for body in run.bodies] == ["message.added", "run.ended"]
    assert run.outcome.ended == "stopped"


async def test_the_first_reason_stays():
    controls, _, task = await start(ScriptedModel(Turn(Hang())))
    assert controls.stop("first") and controls.stop("second")
    assert not controls.steer("too late")
    assert (await task).outcome.failure.message == "first"


@pytest.mark.parametrize("hang", [True, False])
async def test_stopping_from_inside_the_models_own_step(hang):
    """The model's code runs in the same task: a careless cancellation would strike the consumer."""
    controls = Controls()
    steps = [Do(controls.stop), Hang()] if hang else [Do(controls.stop), "goes on"]
    model = ScriptedModel(Turn("a", *steps))
    run = await drive(model, controls=controls)
    assert run.outcome.ended == "stopped"
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("kind", ["text.delta", "assistant.ended", "turn.started", "turn.ended", "tool.started"])
async def test_stopping_at_any_event_ends_the_run_with_a_valid_history(kind):
    controls = Controls()
    model = ScriptedModel(Turn("a", Call("t"), Call("t")), Turn("b", Call("t")), "c")
    run = await drive(
        model,
        tools=[FakeTool("t", lambda: "x")],
        controls=controls,
        watch=lambda body: body.type == kind and controls.stop(),
    )
    assert run.outcome.ended == "stopped"
    assert run.outcome.turns <= 1


async def test_stopping_when_the_answer_is_there_is_still_a_stop():
    controls = Controls()
    run = await drive(
        ScriptedModel("all of it"),
        controls=controls,
        watch=lambda body: isinstance(body, AssistantEnded) and controls.stop(),
    )
    assert (run.outcome.ended, run.outcome.text) == ("stopped", "all of it")


class Stream:
    """A model whose stream can be seen to be closed."""

    info = SCRIPTED

    def __init__(self):
        self.closed = False

    async def stream(self, request):
        try:
            yield TextDelta("a")
            yield TextDelta("b")
            await asyncio.Event().wait()
        finally:
            self.closed = True

    async def close(self): ...


async def test_closing_the_generator_closes_the_models_stream():
    model = Stream()
    async with aclosing(run_loop(job(), model, Controls())) as bodies:
        async for body in bodies:
            if isinstance(body, TextDelta):
                break
    assert model.closed


async def test_closing_the_generator_cancels_and_awaits_running_tools():
    cleaned = []

    async def careful():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    before = asyncio.all_tasks()
    controls = Controls()
    model = ScriptedModel(Turn(Call("careful"), Call("careful"), Call("quick")))
    tools = [FakeTool("careful", careful), FakeTool("quick", lambda: "x")]
    async with aclosing(run_loop(job(tools=tools), model, controls)) as bodies:
        async for body in bodies:
            if isinstance(body, ToolEnded):
                break
    assert cleaned == [True, True]
    assert asyncio.all_tasks() == before
    assert controls.ended


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_cancelling_the_consumer_cancels_everything_and_is_not_swallowed(where):
    model = Stream() if where == "model" else ScriptedModel(Turn(Call("t")))
    before = asyncio.all_tasks()
    task = asyncio.create_task(drive(model, tools=[FakeTool("t", forever)]))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_a_cancellation_from_outside_wins_over_a_stop_at_the_same_moment():
    controls, _, task = await start(ScriptedModel(Turn(Hang())))
    controls.stop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    controls, _, task = await start(ScriptedModel(Turn(Hang())))
    task.cancel()
    controls.stop()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stop_inside_a_timeout_of_the_consumer_leaves_the_timeout_alone():
    controls = Controls()

    async def consume():
        async with asyncio.timeout(30):
            return await drive(ScriptedModel(Turn(Hang())), controls=controls)

    task = asyncio.create_task(consume())
    await settle()
    controls.stop()
    assert (await task).outcome.ended == "stopped"


async def test_each_event_may_be_taken_by_another_task():
    """`asyncio.wait_for` drives the generator from a new task every time."""
    controls = Controls()
    bodies = run_loop(job(), ScriptedModel(Turn("a", Hang())), controls)
    seen = []
    while True:
        if len(seen) == 3:
            asyncio.get_running_loop().call_soon(controls.stop)
        body = await asyncio.wait_for(anext(bodies), 30)
        seen.append(body)
        if isinstance(body, RunEnded):
            break
    assert seen[-1].outcome.ended == "stopped"


async def test_a_run_broken_off_anywhere_can_be_rebuilt():
    model = ScriptedModel(Turn("a", Call("t"), Call("t")), Turn(Call("nope")), "c")
    run = await drive(model, tools=[FakeTool("t", lambda: "x")])
    for end in range(1, len(run.bodies) + 1):
        history = replay(run.bodies[:end])
        check_history(history.messages)
        started = {b.call.id for b in run.bodies[:end] if isinstance(b, ToolStarted)}
        ended = {b.call_id for b in run.bodies[:end] if isinstance(b, ToolEnded)}
        assert {call.id for call in history.unknown} == started - ended


async def test_a_resumed_run_mends_what_its_history_lacks():
    from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
    from retinue.log.replay import Conversation

    two = AssistantMessage((ToolCall("a", "t", {}), ToolCall("b", "t", {})))
    history = (
        user("task"),
        two,
        ToolMessage((ToolResult("b", "t", (Text("b's"),)), ToolResult("z", "t", ()))),
        AssistantMessage(()),
        ToolMessage((ToolResult("ghost", "t", ()),)),
        AssistantMessage((ToolCall("c", "t", {}),)),
    )
    model = ScriptedModel("ok")
    await drive(model, past=Conversation(messages=history), messages=(user("go on"),), limits=Limits())
    sent = model.requests[0].messages
    check_history(sent)
    assert [r.call_id for r in sent[2].results] == ["a", "b"]
    assert sent[2].results[0].is_error and sent[2].results[1].text == "b's"
    assert sent[4].results[0].is_error


async def test_what_came_too_late_is_named_in_words_for_people():
    controls, _, task = await start(ScriptedModel(Turn(Say("half an answer"), Hang())))
    for number in (1, 2):
        controls.steer(f"<task-notification>\n<task-id>{number}</task-id>\n</task-notification>", "notification")
    controls.steer("look at the tests, too")
    controls.stop()
    outcome = (await task).outcome
    announced, said = outcome.notes[-2:]
    assert "when it is resumed" in announced and "<" not in announced
    assert said == "Not delivered, the run had ended: look at the tests, too"
    assert len([note for note in outcome.notes if "resumed" in note]) == 1
