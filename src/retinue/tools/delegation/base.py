"""The base of the delegation tools, and the set of them that one run gets in its vocabulary.

Unlike the file tools they belong to one run, but runs with the same wording share one spec. A result that is too long
for a parent keeps its beginning and end, and states how to read the complete text without running the agent again.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import assert_never

from msgspec import Struct

from retinue.core.delegation import Delegation, Vocabulary
from retinue.core.tool import Tool, ToolContext, ToolSpec
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.loop.result import DisplayItem
from retinue.tools.base import Arguments, BuiltinTool, Properties, parameters_of, read_prompt
from retinue.tools.content import head_and_tail
from retinue.tools.delegation.describe import Wording
from retinue.tools.delegation.frame import as_data, framed
from retinue.tools.processes import in_thread

ID_NAMES = ("id", "agentId", "task_id", "taskId", "run_id", "to", "name")

Items = Callable[[str], tuple[DisplayItem, ...]]
"""Returns the messages and tool calls of a run for display (`loop.result.display_items`)."""


class Live(Struct, frozen=True, kw_only=True):
    """Settings that may change during a run. Tools read them at every call."""

    wait_seconds: float = 270.0
    max_concurrent: int = 4
    show_cost: bool = False


class DelegationTool(BuiltinTool):
    """A tool that is made for one parent run, which reaches other runs through `delegation`."""

    def __init__(
        self, delegation: Delegation, *, live: Callable[[], Live] = Live, spec: ToolSpec | None = None
    ) -> None:
        # Not the base class's: that would read the prompt from disk for every run.
        self.spec = spec or _plain_spec(type(self))
        self.delegation = delegation
        self.live = live


def make_spec(
    tool: type[DelegationTool], description: str, properties: Properties, unavailable: Mapping[str, str] | None = None
) -> ToolSpec:
    """Return the spec of `tool`. `unavailable` are parameters that are not offered, each with the reason."""
    parameters = parameters_of(properties, tool.required)
    aliases = tool.argument_aliases(parameters)
    return ToolSpec(
        tool.name, description, parameters, TOOL_EFFECTS[tool.name], aliases=aliases, unavailable=unavailable or {}
    )


@lru_cache
def shipped_prompt(tool: type[DelegationTool]) -> str:
    """Return the description of the tool that Retinue ships."""
    return read_prompt(tool, tool.name)


@lru_cache
def _plain_spec(tool: type[DelegationTool]) -> ToolSpec:
    return make_spec(tool, shipped_prompt(tool), tool.properties)


def agent_id(arguments: Arguments) -> str:
    """Return the id, the beginning of one, or the name of an agent; a leading `@` is removed."""
    return arguments.text("agent_id").strip().removeprefix("@")


def read_flag(arguments: Arguments, name: str, *others: str) -> bool | None:
    """Return the value of a flag, or None if the call does not have it."""
    return None if arguments.find(name, *others) is None else arguments.flag(name, *others)


def text_property(description: str, **keywords: object) -> Mapping[str, object]:
    return {"type": "string", "description": description, **keywords}


def flag_property(description: str) -> Mapping[str, object]:
    return {"type": "boolean", "description": description}


MAX_PARENT_CHARACTERS = 20_000
"""The most characters of a result, a conversation or a peek that one tool result shows to a parent."""


class Shown(Struct, frozen=True):
    """`text` is data, framed or not. `cut` tells that it is incomplete; `path` is the file with the complete text."""

    text: str
    cut: bool = False
    path: Path | None = None


async def bound_text(
    text: str, run_id: str, context: ToolContext, *, label: str = "result", frame: Callable[[str], str] = framed
) -> Shown:
    """Return `text` as data, complete if it is short enough. A longer text is made harmless and stored in a file that
    the parent's read tool may open. `frame` is `as_data` if the tool result itself is the frame."""
    if len(text) <= MAX_PARENT_CHARACTERS:
        return Shown(frame(text))
    path = context.outputs / f"agent-{_safe(run_id)}-{label}.txt"
    try:
        await in_thread(lambda: _store(path, as_data(text)))
        where, stored = f"read or grep the whole in {path}", path
    except OSError:  # a full disk must not keep a parent from its answer
        where, stored = "get_subagent_result with peek shows other parts", None
    return Shown(frame(head_and_tail(text, MAX_PARENT_CHARACTERS, where)), True, stored)


def _safe(run_id: str) -> str:
    return re.sub(r"[^\w-]", "-", run_id)[:64]


def _store(path: Path, text: str) -> None:
    """Replace the file in one step: another call may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(f".{secrets.token_hex(6)}.part")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        # The name is fixed, so another call of the parent may be reading the old file.
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


DELEGATION_TOOL_NAMES: dict[Vocabulary, tuple[str, ...]] = {
    "claude": ("Agent", "get_subagent_result", "steer_subagent", "list_subagents", "clear_subagents"),
    "devkit": ("subagent",),
    "codingcode": ("dispatch_agent",),
}


def delegation_tools(
    delegation: Delegation,
    *,
    vocabulary: Vocabulary = "claude",
    wording: Wording | None = None,
    live: Callable[[], Live] = Live,
    enabled: bool = True,
    sanitise: Callable[[str], str] = str,
    items: Items | None = None,
) -> dict[str, Tool]:
    """Return the tools by name, in the order a model sees them. `enabled` is the switch that the
    foreground vocabularies report as an error; `sanitise` and `items` serve `subagent`."""
    wording = wording or Wording()
    tools: tuple[Tool, ...]
    match vocabulary:
        case "claude":
            tools = _claude(delegation, wording, live)
        case "devkit":
            from retinue.tools.delegation.dialects import SubagentTool

            tools = (SubagentTool(delegation, wording, enabled=enabled, sanitise=sanitise, items=items),)
        case "codingcode":
            from retinue.tools.delegation.dialects import DispatchAgentTool

            tools = (DispatchAgentTool(delegation, wording, enabled=enabled),)
        case _:
            assert_never(vocabulary)
    return {tool.spec.name: tool for tool in tools}


def _claude(delegation: Delegation, wording: Wording, live: Callable[[], Live]) -> tuple[Tool, ...]:
    from retinue.tools.delegation.agent import AgentTool
    from retinue.tools.delegation.manage import (
        ClearSubagentsTool,
        GetSubagentResultTool,
        ListSubagentsTool,
        SteerSubagentTool,
    )

    return (
        AgentTool(delegation, wording, live=live),
        GetSubagentResultTool(delegation, live=live),
        SteerSubagentTool(delegation),
        ListSubagentsTool(delegation),
        ClearSubagentsTool(delegation),
    )
