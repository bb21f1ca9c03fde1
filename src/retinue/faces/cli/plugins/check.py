from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError
from retinue.faces.cli.agents._show import clean, write_json
from retinue.faces.cli.plugins.list import describe
from retinue.faces.cli.task import folder

if TYPE_CHECKING:
    from retinue.capabilities.plugins.plugin import Plugin
    from retinue.runs.world import World


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
    from retinue.runs.world import World

    world = World(folder(args.cwd), trust=args.trust)
    found = world.extensions.plugins
    chosen = found.found
    if args.name:
        one = found.named(args.name)
        if one is None:
            known = ", ".join(each.name for each in found.found) or "none"
            raise UsageError(f"There is no plugin '{args.name}'.", remedy=f"Plugins here: {known}.")
        chosen = (one,)
    failed = () if args.name else found.failed
    checked = [_checked(plugin, world) for plugin in chosen]
    if args.json:
        lost = [{"path": each.where, "reason": each.reason} for each in failed]
        write_json({"plugins": checked, "failed": lost})
    else:
        for each in checked:
            print(_line(each))
        for lost_one in failed:
            print(clean(f"{lost_one.where}: {lost_one.reason}"), file=sys.stderr)
    return 1 if failed or any(each["problems"] for each in checked) else 0


def _checked(plugin: Plugin, world: World) -> dict[str, Any]:
    from retinue.capabilities.plugins.importing import load_tools

    data = describe(plugin, world)
    if data["withheld"] is not None or not plugin.code:
        return {**data, "tools": []}
    loaded = load_tools(plugin, world.settings.settings.plugin_timeout_seconds)
    tools = [
        {"name": name, "description": tool.spec.description, "effects": sorted(tool.spec.effects)}
        for name, tool in loaded.tools.items()
    ]
    return {**data, "tools": tools, "problems": [*data["problems"], *loaded.problems]}


def _line(checked: dict[str, Any]) -> str:
    tools = ", ".join(f"{each['name']} ({', '.join(each['effects']) or 'no effects'})" for each in checked["tools"])
    lines = [f"{checked['name']}: {checked['withheld'] or tools or 'no tools'}"]
    return "\n".join(map(clean, [*lines, *(f"    ! {problem}" for problem in checked["problems"])]))
