from __future__ import annotations

import argparse

from retinue.agents.manage import Toggled, disable
from retinue.faces.cli.agents._common import add_common, folder, plugins, put, say
from retinue.faces.cli.agents._show import write_json


def configure_disable(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent to switch off")
    parser.add_argument("--user", action="store_true", help="hide a built-in agent in all your projects")
    add_common(parser)


def execute_disable(args: argparse.Namespace) -> int:
    """Switches an agent off without deleting it; `agents enable` brings it back unchanged.

    Your own file gets one line (enabled: false, or as its dialect says it). A built-in agent is
    hidden by a small file in .retinue/agents, or with --user in your own folder.

      retinue agents disable reviewer
      retinue agents disable Explore --user
    """
    cwd = folder(args)
    tell(disable(args.name, cwd, user=args.user, plugins=plugins(cwd)), enabled=False, as_json=args.json)
    return 0


def tell(done: Toggled, *, enabled: bool, as_json: bool) -> None:
    """What `enable` and `disable` print."""
    if as_json:
        write_json(
            {
                "name": done.name,
                "path": str(done.path),
                "enabled": enabled,
                "changed": done.changed,
                "action": done.action,
            }
        )
        return
    put(f"{done.path}\n")
    state = "on" if enabled else "off"
    say(f"{done.name} is {state}." if done.changed else f"{done.name} was {state} already.")
    if done.action == "stub-written":
        say("It has no file of its own, so this one hides it.")
    elif done.action == "stub-deleted":
        say("The file that hid it is deleted.")
