"""Plugins: packages and folders with agents, skills, hooks, tools and servers.

Agents and skills of a plugin are texts and need no consent, like those of a project. Its tools, hooks and servers need
consent to exactly its present content, unless only the user can have installed the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.capabilities.plugins.discover import Plugin, Plugins, find_plugins
from retinue.core.lazy import LazyModule
from retinue.core.tool_names import split_selector
from retinue.runs.capability import Capability, ExtensionHooks, Extensions
from retinue.settings.places import cache_folder, retinue_home

if TYPE_CHECKING:
    from retinue.capabilities.plugins import load as _load
    from retinue.capabilities.plugins import tools as _tools
    from retinue.core.spec import AgentSpec
    from retinue.guard.trust import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.settings.load import Loaded, Read
else:
    _load = LazyModule("retinue.capabilities.plugins.load")
    _tools = LazyModule("retinue.capabilities.plugins.tools")

ROOT_VARIABLES = ("CLAUDE_PLUGIN_ROOT", "RETINUE_PLUGIN_ROOT")
"""The variables with the folder of a plugin, for its hooks and servers."""


class PluginsCapability(Capability):
    """The tools of plugins in the runs of a project."""

    async def offer(self, plan: LaunchPlan) -> None:
        extensions = plan.project.part(PluginExtensions)
        if plan.request.parent_id is None:
            plan.notes += extensions.notes()
        tools = plan.spec.tools
        named = tools.selectors or tools.exclude_extensions or tools.extensions is not None
        if not plan.spec.isolated and (extensions.plugins.usable or named):
            await _tools.offer_tools(plan)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        """Return the plugins of the project, and those that its agents name by path."""
        extensions = project.part(PluginExtensions)
        plugins = {plugin.path: plugin for plugin in extensions.plugins.usable}
        for entry in project.catalog().winners:
            for plugin in _tools.read_own(entry.spec, project):
                if isinstance(plugin, Plugin):
                    plugins[plugin.path] = plugin
        return _load.subjects(plugins.values())


def plugin_extensions(project: Project) -> Extensions:
    """Return the additions of the plugins to the project."""
    return project.part(PluginExtensions)


def visible_plugins(cwd: Path, environment: Mapping[str, str], loaded: Loaded) -> Plugins:
    """Return the plugins of a project. `loaded` are the settings as seen from `cwd`. The lists of several files are
    combined: the list of a project does not replace that of the user."""
    listed: list[tuple[Path, bool]] = []
    disabled: list[tuple[str, bool]] = []
    for layer in loaded.layers:
        own = layer.origin.personal
        base = _base(layer, cwd, environment)
        listed += [(base / Path(path).expanduser(), own) for path in layer.values.get("plugins", ())]
        disabled += [(name, own) for name in layer.values.get("disabled_plugins", ())]
    return find_plugins(cwd, environment, listed=listed, disabled=disabled)


def _base(layer: Read, cwd: Path, environment: Mapping[str, str]) -> Path:
    """Return the base folder for relative paths in the settings of a layer."""
    match layer.origin.layer:
        case "user":
            return retinue_home(environment)
        case "project" | "local":
            return Path(layer.origin.where).parent.parent
        case _:
            return cwd


class PluginExtensions(Extensions):
    """The plugins of one project in this process. Folders are checked again in every round of the event loop; unchanged
    ones cost a few calls of `stat`."""

    def __init__(self, project: Project) -> None:
        self._project = project

    @property
    def plugins(self) -> Plugins:
        project = self._project
        plugins: Plugins | None = project.round.get("plugins")
        if plugins is None:
            plugins = visible_plugins(project.cwd, project.environment, project.settings)
            project.round.keep("plugins", plugins)
        return plugins

    @property
    def agents(self) -> tuple[tuple[str, Path], ...]:
        """Folders of agents, each under the name of its plugin."""
        return self.plugins.agents

    @property
    def skills(self) -> tuple[tuple[str, Path], ...]:
        """Folders of skills, each under the name of its plugin."""
        return tuple((plugin.name, folder) for plugin in self.plugins.usable for folder in plugin.skills)

    def why_not(self, plugin: Plugin) -> str | None:
        """Return why the code, hooks and servers of a plugin have no effect; None if they are in effect."""
        if plugin.provenance == "person" or not plugin.rights or self._project.trust.everything:
            return None
        round_, key = self._project.round, ("plugin", plugin.path)
        objection: str | None = round_.get(key)
        # An empty text, which means consent, is cached as well.
        if objection is None:
            objection = round_.keep(key, self._find_objection(plugin))
        return objection or None

    def _find_objection(self, plugin: Plugin) -> str:
        trust, path = self._project.trust, plugin.path
        content = cache(lambda: _load.content_digest(path))
        try:
            for right in plugin.rights:
                if not trust.permits(right, plugin.provenance, path, content):
                    return f"it is not trusted. {trust.remedy(right, path)}"
        except _load.NoDigestError as error:
            return f"consent to it is not possible: {error}"
        return ""

    def notes(self) -> list[str]:
        """Return notes for a run that a person starts: problems of plugins, and parts without effect."""
        notes = list(self.plugins.problems)
        for plugin in self.plugins.usable:
            why = self.why_not(plugin)
            if why is not None:
                parts = {"tools": plugin.code, "hooks": plugin.hooks, "servers": plugin.servers}
                lost = ", ".join(name for name, content in parts.items() if content)
                notes.append(f"Plugin '{plugin.name}' runs without its {lost}: {why}")
        return notes

    # Hooks and servers

    @property
    def has_code(self) -> bool:
        return any(plugin.code for plugin in self.plugins.usable)

    @property
    def has_hooks(self) -> bool:
        return any(plugin.hooks for plugin in self.plugins.usable)

    @property
    def has_servers(self) -> bool:
        return any(plugin.servers for plugin in self.plugins.usable)

    def hooks(self) -> list[ExtensionHooks]:
        tables: list[ExtensionHooks] = []
        for plugin in self.plugins.usable:
            if not plugin.hooks or self.why_not(plugin) is not None:
                continue
            roots = self._roots(plugin)
            folder = None if plugin.provenance == "person" else self._project.cwd
            tables += [ExtensionHooks(table.value, f"plugin '{plugin.name}'", folder, roots) for table in plugin.hooks]
        return tables

    def servers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return tables of servers for `configured_servers`, each with its source. Of two servers with one name, that
        of the first plugin is used."""
        tables: list[tuple[str, Mapping[str, Any]]] = []
        # `configured_servers` uses the later of two tables, so the first plugin comes last.
        for plugin in reversed(self.plugins.usable):
            if plugin.servers and self.why_not(plugin) is None:
                roots = self._roots(plugin)
                for table in plugin.servers:
                    servers = {name: _complete(raw, plugin, roots) for name, raw in table.value.items()}
                    tables.append((f"plugin {plugin.where}", servers))
        return tables

    def with_servers(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec with the servers of each named plugin added to the extensions that it names."""
        tools, extensions = spec.tools, spec.tools.extensions
        listed = isinstance(extensions, tuple) and bool(extensions)
        if not (listed or tools.exclude_extensions or tools.selectors) or not self.has_servers:
            return spec
        servers_of: dict[str, list[str]] = {}
        for plugin in self.plugins.usable:
            servers_of |= dict.fromkeys(plugin.names, sorted(plugin.server_names))

        def add_servers(names: tuple[str, ...]) -> tuple[str, ...]:
            return (*names, *(server for name in names for server in servers_of.get(name.strip().lower(), ())))

        selectors = list(tools.selectors)
        for selector in tools.selectors:
            extension, tool = split_selector(selector)
            selectors += [f"ext:{server}/{tool}" for server in servers_of.get(extension, ())]
        if isinstance(extensions, tuple):
            extensions = add_servers(extensions)
        excluded = add_servers(tools.exclude_extensions)
        wider = replace(tools, extensions=extensions, exclude_extensions=excluded, selectors=tuple(selectors))
        return replace(spec, tools=wider)

    def _roots(self, plugin: Plugin) -> dict[str, str]:
        """Return the variables for the programs of a plugin. Python writes its caches to another folder, because
        consent does not cover caches in the plugin's folder."""
        caches = cache_folder(self._project.environment) / "python"
        return {**dict.fromkeys(ROOT_VARIABLES, str(plugin.path)), "PYTHONPYCACHEPREFIX": str(caches)}


def _complete(raw: Any, plugin: Plugin, variables: Mapping[str, str]) -> Any:
    """Return the configuration of a server with `variables` filled in and, for a program, in its environment. The
    annotations of a project's server are never trusted."""
    raw = _fill_in(raw, variables)
    if not isinstance(raw, dict):
        return raw
    if plugin.provenance != "person":
        raw.pop("trustAnnotations", None)
    env = raw.get("env") or {}
    # Other forms are reported when the server's configuration is read.
    if "command" in raw and isinstance(env, Mapping):
        raw["env"] = {**variables, **env}
    return raw


def _fill_in(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a copy with `${CLAUDE_PLUGIN_ROOT}` filled into texts at any depth."""
    if isinstance(value, str):
        for name, folder in variables.items():
            value = value.replace(f"${{{name}}}", folder)
        return value
    if isinstance(value, Mapping):
        return {key: _fill_in(inner, variables) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fill_in(inner, variables) for inner in value]
    return value
