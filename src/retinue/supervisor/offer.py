"""Which delegation tools a run is offered, and in whose vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.domain.delegation import Delegation
from retinue.domain.request import RunRequest
from retinue.domain.tool import Tool

if TYPE_CHECKING:
    from retinue.definitions.catalog import Catalog
    from retinue.supervisor.world import World

SPAWNING = frozenset(
    {
        "Agent",
        "get_subagent_result",
        "steer_subagent",
        "list_subagents",
        "clear_subagents",
        "subagent",
        "dispatch_agent",
    }
)


def delegation_tools(delegation: Delegation, world: World, request: RunRequest) -> dict[str, Tool]:
    return {}


def delegation_policy(catalog: Catalog, tools: tuple[Tool, ...]) -> str:
    return ""
