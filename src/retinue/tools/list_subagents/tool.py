"""list_subagents: the agents a run has started."""

from __future__ import annotations

from typing import ClassVar

from retinue.core.delegation import ChildView
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import Arguments
from retinue.tools.base import Properties
from retinue.tools.delegation.base import DelegationTool, flag_property
from retinue.tools.delegation.views import listed, succeeded

SUCCESSES = 2
MOST = 200


class ListSubagentsTool(DelegationTool):
    name = "list_subagents"
    required = ()
    properties: ClassVar[Properties] = {"all": flag_property("Older successes, too")}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        return ok(list_children(self.delegation.children(), every=given.flag("all")))


def list_children(children: tuple[ChildView, ...], *, every: bool) -> str:
    """One line for each agent; of successes only the newest unless `every`."""
    if not children:
        return "You have started no agents."
    chosen = list(children) if every else _worth_showing(children)
    shown = chosen[:MOST]
    lines = [listed(view) for view in shown]
    hidden = len(chosen) - len(shown)
    older = len(children) - len(chosen)
    if hidden:
        lines.append(f"[{hidden} more are not shown]")
    if older:
        lines.append(f"[{older} older successful agent{'s' if older > 1 else ''} hidden; all: true shows them]")
    return "\n".join(lines)


def _worth_showing(children: tuple[ChildView, ...]) -> list[ChildView]:
    """What is at work, then what went wrong, then the newest successes."""
    active = [view for view in children if view.live]
    problems = [view for view in children if not view.live and not succeeded(view)]
    successes = [view for view in children if succeeded(view)]
    return [*active, *problems, *successes[:SUCCESSES]]
