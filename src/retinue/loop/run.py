"""The loop of one run: turn, model, tools, turn. A pure async generator.

In: a job, a model, a mailbox. Out: the events of `retinue.domain.events` from the first
MessageAdded to exactly one RunEnded. The consumer writes each event down before it asks for
the next; nothing happens in between, so what was yielded is what was done. Nothing is raised
for a failing model or tool: how it ended is in the outcome.

Iterate it inside `contextlib.aclosing`. Closing it or cancelling the task that iterates it is
safe at every point: running tools are cancelled and waited for, the model's stream is closed.
That gives no RunEnded; to end a run with an outcome, call `Controls.stop`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from retinue.domain.events import AssistantEnded, Body, RunEnded, ToolsEnded, TurnStarted
from retinue.domain.messages import AssistantMessage
from retinue.loop.controls import Controls
from retinue.loop.job import Job
from retinue.loop.steps import Steps
from retinue.models.protocol import Model


async def run_loop(job: Job, model: Model, controls: Controls) -> AsyncGenerator[Body, None]:
    """Runs `job` to its end. Raises UsageError at once if its schema is none."""
    steps = Steps(job, model, controls)
    try:
        for opening in job.messages:
            yield steps.say(opening)
        while True:
            for body in steps.before_turn():
                yield body
            for body in await steps.make_room():
                yield body
            if steps.ending is not None:
                break
            yield TurnStarted(steps.number)
            ask = steps.ask()
            async with aclosing(ask.bodies()) as bodies:
                async for body in bodies:
                    yield body
            async with aclosing(_after(steps, steps.answered(ask))) as bodies:
                async for body in bodies:
                    yield body
        for body in steps.limit_reached():
            yield body
        yield RunEnded(steps.end())
    finally:
        steps.release()


async def _after(steps: Steps, message: AssistantMessage) -> AsyncGenerator[Body, None]:
    """From the model's message on: its tool calls, the end of the turn, perhaps of the run."""
    yield AssistantEnded(steps.number, message)
    if steps.calls:
        dispatch = steps.dispatch(message.stop)
        async with aclosing(dispatch.bodies()) as bodies:
            async for body in bodies:
                yield body
        yield ToolsEnded(steps.dispatched(dispatch))
    yield steps.turn_ended(message)
    for body in steps.after_turn():
        yield body
    await steps.consult()
    while steps.is_final:
        for body in steps.finish():
            yield body
        if steps.is_final:
            await steps.hold()
            await steps.consult()
