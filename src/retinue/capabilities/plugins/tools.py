"""The plugin tools of one run: those that its agent's file selects and that have consent."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.plugins import PluginExtensions
from retinue.capabilities.plugins.discover import FailedPlugin, Plugin, read_path
from retinue.capabilities.plugins.load import NoDigestError, PluginTools, content_digest, load_tools
from retinue.core.spec import AgentSpec, ToolPolicy
from retinue.core.tool import Tool
from retinue.runs.capability import Servers
from retinue.tools.filter import EVERY_EXTENSION, SERVER_EXTENSION, ExtensionScope

if TYPE_CHECKING:
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project

EXTENSION_ERROR_PREFIX = "extension-error:"


class Extension(Struct, frozen=True):
    """A plugin, as agent files see it. `names`, in lower case, are those that a file may use, and its path if the file
    names it by path. `title` is for people. `serves`: it also has MCP servers."""

    title: str
    names: frozenset[str]
    tools: tuple[str, ...] = ()
    serves: bool = False


class ScopedTools(Struct, frozen=True):
    """The result of `scope_extensions`: the tools of extensions that the run may have, and the file's policy without
    selectors."""

    policy: ToolPolicy
    tools: frozenset[str]
    notes: tuple[str, ...] = ()


def is_path(entry: str) -> bool:
    """Return whether an entry of `extensions` is a path, not a name."""
    return "/" in entry or "\\" in entry or entry.startswith("~")


def own_paths(spec: AgentSpec) -> tuple[str, ...]:
    """Return the extensions that an agent's file names by path."""
    listed = spec.tools.extensions
    if spec.isolated or not isinstance(listed, tuple):
        return ()
    return tuple(filter(is_path, listed))


def scope_extensions(
    spec: AgentSpec, policy: ToolPolicy, extensions: Sequence[Extension], *, others: Collection[str] = ()
) -> ScopedTools:
    """Resolve the keys about extensions in a file. `policy` is the spec's policy, perhaps extended. `others` are names,
    in lower case, of extensions that another capability provides."""
    plain = replace(policy, selectors=())
    if spec.isolated:
        return ScopedTools(plain, frozenset())
    scope = ExtensionScope(spec)
    loaded = [extension for extension in extensions if scope.loads(extension.names)]
    tools = [tool for extension in loaded for tool in extension.tools if scope.selects(extension.names, {tool})]
    if policy.allow is not None and (scope.adds_to_list or spec.tools.extensions):
        # Tools of extensions are added to a list of tools that does not name them.
        allow = [entry for entry in policy.allow if entry.strip().lower() != "none"]
        plain = replace(plain, allow=(*allow, *tools))
    all_names = {*others, *(name for extension in extensions for name in extension.names)}
    mistakes = [*_misnamed(scope, all_names), *_unselected(scope, loaded, others)]
    notes = [f'{EXTENSION_ERROR_PREFIX}{mistake} (agent "{spec.name}")' for mistake in mistakes]
    return ScopedTools(plain, frozenset(tools), tuple(dict.fromkeys(notes)))


def _misnamed(scope: ExtensionScope, all_names: Collection[str]) -> Iterator[str]:
    """Yield the mistakes in the two lists of extensions."""
    if scope.off and scope.excluded:
        yield "exclude_extensions has no effect, because extensions is false"
        return
    for name in scope.listed:
        if name == EVERY_EXTENSION or is_path(name):
            continue
        if name.lower() in scope.excluded:
            yield f'"{name}" is in extensions and in exclude_extensions: exclude wins'
        elif name.lower() not in all_names:
            yield f'extension "{name}" is not loaded'
    for key, name in scope.excluded.items():
        if key not in all_names:
            yield f'exclude_extensions: "{name}" matches no extension'


def _unselected(scope: ExtensionScope, loaded: Sequence[Extension], others: Collection[str]) -> Iterator[str]:
    """Yield the mistakes in selectors: those that match nothing."""
    for name, tool in scope.selectors:
        matching = [extension for extension in loaded if name in extension.names]
        if name and not matching and name not in others:
            yield f"ext:{name} selects from an extension that is not loaded"
        # The tools of a server are known only to the capability that starts it.
        if tool and matching and not any(tool in extension.tools or extension.serves for extension in matching):
            yield f'ext:{name}/{tool}: extension "{matching[0].title}" has no tool of that name'


async def offer_tools(plan: LaunchPlan) -> None:
    """Offer the tools of plugins to a run, and resolve the extensions in its policy."""
    spec, project = plan.spec, plan.project
    extensions = project.part(PluginExtensions)
    usable: list[tuple[Plugin, frozenset[str]]] = []
    for plugin in extensions.plugins.usable:
        if extensions.why_not(plugin) is None:
            usable.append((plugin, plugin.names))
    for path, plugin_read in zip(own_paths(spec), read_own(spec, project), strict=True):
        if isinstance(plugin_read, FailedPlugin):
            why: str | None = plugin_read.reason
        elif (why := extensions.why_not(plugin_read)) is None:
            usable.append((plugin_read, plugin_read.names | {path.lower()}))
            continue
        plan.note(f'{EXTENSION_ERROR_PREFIX}extension "{path}" is not loaded: {why} (agent "{spec.name}")')
    notes = plan.notes if plan.request.parent_id is None else []
    offered, tools = await project.part(PluginLoader).load(usable, spec, notes)
    scoped = scope_extensions(spec, plan.policy, offered, others=_server_names(spec, project))
    plan.policy = scoped.policy
    plan.notes += scoped.notes
    plan.available |= {name: tool for name, tool in tools.items() if name in scoped.tools}


def _server_names(spec: AgentSpec, project: Project) -> Collection[str]:
    """Return the names of MCP servers, for files that name extensions."""
    tools = spec.tools
    if not (tools.selectors or tools.exclude_extensions or isinstance(tools.extensions, tuple)):
        return ()
    names = project.part(Servers).names()
    return {*map(str.lower, names), SERVER_EXTENSION} if names else ()


def read_own(spec: AgentSpec, project: Project) -> list[Plugin | FailedPlugin]:
    """Return the extensions that an agent's file names by path, in its order. An agent of a plugin may not bring
    code."""
    plugins: list[Plugin | FailedPlugin] = []
    for path in own_paths(spec):
        file = project.cwd / Path(path).expanduser()
        if spec.provenance == "plugin":
            plugins.append(FailedPlugin(path, "an agent of a plugin cannot bring code"))
        elif spec.provenance == "machine" and not file.resolve().is_relative_to(project.cwd):
            plugins.append(FailedPlugin(path, "another machine can name files of its project only"))
        else:
            # A file that another machine names is one of the project.
            provenance = "project" if spec.provenance == "machine" else spec.provenance
            plugins.append(read_path(file, "agent", provenance=provenance))
    return plugins


class PluginLoader:
    """Imports each plugin once, and again when its files have changed."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._loaded: dict[str, tuple[str, asyncio.Future[PluginTools]]] = {}

    async def load(
        self, plugins: Sequence[tuple[Plugin, frozenset[str]]], spec: AgentSpec, notes: list[str]
    ) -> tuple[list[Extension], dict[str, Tool]]:
        """Import the tools of plugins, each given with the names that the agent's file may use. Return the extensions
        and their tools. A tool whose name is already taken is left out."""
        with_code = [plugin for plugin, _ in plugins if plugin.code and spec.tools.extensions is not False]
        loaded = {plugin.plugin.where: plugin for plugin in await asyncio.gather(*map(self._load, with_code))}
        tools: dict[str, Tool] = {}
        extensions: list[Extension] = []
        for plugin, names in plugins:
            free: dict[str, Tool] = {}
            if plugin.where in loaded:
                free = self._pick_free(loaded[plugin.where], tools, notes)
            tools |= free
            extensions.append(Extension(plugin.name, names, tuple(free), serves=bool(plugin.servers)))
        return extensions, tools

    def _pick_free(self, loaded: PluginTools, taken: Mapping[str, Tool], notes: list[str]) -> dict[str, Tool]:
        title = f"Plugin '{loaded.plugin.name}'"
        notes += [f"{title}: {problem}" for problem in loaded.problems]
        free = {}
        for name, tool in loaded.tools.items():
            if name in taken or name in self._project.tools:
                notes.append(f"{title}: its tool '{name}' is left out: another tool has that name.")
            else:
                free[name] = tool
        return free

    async def _load(self, plugin: Plugin) -> PluginTools:
        """Import the tools of a plugin. Runs that start together wait for one import."""
        content = ""
        # Python imports an installed package only once.
        if not plugin.entry:
            with suppress(NoDigestError):
                content = content_digest(plugin.path)
        loaded = self._loaded.get(plugin.where)
        if loaded is None or loaded[0] != content:
            loaded = self._loaded[plugin.where] = (content, asyncio.ensure_future(_import(plugin)))
        return await asyncio.shield(loaded[1])


async def _import(plugin: Plugin) -> PluginTools:
    try:
        return await asyncio.to_thread(load_tools, plugin)
    except Exception as error:  # noqa: BLE001 - one plugin must not affect the others
        return PluginTools(plugin, {}, (f"its tools cannot be used: {type(error).__name__}: {error}",))
