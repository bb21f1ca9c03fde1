"""`retinue plugins list` and `plugins check`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError
from retinue.faces.cli.project import add_cwd, add_json, folder, say, write_json
from retinue.faces.cli.servers import LOOK_AT
from retinue.faces.text import clean, indent, optional, plural

if TYPE_CHECKING:
    from retinue.capabilities.plugins.plugin import FailedPlugin, Plugin
    from retinue.runs.project import Project


_COUNTED = ("agents", "skills", "hooks", "servers")


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_cwd(parser, LOOK_AT)
    add_json(parser, "print one JSON document")


def execute_list(args: argparse.Namespace) -> int:
    """List the plugins of this project, who brought each, and what it has.

    A plugin is a folder (or one Python file) with agents, skills, hooks, MCP servers or tools:

        .retinue/plugins/NAME/            the project's
        RETINUE_HOME/plugins/NAME/        your own
        "plugins": ["path", …]            in a settings file
        entry points `retinue.plugins`    of installed Python packages

    Nothing of them is run. Code, hooks and servers of a project's plugin have no effect until you
    consent to them (retinue trust). `retinue plugins check` imports their tools.
    """
    from retinue.capabilities.plugins.attach import PluginExtensions
    from retinue.engine import open_project

    project = open_project(folder(args.cwd))
    found = project.part(PluginExtensions).plugins
    plugins = [describe(plugin, project) for plugin in found.found]
    if args.json:
        write_json({"plugins": plugins, "failed": _failed_data(found.failed)})
        return 0
    for plugin in plugins:
        print(clean(line(plugin)))
    if not plugins:
        print("No plugins. Put one into .retinue/plugins/NAME/, or see: retinue plugins list --help")
    for problem in found.problems:
        say(clean(f"warning: {problem}"))
    return 0


def _failed_data(failed: Iterable[FailedPlugin]) -> list[dict[str, str]]:
    return [{"path": each.where, "reason": each.reason} for each in failed]


def describe(plugin: Plugin, project: Project) -> dict[str, Any]:
    """Return what is known of a plugin without running any of it."""
    from retinue.capabilities.plugins.attach import PluginExtensions, what_runs

    why = project.part(PluginExtensions).why_not(plugin)
    return {
        "name": plugin.name,
        "version": plugin.version or None,
        "description": plugin.description,
        "origin": plugin.origin,
        "path": plugin.where,
        "trusted": why is None,
        "withheld": why,
        "agents": _agents(plugin.agents),
        "skills": _skills(plugin.skills),
        "hooks": sorted(set().union(*(table.value for table in plugin.hooks))),
        "servers": sorted(plugin.server_names),
        "tools": list(plugin.code),
        "runs": what_runs(plugin),
        "problems": list(plugin.problems),
    }


def line(plugin: dict[str, Any]) -> str:
    parts = [plural(len(plugin[key]), key[:-1]) for key in _COUNTED if plugin[key]]
    if plugin["tools"]:
        parts.append("tools")
    name = f"{plugin['name']} {plugin['version'] or ''}".strip()
    state = optional(" · {}", plugin["withheld"])
    return f"{name:<24} {', '.join(parts) or 'nothing'}{state}  ({plugin['origin']}: {plugin['path']})"


def _agents(folders: tuple[Path, ...]) -> list[str]:
    """Return the names of the agent files: a folder may also be one file."""
    names = []
    for place in folders:
        files = [place] if place.is_file() else place.rglob("*.md")
        names += [path.stem for path in files]
    return sorted(names)


def _skills(folders: tuple[Path, ...]) -> list[str]:
    names = []
    for place in folders:
        for path in place.rglob("SKILL.md"):
            names.append(path.parent.name)
    return sorted(names)


def configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="only this plugin")
    parser.add_argument("--trust", action="store_true", help="also import what the project brings, this once")
    add_cwd(parser, LOOK_AT)
    add_json(parser, "print one JSON document")


def execute_check(args: argparse.Namespace) -> int:
    """Import the tools of plugins, as a run would, and say what they have and what is wrong.

        retinue plugins check              all of them
        retinue plugins check weather      one
        retinue plugins check --trust      also those of the project that you have not consented to

    The exit code is 1 when a plugin is broken.
    """
    from retinue.capabilities.plugins.attach import PluginExtensions
    from retinue.engine import open_project

    project = open_project(folder(args.cwd), trust=args.trust)
    found = project.part(PluginExtensions).plugins
    chosen = found.found
    if args.name:
        one = found.find(args.name)
        if one is None:
            known = ", ".join(each.name for each in found.found) or "none"
            raise UsageError(f"There is no plugin '{args.name}'.", remedy=f"Plugins here: {known}.")
        chosen = (one,)
    failed = () if args.name else found.failed
    checked = [_check(plugin, project) for plugin in chosen]
    if args.json:
        write_json({"plugins": checked, "failed": _failed_data(failed)})
    else:
        for each in checked:
            print(_checked_lines(each))
        for lost in failed:
            say(clean(f"{lost.where}: {lost.reason}"))
    return int(bool(failed) or any(each["problems"] for each in checked))


def _check(plugin: Plugin, project: Project) -> dict[str, Any]:
    from retinue.capabilities.plugins.load import load_tools

    data = describe(plugin, project)
    if data["withheld"] is not None or not plugin.code:
        return {**data, "tools": []}
    loaded = load_tools(plugin)
    tools = [
        {"name": name, "description": tool.spec.description, "effects": sorted(tool.spec.effects)}
        for name, tool in loaded.tools.items()
    ]
    return {**data, "tools": tools, "problems": [*data["problems"], *loaded.problems]}


def _checked_lines(checked: dict[str, Any]) -> str:
    tools = ", ".join(f"{each['name']} ({', '.join(each['effects']) or 'no effects'})" for each in checked["tools"])
    lines = [f"{checked['name']}: {checked['withheld'] or tools or 'no tools'}"]
    return "\n".join(map(clean, lines + indent(checked["problems"], "    ! ")))
