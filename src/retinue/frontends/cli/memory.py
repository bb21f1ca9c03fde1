"""`retinue memory show`, `memory snapshot` and `memory restore`."""

from __future__ import annotations

import argparse

from retinue.app.memory import MEMORY_SCOPES, MemoryView, RestoredMemory, list_memories, pack_memory, restore_memory
from retinue.app.text import clean, indent
from retinue.frontends.cli.agents import LOOK_FROM_HELP
from retinue.frontends.cli.project import add_where, folder, write_json


def add_scope(parser: argparse.ArgumentParser, default: str | None, help: str) -> None:
    parser.add_argument("--scope", choices=MEMORY_SCOPES, default=default, help=help)


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", nargs="?", help="only this agent, with its index and files")
    add_scope(parser, None, "only this one (default: all)")
    add_where(parser, LOOK_FROM_HELP)


def execute_show(args: argparse.Namespace) -> int:
    """Show what agents remember: every memory visible from here, or one in detail.

        retinue memory show
        retinue memory show reviewer
        retinue memory show reviewer --scope user --json

    Folders of Claude Code and pi are listed as well: agents read them, and Retinue never writes
    them.
    """
    memories = list_memories(folder(args.cwd), args.agent, args.scope)
    if args.json:
        write_json(memories)
        return 0
    for memory in memories.memories:
        print("\n".join(map(clean, _memory_lines(memory, with_index=args.agent is not None))))
    if not memories.memories:
        print("No agent has a memory here yet. `memory: project` in an agent's file gives it one.")
    return 0


def _memory_lines(memory: MemoryView, *, with_index: bool) -> list[str]:
    size = sum(file.bytes for file in memory.files)
    first = f"{memory.agent}  {memory.scope}  {len(memory.files)} files, {size:,} bytes"
    if not memory.own:
        first += " (read only: of another system)"
    lines = [first, f"  {memory.path}"]
    if with_index:
        for file in memory.files:
            lines.append(f"  - {file.path} ({file.bytes:,} bytes)")
        lines += indent(memory.index.splitlines(), "  | ")
    return lines


def configure_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="whose memory")
    add_scope(parser, "user", "which of its memories (default: user)")
    parser.add_argument("--to", metavar="FILE", help="the archive to write (default: ./AGENT.memory.tar.gz)")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    add_where(parser, LOOK_FROM_HELP)


def execute_snapshot(args: argparse.Namespace) -> int:
    """Pack an agent's memory into one file for another project or machine.

    retinue memory snapshot reviewer
    retinue memory snapshot reviewer --scope project --to reviewer.memory.tar.gz
    """
    snapshot = pack_memory(args.agent, args.scope, folder(args.cwd), to=args.to, force=args.force)
    if args.json:
        write_json(snapshot)
    else:
        print(clean(f"{len(snapshot.files)} files of {args.agent} ({args.scope}) are in {snapshot.archive}"))
    return 0


def configure_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="FILE", help="what snapshot wrote")
    parser.add_argument("--agent", metavar="NAME", help="whose memory it becomes (default: whose it was)")
    add_scope(parser, None, "where it goes (default: where it was)")
    add_where(parser, LOOK_FROM_HELP)


def execute_restore(args: argparse.Namespace) -> int:
    """Restore a memory that `retinue memory snapshot` wrote. No existing file is lost.

        retinue memory restore reviewer.memory.tar.gz
        retinue memory restore reviewer.memory.tar.gz --agent auditor --scope project

    Missing files are added, missing lines are added to the index, and another version of an
    existing file is stored beside it as NAME.conflict-DIGEST.md.
    """
    memory = restore_memory(args.archive, folder(args.cwd), agent=args.agent, scope=args.scope)
    if args.json:
        write_json(memory)
        return 0
    print(clean(f"{memory.agent} ({memory.scope}): {memory.path}"))
    print("\n".join(_restored_lines(memory)))
    return 0


def _restored_lines(memory: RestoredMemory) -> list[str]:
    lines = indent(memory.added, "  added     ")
    lines += indent(memory.changed, "  changed   ")
    for path in memory.conflicts:
        lines.append(f"  conflict  {path}: both versions are kept")
    return [*map(clean, lines)] or ["  nothing to do"]
