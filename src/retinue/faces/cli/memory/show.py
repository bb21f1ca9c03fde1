from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError
from retinue.faces.cli.agents._common import add_common, folder
from retinue.faces.cli.agents._show import clean, write_json
from retinue.faces.cli.memory._common import SCOPES, add_scope

if TYPE_CHECKING:
    from retinue.guard.safe_folder import Place


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", nargs="?", help="only this agent, with its index and files")
    add_scope(parser, None, "only this one (default: all)")
    add_common(parser)


def execute_show(args: argparse.Namespace) -> int:
    """What agents remember: every memory that can be seen from here, or one whole.

        retinue memory show
        retinue memory show reviewer
        retinue memory show reviewer --scope user --json

    Folders of Claude Code and pi are shown as well: agents read them, and Retinue never writes there.
    """
    cwd = folder(args)
    found = _memories(args.agent, (args.scope,) if args.scope else SCOPES, cwd)
    if args.agent and not found:
        raise UsageError(f"{args.agent} has no memory here.", remedy="See all with: retinue memory show")
    if args.json:
        write_json({"memories": found})
        return 0
    for each in found:
        size = sum(file["bytes"] for file in each["files"])
        own = "" if each["own"] else " (read only: of another system)"
        print(clean(f"{each['agent']}  {each['scope']}  {len(each['files'])} files, {size:,} bytes{own}"))
        print(clean(f"  {each['path']}"))
        if args.agent:
            for file in each["files"]:
                print(clean(f"  - {file['path']} ({file['bytes']:,} bytes)"))
            for line in each["index"].splitlines():
                print(clean(f"  | {line}"))
    if not found:
        print("No agent has a memory here yet. `memory: project` in an agent's file gives it one.")
    return 0


def _memories(agent: str | None, scopes: tuple[Any, ...], cwd: Path) -> list[dict[str, Any]]:
    from retinue.capabilities.memory.places import other_places, own_place, remembered

    found = []
    for scope in scopes:
        names = (agent,) if agent else remembered(scope, cwd, os.environ)
        for name in names:
            own = own_place(name, scope, cwd, os.environ)
            if own.exists():
                found.append(_data(name, scope, own, own=True))
            found += [_data(name, scope, place, own=False) for place in other_places(name, scope, cwd, os.environ)]
    return found


def _data(agent: str, scope: str, place: Place, *, own: bool) -> dict[str, Any]:
    from retinue.capabilities.memory.index import read_index
    from retinue.capabilities.memory.store import describe

    return {
        "agent": agent,
        "scope": scope,
        "path": str(place.path),
        "own": own,
        "files": [{"path": path, "bytes": size} for path, size in describe(place)],
        "index": read_index(place),
    }
