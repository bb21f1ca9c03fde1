from __future__ import annotations

import argparse

from retinue.errors import UsageError
from retinue.faces.cli.agents._common import add_common, folder
from retinue.faces.cli.agents._show import clean, write_json
from retinue.faces.cli.memory._common import SCOPES, lines_of, merged_data, place_of, usable


def configure_sync(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="whose memories")
    parser.add_argument("first", metavar="SCOPE", choices=SCOPES, help="its versions keep their names")
    parser.add_argument("second", metavar="SCOPE", choices=SCOPES, help="its versions come beside them")
    add_common(parser)


def execute_sync(args: argparse.Namespace) -> int:
    """Merge two memories of an agent, so that both hold the same. Nothing is lost.

        retinue memory sync reviewer user project

    Where a file differs, the first scope's version has the name in both, and the second's stands beside
    it as NAME.conflict-DIGEST.md in both. The index gets the lines of both.
    """
    from retinue.capabilities.memory.store import sync

    if args.first == args.second:
        raise UsageError("These are the same memory.", remedy="Name two of: user, project, local.")
    cwd = folder(args)
    first, second = (usable(place_of(args.agent, scope, cwd)) for scope in (args.first, args.second))
    done = dict(zip((args.first, args.second), sync(first, second), strict=True))
    if args.json:
        write_json({"agent": args.agent, **{scope: merged_data(merged) for scope, merged in done.items()}})
        return 0
    for scope, merged in done.items():
        print("\n".join([scope, *map(clean, lines_of(merged))]))
    return 0
