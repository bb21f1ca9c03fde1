"""An agent of twenty turns on every provider, each as strict as its maker documents it.

Steering, images, a failing tool with a screenshot, MCP tools with hostile schemas, an overload, a cut
stream, a full window with its compaction; and then the whole work is handed over to the next provider.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from retinue.capabilities.mcp.tool_list import listing, safe_keys
from retinue.core.events import Body, Compacted, ToolEnded
from retinue.core.messages import Image, Text, user
from retinue.core.outcome import Outcome
from retinue.core.tool import ToolOutput
from retinue.http.transport import Transport
from retinue.log.replay import Conversation
from retinue.loop import Compaction, Controls, run_loop
from retinue.models.retry import RetryingModel, RetryPolicy
from retinue.testing import FakeTool, Model, Recording, check_grammar, job
from tests.models.test_provider_quirks import preset_model
from tests.models.zoo import TURNS, ZOO, Animal, Keeper, neighbours

PICTURE = Image("image/png", "iVBORw0KGgo=")
HOSTILE: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "content": {"type": "string"},
        "$filter": {"type": "string"},
        "tags": {"type": "array"},
        "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]},
        "mode": {"const": "fast"},
        "size": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "deep": {"$ref": "#/definitions/deep"},
    },
    "definitions": {"deep": {"oneOf": [{"type": "string"}, {"$ref": "#/definitions/deep"}]}},
    "anyOf": [{"required": ["content"]}, {"required": ["$filter"]}],
}


def tools() -> list[FakeTool]:
    """`attach` has the schema of an MCP server, as a run gets it."""
    listed = SimpleNamespace(name="attach", description="", title="", input_schema=HOSTILE, annotations=None)
    (tool,) = listing([listed]).tools
    parameters, _, _ = safe_keys(tool.parameters)
    shot = (Text("The page."), PICTURE)
    return [
        FakeTool("attach", lambda **_: "line of text\n" * 40, parameters),
        FakeTool("shot", lambda **_: ToolOutput(shot)),
        FakeTool("broken_shot", lambda **_: ToolOutput(shot, is_error=True)),
    ]


async def visit(animal: Animal, server: Keeper, transport: Transport, **options: Any) -> Recording:
    """One run at a provider, as `retinue` builds its model. Retries do not wait."""

    async def sleep(_: float) -> None: ...

    made: Model = preset_model(
        animal.provider,
        animal.model,
        server.url,
        transport,
        api_by_model=animal.provider in ("openai", "azure"),
        window=60_000,
    )
    controls = Controls()
    ended = 0

    def watch(body: Body) -> None:
        nonlocal ended
        ended += isinstance(body, ToolEnded)
        if isinstance(body, ToolEnded) and ended == 7:
            controls.steer("Only src/, please.")

    model = RetryingModel(made, RetryPolicy(attempts=4), sleep=sleep)
    return await driven(model, controls, watch, **options)


async def driven(model: Model, controls: Controls, watch: Callable[[Body], None], **options: Any) -> Recording:
    """As `retinue.testing.drive`, which would take the server's own tasks for the run's."""
    recording = Recording()
    work = job(tools=tools(), compaction=Compaction(at=None, keep_turns=2), **options)
    async with aclosing(run_loop(work, model, controls)) as bodies:
        async for body in bodies:
            recording.bodies.append(body)
            watch(body)
    check_grammar(recording.bodies)
    return recording


def check(outcome: Outcome, server: Keeper) -> None:
    assert outcome.failure is None, (outcome.failure, server.refused)
    assert (outcome.ended, outcome.text) == ("completed", "All twenty are done.")


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.provider)
@pytest.mark.parametrize("thinking", [None, "off", "max"])
async def test_an_agent_of_twenty_turns_ends_well(animal: Animal, thinking: str | None) -> None:
    transport = Transport()
    async with Keeper(animal) as server:
        run = await visit(animal, server, transport, task="Attach twenty files.", thinking=thinking)
        await transport.close()
    check(run.outcome, server)
    assert run.outcome.tool_uses == TURNS
    assert len(run.of(Compacted)) == 1, "the full window was met by shortening"
    assert server.refused == [], "what the table knows is never refused"
    assert any("Only src/" in seen.raw.decode() for seen in server.seen)


@pytest.mark.parametrize(("first", "second"), neighbours(), ids=lambda animal: animal.provider)
async def test_the_work_of_one_provider_is_taken_up_on_the_next(first: Animal, second: Animal) -> None:
    transport = Transport()
    async with Keeper(first) as server:
        server.turn = TURNS - 9  # a shorter way, with pictures and calls still in it
        before = await visit(first, server, transport, task="Attach files.")
        check(before.outcome, server)
    history = before.messages
    async with Keeper(second) as server:
        server.turn = TURNS - 3
        again = (user("Go on with it.", "follow-up"),)
        run = await visit(
            second, server, transport, past=Conversation(messages=history), messages=again, thinking="high"
        )
    await transport.close()
    check(run.outcome, server)
    assert server.refused == []


async def test_a_keeper_refuses_what_its_provider_refuses() -> None:
    """The zoo is strict: without our adaptations its animals would not answer."""
    transport = Transport()
    async with Keeper(next(animal for animal in ZOO if animal.provider == "mistral")) as server:
        wrong = preset_model("together", "m", server.url, transport)
        run = await driven(wrong, Controls(), lambda body: None)
        await transport.close()
    assert run.outcome.failure is not None
    assert any("Tool call id" in why or "Unexpected role" in why for why in server.refused)
