"""Print what to write into the configuration of a program that is to offer the agents of this project.

    retinue mcp install                    the hosts that are known, and the file of each
    retinue mcp install claude             what to add to .mcp.json
    retinue mcp install codex --write      add it to .codex/config.toml
    retinue mcp install zed --agents Explore,reviewer

A file keeps everything else that it says. One that cannot be read is left alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from retinue.app.mcp_hosts import HOSTS, command_of, file_of, shown_entry, write_entry
from retinue.errors import UsageError
from retinue.frontends.cli.project import add_cwd, add_json, folder, say, write_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", nargs="?", help=f"one of: {', '.join(HOSTS)}")
    parser.add_argument("--write", action="store_true", help="change the file of the host")
    parser.add_argument("--tools", choices=("shared", "per-agent"), help="as `retinue mcp` takes it")
    parser.add_argument("--agents", metavar="A,B", help="as `retinue mcp` takes it")
    add_cwd(parser, "the project whose agents are offered (default: here)")
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    cwd = folder(args.cwd)
    if args.host is None:
        return _list_hosts(cwd, args)
    host = HOSTS.get(args.host)
    if host is None:
        raise UsageError(f"'{args.host}' is no host that is known here.", remedy=f"Choose one of: {', '.join(HOSTS)}")
    file, entry = file_of(host, cwd), host.entry(command_of(host, cwd, {"tools": args.tools, "agents": args.agents}))
    written = False
    if args.write:
        written = write_entry(host, file, entry)
    if args.json:
        write_json({"host": args.host, "file": str(file), "key": host.key, "entry": entry, "written": written})
        return 0
    if args.write:
        say(f"{file} has it now." if written else f"{file} has it already.")
    else:
        say(f"{host.title}: add this to {file}, or let `retinue mcp install {args.host} --write` do it.")
        print(shown_entry(host, entry), end="")
    if host.note:
        say(host.note)
    return 0


def _list_hosts(cwd: Path, args: argparse.Namespace) -> int:
    if args.write:
        raise UsageError("--write needs a host.", remedy=f"Choose one of: {', '.join(HOSTS)}")
    rows = [{"host": name, "title": host.title, "file": str(file_of(host, cwd))} for name, host in HOSTS.items()]
    if args.json:
        write_json({"hosts": rows})
        return 0
    for row in rows:
        print(f"{row['host']:<16}{row['title']:<16}{row['file']}")
    return 0
