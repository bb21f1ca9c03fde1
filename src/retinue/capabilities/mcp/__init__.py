"""MCP servers: started once, shared by runs, ended when no run needs them; and which of them an agent gets.

An agent without a list of tools gets the tools of every server. With a list it gets those that the list names
(`mcp__server`, `mcp__server__*`, `mcp__server__tool`, CodingCode's `server:tool`). A server that the file defines
itself (`mcpServers`) adds all its tools, unless the list names some of them. A file that names servers gets no others,
and an isolated agent gets none.

In pi's files a list of tools names built-in ones. The keys about extensions (`ExtensionScope`) apply to servers, which
together are the extension `mcp`. An agent of CodingCode has only the servers that its file names, in
`mcpServers` or in its list of tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.lazy import LazyModule
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.tool_names import canonical, served_alias, served_name, split_entry, split_selector
from retinue.runs.capability import Capability, RunPart, Servers
from retinue.tools.filter import SERVER_EXTENSION, ExtensionScope

if TYPE_CHECKING:
    from retinue.capabilities.mcp import attach as _attach
    from retinue.capabilities.mcp import config as _config
    from retinue.capabilities.mcp import servers as _servers
    from retinue.guard.trust import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.mcp.attach")
    _config = LazyModule("retinue.capabilities.mcp.config")
    _servers = LazyModule("retinue.capabilities.mcp.servers")

_ALL_TOOLS_ENTRIES = frozenset({"*", "all"})
_SEARCH_TOOL = "tool_search"
_EXPLICIT_DIALECTS = frozenset({"codingcode"})
"""Dialects in which an agent has only the servers that its file names."""


class McpCapability(Capability):
    """The tools of MCP servers: listed ones at the launch, others when a server reports them or a search loads them."""

    async def offer(self, plan: LaunchPlan) -> None:
        # Most runs have no server, and need not load the rest of this package.
        if plan.late is not None or finds_servers(plan):
            await _attach.offer_servers(plan)

    def equip(self, plan: LaunchPlan) -> None:
        if plan.late is not None:
            _attach.served_by(plan.late).settle(plan)

    async def running(self, node: Run, *, resumed: bool) -> RunPart | None:
        late = node.launch.late
        return None if late is None else _attach.served_by(late).running(node, resumed=resumed)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        return _servers.server_subjects(project)


class ConfiguredServers(Servers):
    """The servers of settings, of foreign files and of plugins."""

    def names(self) -> frozenset[str]:
        return frozenset(_servers.project_servers(self.project).servers)


def finds_servers(plan: LaunchPlan) -> bool:
    """Return whether the run can have servers and any are configured. Cheap."""
    project, spec, settings = plan.project, plan.spec, plan.settings
    if not may_have_servers(spec):
        return False
    if spec.servers or spec.required_servers or settings.mcp_servers or project.extensions.has_servers:
        return True
    return _config.any_file(project.cwd, project.environment, claude=settings.mcp_claude_servers)


def may_have_servers(spec: AgentSpec) -> bool:
    """Return whether a run can have servers at all. Cheap, and False for most agents that list their tools."""
    if spec.isolated:
        return False
    if spec.required_servers or spec.servers:
        return True
    if spec.servers is not None:
        return False
    allow = spec.tools.allow
    if allow is None and spec.dialect in _EXPLICIT_DIALECTS:
        return False
    extensions = ExtensionScope(spec)
    if allow is None or extensions.adds_to_list:
        return not extensions.off
    return bool(_opencode_entries(spec)) or any(
        _pattern(entry) is not None or entry in _ALL_TOOLS_ENTRIES for entry in allow
    )


class ServerScope:
    """Decides which servers a run has. `above` limits them to those of the runs above it; None for no limit."""

    def __init__(self, spec: AgentSpec, above: frozenset[str] | None) -> None:
        self._spec = spec
        self._above = above
        self._named: set[str] | None = None
        if spec.servers is not None:
            self._named = {server.name for server in spec.servers}
        allow = spec.tools.allow
        self._listed = allow is not None and not any(entry.strip().lower() in _ALL_TOOLS_ENTRIES for entry in allow)
        self._patterns = tuple(filter(None, map(_pattern, allow or ())))
        self._extensions = ExtensionScope(spec)
        self._adds_to_list = self._extensions.adds_to_list or self._named is not None

    def wants(self, name: str) -> bool:
        """Return whether a configured server is one of the run's."""
        if self._above is not None and name not in self._above:
            return False
        for pattern in map(_denied_server, self._spec.tools.deny):
            if pattern and fnmatchcase(_prefix(name), pattern):
                return False
        if self.requires(name):
            return True
        if self._named is None:
            names = _extension_names(name)
            return self._extensions.loads(names) and self._extensions.selects(names) and self._is_listed(name)
        return name in self._named

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the required servers that are not among `names`."""
        lowered = [name.lower() for name in names]
        required = self._spec.required_servers
        return tuple(pattern for pattern in required if not any(fnmatchcase(name, pattern.lower()) for name in lowered))

    def requires(self, name: str) -> bool:
        return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in self._spec.required_servers)

    def selects(self, server: str, tool: str) -> bool:
        """Return whether the `ext:` selectors, if there are any, select this tool."""
        return self._extensions.selects(_extension_names(server), {tool, served_name(server, tool)})

    def denies(self, tool: str) -> bool:
        """Return whether the file denies a built-in tool altogether."""
        for entry in self._spec.tools.deny:
            name, argument = split_entry(entry)
            if argument is not None:
                continue
            if name.lower() in _ALL_TOOLS_ENTRIES or tool in canonical(name) or fnmatchcase(tool, name):
                return True
        return False

    def names_exactly(self, tool: str) -> bool:
        """Return whether the file names exactly this tool, which is then never deferred."""
        return tool in self._patterns

    def policy(self, policy: ToolPolicy, tools: Mapping[str, Tool], servers: Iterable[str]) -> ToolPolicy:
        """Return the policy with the tools of servers that the file includes without listing them, and without the
        selectors for servers."""
        names = {SERVER_EXTENSION, *map(str.lower, servers)}
        others = [selector for selector in policy.selectors if split_selector(selector)[0] not in names]
        policy = replace(policy, selectors=tuple(others))
        if policy.allow is None:
            return policy
        # `tool_search` is added where it is needed.
        allow = [entry for entry in policy.allow if canonical(entry) != (_SEARCH_TOOL,)]
        if self._listed and self._adds_to_list:
            narrowed = tuple(f"{_prefix(name)}__" for name in servers if self._lists_tools_of(name))
            allow += [tool for tool in tools if not tool.startswith(narrowed)]
        return replace(policy, allow=tuple(allow))

    def _lists_tools_of(self, server: str) -> bool:
        """Return whether the list names tools of a server one by one, and so excludes its others."""
        if self._extensions.lists_builtins:
            return False
        return any(_may_name_tool_of(pattern, server) for pattern in self._patterns)

    def _is_listed(self, name: str) -> bool:
        """Return whether a list of tools, if it applies to servers, includes any tool of the server."""
        if self._adds_to_list:
            return True
        if not self._listed and self._spec.dialect not in _EXPLICIT_DIALECTS:
            return True
        if any(pattern == _prefix(name) or _may_name_tool_of(pattern, name) for pattern in self._patterns):
            return True
        prefix = _prefix(name).removeprefix("mcp__")
        return any(entry.startswith(f"{prefix}_") for entry in _opencode_entries(self._spec))


def _extension_names(server: str) -> frozenset[str]:
    """Return the names that a server has as an extension."""
    return frozenset({server.lower(), SERVER_EXTENSION})


def _opencode_entries(spec: AgentSpec) -> tuple[str, ...]:
    """Return the entries of an opencode list that may be tools of servers: `server_tool`, `server_*`."""
    if spec.dialect != "opencode":
        return ()
    return tuple(entry for entry in spec.tools.allow or () if "_" in entry and not canonical(entry))


def _prefix(server: str) -> str:
    return served_name(server, "").removesuffix("__")


def _pattern(entry: str) -> str | None:
    """Return an entry of a list as a pattern for tools of servers; None if it is not about servers."""
    name = split_entry(entry)[0]
    if name.startswith("mcp__"):
        return None if name.startswith("mcp__*") else name
    if name.startswith("ext:"):
        return None
    return served_alias(name)


def _denied_server(entry: str) -> str | None:
    """Return an entry that denies a whole server as a pattern of `mcp__server`; None for any other entry."""
    name, argument = split_entry(entry)
    if argument is not None:
        return None
    if name.lower() in _ALL_TOOLS_ENTRIES or name == "mcp__*":
        return "*"
    if not name.startswith("mcp__"):
        name = served_alias(name) or ""
    if name.endswith("__*"):
        return name.removesuffix("__*")
    # It is not about servers, or about one tool only.
    if not name or "__" in name.removeprefix("mcp__"):
        return None
    return name


def _may_name_tool_of(pattern: str, server: str) -> bool:
    prefix = f"{_prefix(server)}__"
    return pattern.startswith(prefix) or ("*" in pattern and fnmatchcase(prefix, f"{pattern.split('*')[0]}*"))
