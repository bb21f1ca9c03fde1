from __future__ import annotations

import argparse
from pathlib import Path

from retinue.errors import UsageError
from retinue.faces.cli.agents._common import add_common, folder
from retinue.faces.cli.agents._show import clean, write_json
from retinue.faces.cli.memory._common import add_scope, lines_of, merged_data, place_of, usable

_LARGEST = 128 * 2**20


def configure_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="FILE", help="what snapshot wrote")
    parser.add_argument("--agent", metavar="NAME", help="whose memory it becomes (default: whose it was)")
    add_scope(parser, None, "where it goes (default: where it was)")
    add_common(parser)


def execute_restore(args: argparse.Namespace) -> int:
    """Unpack a memory that `retinue memory snapshot` made. Nothing that is there is lost.

        retinue memory restore reviewer.memory.tar.gz
        retinue memory restore reviewer.memory.tar.gz --agent auditor --scope project

    Files that are missing are added, the index gets the lines it lacks, and another version of a file
    that is there comes beside it as NAME.conflict-DIGEST.md.
    """
    from retinue.capabilities.memory.store import merge, unpack

    cwd = folder(args)
    path = cwd / Path(args.archive).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", remedy="Name an archive of a memory.") from error
    if len(data) > _LARGEST:
        raise UsageError(f"{path} is too large for an archive of a memory.")
    snapshot = unpack(data)
    agent, scope = args.agent or snapshot.agent, args.scope or snapshot.scope
    place = usable(place_of(agent, scope, cwd))
    merged = merge(snapshot.content, place)
    if args.json:
        write_json({"agent": agent, "scope": scope, "path": str(place.path), **merged_data(merged)})
        return 0
    print(clean(f"{agent} ({scope}): {place.path}"))
    print("\n".join(map(clean, lines_of(merged))))
    return 0
