"""Which MCP servers there are, where each comes from, and which of them and their tools an agent gets.

Later sources replace earlier ones of the same name: Claude Code's user file, CodingCode's, the
project's `.mcp.json`, then the settings. Files of other programs are read, never written. What cannot
be read is a problem in the result and hides nothing else.

Without a list of tools an agent has every server's; with one, those it names (`mcp__server`,
`mcp__server__*`, `mcp__server__tool`, CodingCode's `server:tool`). A server that the file defines
itself (`mcpServers`) adds all its tools to the list, unless the list names some of them. pi: a
list of tools is about built-in ones, and `extensions`, `exclude_extensions` and `ext:` selectors are
about servers, which together are the extension `mcp`. CodingCode: an agent has the servers that its
file names, in `mcpServers` or in its list of tools, and no others. Everywhere a file that names
servers has no others, and an isolated agent has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.capabilities.mcp.config import (
    ServerConfig,
    any_file,
    claude_file,
    project_files,
    read_server,
    upwards,
    user_files,
)
from retinue.core.foreign import Provenance, read_file
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import Tool
from retinue.core.tool_names import canonical, served_alias, served_name, split_entry, split_selector
from retinue.settings.field import Origin
from retinue.settings.foreign import read_object

if TYPE_CHECKING:
    from retinue.runs.launch import LaunchPlan


class Configured(Struct, frozen=True):
    """`problems` name files that could not be read; bad entries are servers with a problem."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class ServerSource(Struct, frozen=True):
    """One table of servers. `origin` returns the file of a single entry, and its provenance."""

    table: Mapping[str, Any]
    origin: Callable[[str], tuple[str, Provenance]]


def configured_servers(
    cwd: Path,
    environment: Mapping[str, str],
    *,
    settings: Mapping[str, Any] | None = None,
    origin: Callable[[str], Origin] | None = None,
    claude: bool = True,
    extra: Iterable[tuple[str, Mapping[str, Any]]] = (),
    foreign_environment: Mapping[str, str] | None = None,
) -> Configured:
    """Return every configured server. `settings` is the table of the settings files, `origin` returns the layer of
    a name; `extra` are tables of plugins, each with what brought it. Variables in servers that no person of this
    machine has configured are filled from `foreign_environment`, if there is one."""
    problems: list[str] = []
    found: dict[str, ServerConfig] = {}
    sources = [
        *_foreign(cwd, environment, claude, problems),
        *(_plain(table, brought, provenance="person") for brought, table in extra),
        *_project(cwd, problems),
        _settings(settings or {}, origin),
    ]
    for source in sources:
        for name, raw in source.table.items():
            where, provenance = source.origin(name)
            variables = environment
            if provenance != "person" and foreign_environment is not None:
                variables = foreign_environment
            server = read_server(str(name), raw, variables, origin=where, provenance=provenance)
            # A nearer file may also switch a server off.
            found.pop(str(name), None)
            if server is not None:
                found[server.name] = server
    return Configured(found, tuple(problems))


def _plain(table: Mapping[str, Any], where: str, *, provenance: Provenance) -> ServerSource:
    return ServerSource(table, lambda _: (where, provenance))


def _settings(table: Mapping[str, Any], origin: Callable[[str], Origin] | None) -> ServerSource:
    def origin_of(name: str) -> tuple[str, Provenance]:
        found = Origin("user", "settings") if origin is None else origin(name)
        return found.where, found.provenance

    return ServerSource(table, origin_of)


def _foreign(cwd: Path, environment: Mapping[str, str], claude: bool, problems: list[str]) -> Iterator[ServerSource]:
    """Yield what the user configured for other systems."""
    if claude:
        path = claude_file(environment)
        data = _json(path, problems)
        yield _plain(_table(data, "mcpServers"), str(path), provenance="person")
        projects = _table(data, "projects")
        for folder in reversed(list(upwards(cwd))):
            yield _plain(_table(projects.get(str(folder)), "mcpServers"), str(path), provenance="person")
    for path in user_files(environment):
        yield _plain(_read(path, problems), str(path), provenance="person")


def _project(cwd: Path, problems: list[str]) -> Iterator[ServerSource]:
    for path in project_files(cwd):
        yield _plain(_read(path, problems), str(path), provenance="project")


def _read(path: Path, problems: list[str]) -> Mapping[str, Any]:
    if path.suffix == ".json":
        return _table(_json(path, problems), "mcpServers")
    if not path.is_file():
        return {}
    return _by_name(_yaml(path, problems), str(path), problems)


def _by_name(data: Any, where: str, problems: list[str]) -> dict[str, Any]:
    """Return `servers` (or `mcpServers`), which is an object or a list whose entries carry their names."""
    found: dict[str, Any] = {}
    if not isinstance(data, dict):
        return found
    servers = data.get("servers") or data.get("mcpServers") or {}
    if isinstance(servers, dict):
        return servers
    if not isinstance(servers, list):
        return found
    for entry in servers:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            rest = dict(entry)
            found[rest.pop("name")] = rest
        else:
            problems.append(f"{where}: a server without a name is left out")
    return found


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    read = read_object(path)
    if read.problem is not None:
        problems.append(f"{path} {read.problem}")
    return read.data


def _yaml(path: Path, problems: list[str]) -> Any:
    import yaml

    try:
        return yaml.load(read_file(path, 1_000_000), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path} cannot be read: {str(error).splitlines()[0]}")
        return {}


def _table(data: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or not isinstance(data.get(key), Mapping):
        return {}
    return {str(name): raw for name, raw in data[key].items()}


_EVERY = frozenset({"*", "all"})
_EXTENSION = "mcp"
_SEARCH = "tool_search"
_LISTS_BUILTINS = frozenset({"pi"})
"""Dialects whose list of tools says nothing about those of servers."""
_NAMES_SERVERS = frozenset({"codingcode"})
"""Dialects in which an agent has no server that its file does not name."""


def finds_servers(plan: LaunchPlan) -> bool:
    """Return whether the run can have servers, and anything names one. Costs little."""
    project, spec, settings = plan.project, plan.spec, plan.settings
    if not may_have_servers(spec):
        return False
    if spec.servers or spec.required_servers or settings.mcp_servers or project.extensions.has_servers:
        return True
    return any_file(project.cwd, project.environment, claude=settings.mcp_claude_servers)


def may_have_servers(spec: AgentSpec) -> bool:
    """Return whether a run can have servers at all. Cheap, and False for most agents that list their tools."""
    if spec.isolated:
        return False
    if spec.required_servers or spec.servers:
        return True
    if spec.servers is not None:
        return False
    allow = spec.tools.allow
    if allow is None and spec.dialect in _NAMES_SERVERS:
        return False
    if allow is None or spec.dialect in _LISTS_BUILTINS:
        return spec.tools.extensions is not False
    if spec.tools.selectors or _with_one_mark(spec):
        return True
    return any(_pattern(entry) is not None or entry in _EVERY for entry in allow)


class ServerScope:
    """The servers of one run. `above` are the only configured ones that the runs above leave it; None for all."""

    def __init__(self, spec: AgentSpec, above: frozenset[str] | None) -> None:
        self._spec = spec
        self._above = above
        self._named: set[str] | None = None
        if spec.servers is not None:
            self._named = {server.name for server in spec.servers}
        allow = spec.tools.allow
        self._listed = allow is not None and not any(entry.strip().lower() in _EVERY for entry in allow)
        self._patterns = tuple(filter(None, map(_pattern, allow or ())))
        self._selectors = tuple(map(split_selector, spec.tools.selectors))

    def wants(self, name: str) -> bool:
        """Return whether a configured server is one of the run's."""
        if self._above is not None and name not in self._above:
            return False
        for pattern in map(_whole_server, self._spec.tools.deny):
            if pattern and fnmatchcase(_prefix(name), pattern):
                return False
        if self.requires(name):
            return True
        if self._named is not None and name not in self._named:
            return False
        if self._named is None and not self._extends(name):
            return False
        return self._reaches(name)

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the required servers that are not among `names`."""
        known = [name.lower() for name in names]
        found = []
        for each in self._spec.required_servers:
            if not any(fnmatchcase(name, each.lower()) for name in known):
                found.append(each)
        return tuple(found)

    def requires(self, name: str) -> bool:
        return any(fnmatchcase(name.lower(), each.lower()) for each in self._spec.required_servers)

    def selects(self, server: str, tool: str) -> bool:
        """Return whether the `ext:` selectors, if there are any, leave this tool in. Where a selector
        names tools of a server, those without tools do not widen it."""
        if not self._selectors:
            return True
        selected = False
        narrow: set[str] = set()
        for extension, only in self._selectors:
            if extension in (server.lower(), _EXTENSION):
                selected = True
                if only:
                    narrow.add(only)
        if not narrow:
            return selected
        return tool in narrow or served_name(server, tool) in narrow

    def denies(self, tool: str) -> bool:
        """Return whether the file denies a built-in tool altogether."""
        for entry in self._spec.tools.deny:
            name, argument = split_entry(entry)
            if argument is not None:
                continue
            if name.lower() in _EVERY or tool in canonical(name) or fnmatchcase(tool, name):
                return True
        return False

    def names_exactly(self, tool: str) -> bool:
        """Return whether the file asks for exactly this tool: then it is never deferred."""
        return tool in self._patterns

    def policy(self, policy: ToolPolicy, tools: Mapping[str, Tool], servers: Iterable[str]) -> ToolPolicy:
        """Return the policy with the tools of servers that the file means without listing them, and without the
        selectors that were about servers."""
        mine = {_EXTENSION, *map(str.lower, servers)}
        others = [each for each in policy.selectors if split_selector(each)[0] not in mine]
        policy = replace(policy, selectors=tuple(others))
        if policy.allow is None:
            return policy
        # The search is added where it is needed.
        allow = [each for each in policy.allow if canonical(each) != (_SEARCH,)]
        if self._listed and self._implied:
            narrowed = tuple(f"{_prefix(name)}__" for name in servers if self._lists_tools_of(name))
            for tool in tools:
                if not tool.startswith(narrowed):
                    allow.append(tool)
        return replace(policy, allow=tuple(allow))

    @property
    def _implied(self) -> bool:
        if self._spec.dialect in _LISTS_BUILTINS or self._selectors:
            return True
        return self._named is not None

    def _lists_tools_of(self, server: str) -> bool:
        """Return whether the list names tools of a server one by one: then it has no others."""
        if self._spec.dialect in _LISTS_BUILTINS:
            return False
        return any(_touches(pattern, server) for pattern in self._patterns)

    def _reaches(self, name: str) -> bool:
        """Return whether a list of tools, if it counts, has anything of the server."""
        if self._implied:
            return True
        if not self._listed and self._spec.dialect not in _NAMES_SERVERS:
            return True
        if any(pattern == _prefix(name) or _touches(pattern, name) for pattern in self._patterns):
            return True
        prefix = _prefix(name).removeprefix("mcp__")
        return any(entry.startswith(f"{prefix}_") for entry in _with_one_mark(self._spec))

    def _extends(self, name: str) -> bool:
        tools = self._spec.tools
        mine = {name.lower(), _EXTENSION}
        if not mine.isdisjoint(map(str.lower, tools.exclude_extensions)):
            return False
        if isinstance(tools.extensions, tuple):
            return not {*mine, "*"}.isdisjoint(map(str.lower, tools.extensions))
        if self._selectors:
            return any(extension in mine for extension, _ in self._selectors)
        return tools.extensions is not False


def _with_one_mark(spec: AgentSpec) -> tuple[str, ...]:
    """Return the entries of an opencode list that may be tools of servers: `server_tool`, `server_*`."""
    if spec.dialect != "opencode":
        return ()
    return tuple(entry for entry in spec.tools.allow or () if "_" in entry and not canonical(entry))


def _prefix(server: str) -> str:
    return served_name(server, "").removesuffix("__")


def _pattern(entry: str) -> str | None:
    """Return what an entry of a list says about tools of servers; None if nothing."""
    name = split_entry(entry)[0]
    if name.startswith("mcp__"):
        return None if name.startswith("mcp__*") else name
    if name.startswith("ext:"):
        return None
    return served_alias(name)


def _whole_server(entry: str) -> str | None:
    """Return a denial of everything a server has, as a pattern of `mcp__server`."""
    name, argument = split_entry(entry)
    if argument is not None:
        return None
    if name.lower() in _EVERY or name == "mcp__*":
        return "*"
    if not name.startswith("mcp__"):
        name = served_alias(name) or ""
    if name.endswith("__*"):
        return name.removesuffix("__*")
    # It names nothing of a server, or only one of its tools.
    if not name or "__" in name.removeprefix("mcp__"):
        return None
    return name


def _touches(pattern: str, server: str) -> bool:
    prefix = f"{_prefix(server)}__"
    return pattern.startswith(prefix) or ("*" in pattern and fnmatchcase(prefix, f"{pattern.split('*')[0]}*"))
