from __future__ import annotations

import argparse
from pathlib import Path

from retinue.errors import UsageError
from retinue.faces.cli.agents._common import add_common, folder
from retinue.faces.cli.agents._show import clean, write_json
from retinue.faces.cli.memory._common import add_scope, place_of, usable


def configure_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="whose memory")
    add_scope(parser, "user", "which of its memories (default: user)")
    parser.add_argument("--to", metavar="FILE", help="the archive to write (default: ./AGENT.memory.tar.gz)")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    add_common(parser)


def execute_snapshot(args: argparse.Namespace) -> int:
    """Pack an agent's memory into one file, to take it to another project or machine.

    retinue memory snapshot reviewer
    retinue memory snapshot reviewer --scope project --to reviewer.memory.tar.gz
    """
    from retinue.capabilities.memory.store import Snapshot, content_of, default_archive, pack
    from retinue.settings.write import replace_file

    cwd = folder(args)
    place = usable(place_of(args.agent, args.scope, cwd))
    content = content_of(place)
    if not content:
        raise UsageError(
            f"{args.agent} remembers nothing in the scope {args.scope}.", remedy="See: retinue memory show"
        )
    target = (cwd / Path(args.to).expanduser()) if args.to else default_archive(args.agent, cwd)
    if target.exists() and not args.force:
        raise UsageError(f"{target} exists.", remedy="Choose another name with --to, or replace it with --force.")
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent} is not a folder.", remedy="Choose another place with --to.")
    replace_file(target, pack(Snapshot(args.agent, args.scope, content)), new_mode=0o600)
    if args.json:
        write_json({"agent": args.agent, "scope": args.scope, "archive": str(target), "files": sorted(content)})
    else:
        print(clean(f"{len(content)} files of {args.agent} ({args.scope}) are in {target}"))
    return 0
