from __future__ import annotations

import argparse

from retinue.agents.catalog import Catalog
from retinue.agents.manage import eject
from retinue.core.codec import to_data
from retinue.faces.cli.agents._common import add_common, add_place, folder, plugins, put, say
from retinue.faces.cli.agents._show import write_json
from retinue.faces.cli.agents.convert import describe


def configure_eject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent to copy")
    add_place(parser)
    add_common(parser)


def execute_eject(args: argparse.Namespace) -> int:
    """Copies an agent into a file you can edit; the copy replaces the original.

    Built-in agents, a plugin's and your own all can be copied. In the same dialect the copy is
    exact; in another one you are told what it cannot say.

      retinue agents eject Explore                   to .retinue/agents/Explore.md
      retinue agents eject reviewer --user           for all your projects
      retinue agents eject Plan --dialect claude     to .claude/agents/Plan.md
    """
    cwd = folder(args)
    brought = plugins(cwd)
    made = eject(args.name, cwd, dialect=args.dialect, user=args.user, force=args.force, plugins=brought)
    winner = Catalog.load(cwd, plugin_folders=brought).find(made.name).path
    counts = winner == str(made.path)
    if args.json:
        write_json(
            {
                "name": made.name,
                "from": made.origin,
                "path": str(made.path),
                "dialect": made.dialect,
                "losses": to_data(made.losses),
                "replaced": made.replaced,
                "effective": counts,
            }
        )
        return 0
    put(f"{made.path}\n")
    for loss in made.losses:
        say(f"{made.name}: {describe(loss)}")
    if not counts:
        say(f"Note: '{made.name}' is still loaded from {winner}, which is stronger.")
    return 0
