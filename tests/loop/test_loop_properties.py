"""For any script, any tools and any interference: the promises of the loop hold."""

import asyncio
import random
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from retinue.core.events import Compacted, MessageAdded, RunEnded, ToolEnded, TurnEnded, TurnStarted
from retinue.core.messages import UserMessage
from retinue.core.tool import ToolSpec, failed, ok
from retinue.core.usage import Limits, Usage
from retinue.log.replay import replay
from retinue.loop import Compaction, Controls, run_loop
from retinue.testing import (
    SCRIPTED,
    Call,
    ChaosModel,
    Fail,
    FakeClock,
    Hang,
    Rates,
    Recording,
    Retry,
    Say,
    ScriptedModel,
    Spend,
    Stop,
    Think,
    Turn,
    check_grammar,
    check_history,
    check_prefix,
    job,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PLAIN = {"type": "object", "properties": {"steps": {"type": "integer"}}}


@dataclass
class Worker:
    """Takes `steps` steps of the event loop, then answers as its name says."""

    name: str
    exclusive: bool = False
    running: set = field(default_factory=set)

    @property
    def spec(self):
        return ToolSpec(self.name, self.name, PLAIN, exclusive=self.exclusive)

    async def run(self, call_id, arguments, context):
        self.running.add(call_id)
        try:
            if self.name == "hangs":
                await asyncio.Event().wait()
            for step in range(arguments.get("steps", 0)):
                context.progress(call_id, f"{step} ")
                await asyncio.sleep(0)
            if self.name == "raises":
                raise RuntimeError("broken tool")
            return failed("no") if self.name == "fails" else ok("x" * 400)
        finally:
            self.running.remove(call_id)


NAMES = ["works", "fails", "raises", "alone", "hangs", "missing"]


def random_turn(dice):
    steps = [random_step(dice) for _ in range(dice.randint(1, 5))]
    if dice.random() < 0.04:
        steps.append(Hang())
    end = dice.choice(
        [None] * 30 + [Fail("server", "x"), Fail("context_overflow", "x"), Stop("length"), Stop("refusal")]
    )
    return Turn(*steps, *([end] if end else []))


def random_step(dice):
    match dice.randint(0, 15):
        case 0:
            return Say("word " * 300)
        case 1 | 2:
            return Say(dice.choice(["", "a", "hello there"]), dice.randint(0, 4))
        case 3:
            return Think("hm")
        case 4:
            return Retry("overloaded", dice.uniform(0, 20))
        case 5:
            return Spend(Usage(dice.randint(0, 4_000), dice.randint(0, 500), dice.randint(0, 3_000)))
        case 6:
            return Call("submit_result", {"n": dice.choice([1, "x"])})
        case _:
            return Call(
                dice.choice([*NAMES[:4], *NAMES, "works", "works", "works", "alone"]),
                dice.choice([{}, {"steps": dice.randint(0, 6)}, {"steps": 2}, {"steps": "many"}]),
                id=dice.choice([None] * 6 + ["same", ""]),
                broken=dice.choice([None] * 8 + ["{"]),
            )


def random_limits(dice):
    return Limits(
        max_turns=dice.choice([None, None, 2, 6]),
        grace_turns=dice.randint(0, 3),
        seconds=dice.choice([300.0, 300.0, 30.0]),
        idle_seconds=dice.choice([None, 5.0]),
        tool_seconds=dice.choice([None, 4.0]),
        max_tool_calls=dice.choice([None, None, 0, 5]),
        repeated_calls=dice.choice([None, 2, 5]),
    )


def random_case(seed, **options):
    """Dense on purpose: most cases have many calls, some mail, and something that goes wrong."""
    dice = random.Random(seed)
    acts = ["steer", "steer", "follow_up", "compact", "pause", "pause"] + ["stop"] * (seed % 3 == 0)
    return Case(
        turns=[random_turn(dice) for _ in range(dice.randint(1, 12))],
        actions={dice.randint(1, 70): dice.choice(acts) for _ in range(dice.randint(0, 8))},
        limits=random_limits(dice),
        schema=SCHEMA if dice.random() < 0.25 else None,
        ticks=[dice.uniform(0.1, 10) for _ in range(dice.randint(0, 8))],
        chaos=dice.choice([None, None, seed]),
        **options,
    )


@dataclass
class Case:
    """One run with everything that happens to it."""

    turns: list
    actions: dict
    limits: Limits
    schema: dict | None
    ticks: list
    chaos: int | None
    leave_at: int | None = None
    cancel_at: int | None = None

    def __post_init__(self):
        self.accepted = []
        self.clock = FakeClock()
        self.controls = Controls()
        script = ScriptedModel(*self.turns, *["done"] * 120, info=replace(SCRIPTED, window=4_000))
        self.scripted = script
        self.model = script if self.chaos is None else ChaosModel(script, self.chaos, Rates.everything(0.08))
        self.tools = [Worker(name, name == "alone") for name in NAMES[:5]]

    async def act(self, index):
        match self.actions.get(index):
            case "steer":
                if self.controls.steer(f"steer {index}"):
                    self.accepted.append(f"steer {index}")
            case "follow_up":
                if self.controls.follow_up(f"follow {index}"):
                    self.accepted.append(f"follow {index}")
            case "compact":
                self.controls.compact()
            case "stop":
                self.controls.stop()
            case "pause":
                await asyncio.sleep(0)

    async def consume(self):
        recording = Recording()
        work = job(
            tools=self.tools,
            limits=self.limits,
            schema=self.schema,
            clock=self.clock,
            compaction=Compaction(at=0.8, keep_turns=1),
        )
        async with aclosing(run_loop(work, self.model, self.controls)) as bodies:
            async for body in bodies:
                recording.bodies.append(body)
                index = len(recording.bodies)
                if index == self.leave_at:
                    break
                if index == self.cancel_at:
                    asyncio.current_task().cancel()
                await self.act(index)
        return recording

    async def play(self):
        async def tick():
            for seconds in self.ticks:
                await self.clock.advance(seconds)
            while True:  # whatever hangs runs into a limit
                await self.clock.advance(20)

        before = asyncio.all_tasks()
        ticking = asyncio.create_task(tick())
        running = asyncio.create_task(self.consume())
        try:
            return await running
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before, "a task was left behind"
            assert not any(tool.running for tool in self.tools), "a tool goes on"
            assert self.clock.pending == 0, "a timer was left behind"


@pytest.mark.parametrize("block", range(8))
def test_every_run_ends_once_in_order_with_a_valid_history(block):
    for seed in (*range(block * 60, block * 60 + 60), 2086 + block):
        case = random_case(seed)
        run = asyncio.run(case.play())
        check_grammar(run.bodies)
        check_history(run.messages)
        for request in case.scripted.requests:
            check_history(request.messages)
        check_prefix(case.scripted.requests, len(run.of(Compacted)))
        assert len(run.of(RunEnded)) == 1
        check_outcome(case, run)
        check_mail(case, run)
        if case.chaos is None:
            check_replay(case, run)


def check_replay(case, run):
    """At every request, the log tells the very conversation that the model was sent."""
    asked = [request for request in case.scripted.requests if request.system == "You are a test agent."]
    turns = [index for index, body in enumerate(run.bodies) if isinstance(body, TurnStarted)]
    assert len(asked) in (len(turns), len(turns) - 1), "only an interrupted turn asks nothing"
    for request, index in zip(asked, turns, strict=False):
        assert replay(run.bodies[:index]).messages == request.messages


def check_outcome(case, run):
    outcome = run.outcome
    assert outcome.turns == len(run.of(TurnEnded))
    assert outcome.tool_uses == len(run.of(ToolEnded))
    assert outcome.compactions == len(run.of(Compacted))
    assert outcome.ok == (outcome.failure is None)
    assert not (outcome.partial and outcome.ok)
    if case.schema and outcome.ok:
        assert isinstance(outcome.value["n"], int)
    if case.limits.max_tool_calls is not None:
        handed_in = [ended for ended in run.of(ToolEnded) if case.schema and ended.name == "submit_result"]
        assert outcome.tool_uses - len(handed_in) <= case.limits.max_tool_calls
    for compacted in run.of(Compacted):
        check_history(compacted.messages)
        assert isinstance(compacted.messages[0], UserMessage) and compacted.messages[0].text == "do it"


def check_mail(case, run):
    """What was accepted was delivered once, in order per kind, or is named as not delivered."""
    for kind in ("steer", "follow"):
        sent = [text for text in case.accepted if text.startswith(kind)]
        heard = [added.message.text for added in run.of(MessageAdded) if added.message.text.startswith(kind)]
        missed = [note.split(": ", 1)[1] for note in run.outcome.notes if f": {kind} " in note]
        assert heard + missed == sent


def test_leaving_a_run_anywhere_leaves_nothing_behind():
    for seed in range(150):
        case = random_case(seed, leave_at=seed % 50 + 1)
        run = asyncio.run(case.play())
        check_history(replay(run.bodies).messages)
        assert case.controls.ended


def test_cancelling_a_run_anywhere_leaves_nothing_behind():
    for seed in range(150):
        case = random_case(seed, cancel_at=seed % 50 + 1)
        with suppress(asyncio.CancelledError):
            asyncio.run(case.play())
        assert case.controls.ended
