"""The parameters of the tools. The description of a field is for the host's model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from retinue.core.delegation import State

WAIT_SECONDS = 50
"""How long a call waits for a run if the host supports neither tasks nor progress."""

Word = Annotated[str, Meta(min_length=1, max_length=500)]
Wait = Annotated[
    float, Meta(ge=0, le=86_400, description="Wait at most this long; the run continues. 0: return its id immediately")
]
RunId = Annotated[str, Meta(min_length=1, max_length=500, description="Id of the run, its beginning, or @name")]
ModelName = Annotated[str, Meta(min_length=1, max_length=500, description="provider/model, instead of the agent's own")]


class AgentTaskParams(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of every tool that starts an agent."""

    task: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=200_000,
            description="The task. The agent cannot see your conversation: name files, facts and the expected report",
        ),
    ]
    model: ModelName | None = None
    isolation: (
        Annotated[
            Literal["worktree", "off"],
            Meta(description="worktree: a copy of the repository of its own, with the changes on a branch"),
        ]
        | None
    ) = None
    schema: Annotated[dict[str, Any], Meta(description="JSON Schema of the result, then in `value`")] | None = None
    budget_usd: (
        Annotated[float, Meta(gt=0, le=1e6, description="Most that it and the agents it starts may cost")] | None
    ) = None
    wait_seconds: Wait | None = None


class RunAgentParams(AgentTaskParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    agent: Annotated[str, Meta(min_length=1, max_length=500, description="Name of the agent")]


class ListAgentsParams(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class ListRunsParams(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    state: State | None = None
    agent: Word | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 20


class RunParams(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    run: RunId


class GetResultParams(RunParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    wait_seconds: Wait | None = None
    verbose: Annotated[bool, Meta(description="Also every text and call of the agent")] = False


class SteerParams(RunParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    message: Annotated[
        str, Meta(min_length=1, max_length=200_000, description="The message, which it reads after its current calls")
    ]


class AnswerParams(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    item: Annotated[str, Meta(min_length=1, max_length=500, description="Id of what waits, or its beginning")]
    choice: Annotated[str, Meta(min_length=1, max_length=10_000, description="One of its options, or words")]
    message: Annotated[str, Meta(max_length=10_000, description="Sent to the agent with a denial")] = ""


class ResumeParams(RunParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    prompt: (
        Annotated[str, Meta(min_length=1, max_length=200_000, description="A message that it reads first")] | None
    ) = None
    model: ModelName | None = None
    wait_seconds: Wait | None = None


def input_schema(kind: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, which the caller may change."""
    _, parts = msgspec.json.schema_components([kind], ref_template="{name}")
    schema: dict[str, Any] = parts[kind.__name__]
    schema.pop("description", None)
    schema.pop("title", None)
    for property_schema in schema["properties"].values():
        _simplify(property_schema)
    return schema


def _simplify(schema: dict[str, Any]) -> None:
    """Remove schema parts that do not help a model: an optional argument need not accept null."""
    kinds = schema.pop("anyOf", None)
    if kinds is not None:
        (not_null,) = [kind for kind in kinds if kind != {"type": "null"}]
        schema.update(not_null)
    if schema.get("default", ...) is None:
        del schema["default"]
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
        schema["type"] = "string"
    schema.pop("maxLength", None)
