"""`retinue plugins list` and `plugins check`."""

from __future__ import annotations

import argparse

from retinue.app.plugins import CheckedPlugin, PluginView, check_plugins, list_plugins
from retinue.app.text import clean, indent, optional, plural
from retinue.frontends.cli.project import add_where, folder, say, write_json
from retinue.frontends.cli.servers import LOOKED_AT_HELP

_COUNTED_FIELDS = ("agents", "skills", "hooks", "servers")


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser, LOOKED_AT_HELP)


def execute_list(args: argparse.Namespace) -> int:
    """List the plugins of this project with their origins and contents.

    A plugin is a folder (or one Python file) with agents, skills, hooks, MCP servers or tools:

        .retinue/plugins/NAME/            the project's
        RETINUE_HOME/plugins/NAME/        your own
        "plugins": ["path", …]            in a settings file
        entry points `retinue.plugins`    of installed Python packages

    No plugin is run. Code, hooks and servers of a project's plugin have no effect until you consent
    to them (retinue trust). `retinue plugins check` imports their tools.
    """
    plugins, problems = list_plugins(folder(args.cwd))
    if args.json:
        write_json(plugins)
        return 0
    for plugin in plugins.plugins:
        print(clean(_line(plugin)))
    if not plugins.plugins:
        print("No plugins. Put one into .retinue/plugins/NAME/, or see: retinue plugins list --help")
    for problem in problems:
        say(clean(f"warning: {problem}"))
    return 0


def _line(plugin: PluginView) -> str:
    parts = [plural(len(getattr(plugin, key)), key[:-1]) for key in _COUNTED_FIELDS if getattr(plugin, key)]
    if plugin.tools:
        parts.append("tools")
    name = f"{plugin.name} {plugin.version or ''}".strip()
    state = optional(" · {}", plugin.withheld)
    return f"{name:<24} {', '.join(parts) or 'nothing'}{state}  ({plugin.origin}: {plugin.path})"


def configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="only this plugin")
    parser.add_argument("--trust", action="store_true", help="also import the project's tools, this time only")
    add_where(parser, LOOKED_AT_HELP)


def execute_check(args: argparse.Namespace) -> int:
    """Import the tools of plugins, as a run would, and print them and their problems.

        retinue plugins check              all of them
        retinue plugins check weather      one
        retinue plugins check --trust      also those of the project that you have not consented to

    The exit code is 1 if a plugin is broken.
    """
    checked = check_plugins(folder(args.cwd), args.name, trust=args.trust)
    if args.json:
        write_json(checked)
    else:
        for plugin in checked.plugins:
            print(_checked_lines(plugin))
        for failed in checked.failed:
            say(clean(f"{failed.path}: {failed.reason}"))
    return int(bool(checked.failed) or any(plugin.problems for plugin in checked.plugins))


def _checked_lines(plugin: CheckedPlugin) -> str:
    tools = ", ".join(f"{tool.name} ({', '.join(tool.effects) or 'no effects'})" for tool in plugin.tools)
    lines = [f"{plugin.name}: {plugin.withheld or tools or 'no tools'}"]
    return "\n".join(map(clean, lines + indent(plugin.problems, "    ! ")))
