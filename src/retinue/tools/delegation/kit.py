"""The delegation tools of one run, in the vocabulary its settings choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from retinue.core.delegation import Delegation, Vocabulary
from retinue.core.tool import Tool
from retinue.tools.delegation.base import Items, Live
from retinue.tools.delegation.describe import Wording

NAMES: dict[Vocabulary, tuple[str, ...]] = {
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
    """The tools by name, in the order a model sees them. `enabled` is the switch that the
    foreground vocabularies report as an error; `sanitise` and `items` serve `subagent`."""
    wording = wording or Wording()
    tools: tuple[Tool, ...]
    match vocabulary:
        case "claude":
            tools = _claude(delegation, wording, live)
        case "devkit":
            from retinue.tools.subagent.tool import SubagentTool

            tools = (SubagentTool(delegation, wording, enabled=enabled, sanitise=sanitise, items=items),)
        case "codingcode":
            from retinue.tools.dispatch_agent.tool import DispatchAgentTool

            tools = (DispatchAgentTool(delegation, wording, enabled=enabled),)
        case _:
            assert_never(vocabulary)
    return {tool.spec.name: tool for tool in tools}


def _claude(delegation: Delegation, wording: Wording, live: Callable[[], Live]) -> tuple[Tool, ...]:
    from retinue.tools.agent.tool import AgentTool
    from retinue.tools.clear_subagents.tool import ClearSubagentsTool
    from retinue.tools.get_subagent_result.tool import GetSubagentResultTool
    from retinue.tools.list_subagents.tool import ListSubagentsTool
    from retinue.tools.steer_subagent.tool import SteerSubagentTool

    return (
        AgentTool(delegation, wording, live=live),
        GetSubagentResultTool(delegation, live=live),
        SteerSubagentTool(delegation),
        ListSubagentsTool(delegation),
        ClearSubagentsTool(delegation),
    )
