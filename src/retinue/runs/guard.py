"""The restrictions of a run: its permissions, the sandboxes of its programs, and the rights that runs above it lack.

The capability `permissions` creates the guard of a run (`RunGuard`) when it begins. Other modules only read it.

A command that nobody approved, and every command of a read-only run, can change nothing and reach nobody. A run in a
worktree of its own can change only that worktree. Other commands are confined to their workspace if the settings say
so; files that rules forbid are out of reach in any case. On a worker whoever approves a command is at another machine,
so no approval shows a command more of this one than its worktree, the system and its tools.

Rights are inherited, not tools: which tools a child has is the matter of its own file. So an agent that has nothing
but `Agent(Explore, builder)` starts both with the tools of their files: its author named them. What nobody gains by
being started is a right that the run above lacks:

    read-only, plan mode            children are read-only
    `Agent` without names, and no   children are read-only; what its file denies by name, and the
    tool that writes freely         MCP servers it leaves out, they do not have either
    names in `Agent(...)`           the author has consented to the tools of these agents

Patterns such as `Bash(git *)` of a file apply to its runs and everything below them. A run keeps them in its launch and
in its first event, so that it has them when it is resumed after its parent is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from retinue.agents.catalog import startable_types
from retinue.agents.parse import seal
from retinue.core.permission import READ_ONLY, InboxItem
from retinue.core.request import NO_CEILING, Ceiling, RunRequest
from retinue.core.spec import AgentIdentity, PermissionRule
from retinue.core.tool_names import split_entry
from retinue.guard.gate import Asker, new_item_id
from retinue.guard.sandbox.kernel import can_sandbox
from retinue.guard.sandbox.policy import SandboxLimits, SandboxPolicy, can_mask
from retinue.guard.walls import RunWalls
from retinue.settings.places import home
from retinue.tools.paths import label

if TYPE_CHECKING:
    from retinue.core.programs import Clearance
    from retinue.core.spec import AgentSpec
    from retinue.core.tool import Tool
    from retinue.guard.permissions.modes import Taint
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.guard.sandbox.policy import Network
    from retinue.guard.sandbox.sockets import RuntimeSockets
    from retinue.runs.fanout import Quote
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.settings.table import Settings


class RunGuard(Struct, eq=False):
    """The guard between a live run and its tools."""

    node: Run
    permissions: PermissionPolicy
    asker: Asker
    taint: Taint | None = None
    recalled: tuple[str, ...] = ()

    def is_of(self, other: Run) -> bool:
        """Whether its run is one of the same agent."""
        return identity_of(self.node) == identity_of(other)


def identity_of(node: Run) -> AgentIdentity:
    """Return which agent a run is of. A run that is taken up again is of the agent as its file was."""
    spec = seal(node.launch.request.spec)
    return AgentIdentity(spec.name, spec.source, spec.hash)


class RunGuards(dict[str, RunGuard]):
    """The guards of the live runs of a project, by run id."""

    def __init__(self, project: Project) -> None:
        super().__init__()
        self._later: dict[str, list[str]] = {}

    def add(self, guard: RunGuard) -> None:
        """Add the guard of a run that begins, with the rules that were granted to it before."""
        self[guard.node.id] = guard
        self.grant(guard.node.id, self._later.pop(guard.node.id, []))

    def grant(self, run_id: str, rules: Sequence[str]) -> None:
        """Allow a run what `rules` say for the rest of it: now, or when it begins. One that is no rule allows
        nothing."""
        guard = self.get(run_id)
        if guard is None:
            if rules:
                self._later[run_id] = list(rules)
            return
        for rule in rules:
            with suppress(ValueError):
                guard.permissions.grant(rule)


def withheld_from(run_id: str, project: Project) -> Callable[[str], bool] | None:
    """Which files a search of the run must leave out; None where all may be read."""
    guard = project.part(RunGuards).get(run_id)
    return guard.permissions.withheld() if guard is not None else None


async def ask_quote(node: Run, quote: Quote) -> bool:
    """Whether a person agrees that the run starts very many agents."""
    guard = node.project.part(RunGuards).get(node.id)
    if guard is None:
        return False
    asker = guard.asker
    item = InboxItem(
        id=new_item_id(),
        kind="quote",
        run_id=asker.place.run_id,
        root_id=asker.place.root_id,
        agent=guard.asker.agent,
        description=guard.asker.description,
        title=f"start {quote.agents} more agents" if quote.agents != 1 else "start 1 more agent",
        detail=quote.text,
        payload={"agents": quote.agents, "text": quote.text},
        reason="This run has started as many agents as it may without being asked (quoteAbove).",
        options=("allow", "deny"),
    )
    answer = await node.project.inbox_service.ask(item, guard.asker)
    return answer.choice == "allow"


_MEGABYTE = 1024 * 1024


class SandboxScope(Struct, frozen=True):
    """The folders that the sandboxes of one run show. `instead` is a folder that must not be touched, and the copy
    where the run works."""

    roots: tuple[Path, ...]
    outputs: Path
    isolation: Isolation | None = None
    instead: tuple[Path, Path] | None = None


def make_walls(
    project: Project,
    run_id: str,
    scope: SandboxScope,
    permissions: Callable[[], PermissionPolicy],
    environment: Mapping[str, str],
    is_readonly: Callable[[], bool] = lambda: False,
) -> RunWalls | None:
    """Return the sandboxes for programs of a run, or of a prompt before there is a run; None where nothing is
    confined. Nothing is created before the first program starts. `is_readonly`: whether at this moment nothing may
    change anything, whoever approves it."""
    if not can_sandbox(project.settings.settings):
        return None

    def make_policy(clearance: Clearance) -> SandboxPolicy | None:
        if is_readonly() or clearance == "inside":
            return _readonly_policy(project, scope)
        return _open_policy(project, scope, clearance, permissions)

    sockets = _sockets_of(permissions, environment, home(project.environment))
    objects = _objects_of(scope, environment)
    foreign = project.moved is not None
    return RunWalls(run_id, permissions, make_policy, objects, sockets, is_readonly, foreign=foreign)


def _readonly_policy(project: Project, scope: SandboxScope) -> SandboxPolicy:
    settings, isolation = project.settings.settings, scope.isolation
    more: tuple[Path, ...] = ()
    if isolation is not None:
        more = (*isolation.writable, *isolation.shown)
    return SandboxPolicy(
        reach="system",
        hidden=(*project.own_folders, *_paths(settings.sandbox_hidden, project)),
        shown=(scope.outputs, *scope.roots, *more, *_paths(settings.sandbox_shown, project)),
        network=_network(settings),
        limits=_limits(settings),
        pass_environment=settings.sandbox_pass_environment,
        home=home(project.environment),
        path=project.tool_environment.get("PATH"),
    )


def _open_policy(
    project: Project, scope: SandboxScope, clearance: Clearance, permissions: Callable[[], PermissionPolicy]
) -> SandboxPolicy | None:
    """Return the walls of a command that somebody approved; None where it needs none."""
    from retinue.guard.sandbox.plan import protected_places

    settings, isolation = project.settings.settings, scope.isolation
    whole = settings.sandbox_mode == "workspace"
    on_worker = project.moved is not None
    narrow = whole or on_worker or isolation is not None
    if not narrow and not can_mask(settings):
        return None
    kept: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    more: tuple[Path, ...] = ()
    if isolation is not None:
        writable, more = isolation.writable, isolation.shown
    elif whole:
        writable = scope.roots
        for root in scope.roots:
            kept += tuple(protected_places(root))
    # A person has seen the command itself; a rule or a mode has not, so it cannot allow changes of protected files.
    if clearance != "person":
        kept = (*kept, *_protected(project, scope, permissions()))
    hidden = _paths(settings.sandbox_hidden, project)
    if clearance == "mode" or narrow:
        hidden = (*project.own_folders, *hidden)
    shown = (scope.outputs, *scope.roots, *writable, *more)
    if on_worker:
        shown += _paths(settings.sandbox_shown, project)
    secret = clearance == "mode" or whole or on_worker
    # The operator's own setting also limits what commands reach that a sender has approved.
    limited = whole or (on_worker and settings.origin("sandbox_network").layer != "default")
    return SandboxPolicy(
        reach="system" if on_worker else "all",
        change="listed" if narrow else "all",
        writable=writable,
        readonly=kept,
        hidden=hidden,
        shown=shown,
        network=_network(settings) if limited else "on",
        limits=_limits(settings),
        pass_environment=settings.sandbox_pass_environment,
        home=home(project.environment) if secret else None,
        path=project.tool_environment.get("PATH"),
    )


def _protected(project: Project, scope: SandboxScope, permissions: PermissionPolicy) -> tuple[Path, ...]:
    from retinue.guard.permissions.modes import protected_paths

    named = [rule.specifier.lower() for rule in permissions.allowing if rule.specifier and "edit" in rule.tools]
    return protected_paths(scope.roots, home(project.environment), named)


def _objects_of(scope: SandboxScope, environment: Mapping[str, str]) -> Callable[[tuple[str, ...]], tuple[Path, ...]]:
    """Find the objects of the repository, if it holds a copy of one of these files; for a worktree, also those of the
    checkout that it is a copy of."""
    folders = [scope.roots[0]]
    if scope.instead is not None:
        folders.append(scope.instead[0])
    found: dict[tuple[str, ...], tuple[Path, ...]] = {}

    def find_objects(hidden: tuple[str, ...]) -> tuple[Path, ...]:
        if hidden not in found:
            from retinue.guard.git import tracked_objects

            objects = [path for folder in folders for path in tracked_objects(folder, hidden, environment)]
            found[hidden] = tuple(dict.fromkeys(objects))
        return found[hidden]

    return find_objects


def _sockets_of(
    permissions: Callable[[], PermissionPolicy], environment: Mapping[str, str], home: Path
) -> Callable[[], RuntimeSockets]:
    """Find the sockets of services that no allow rule of the run names."""

    def find() -> RuntimeSockets:
        from retinue.guard.sandbox.sockets import find_sockets

        rules = [rule.specifier for rule in permissions().allowing if rule.specifier and "bash" in rule.tools]
        # `docker:*`, `docker compose up`, `/usr/bin/docker ps`
        words = (re.split(r"[\s:*]", specifier.strip(), maxsplit=1)[0] for specifier in rules)
        return find_sockets(environment, home, {word.rpartition("/")[2] for word in words})

    return find


def _network(settings: Settings) -> Network:
    chosen = settings.sandbox_network
    if isinstance(chosen, str):
        return "on" if chosen == "on" else "off"
    return chosen or "off"


def _paths(named: Iterable[str], project: Project) -> tuple[Path, ...]:
    # `/` keeps a path that is absolute after its `~` was expanded.
    return tuple(project.cwd / Path(text).expanduser() for text in named)


def _limits(settings: Settings) -> SandboxLimits:
    return SandboxLimits(
        memory_bytes=_to_bytes(settings.sandbox_memory_mb), scratch_bytes=_to_bytes(settings.sandbox_scratch_mb)
    )


def _to_bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes * _MEGABYTE


class Patterns(Struct, frozen=True):
    """The patterns in parentheses in an agent's file, by tool."""

    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    denied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[PermissionRule, ...] = ()
    """Its `permission` map, in order."""

    def __bool__(self) -> bool:
        return bool(self.allowed or self.denied or self.rules)


NO_PATTERNS = Patterns()


class Bound(Struct, frozen=True):
    """The patterns of one agent's file. `agent` names it for people; patterns of paths start
    from `base`. With `presets`, what CodingCode forbids from the start is forbidden."""

    agent: str
    base: str
    patterns: Patterns
    presets: bool = False


def bounds_below(parent: Run | None) -> tuple[Bound, ...]:
    """Return the patterns that apply to runs that `parent` starts, from the outermost agent to itself."""
    if parent is None:
        return ()
    launch = parent.launch
    spec, patterns = launch.request.spec, launch.patterns
    presets = spec.dialect == "codingcode"
    if not (patterns or presets):
        return launch.bounds
    own = Bound(spec.path or f"agent {spec.name}", str(launch.request.cwd), patterns, presets)
    return (*launch.bounds, own)


def bounds_to_record(bounds: Iterable[Bound]) -> list[dict[str, Any]]:
    """Return the bounds for a run's first event."""
    return [
        {
            "agent": bound.agent,
            "base": bound.base,
            "allowed": {tool: list(listed) for tool, listed in bound.patterns.allowed.items()},
            "denied": {tool: list(listed) for tool, listed in bound.patterns.denied.items()},
            "rules": [[rule.tool, rule.pattern, rule.verdict] for rule in bound.patterns.rules],
            "presets": bound.presets,
        }
        for bound in bounds
    ]


def bounds_from_record(data: object) -> tuple[Bound, ...]:
    """Return the bounds from a run's first event. Logs of older versions have none."""
    if not isinstance(data, list):
        return ()
    return tuple(_read_bound(bound) for bound in data if isinstance(bound, Mapping))


def _read_bound(data: Mapping[str, Any]) -> Bound:
    patterns = Patterns(
        _read_lists(data.get("allowed")), _read_lists(data.get("denied")), _read_rules(data.get("rules"))
    )
    return Bound(str(data.get("agent", "")), str(data.get("base", "/")), patterns, bool(data.get("presets")))


def _read_rules(data: object) -> tuple[PermissionRule, ...]:
    if not isinstance(data, list):
        return ()
    return tuple(PermissionRule(*map(str, rule)) for rule in data)  # type: ignore[arg-type]


def _read_lists(data: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(data, Mapping):
        return {}
    return {str(tool): tuple(map(str, listed)) for tool, listed in data.items() if isinstance(listed, list | tuple)}


STARTING = frozenset({"Agent", "subagent", "dispatch_agent"})
"""The tools that start other agents, one for each vocabulary."""
_HARMLESS = READ_ONLY | {"spawn"}
_SERVED = "mcp__"


def ceiling_of(request: RunRequest, parent: Run | None) -> Ceiling:
    """Return the rights that the runs above withhold from the run of `request`. A run that is resumed without its
    parent keeps the ceiling with which it was started."""
    if parent is None:
        return request.ceiling
    above, spec = parent.launch.request.ceiling, parent.launch.request.spec
    denied = tuple(entry for entry in spec.tools.deny if split_entry(entry)[1] is None)
    if _names(spec, request.spec.name):
        # Naming a type consents to its tools. A `permission` map is about calls, so its denials still apply.
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


def _writes_freely(run: Run) -> bool:
    """Return whether the run has a tool that changes files or runs programs and that its file does not restrict by
    patterns. Tools of servers are ignored, because they work outside of the sandbox."""
    return any(_is_free(tool, run.launch.patterns) for tool in run.tools)


def _is_free(tool: Tool, patterns: Patterns) -> bool:
    name = tool.spec.name
    if tool.spec.effects <= _HARMLESS or name.startswith(_SERVED):
        return False
    return label(tool) == name and name not in patterns.allowed


def _servers(parent: Run) -> tuple[str, ...] | None:
    """Return the configured servers that a child may have; None for all. Files of runs above may restrict them."""
    request = parent.launch.request
    above, named = request.ceiling.servers, request.spec.servers
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
        """The only folders that programs of the run may change: the worktree and its repository."""
        return (self.top, self.git)
