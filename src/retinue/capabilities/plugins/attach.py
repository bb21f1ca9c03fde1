"""The plugins of a project as its runs may use them: found, consented to, and added to what runs read.

Agents and skills of a plugin are texts and count like those of a project. What runs (tools, hooks,
servers) counts when only the user can have put the plugin there, or someone has consented to
exactly its present content.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.capabilities.plugins.discover import find_plugins
from retinue.capabilities.plugins.plugin import Plugin, Plugins
from retinue.runs.project import ExtensionHooks, Extensions
from retinue.settings.load import Loaded, Read
from retinue.settings.places import retinue_home

if TYPE_CHECKING:
    from retinue.capabilities.plugins.tools import Workshop
    from retinue.core.spec import AgentSpec
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.project import Project


def visible_plugins(cwd: Path, environment: Mapping[str, str], loaded: Loaded) -> Plugins:
    """`loaded` are the settings as seen from `cwd`. Lists of several files add up: what a project
    lists does not replace what the user has listed."""
    listed: list[tuple[Path, bool]] = []
    disabled: list[tuple[str, bool]] = []
    for layer in loaded.layers:
        own = layer.origin.personal
        base = _base(layer, cwd, environment)
        listed += [(base / Path(path).expanduser(), own) for path in layer.values.get("plugins", ())]
        disabled += [(name, own) for name in layer.values.get("disabled_plugins", ())]
    return find_plugins(cwd, environment, listed=listed, disabled=disabled)


def agent_folders(plugins: Plugins) -> tuple[tuple[str, Path], ...]:
    """The folders with agents, each under the name of its plugin."""
    return tuple((plugin.name, folder) for plugin in plugins.found for folder in plugin.agents)


def skill_folders(plugins: Plugins) -> tuple[tuple[str, Path], ...]:
    """The folders with skills, each under the name of its plugin."""
    return tuple((plugin.name, folder) for plugin in plugins.found for folder in plugin.skills)


def _base(layer: Read, cwd: Path, environment: Mapping[str, str]) -> Path:
    """What relative paths of a layer are relative to: the folder whose settings they are."""
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
        self._workshop: Workshop | None = None

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
    def agents(self) -> tuple[tuple[str, Path], ...]:  # type: ignore[override]
        """Folders of agents, each under the name of its plugin."""
        return agent_folders(self.plugins)

    @property
    def skills(self) -> tuple[tuple[str, Path], ...]:  # type: ignore[override]
        """Folders of skills, each under the name of its plugin."""
        return skill_folders(self.plugins)

    @property
    def workshop(self) -> Workshop:
        """Where tools of plugins are made; loaded when a run may have some."""
        if self._workshop is None:
            from retinue.capabilities.plugins.tools import Workshop

            self._workshop = Workshop(self._project)
        return self._workshop

    def why_not(self, plugin: Plugin) -> str | None:
        """Why what a plugin runs has no effect; None if it has."""
        if plugin.personal or not plugin.acts or self._project.trust.everything:
            return None
        round_, key = self._project.round, ("plugin", plugin.place)
        known: str | None = round_.get(key)
        if known is None:
            known = round_.keep(key, self._unconsented(plugin))
        return known or None

    def _unconsented(self, plugin: Plugin) -> str:
        from retinue.capabilities.plugins.tools import UnboundError, content_digest

        try:
            if self._project.trust.is_trusted(plugin.place, content_digest(plugin.place)):
                return ""
        except UnboundError as error:
            return f"nobody can consent to it: {error}"
        return f"it is not trusted. Consent with: retinue trust add {plugin.place}"

    def notes(self) -> list[str]:
        """What the run a person starts should say: plugins that are broken, or without effect."""
        plugins = self.plugins
        found = list(plugins.problems)
        for plugin in plugins.found:
            why = self.why_not(plugin)
            if why is not None:
                found.append(f"Plugin '{plugin.name}' runs without its {_acting(plugin)}: {why}")
        return found

    # Hooks and servers

    @property
    def has_code(self) -> bool:  # type: ignore[override]
        return any(plugin.code for plugin in self.plugins.found)

    @property
    def has_hooks(self) -> bool:  # type: ignore[override]
        return any(plugin.hooks for plugin in self.plugins.found)

    def hooks(self) -> list[ExtensionHooks]:
        found: list[ExtensionHooks] = []
        for plugin in self.plugins.found:
            if not plugin.hooks or self.why_not(plugin) is not None:
                continue
            roots = self._roots(plugin)
            folder = None if plugin.personal else self._project.cwd
            source = f"plugin '{plugin.name}'"
            found += [ExtensionHooks(table.value, source, folder, roots) for table in plugin.hooks]
        return found

    @property
    def has_servers(self) -> bool:  # type: ignore[override]
        return any(plugin.servers for plugin in self.plugins.found)

    def servers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Tables of servers for `configured_servers`, each with what brought it. A plugin that
        comes first has the name."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        for plugin in reversed(self.plugins.found):
            if plugin.servers and self.why_not(plugin) is None:
                roots = self._roots(plugin)
                tables = [_with_variables(_filled(table.value, roots), roots) for table in plugin.servers]
                found += [(f"plugin {plugin.where}", table if plugin.personal else _modest(table)) for table in tables]
        return found

    def with_servers(self, spec: AgentSpec) -> AgentSpec:
        """A file that names a plugin as extension means its servers, too."""
        tools = spec.tools
        said = (*(tools.extensions if isinstance(tools.extensions, tuple) else ()), *tools.exclude_extensions)
        if not (said or tools.selectors) or not self.has_servers:
            return spec
        brought = {name: sorted(plugin.server_names) for plugin in self.plugins.found for name in plugin.names}

        def more(names: tuple[str, ...]) -> tuple[str, ...]:
            return (*names, *(server for name in names for server in brought.get(name.strip().lower(), ())))

        selectors = list(tools.selectors)
        for selector in tools.selectors:
            name, slash, tool = selector.removeprefix("ext:").partition("/")
            selectors += [f"ext:{server}{slash}{tool}" for server in brought.get(name.strip().lower(), ())]
        extensions = more(tools.extensions) if isinstance(tools.extensions, tuple) else tools.extensions
        wider = replace(
            tools,
            extensions=extensions,
            exclude_extensions=more(tools.exclude_extensions),
            selectors=tuple(selectors),
        )
        return replace(spec, tools=wider)

    def _roots(self, plugin: Plugin) -> dict[str, str]:
        """What programs of a plugin find in their environment. Python among them keeps its caches
        elsewhere: those in the folder are not part of what was consented to."""
        caches = self._project.home / "cache" / "python"
        return {**dict.fromkeys(ROOTS, str(plugin.place)), "PYTHONPYCACHEPREFIX": str(caches)}

    # Consent

    def subjects(self, specs: list[AgentSpec]) -> list[TrustSubject]:
        """What `retinue trust` asks about: plugins of the project, and those that its agents
        bring by path."""
        from retinue.capabilities.plugins.tools import UnboundError, content_digest
        from retinue.guard.trust_subjects import TrustSubject

        found: list[TrustSubject] = []
        brought = [plugin for spec in specs for plugin in self.workshop.brought(spec) if isinstance(plugin, Plugin)]
        for plugin in {each.place: each for each in (*self.plugins.found, *brought)}.values():
            if plugin.personal or not plugin.acts:
                continue
            try:
                digest = content_digest(plugin.place)
            except UnboundError:
                continue
            found.append(TrustSubject(plugin.place, (digest,), tuple(what_runs(plugin))))
        return found


def what_runs(plugin: Plugin) -> list[str]:
    """What of a plugin needs consent, one line each."""
    from retinue.guard.trust_subjects import settings_subject

    lines = [f"Python code: {code}" for code in plugin.code]
    for table in plugin.hooks:
        subject = settings_subject(table.path, {"hooks": table.value}, b"")
        lines += subject.what if subject is not None else ()
    for table in plugin.servers:
        lines += [f"MCP server {name}: {_brief(raw)}" for name, raw in table.value.items()]
    return lines


def _acting(plugin: Plugin) -> str:
    parts = {"tools": plugin.code, "hooks": plugin.hooks, "servers": plugin.servers}
    return ", ".join(name for name, part in parts.items() if part)


def _brief(raw: Any) -> str:
    table = raw if isinstance(raw, Mapping) else {}
    arguments = table.get("args")
    words = [table.get("command") or table.get("url") or "?", *(arguments if isinstance(arguments, list) else ())]
    return " ".join(map(str, words))[:160]


def _modest(table: Mapping[str, Any]) -> dict[str, Any]:
    """Servers of a project, consented to or not, are not believed what they say of their tools."""
    return {
        name: {key: value for key, value in raw.items() if key != "trustAnnotations"}
        if isinstance(raw, Mapping)
        else raw
        for name, raw in table.items()
    }


def _with_variables(table: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Servers that are programs with these in their environment; the rest as they are."""
    return {
        name: {**raw, "env": {**variables, **(raw.get("env") or {})}}
        if isinstance(raw, Mapping) and "command" in raw and isinstance(raw.get("env") or {}, Mapping)
        else raw
        for name, raw in table.items()
    }


def _filled(value: Any, roots: Mapping[str, str]) -> Any:
    """`${CLAUDE_PLUGIN_ROOT}` in texts at any depth."""
    if isinstance(value, str):
        for name, folder in roots.items():
            value = value.replace(f"${{{name}}}", folder)
        return value
    if isinstance(value, Mapping):
        return {key: _filled(each, roots) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(each, roots) for each in value]
    return value
