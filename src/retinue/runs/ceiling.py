"""The ceiling of a child: which rights the run that starts it can pass on.

Rights are what counts, not tools: which tools a child has is the matter of its own file. So an
agent that has nothing but `Agent(Explore, builder)` starts both with the tools of their files:
its author named them. What nobody gains by being started is a right that the run above lacks:

    read-only, plan mode            children are read-only
    `Agent` without names, and no   children are read-only; what its file denies by name, and the
    tool that writes freely         MCP servers it leaves out, they do not have either
    names in `Agent(...)`           the author has consented to the tools of these agents

The permission mode, rules, patterns such as `Bash(git *)`, walls, models and budgets of a run hold
for everything below it whatever its file names (`permits`, `confining`, `budget`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.permission import READ_ONLY
from retinue.core.request import NO_CEILING, Ceiling, RunRequest
from retinue.core.toolnames import canonical
from retinue.tools.filter import split_entry
from retinue.tools.reach import label

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec
    from retinue.core.tool import Tool
    from retinue.runs.launch import Launch

STARTING = frozenset({"Agent", "subagent", "dispatch_agent"})
"""The tools that start other agents, one for each vocabulary."""
_HARMLESS = READ_ONLY | {"spawn"}
_SERVED = "mcp__"


def ceiling_of(request: RunRequest, parent: Launch | None) -> Ceiling:
    """Return what the runs above the run of `request` keep it from having. One that is taken up
    without its parent has the ceiling that it was started with."""
    if parent is None:
        return request.ceiling
    above = parent.request.ceiling
    spec = parent.request.spec
    if _names(spec, request.spec.name):
        return Ceiling(parent.readonly, above.denied, above.servers)
    denied = tuple(entry for entry in spec.tools.deny if split_entry(entry)[1] is None)
    readonly = parent.readonly or not _writes_freely(parent)
    if not readonly and not denied and above == NO_CEILING and spec.servers is None:
        return NO_CEILING
    return Ceiling(readonly, tuple(dict.fromkeys((*above.denied, *denied))), _servers(parent))


def startable_types(spec: AgentSpec) -> tuple[str, ...] | None:
    """Return the agents that a file names as those it may start, or None when it names none."""
    listed = [spec.subagents] if isinstance(spec.subagents, tuple) else []
    patterns = [
        pattern
        for name, pattern in map(split_entry, spec.tools.allow or ())
        if pattern and STARTING.intersection(canonical(name))
    ]
    if patterns:
        listed.append(tuple(each.strip() for pattern in patterns for each in pattern.split(",") if each.strip()))
    if not listed:
        return None
    first, *others = listed
    known = [{name.casefold() for name in names} for names in others]
    return tuple(name for name in first if all(name.casefold() in names for names in known))


def _names(spec: AgentSpec, agent: str) -> bool:
    named = startable_types(spec) or ()
    return agent.casefold() in {name.casefold() for name in named}


def _writes_freely(launch: Launch) -> bool:
    """Whether the run has a tool that changes files or runs programs, and that its file does not
    hold to a pattern. A tool of a server says nothing about files: it works outside of the walls."""
    return any(_is_free(tool, launch) for tool in launch.tools)


def _is_free(tool: Tool, launch: Launch) -> bool:
    name = tool.spec.name
    if tool.spec.effects <= _HARMLESS or name.startswith(_SERVED):
        return False
    return label(tool) == name and name not in launch.patterns.allowed


def _servers(parent: Launch) -> tuple[str, ...] | None:
    """The configured servers that a child may have: fewer only where a file above says so."""
    above, named = parent.request.ceiling.servers, parent.request.spec.servers
    if named is None:
        return above
    return tuple(server.name for server in named if above is None or server.name in above)
