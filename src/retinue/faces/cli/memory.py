"""`retinue memory show`, `memory snapshot`, `memory restore` and `memory sync`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError
from retinue.faces.cli.agents import LOOK_FROM
from retinue.faces.cli.project import add_where, folder, write_json
from retinue.faces.text import clean, indent

if TYPE_CHECKING:
    from retinue.capabilities.memory.store import Merged
    from retinue.core.spec import MemoryScope
    from retinue.tools.safe_dir import SafeDir


SCOPES = ("user", "project", "local")
_LARGEST = 128 * 2**20


def add_scope(parser: argparse.ArgumentParser, default: str | None, help: str) -> None:
    parser.add_argument("--scope", choices=SCOPES, default=default, help=help)


def open_memory(agent: str, scope: MemoryScope, cwd: Path) -> SafeDir:
    """Return the folder that Retinue writes. Raise UsageError for a name that cannot be one, and where something in
    the folder must not be followed."""
    from retinue.capabilities.memory.store import own_folder

    place = own_folder(agent, scope, cwd, os.environ)
    obstacle = place.obstacle()
    if obstacle is not None:
        raise UsageError(f"This memory cannot be used: {obstacle}.", remedy="Put a real folder there.")
    return place


def merged_data(merged: Merged) -> dict[str, Any]:
    return {"added": list(merged.added), "changed": list(merged.changed), "conflicts": list(merged.conflicts)}


def lines_of(merged: Merged) -> list[str]:
    lines = indent(merged.added, "  added     ")
    lines += indent(merged.changed, "  changed   ")
    for path in merged.conflicts:
        lines.append(f"  conflict  {path}: both versions are kept")
    return [*map(clean, lines)] or ["  nothing to do"]


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", nargs="?", help="only this agent, with its index and files")
    add_scope(parser, None, "only this one (default: all)")
    add_where(parser, LOOK_FROM)


def execute_show(args: argparse.Namespace) -> int:
    """What agents remember: every memory that can be seen from here, or one whole.

        retinue memory show
        retinue memory show reviewer
        retinue memory show reviewer --scope user --json

    Folders of Claude Code and pi are shown as well: agents read them, and Retinue never writes there.
    """
    cwd = folder(args.cwd)
    scopes = (args.scope,) if args.scope else SCOPES
    found = _find_memories(args.agent, scopes, cwd)
    if args.agent and not found:
        raise UsageError(f"{args.agent} has no memory here.", remedy="See all with: retinue memory show")
    if args.json:
        write_json({"memories": found})
        return 0
    for each in found:
        print("\n".join(map(clean, _memory_lines(each, whole=args.agent is not None))))
    if not found:
        print("No agent has a memory here yet. `memory: project` in an agent's file gives it one.")
    return 0


def _memory_lines(memory: dict[str, Any], *, whole: bool) -> list[str]:
    size = sum(file["bytes"] for file in memory["files"])
    first = f"{memory['agent']}  {memory['scope']}  {len(memory['files'])} files, {size:,} bytes"
    if not memory["own"]:
        first += " (read only: of another system)"
    lines = [first, f"  {memory['path']}"]
    if whole:
        for file in memory["files"]:
            lines.append(f"  - {file['path']} ({file['bytes']:,} bytes)")
        lines += indent(memory["index"].splitlines(), "  | ")
    return lines


def _find_memories(agent: str | None, scopes: tuple[Any, ...], cwd: Path) -> list[dict[str, Any]]:
    from retinue.capabilities.memory.store import list_agents, other_folders, own_folder

    found = []
    for scope in scopes:
        names = (agent,) if agent else list_agents(scope, cwd, os.environ)
        for name in names:
            own = own_folder(name, scope, cwd, os.environ)
            if own.exists():
                found.append(_data(name, scope, own, own=True))
            found += [_data(name, scope, place, own=False) for place in other_folders(name, scope, cwd, os.environ)]
    return found


def _data(agent: str, scope: str, place: SafeDir, *, own: bool) -> dict[str, Any]:
    from retinue.capabilities.memory.attach import read_index
    from retinue.capabilities.memory.store import describe

    return {
        "agent": agent,
        "scope": scope,
        "path": str(place.path),
        "own": own,
        "files": [{"path": path, "bytes": size} for path, size in describe(place)],
        "index": read_index(place),
    }


def configure_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="whose memory")
    add_scope(parser, "user", "which of its memories (default: user)")
    parser.add_argument("--to", metavar="FILE", help="the archive to write (default: ./AGENT.memory.tar.gz)")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    add_where(parser, LOOK_FROM)


def execute_snapshot(args: argparse.Namespace) -> int:
    """Pack an agent's memory into one file, to take it to another project or machine.

    retinue memory snapshot reviewer
    retinue memory snapshot reviewer --scope project --to reviewer.memory.tar.gz
    """
    from retinue.capabilities.memory.store import MemoryArchive, content_of, default_archive, pack
    from retinue.settings.write import replace_file

    cwd = folder(args.cwd)
    place = open_memory(args.agent, args.scope, cwd)
    content = content_of(place)
    if not content:
        raise UsageError(
            f"{args.agent} remembers nothing in the scope {args.scope}.", remedy="See: retinue memory show"
        )
    target = default_archive(args.agent, cwd)
    if args.to:
        target = cwd / Path(args.to).expanduser()
    if target.exists() and not args.force:
        raise UsageError(f"{target} exists.", remedy="Choose another name with --to, or replace it with --force.")
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent} is not a folder.", remedy="Choose another place with --to.")
    replace_file(target, pack(MemoryArchive(args.agent, args.scope, content)), new_mode=0o600)
    if args.json:
        write_json({"agent": args.agent, "scope": args.scope, "archive": str(target), "files": sorted(content)})
    else:
        print(clean(f"{len(content)} files of {args.agent} ({args.scope}) are in {target}"))
    return 0


def configure_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="FILE", help="what snapshot wrote")
    parser.add_argument("--agent", metavar="NAME", help="whose memory it becomes (default: whose it was)")
    add_scope(parser, None, "where it goes (default: where it was)")
    add_where(parser, LOOK_FROM)


def execute_restore(args: argparse.Namespace) -> int:
    """Unpack a memory that `retinue memory snapshot` made. Nothing that is there is lost.

        retinue memory restore reviewer.memory.tar.gz
        retinue memory restore reviewer.memory.tar.gz --agent auditor --scope project

    Files that are missing are added, the index gets the lines it lacks, and another version of a file
    that is there comes beside it as NAME.conflict-DIGEST.md.
    """
    from retinue.capabilities.memory.store import merge, unpack

    cwd = folder(args.cwd)
    path = cwd / Path(args.archive).expanduser()
    try:
        with path.open("rb") as file:
            # One byte more than allowed tells a file that is too large from one that just fits.
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", remedy="Name an archive of a memory.") from error
    if len(data) > _LARGEST:
        raise UsageError(f"{path} is too large for an archive of a memory.")
    snapshot = unpack(data)
    agent, scope = args.agent or snapshot.agent, args.scope or snapshot.scope
    place = open_memory(agent, scope, cwd)
    merged = merge(snapshot.content, place)
    if args.json:
        write_json({"agent": agent, "scope": scope, "path": str(place.path), **merged_data(merged)})
        return 0
    print(clean(f"{agent} ({scope}): {place.path}"))
    print("\n".join(lines_of(merged)))
    return 0


def configure_sync(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="whose memories")
    parser.add_argument("first", metavar="SCOPE", choices=SCOPES, help="its versions keep their names")
    parser.add_argument("second", metavar="SCOPE", choices=SCOPES, help="its versions come beside them")
    add_where(parser, LOOK_FROM)


def execute_sync(args: argparse.Namespace) -> int:
    """Merge two memories of an agent, so that both hold the same. Nothing is lost.

        retinue memory sync reviewer user project

    Where a file differs, the first scope's version has the name in both, and the second's stands beside
    it as NAME.conflict-DIGEST.md in both. The index gets the lines of both.
    """
    from retinue.capabilities.memory.store import sync

    if args.first == args.second:
        raise UsageError("These are the same memory.", remedy="Name two of: user, project, local.")
    cwd = folder(args.cwd)
    first, second = open_memory(args.agent, args.first, cwd), open_memory(args.agent, args.second, cwd)
    done = dict(zip((args.first, args.second), sync(first, second), strict=True))
    if args.json:
        write_json({"agent": args.agent, **{scope: merged_data(merged) for scope, merged in done.items()}})
        return 0
    for scope, merged in done.items():
        print("\n".join([scope, *lines_of(merged)]))
    return 0
