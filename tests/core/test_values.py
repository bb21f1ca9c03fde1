"""Every event body survives JSON: what the log holds is what the run said."""

import msgspec
import pytest

from retinue.core.encode import decode, dump, encode
from retinue.core.events import (
    AssistantEnded,
    Compacted,
    MessageAdded,
    Retrying,
    RunCreated,
    RunEnded,
    ToolEnded,
    Warned,
)
from retinue.core.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Evidence, Failure, Outcome
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.request import RunOptions
from retinue.core.spec import AgentSpec, Fate, HookSpec, ModelPolicy, ServerRef, ToolPolicy
from retinue.core.usage import Usage

CALL = ToolCall("c1", "read", {"path": "a", "nested": [{"type": "text"}]})
BODIES = [
    RunCreated("Explore", "task", {"tools": {"allow": ["read"]}}, "h", "p/m", "/w", 1, RunOptions(name="k")),
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
    written, data = encode(body)
    assert written is body
    assert decode(data) == body
    assert type(decode(data)) is type(body)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.type)
def test_a_body_is_read_wherever_its_type_stands_among_its_keys(body):
    # Logs written before values were msgspec structs have it last.
    data = msgspec.json.decode(encode(body)[1])
    data["type"] = data.pop("type")
    assert list(data)[-1] == "type"
    assert decode(msgspec.json.encode(data)) == body


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
    assert msgspec.convert(msgspec.json.decode(dump(spec)), AgentSpec) == spec


def test_unknown_fields_are_dropped_and_unknown_types_are_named():
    assert decode(b'{"type":"turn.started","turn":3,"new":1}').turn == 3
    unknown = decode(b'{"type":"nonsense"}')
    assert isinstance(unknown, Warned)
    assert "nonsense" in unknown.text
    with pytest.raises(ValueError, match="missing required field `turn`"):
        decode(b'{"type":"turn.started"}')


def test_cost_is_unknown_as_soon_as_a_part_is_unpriced():
    assert (Usage(cost_usd=1.0) + Usage(cost_usd=None)).cost_usd is None
    assert (Usage(1, 2, 3, 4, 0.5) + Usage(1, 1, 1, 1, 0.5)) == Usage(2, 3, 4, 5, 1.0)
