"""The loop of one run: turn, model, tools, turn. A pure async generator.

In: a job, a model, a mailbox. Out: the events of `retinue.core.events` from the first
MessageAdded to exactly one RunEnded. The consumer writes each event down before it asks for
the next; nothing happens in between, so what was yielded is what was done. Nothing is raised
for a failing model or tool: how it ended is in the outcome.

Iterate it inside `contextlib.aclosing`. Closing it or cancelling the task that iterates it is
safe at every point: running tools are cancelled and waited for, the model's stream is closed.
That yields no RunEnded; to end a run with an outcome, call `Controls.stop`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from retinue.core.events import AssistantEnded, Body, RunEnded, ToolsEnded, TurnStarted
from retinue.loop.answer import aside, read_past
from retinue.loop.controls import Controls
from retinue.loop.job import Job
from retinue.loop.steps import Steps
from retinue.models.protocol import Model


async def run_loop(job: Job, model: Model, controls: Controls) -> AsyncGenerator[Body, None]:  # noqa: C901 - the loop
    """Run `job` to its end. Raise UsageError at once if its schema is not a JSON Schema."""
    past = await aside(read_past, job.history)
    steps = Steps(job, model, controls, past)
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
            try:
                while (said := await ask.next()) is not None:
                    yield said
            finally:
                await ask.close()
            message = steps.answered(ask)
            yield AssistantEnded(steps.number, message)
            if steps.calls:
                dispatch = steps.dispatch(message.stop)
                try:
                    while (done := await dispatch.next()) is not None:
                        yield done
                finally:
                    await dispatch.close()
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
        for body in steps.limit_reached():
            yield body
        yield RunEnded(steps.end())
    finally:
        steps.release()
