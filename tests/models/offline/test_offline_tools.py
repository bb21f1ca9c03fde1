"""The planner uses only what it is offered, however that is called, and lives with failure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Text, ToolMessage, ToolResult, user
from retinue.core.permission import EffectKind
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.models.offline.planner import OfflineModel
from retinue.testing import Finished, ModelRequest
from retinue.tools.base import builtin_tools
from tests.models.offline.questioner import ask, parts_of, plant

TREE = {
    "engine/throttle.py": "class Throttle:\n    def wait(self) -> None: ...\n",
    "engine/other.py": "def nothing(): ...\n",
}


class Renamed:
    """A real tool under the names another dialect gives it and its parameters."""

    def __init__(self, tool: Tool, name: str, parameters: Mapping[str, Any], own: Mapping[str, str]) -> None:
        self.inner = tool
        self.own = own
        schema = {"type": "object", "properties": parameters, "additionalProperties": False}
        self.spec = ToolSpec(name, "", schema, tool.spec.effects)

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        jsonschema_rs.validate(dict(self.spec.parameters), dict(arguments))
        return await self.inner.run(call_id, {self.own.get(k, k): v for k, v in arguments.items()}, context)


class Saying:
    """A tool that always says the same."""

    def __init__(self, name: str, output: ToolOutput, effects: frozenset[EffectKind] = frozenset({"read"})) -> None:
        parameters = {"type": "object", "properties": {"pattern": {"type": "string"}, "path": {"type": "string"}}}
        self.spec = ToolSpec(name, "", parameters, effects)
        self.output = output

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return self.output


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree", TREE)


async def test_tools_of_another_dialect_are_used_by_their_own_names(tree: Path) -> None:
    real = builtin_tools()
    text, whole = {"type": "string"}, {"type": "integer"}
    modes = {"type": "string", "enum": ["content", "files_with_matches", "count"]}
    search = {"pattern": text, "path": text, "include": text, "output_mode": modes, "head_limit": whole}
    tools = [
        Renamed(real["grep"], "Grep", search, {"include": "glob", "output_mode": "mode", "head_limit": "limit"}),
        Renamed(real["find"], "Glob", {"pattern": text, "path": text}, {}),
        Renamed(real["read"], "Read", {"file_path": text, "offset": whole, "limit": whole}, {"file_path": "path"}),
    ]
    asked = await ask("where is throttling done?", tree, tools=tools)
    assert {call.name for call in asked.calls} == {"Grep", "Glob", "Read"}
    assert asked.named[0] == "engine/throttle.py"
    assert not any("failed" in line for line in asked.text.splitlines())


@pytest.mark.parametrize("names", [["grep"], ["find"], ["find", "read"], ["grep", "read"], ["ls"], ["ls", "read"]])
async def test_a_part_of_the_tools_is_enough(names: list[str], tree: Path) -> None:
    asked = await ask("where is throttling done?", tree, tools=builtin_tools(names).values())
    assert {call.name for call in asked.calls} <= set(names)
    assert asked.named[0] == "engine/throttle.py"


async def test_tools_that_could_change_anything_are_never_called(tree: Path) -> None:
    asked = await ask("fix the throttle in engine/throttle.py", tree, tools=builtin_tools().values())
    assert {call.name for call in asked.calls} <= {"read", "grep", "find", "ls"}
    disguised = Saying("search", ok("engine/throttle.py:1:class Throttle:"), frozenset({"execute"}))
    asked = await ask("where is throttling done?", tree, tools=[disguised])
    assert not asked.calls


async def test_every_call_matches_the_schema_of_its_tool(tree: Path) -> None:
    tools = builtin_tools(["read", "grep", "find", "ls"])
    asked = await ask('where is "class Throttle" in engine/ or throttle.py or `wait()`?', tree)
    assert asked.calls
    for call in asked.calls:
        jsonschema_rs.validate(dict(tools[call.name].spec.parameters), dict(call.arguments))
    assert len({call.id for call in asked.calls}) == len(asked.calls)


async def test_failing_tools_are_tried_once_more_in_the_plainest_way_and_then_reported(tree: Path) -> None:
    asked = await ask("where is throttling done?", tree, tools=[Saying("grep", failed("rg is missing"))])
    assert asked.outcome.ended == "completed"
    assert "rg is missing" in asked.text
    assert len(asked.answers) == 3
    assert all(set(call.arguments) == {"pattern"} for call in asked.answers[1].tool_calls)


async def test_tools_that_answer_nonsense_lead_to_an_honest_answer(tree: Path) -> None:
    asked = await ask("where is throttling done?", tree, tools=[Saying("grep", ok("zzz\n::::\n\0"))])
    assert asked.outcome.ended == "completed"
    assert "Nothing was found" in asked.text


async def test_the_same_request_gives_the_same_parts() -> None:
    request = ModelRequest(system="", messages=(user("where is x parsed?"),), tools=_specs())
    assert await parts_of(request) == await parts_of(request)


async def test_no_tool_is_called_when_none_may_be() -> None:
    parts = await parts_of(
        ModelRequest(system="", messages=(user("where is x parsed?"),), tools=_specs(), tool_choice="none")
    )
    assert not _message(parts).tool_calls


def _specs() -> tuple[ToolSpec, ...]:
    return tuple(tool.spec for tool in builtin_tools(["read", "grep", "find", "ls"]).values())


def _message(parts: list[Any]) -> AssistantMessage:
    finished = [part for part in parts if isinstance(part, Finished)]
    assert len(finished) == 1
    assert parts[-1] is finished[0]
    return finished[0].message


texts = st.text(max_size=300) | st.sampled_from(
    ["a.py:1:def x(): pass", "a.py:3", "[3 of 9 files; narrow]", "1\tdef parse(): ...", "a/b.c:99999999999:x", "dir/"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    task=st.text(max_size=400), results=st.lists(st.lists(texts, min_size=1, max_size=4), max_size=4), bad=st.booleans()
)
async def test_any_task_and_any_results_end_in_a_valid_message(task: str, results: list[list[str]], bad: bool) -> None:
    """Whatever is said, each request gives parts and one Finished that is an answer or
    refuses the task, and the conversation ends."""
    messages: list[Any] = [user(task)]
    for turn in range(8):
        message = _message(await parts_of(ModelRequest(system="", messages=tuple(messages), tools=_specs())))
        assert message.failure is None or message.failure.kind == "no-model"
        if not message.tool_calls:
            assert message.text.strip()
            return
        said = results[turn % len(results)] if results else [""]
        answered = tuple(
            ToolResult(call.id, call.name, (Text(said[i % len(said)]),), bad)
            for i, call in enumerate(message.tool_calls)
        )
        messages += [message, ToolMessage(answered)]
    raise AssertionError("it never came to an end")


async def test_the_model_says_what_it_is() -> None:
    info = OfflineModel().info
    assert info.full_name == "offline/planner"
    assert info.prices is not None
    assert (info.prices.input, info.prices.output) == (0, 0)
    assert replace(info) == info
    await OfflineModel().close()
