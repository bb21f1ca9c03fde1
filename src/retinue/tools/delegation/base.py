"""What the delegation tools have in common: a parent's way to other runs, and live settings.

Unlike the file tools they belong to one run. Their specs are shared all the same: a thousand
runs with the same wording hold one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from retinue.core.delegation import Delegation
from retinue.core.lean import dataclass
from retinue.core.tool import ToolSpec
from retinue.core.toolnames import TOOLS
from retinue.tools.arguments import Arguments
from retinue.tools.base import BuiltinTool, Properties, parameters_of

ID_NAMES = ("id", "agentId", "task_id", "taskId", "run_id", "to", "name")

Items = Callable[[str], tuple[Mapping[str, Any], ...]]
"""Gives what a run said and called, for people to look at (`loop.result.display_items`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Settings that may change while a run goes on; tools ask for them at every call."""

    wait_seconds: float = 270.0
    max_concurrent: int = 4
    show_cost: bool = False


class DelegationTool(BuiltinTool):
    """A subclass is made for one parent run: `delegation` is that run's way to others."""

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
    """`unavailable` are parameters that are not offered here, and why."""
    parameters = parameters_of(properties, tool.required)
    spellings = tool.spellings(parameters)
    return ToolSpec(
        tool.name, description, parameters, TOOLS[tool.name], spellings=spellings, unavailable=unavailable or {}
    )


@lru_cache
def shipped_prompt(tool: type[DelegationTool]) -> str:
    """The `prompt.md` beside the tool."""
    return Path(inspect.getfile(tool)).with_name("prompt.md").read_text("utf-8").strip()


@lru_cache
def _plain_spec(tool: type[DelegationTool]) -> ToolSpec:
    return make_spec(tool, shipped_prompt(tool), tool.properties)


def agent_id(given: Arguments) -> str:
    """The id, the beginning of one, or the name of an agent; `@name` counts as the name."""
    return given.text("agent_id").strip().removeprefix("@")


def said(given: Arguments, name: str, *others: str) -> bool | None:
    """A flag that keeps "not said" apart from no."""
    return None if given.find(name, *others) is None else given.flag(name, *others)


def text_property(description: str, **more: object) -> Mapping[str, object]:
    return {"type": "string", "description": description, **more}


def flag_property(description: str) -> Mapping[str, object]:
    return {"type": "boolean", "description": description}
