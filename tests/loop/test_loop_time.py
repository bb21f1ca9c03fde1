"""Hard time, idle time and the time of one call, on a clock that moves when told."""

import asyncio

from retinue.core.events import LimitReached, TextDelta, ToolEnded, ToolStarted, Warned
from retinue.core.messages import ToolMessage
from retinue.core.tool import ToolSpec, ok
from retinue.core.usage import Limits
from retinue.loop import Controls
from retinue.testing import Call, FakeClock, FakeTool, Hang, Pulse, Retry, ScriptedModel, Turn, Wait, drive, settle


class Stage:
    """A run in the background, and the clock it lives by."""

    def __init__(self, *turns, clock=None, **options):
        self.clock = clock or FakeClock()
        self.controls = Controls()
        self.model = ScriptedModel(*turns)
        self.bodies = []
        self.task = asyncio.create_task(
            drive(self.model, clock=self.clock, controls=self.controls, watch=self.bodies.append, **options)
        )

    def saw(self, kind):
        return any(isinstance(body, kind) for body in self.bodies)

    async def end(self):
        await settle()
        assert self.task.done(), "the run should have ended by now"
        assert self.clock.pending == 0, "a timer outlived the run"
        return self.task.result()


async def test_a_model_that_never_answers_runs_into_the_hard_limit():
    stage = Stage(Turn("so far", Hang()), limits=Limits(seconds=0.075, idle_seconds=None))
    await stage.clock.advance(0.074)
    assert not stage.task.done()
    await stage.clock.advance(0.002)
    outcome = (await stage.end()).outcome
    assert (outcome.ended, outcome.limit, outcome.exit_code) == ("timeout", "time", 124)
    assert "exceeded maximum runtime after 75ms" in outcome.failure.message
    assert (outcome.text, outcome.partial) == ("so far", True)
    assert outcome.notes, "the usage of the cut request is not known, and it says so"


async def test_silence_runs_into_the_idle_limit():
    stage = Stage(Turn(Hang()), limits=Limits(seconds=900, idle_seconds=0.075))
    await stage.clock.advance(0.08)
    run = await stage.end()
    assert (run.outcome.ended, run.outcome.limit, run.outcome.exit_code) == ("timeout", "idle", 124)
    assert "75ms without activity" in run.outcome.failure.message
    assert [(limit.limit, limit.action) for limit in run.of(LimitReached)] == [("idle", "end")]


async def test_signs_of_life_feed_the_idle_clock_until_the_hard_limit_fires():
    gates = [asyncio.Event() for _ in range(60)]
    steps = [step for gate in gates for step in (Wait(gate), "tick ")]
    stage = Stage(Turn(*steps), limits=Limits(seconds=2.0, idle_seconds=0.05))
    for gate in gates:
        await stage.clock.advance(0.04)
        gate.set()
        await settle()
        if stage.task.done():
            break
    run = await stage.end()
    assert (run.outcome.ended, run.outcome.limit) == ("timeout", "time")
    assert len(run.of(TextDelta)) >= 45


async def test_a_model_that_writes_a_long_argument_is_not_idle():
    gates = [asyncio.Event() for _ in range(20)]
    steps = [step for gate in gates for step in (Wait(gate), Pulse())]
    stage = Stage(Turn(*steps, "written"), limits=Limits(idle_seconds=10))
    for gate in gates:
        await stage.clock.advance(9)
        gate.set()
        await settle()
    assert (await stage.end()).outcome.text == "written"


async def test_a_long_silent_tool_is_bounded_by_its_own_limit_and_not_by_the_idle_clock():
    gate = asyncio.Event()

    async def build():
        await gate.wait()
        return "built"

    stage = Stage(
        Turn(Call("build")),
        "done",
        tools=[FakeTool("build", build)],
        limits=Limits(idle_seconds=10, tool_seconds=600),
    )
    await stage.clock.advance(550)
    assert not stage.task.done()
    gate.set()
    assert (await stage.end()).outcome.ended == "completed"


async def test_the_idle_clock_starts_anew_after_a_long_tool():
    gate = asyncio.Event()

    async def build():
        await gate.wait()
        return "built"

    stage = Stage(Turn(Call("build")), Turn(Hang()), tools=[FakeTool("build", build)], limits=Limits(idle_seconds=10))
    await stage.clock.advance(59)
    gate.set()
    await stage.clock.advance(9.9)
    assert not stage.task.done()
    await stage.clock.advance(0.2)
    assert (await stage.end()).outcome.limit == "idle"


async def test_a_tool_that_never_returns_fails_its_call_and_the_run_goes_on():
    cleaned = []

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    stage = Stage(
        Turn(Call("forever"), Call("quick")),
        "went on",
        tools=[FakeTool("forever", forever), FakeTool("quick", lambda: "quick")],
        limits=Limits(tool_seconds=30),
    )
    await stage.clock.advance(31)
    run = await stage.end()
    assert (run.outcome.ended, run.outcome.text) == ("completed", "went on")
    [message] = [m for m in run.messages if isinstance(m, ToolMessage)]
    assert message.results[0].is_error and "30 seconds" in message.results[0].text
    assert message.results[1].text == "quick"
    assert cleaned and [warned.code for warned in run.of(Warned)] == ["tool_time"]
    assert run.outcome.evidence.unknown_effects == ("forever {}",)


async def test_a_tool_that_ignores_its_cancellation_is_left_behind_and_named():
    gate = asyncio.Event()

    async def stubborn():
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    clock = FakeClock()
    controls = Controls()
    bodies = []
    from retinue.loop import run_loop
    from retinue.testing import job

    async def consume():
        work = job(tools=[FakeTool("stubborn", stubborn)], limits=Limits(tool_seconds=30), clock=clock)
        async for body in run_loop(work, ScriptedModel(Turn(Call("stubborn")), "went on"), controls):
            bodies.append(body)

    task = asyncio.create_task(consume())
    await clock.advance(36)
    assert task.done()
    assert bodies[-1].outcome.ended == "completed"
    assert "tool_stuck" in [body.code for body in bodies if isinstance(body, Warned)]
    gate.set()
    await settle()


class Approving:
    """A tool that waits for a person inside its call, as a guard does."""

    spec = ToolSpec("edit", "edit", {"type": "object"})

    def __init__(self, gate):
        self.gate = gate
        self.controls = None

    async def run(self, call_id, arguments, context):
        with self.controls.waiting(call_id):
            await self.gate.wait()
        return ok("approved")


async def test_waiting_for_a_person_stops_the_idle_clock_and_the_clock_of_the_call():
    tool = Approving(asyncio.Event())
    stage = Stage(Turn(Call("edit")), "done", tools=[tool], limits=Limits(idle_seconds=10, tool_seconds=20))
    tool.controls = stage.controls
    await stage.clock.advance(300)
    assert not stage.task.done() and stage.controls.is_waiting
    tool.gate.set()
    assert (await stage.end()).outcome.ended == "completed"


async def test_the_clock_of_a_call_goes_on_after_the_wait():
    class Slow(Approving):
        async def run(self, call_id, arguments, context):
            await super().run(call_id, arguments, context)
            await asyncio.Event().wait()

    tool = Slow(asyncio.Event())
    stage = Stage(Turn(Call("edit")), "done", tools=[tool], limits=Limits(tool_seconds=20))
    tool.controls = stage.controls
    await stage.clock.advance(100)
    tool.gate.set()
    await stage.clock.advance(19)
    assert not stage.saw(ToolEnded)
    await stage.clock.advance(2)
    assert stage.saw(ToolEnded)
    await stage.end()


async def test_waiting_in_the_model_phase_stops_the_idle_clock_too():
    gate = asyncio.Event()
    stage = Stage(Turn(Wait(gate), "done"), limits=Limits(idle_seconds=10))
    await settle()
    with stage.controls.waiting():
        await stage.clock.advance(100)
        assert not stage.task.done()
    await stage.clock.advance(9)
    gate.set()
    assert (await stage.end()).outcome.ended == "completed"


async def test_the_hard_limit_goes_on_while_a_person_is_waited_for():
    tool = Approving(asyncio.Event())
    stage = Stage(Turn(Call("edit")), tools=[tool], limits=Limits(seconds=60))
    tool.controls = stage.controls
    await stage.clock.advance(61)
    run = await stage.end()
    assert run.outcome.limit == "time"
    assert stage.saw(ToolStarted) and stage.saw(ToolEnded)


async def test_the_pause_before_a_retry_is_not_idleness():
    gate = asyncio.Event()
    stage = Stage(Turn(Retry("rate_limit", delay=60), Wait(gate), "done"), limits=Limits(idle_seconds=10))
    await stage.clock.advance(65)
    assert not stage.task.done()
    gate.set()
    assert (await stage.end()).outcome.ended == "completed"


async def test_a_retry_that_never_comes_is_idleness():
    stage = Stage(Turn(Retry("rate_limit", delay=60), Hang()), limits=Limits(idle_seconds=10))
    await stage.clock.advance(71)
    assert (await stage.end()).outcome.limit == "idle"


async def test_a_host_that_slept_does_not_end_the_run():
    gate = asyncio.Event()
    stage = Stage(Turn(Wait(gate), "done"), limits=Limits(seconds=900, idle_seconds=180))
    await stage.clock.advance(20)
    await stage.clock.jump(8 * 3600)
    assert not stage.task.done(), "hours of sleep count as one late tick"
    gate.set()
    assert (await stage.end()).outcome.ended == "completed"


async def test_after_the_sleep_the_idle_clock_still_works():
    stage = Stage(Turn(Hang()), limits=Limits(idle_seconds=180))
    await stage.clock.jump(8 * 3600)
    await stage.clock.advance(181)
    assert (await stage.end()).outcome.limit == "idle"


async def test_a_slow_consumer_is_not_an_idle_model():
    from retinue.loop import run_loop
    from retinue.testing import job

    clock = FakeClock()
    work = job(clock=clock, limits=Limits(idle_seconds=10))
    async for body in run_loop(work, ScriptedModel(Turn("a", "b", "c")), Controls()):
        if isinstance(body, TextDelta):
            await clock.advance(100)
    assert body.outcome.ended == "completed"


async def test_a_limit_that_fires_when_the_answer_is_there_comes_too_late():
    clock = FakeClock()
    from retinue.core.events import AssistantEnded
    from retinue.loop import run_loop
    from retinue.testing import job

    work = job(clock=clock, limits=Limits(seconds=10))
    async for body in run_loop(work, ScriptedModel("the whole answer"), Controls()):
        if isinstance(body, AssistantEnded):
            await clock.advance(100)
    assert (body.outcome.ended, body.outcome.text) == ("completed", "the whole answer")


async def test_duration_is_measured_by_the_clock():
    gate = asyncio.Event()
    stage = Stage(Turn(Wait(gate), "done"))
    await stage.clock.advance(12.345)
    gate.set()
    assert (await stage.end()).outcome.duration_ms == 12_345


async def test_the_real_clock_fires_too():
    run = await drive(ScriptedModel(Turn(Hang())), limits=Limits(seconds=0.02))
    assert run.outcome.limit == "time"
    run = await drive(ScriptedModel(Turn(Hang())), limits=Limits(idle_seconds=0.02))
    assert run.outcome.limit == "idle"
