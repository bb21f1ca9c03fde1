"""`retinue plugins list` and `plugins check`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError
from retinue.faces.cli.agents_show import clean, write_json
from retinue.faces.cli.project import folder

if TYPE_CHECKING:
    from retinue.capabilities.plugins.plugin import Plugin
    from retinue.runs.project import Project


def configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="the project to look at (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


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
    from retinue.runs.project import Project

    project = Project(folder(args.cwd))
    found = project.extensions.plugins
    plugins = [describe(plugin, project) for plugin in found.found]
    if args.json:
        failed = [{"path": each.where, "reason": each.reason} for each in found.failed]
        write_json({"plugins": plugins, "failed": failed})
        return 0
    for plugin in plugins:
        print(clean(line(plugin)))
    if not plugins:
        print("No plugins. Put one into .retinue/plugins/NAME/, or see: retinue plugins list --help")
    for problem in found.problems:
        print(clean(f"warning: {problem}"), file=sys.stderr)
    return 0


def describe(plugin: Plugin, project: Project) -> dict[str, Any]:
    """What is known of a plugin without running any of it."""
    from retinue.capabilities.plugins.attach import what_runs

    why = project.extensions.why_not(plugin)
    return {
        "name": plugin.name,
        "version": plugin.version or None,
        "description": plugin.description,
        "origin": plugin.origin,
        "path": plugin.where,
        "trusted": why is None,
        "withheld": why,
        "agents": _markdown(plugin.agents),
        "skills": _skills(plugin.skills),
        "hooks": sorted({event for table in plugin.hooks for event in table.value}),
        "servers": sorted(plugin.server_names),
        "tools": list(plugin.code),
        "runs": what_runs(plugin),
        "problems": list(plugin.problems),
    }


def line(plugin: dict[str, Any]) -> str:
    parts = [f"{len(plugin[key])} {key if len(plugin[key]) != 1 else key[:-1]}" for key in _COUNTED if plugin[key]]
    parts += ["tools"] if plugin["tools"] else []
    name = f"{plugin['name']} {plugin['version'] or ''}".strip()
    state = "" if plugin["withheld"] is None else f" · {plugin['withheld']}"
    return f"{name:<24} {', '.join(parts) or 'nothing'}{state}  ({plugin['origin']}: {plugin['path']})"


_COUNTED = ("agents", "skills", "hooks", "servers")


def _markdown(folders: tuple[Any, ...]) -> list[str]:
    return sorted(path.stem for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*.md")))


def _skills(folders: tuple[Any, ...]) -> list[str]:
    return sorted(path.parent.name for folder in folders for path in folder.rglob("SKILL.md"))


def configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="only this plugin")
    parser.add_argument("--trust", action="store_true", help="import what the project brings, too, this once")
    parser.add_argument("--cwd", metavar="DIR", help="the project to look at (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute_check(args: argparse.Namespace) -> int:
    """Import the tools of plugins, as a run would, and say what they have and what is wrong.

        retinue plugins check              all of them
        retinue plugins check weather      one
        retinue plugins check --trust      also those of the project that you have not consented to

    The exit code is 1 when a plugin is broken.
    """
    from retinue.runs.project import Project

    project = Project(folder(args.cwd), trust=args.trust)
    found = project.extensions.plugins
    chosen = found.found
    if args.name:
        one = found.named(args.name)
        if one is None:
            known = ", ".join(each.name for each in found.found) or "none"
            raise UsageError(f"There is no plugin '{args.name}'.", remedy=f"Plugins here: {known}.")
        chosen = (one,)
    failed = () if args.name else found.failed
    checked = [_checked(plugin, project) for plugin in chosen]
    if args.json:
        lost = [{"path": each.where, "reason": each.reason} for each in failed]
        write_json({"plugins": checked, "failed": lost})
    else:
        for each in checked:
            print(_line(each))
        for lost_one in failed:
            print(clean(f"{lost_one.where}: {lost_one.reason}"), file=sys.stderr)
    return 1 if failed or any(each["problems"] for each in checked) else 0


def _checked(plugin: Plugin, project: Project) -> dict[str, Any]:
    from retinue.capabilities.plugins.importing import load_tools

    data = describe(plugin, project)
    if data["withheld"] is not None or not plugin.code:
        return {**data, "tools": []}
    loaded = load_tools(plugin)
    tools = [
        {"name": name, "description": tool.spec.description, "effects": sorted(tool.spec.effects)}
        for name, tool in loaded.tools.items()
    ]
    return {**data, "tools": tools, "problems": [*data["problems"], *loaded.problems]}


def _line(checked: dict[str, Any]) -> str:
    tools = ", ".join(f"{each['name']} ({', '.join(each['effects']) or 'no effects'})" for each in checked["tools"])
    lines = [f"{checked['name']}: {checked['withheld'] or tools or 'no tools'}"]
    return "\n".join(map(clean, [*lines, *(f"    ! {problem}" for problem in checked["problems"])]))
