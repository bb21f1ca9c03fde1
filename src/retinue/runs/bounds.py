"""What binds a run from above: the ceiling of its rights, the patterns of agent files, and its worktree.

Rights are what counts, not tools: which tools a child has is the matter of its own file. So an agent that has nothing
but `Agent(Explore, builder)` starts both with the tools of their files: its author named them. What nobody gains by
being started is a right that the run above lacks:

    read-only, plan mode            children are read-only
    `Agent` without names, and no   children are read-only; what its file denies by name, and the
    tool that writes freely         MCP servers it leaves out, they do not have either
    names in `Agent(...)`           the author has consented to the tools of these agents

Patterns such as `Bash(git *)` of a file hold for its runs and everything below them. A run keeps them in its launch and
in its first event, so that it has them when it is resumed after its parent is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from retinue.agents.launch_checks import startable_types
from retinue.core.permission import READ_ONLY
from retinue.core.request import NO_CEILING, Ceiling, RunRequest
from retinue.core.spec import PermissionRule
from retinue.core.tool_list import split_entry
from retinue.tools.paths import label

if TYPE_CHECKING:
    from retinue.core.spec import AgentSpec
    from retinue.core.tool import Tool


class Patterns(Struct, frozen=True):
    """What stood in parentheses in an agent's file, by tool."""

    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    denied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[PermissionRule, ...] = ()
    """Its `permission` map, in order."""

    def __bool__(self) -> bool:
        return bool(self.allowed or self.denied or self.rules)


NO_PATTERNS = Patterns()


class BindingRun(Protocol):
    """What a run that starts another one binds it by; a `Launch` is one."""

    @property
    def request(self) -> RunRequest: ...
    @property
    def tools(self) -> tuple[Tool, ...]: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def patterns(self) -> Patterns: ...
    @property
    def bounds(self) -> tuple[Bound, ...]: ...


class Bound(Struct, frozen=True):
    """The patterns of one agent's file. `agent` names it for people; patterns of paths start
    from `base`. With `presets`, what CodingCode forbids from the start is forbidden."""

    agent: str
    base: str
    patterns: Patterns
    presets: bool = False


def bounds_below(parent: BindingRun | None) -> tuple[Bound, ...]:
    """Return what binds runs that `parent` starts, from the outermost agent to itself."""
    if parent is None:
        return ()
    spec, patterns = parent.request.spec, parent.patterns
    presets = spec.dialect == "codingcode"
    if not (patterns or presets):
        return parent.bounds
    own = Bound(spec.path or f"agent {spec.name}", str(parent.request.cwd), patterns, presets)
    return (*parent.bounds, own)


def bounds_to_record(bounds: Iterable[Bound]) -> list[dict[str, Any]]:
    """Return the bounds as a run's first event keeps them."""
    return [
        {
            "agent": each.agent,
            "base": each.base,
            "allowed": {tool: list(listed) for tool, listed in each.patterns.allowed.items()},
            "denied": {tool: list(listed) for tool, listed in each.patterns.denied.items()},
            "rules": [[rule.tool, rule.pattern, rule.verdict] for rule in each.patterns.rules],
            "presets": each.presets,
        }
        for each in bounds
    ]


def bounds_from_record(data: object) -> tuple[Bound, ...]:
    """Return the bounds that a run's first event has. Logs of older versions have none."""
    if not isinstance(data, list):
        return ()
    return tuple(_read_bound(each) for each in data if isinstance(each, Mapping))


def _read_bound(data: Mapping[str, Any]) -> Bound:
    patterns = Patterns(
        _read_lists(data.get("allowed")), _read_lists(data.get("denied")), _read_rules(data.get("rules"))
    )
    return Bound(str(data.get("agent", "")), str(data.get("base", "/")), patterns, bool(data.get("presets")))


def _read_rules(data: object) -> tuple[PermissionRule, ...]:
    if not isinstance(data, list):
        return ()
    return tuple(PermissionRule(*map(str, each)) for each in data)  # type: ignore[arg-type]


def _read_lists(data: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(data, Mapping):
        return {}
    return {str(tool): tuple(map(str, listed)) for tool, listed in data.items() if isinstance(listed, list | tuple)}


STARTING = frozenset({"Agent", "subagent", "dispatch_agent"})
"""The tools that start other agents, one for each vocabulary."""
_HARMLESS = READ_ONLY | {"spawn"}
_SERVED = "mcp__"


def ceiling_of(request: RunRequest, parent: BindingRun | None) -> Ceiling:
    """Return what the runs above the run of `request` keep it from having. One that is taken up
    without its parent has the ceiling that it was started with."""
    if parent is None:
        return request.ceiling
    above = parent.request.ceiling
    spec = parent.request.spec
    denied = tuple(entry for entry in spec.tools.deny if split_entry(entry)[1] is None)
    if _names(spec, request.spec.name):
        # Naming a type consents to its tools. A `permission` map is about calls, so its denials still count.
        if not any(fate.to == "tools.rules" for fate in spec.fates.values()):
            denied = ()
        return Ceiling(parent.readonly, tuple(dict.fromkeys((*above.denied, *denied))), above.servers)
    readonly = parent.readonly or not _writes_freely(parent)
    if not readonly and not denied and above == NO_CEILING and spec.servers is None:
        return NO_CEILING
    return Ceiling(readonly, tuple(dict.fromkeys((*above.denied, *denied))), _servers(parent))


def _names(spec: AgentSpec, agent: str) -> bool:
    named = startable_types(spec) or ()
    return agent.casefold() in {name.casefold() for name in named}


def _writes_freely(launch: BindingRun) -> bool:
    """Whether the run has a tool that changes files or runs programs, and that its file does not
    hold to a pattern. A tool of a server says nothing about files: it works outside of the walls."""
    return any(_is_free(tool, launch) for tool in launch.tools)


def _is_free(tool: Tool, launch: BindingRun) -> bool:
    name = tool.spec.name
    if tool.spec.effects <= _HARMLESS or name.startswith(_SERVED):
        return False
    return label(tool) == name and name not in launch.patterns.allowed


def _servers(parent: BindingRun) -> tuple[str, ...] | None:
    """The configured servers that a child may have: fewer only where a file above says so."""
    above, named = parent.request.ceiling.servers, parent.request.spec.servers
    if named is None:
        return above
    return tuple(server.name for server in named if above is None or server.name in above)


class Isolation(Struct, frozen=True):
    """The worktree a run works in. `own` is False for one that belongs to a run above it;
    `asked_in` is the folder for which it was asked."""

    run: str
    top: Path
    git: Path
    main: Path
    asked_in: Path
    own: bool = True
    shown: tuple[Path, ...] = ()
    """Repositories of worktrees above it and the objects of the user's, which its own borrows."""

    @property
    def writable(self) -> tuple[Path, ...]:
        """What programs of the run may change: the worktree and its own repository, nothing else."""
        return (self.top, self.git)
