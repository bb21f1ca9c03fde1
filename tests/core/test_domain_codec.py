"""Every event body survives JSON: what the log holds is what the run said."""

import orjson
import pytest

from retinue.core.codec import from_data, from_union, to_data
from retinue.core.events import AssistantEnded, Body, Compacted, MessageAdded, Retrying, RunCreated, RunEnded, ToolEnded
from retinue.core.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Evidence, Failure, Outcome
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.spec import AgentSpec, Fate, HookSpec, ModelPolicy, ServerRef, ToolPolicy
from retinue.core.usage import Usage

CALL = ToolCall("c1", "read", {"path": "a", "nested": [{"type": "text"}]})
BODIES = [
    RunCreated("Explore", "task", {"tools": {"allow": ["read"]}}, "h", "p/m", "/w", 1, {"k": [1]}),
    MessageAdded(user("hi", "steer")),
    Retrying(1, 0.5, Failure("rate_limit", "slow down", retry_after=2.0), "half"),
    AssistantEnded(1, AssistantMessage((Thinking("t", "sig"), Text("x"), CALL), "tool_use", Usage(1, 2, 3, 4, None))),
    ToolEnded(
        "c1",
        "read",
        ToolResult("c1", "read", (Text("x"), Image("image/png", "AA=="))),
        ToolEffect(writes=(TouchedPath("a", None, "h"),)),
        7,
    ),
    Compacted("overflow", "summarised", 10, 2, (user("task"), ToolMessage((ToolResult("c1", "read", ()),)))),
    RunEnded(
        Outcome("error", "part", True, value={"a": 1}, failure=Failure("dropped", "cut"), evidence=Evidence(("a",)))
    ),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.type)
def test_every_body_round_trips_through_json(body):
    assert from_union(Body, orjson.loads(orjson.dumps(body))) == body
    assert orjson.loads(orjson.dumps(body)) == orjson.loads(orjson.dumps(to_data(body)))


def test_a_spec_round_trips_with_tristate_and_unions_intact():
    spec = AgentSpec(
        name="x",
        tools=ToolPolicy(allow=(), deny=("bash",), extensions=("a",)),
        model=ModelPolicy("haiku", ("a", "b")),
        skills=("one",),
        background=False,
        servers=(ServerRef("s", {"command": "npx", "args": ["a"]}),),
        hooks=(HookSpec("PreToolUse", {"command": "x"}),),
        fates={"name": Fate("honoured", "name")},
        extra={"tags": ["a", {"b": 1}]},
    )
    assert from_data(AgentSpec, orjson.loads(orjson.dumps(spec))) == spec


def test_unknown_fields_are_dropped_and_unknown_types_are_named():
    assert from_union(Body, {"type": "turn.started", "turn": 3, "new": 1}).turn == 3
    with pytest.raises(ValueError, match="nonsense"):
        from_union(Body, {"type": "nonsense"})
    with pytest.raises(ValueError, match="TurnStarted"):
        from_union(Body, {"type": "turn.started"})


def test_cost_is_unknown_as_soon_as_a_part_is_unpriced():
    assert (Usage(cost_usd=1.0) + Usage(cost_usd=None)).cost_usd is None
    assert (Usage(1, 2, 3, 4, 0.5) + Usage(1, 1, 1, 1, 0.5)) == Usage(2, 3, 4, 5, 1.0)
