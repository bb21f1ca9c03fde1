"""The plugins of a project as its runs may use them: found, consented to, and added to what runs read.

Agents and skills of a plugin are texts and count like those of a project. What runs (tools, hooks,
servers) counts when only the user can have put the plugin there, or someone has consented to
exactly its present content.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.capabilities.plugins.discover import Plugin, Plugins, find_plugins
from retinue.core.tool_names import split_selector
from retinue.runs.services import ExtensionHooks, Extensions
from retinue.settings.load import Loaded, Read
from retinue.settings.places import cache_folder, retinue_home

if TYPE_CHECKING:
    from retinue.capabilities.plugins.tools import PluginLoader
    from retinue.core.spec import AgentSpec
    from retinue.guard.trust import TrustSubject
    from retinue.runs.project import Project


def visible_plugins(cwd: Path, environment: Mapping[str, str], loaded: Loaded) -> Plugins:
    """Return the plugins of a project. `loaded` are the settings as seen from `cwd`. Lists of several files add
    up: what a project lists does not replace what the user has listed."""
    listed: list[tuple[Path, bool]] = []
    disabled: list[tuple[str, bool]] = []
    for layer in loaded.layers:
        own = layer.origin.personal
        base = _base(layer, cwd, environment)
        listed += [(base / Path(path).expanduser(), own) for path in layer.values.get("plugins", ())]
        disabled += [(name, own) for name in layer.values.get("disabled_plugins", ())]
    return find_plugins(cwd, environment, listed=listed, disabled=disabled)


def agent_folders(plugins: Plugins) -> tuple[tuple[str, Path], ...]:
    """Return the folders with agents, each under the name of its plugin."""
    found: list[tuple[str, Path]] = []
    for plugin in plugins.found:
        for folder in plugin.agents:
            found.append((plugin.name, folder))
    return tuple(found)


def _base(layer: Read, cwd: Path, environment: Mapping[str, str]) -> Path:
    """Return what relative paths of a layer are relative to: the folder whose settings they are."""
    match layer.origin.layer:
        case "user":
            return retinue_home(environment)
        case "project" | "local":
            return Path(layer.origin.where).parent.parent
        case _:
            return cwd


ROOTS = ("CLAUDE_PLUGIN_ROOT", "RETINUE_PLUGIN_ROOT")
"""What a plugin's hooks and servers call its folder."""


class PluginExtensions(Extensions):
    """One per process and project. Folders are looked at again in every round of the event loop;
    what has not changed costs a few calls of `stat`."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._loader: PluginLoader | None = None

    @property
    def plugins(self) -> Plugins:
        project = self._project
        found: Plugins | None = project.round.get("plugins")
        if found is None:
            found = visible_plugins(project.cwd, project.environment, project.settings)
            project.round.keep("plugins", found)
        return found

    def adds_tools_to(self, spec: AgentSpec) -> bool:
        """Return whether plugins may have tools for such an agent: there are some, or its file speaks of them."""
        said = spec.tools.selectors or spec.tools.exclude_extensions or spec.tools.extensions is not None
        return not spec.isolated and bool(self.plugins.found or said)

    @property
    def agents(self) -> tuple[tuple[str, Path], ...]:
        """Folders of agents, each under the name of its plugin."""
        return agent_folders(self.plugins)

    @property
    def skills(self) -> tuple[tuple[str, Path], ...]:
        """Folders of skills, each under the name of its plugin."""
        found: list[tuple[str, Path]] = []
        for plugin in self.plugins.found:
            for folder in plugin.skills:
                found.append((plugin.name, folder))
        return tuple(found)

    @property
    def loader(self) -> PluginLoader:
        """Where tools of plugins are made; loaded when a run may have some."""
        if self._loader is None:
            from retinue.capabilities.plugins.tools import PluginLoader

            self._loader = PluginLoader(self._project)
        return self._loader

    def why_not(self, plugin: Plugin) -> str | None:
        """Return why what a plugin runs has no effect; None if it has."""
        if plugin.provenance == "person" or not plugin.acts or self._project.trust.everything:
            return None
        round_, key = self._project.round, ("plugin", plugin.path)
        known: str | None = round_.get(key)
        # An empty text is kept as well: it says that there is consent.
        if known is None:
            known = round_.keep(key, self._find_objection(plugin))
        return known or None

    def _find_objection(self, plugin: Plugin) -> str:
        from retinue.capabilities.plugins.tools import UnboundError, content_digest

        trust, path = self._project.trust, plugin.path
        content = cache(lambda: content_digest(path))
        try:
            for right in plugin.rights:
                if not trust.permits(right, plugin.provenance, path, content):
                    return f"it is not trusted. {trust.remedy(right, path)}"
        except UnboundError as error:
            return f"nobody can consent to it: {error}"
        return ""

    def notes(self) -> list[str]:
        """Return what a run that a person starts should say: plugins that are broken, or without effect."""
        plugins = self.plugins
        found = list(plugins.problems)
        for plugin in plugins.found:
            why = self.why_not(plugin)
            if why is not None:
                parts = {"tools": plugin.code, "hooks": plugin.hooks, "servers": plugin.servers}
                lost = ", ".join(name for name, part in parts.items() if part)
                found.append(f"Plugin '{plugin.name}' runs without its {lost}: {why}")
        return found

    # Hooks and servers

    @property
    def has_code(self) -> bool:
        return any(plugin.code for plugin in self.plugins.found)

    @property
    def has_hooks(self) -> bool:
        return any(plugin.hooks for plugin in self.plugins.found)

    def hooks(self) -> list[ExtensionHooks]:
        found: list[ExtensionHooks] = []
        for plugin in self.plugins.found:
            if not plugin.hooks or self.why_not(plugin) is not None:
                continue
            roots = self._roots(plugin)
            folder = None if plugin.provenance == "person" else self._project.cwd
            source = f"plugin '{plugin.name}'"
            for table in plugin.hooks:
                found.append(ExtensionHooks(table.value, source, folder, roots))
        return found

    @property
    def has_servers(self) -> bool:
        return any(plugin.servers for plugin in self.plugins.found)

    def servers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return tables of servers for `configured_servers`, each with what brought it. A plugin that
        comes first has the name."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        # Of two servers with one name the later table counts, and the first plugin is to win.
        for plugin in reversed(self.plugins.found):
            if not plugin.servers or self.why_not(plugin) is not None:
                continue
            roots = self._roots(plugin)
            for each in plugin.servers:
                table = _add_variables(_fill_in(each.value, roots), roots)
                if plugin.provenance != "person":
                    table = _drop_annotations(table)
                found.append((f"plugin {plugin.where}", table))
        return found

    def with_servers(self, spec: AgentSpec) -> AgentSpec:
        """Return a spec whose extensions name the servers of the plugins that they name."""
        tools, extensions = spec.tools, spec.tools.extensions
        listed = isinstance(extensions, tuple) and bool(extensions)
        if not (listed or tools.exclude_extensions or tools.selectors) or not self.has_servers:
            return spec
        brought: dict[str, list[str]] = {}
        for plugin in self.plugins.found:
            brought |= dict.fromkeys(plugin.names, sorted(plugin.server_names))

        def add_servers(names: tuple[str, ...]) -> tuple[str, ...]:
            found = list(names)
            for name in names:
                found += brought.get(name.strip().lower(), ())
            return tuple(found)

        selectors = list(tools.selectors)
        for selector in tools.selectors:
            extension, tool = split_selector(selector)
            for server in brought.get(extension, ()):
                selectors.append(f"ext:{server}/{tool}")
        if isinstance(extensions, tuple):
            extensions = add_servers(extensions)
        wider = replace(
            tools,
            extensions=extensions,
            exclude_extensions=add_servers(tools.exclude_extensions),
            selectors=tuple(selectors),
        )
        return replace(spec, tools=wider)

    def _roots(self, plugin: Plugin) -> dict[str, str]:
        """Return what programs of a plugin find in their environment. Python among them keeps its caches
        elsewhere: those in the folder are not part of what was consented to."""
        caches = cache_folder(self._project.environment) / "python"
        return {**dict.fromkeys(ROOTS, str(plugin.path)), "PYTHONPYCACHEPREFIX": str(caches)}

    # Consent

    def subjects(self, specs: list[AgentSpec]) -> list[TrustSubject]:
        """Return what `retinue trust` asks about: plugins of the project, and those that its agents
        bring by path."""
        from retinue.capabilities.plugins.tools import UnboundError, content_digest
        from retinue.guard.trust import TrustSubject

        found: list[TrustSubject] = []
        by_path = {plugin.path: plugin for plugin in self.plugins.found}
        for spec in specs:
            for made in self.loader.read_own(spec):
                if isinstance(made, Plugin):
                    by_path[made.path] = made
        for plugin in by_path.values():
            if plugin.provenance == "person" or not plugin.acts:
                continue
            try:
                digest = content_digest(plugin.path)
            except UnboundError:
                continue
            found.append(TrustSubject(plugin.path, (digest,), tuple(what_runs(plugin))))
        return found


def what_runs(plugin: Plugin) -> list[str]:
    """Return what of a plugin needs consent, one line each."""
    from retinue.guard.trust import describe_program, settings_subject

    lines = [f"Python code: {code}" for code in plugin.code]
    for table in plugin.hooks:
        subject = settings_subject(table.path, {"hooks": table.value}, b"")
        if subject is not None:
            lines += subject.what
    for table in plugin.servers:
        for name, raw in table.value.items():
            lines.append(f"MCP server {name}: {describe_program(raw) if isinstance(raw, Mapping) else raw}")
    return lines


def _drop_annotations(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return servers of a project so that what they claim of their tools is not believed, consented to or not."""
    found = dict(table)
    for name, raw in table.items():
        if isinstance(raw, Mapping):
            found[name] = {**raw}
            found[name].pop("trustAnnotations", None)
    return found


def _add_variables(table: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the servers, those that are programs with `variables` in their environment."""
    found = dict(table)
    for name, raw in table.items():
        if not isinstance(raw, Mapping) or "command" not in raw:
            continue
        env = raw.get("env") or {}
        # Anything else is reported when the server's configuration is read.
        if isinstance(env, Mapping):
            found[name] = {**raw, "env": {**variables, **env}}
    return found


def _fill_in(value: Any, roots: Mapping[str, str]) -> Any:
    """Fill `${CLAUDE_PLUGIN_ROOT}` into texts at any depth."""
    if isinstance(value, str):
        for name, folder in roots.items():
            value = value.replace(f"${{{name}}}", folder)
        return value
    if isinstance(value, Mapping):
        return {key: _fill_in(each, roots) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fill_in(each, roots) for each in value]
    return value
