"""The plugins of a project: their contents, and whether their tools can be imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, replace

from retinue.capabilities.plugins import PluginExtensions
from retinue.capabilities.plugins.discover import FailedPlugin
from retinue.capabilities.plugins.load import load_tools, what_runs
from retinue.cluster import open_project
from retinue.errors import UsageError

if TYPE_CHECKING:
    from retinue.capabilities.plugins.discover import Plugin
    from retinue.runs.project import Project


class PluginFacts(Struct, frozen=True, kw_only=True):
    """One plugin. `withheld` is the reason why its code, hooks and servers have no effect. `runs` lists what needs
    consent."""

    name: str
    version: str | None
    description: str
    origin: str
    path: str
    trusted: bool
    withheld: str | None
    agents: list[str]
    skills: list[str]
    hooks: list[str]
    servers: list[str]
    runs: list[str]
    problems: Sequence[str]


class PluginView(PluginFacts, frozen=True, kw_only=True):
    """A plugin without its code having been run. `tools` are the modules that define its tools."""

    tools: Sequence[str]


class PluginTool(Struct, frozen=True):
    """A tool of a plugin."""

    name: str
    description: str
    effects: list[str]


class CheckedPlugin(PluginFacts, frozen=True, kw_only=True):
    """A plugin whose tools were imported."""

    tools: list[PluginTool]


class PluginList(Struct, frozen=True):
    """The plugins of a project."""

    plugins: list[PluginView]
    failed: list[FailedPlugin]


class CheckedPlugins(Struct, frozen=True):
    """The plugins whose tools were imported."""

    plugins: list[CheckedPlugin]
    failed: list[FailedPlugin]


def list_plugins(cwd: Path) -> tuple[PluginList, Sequence[str]]:
    """Return the plugins of a project, without running any of them, and their problems."""
    project = open_project(cwd)
    plugins = project.part(PluginExtensions).plugins
    views = [PluginView(**asdict(_facts(plugin, project)), tools=plugin.code) for plugin in plugins.usable]
    return PluginList(views, list(plugins.failed)), plugins.problems


def check_plugins(cwd: Path, name: str | None = None, *, trust: bool = False) -> CheckedPlugins:
    """Import the tools of plugins as a run would, of one plugin or of all. `trust` includes plugins of the project
    without consent. Raise UsageError for an unknown plugin."""
    project = open_project(cwd, trust=trust)
    plugins = project.part(PluginExtensions).plugins
    if name is None:
        return CheckedPlugins([_check(plugin, project) for plugin in plugins.usable], list(plugins.failed))
    plugin = plugins.find(name)
    if plugin is None:
        names = ", ".join(usable.name for usable in plugins.usable) or "none"
        raise UsageError(f"There is no plugin '{name}'.", remedy=f"Plugins here: {names}.")
    return CheckedPlugins([_check(plugin, project)], [])


def _facts(plugin: Plugin, project: Project) -> PluginFacts:
    why = project.part(PluginExtensions).why_not(plugin)
    return PluginFacts(
        name=plugin.name,
        version=plugin.version or None,
        description=plugin.description,
        origin=plugin.origin,
        path=plugin.where,
        trusted=why is None,
        withheld=why,
        agents=_agents(plugin.agents),
        skills=sorted(path.parent.name for folder in plugin.skills for path in folder.rglob("SKILL.md")),
        hooks=sorted(set().union(*(table.value for table in plugin.hooks))),
        servers=sorted(plugin.server_names),
        runs=what_runs(plugin),
        problems=plugin.problems,
    )


def _agents(folders: tuple[Path, ...]) -> list[str]:
    """Return the names of the agent files. An entry may be a folder or a file."""
    names = []
    for folder in folders:
        files = [folder] if folder.is_file() else folder.rglob("*.md")
        names += [path.stem for path in files]
    return sorted(names)


def _check(plugin: Plugin, project: Project) -> CheckedPlugin:
    checked = CheckedPlugin(**asdict(_facts(plugin, project)), tools=[])
    if checked.withheld is not None or not plugin.code:
        return checked
    loaded = load_tools(plugin)
    tools = [PluginTool(name, tool.spec.description, sorted(tool.spec.effects)) for name, tool in loaded.tools.items()]
    return replace(checked, tools=tools, problems=[*plugin.problems, *loaded.problems])
