"""Print the configuration with which a program can offer the agents of this project.

    retinue mcp install                    the known hosts, and the file of each
    retinue mcp install claude             what to add to .mcp.json
    retinue mcp install codex --write      add it to .codex/config.toml
    retinue mcp install zed --agents Explore,reviewer

The rest of the file is preserved. A file that cannot be read is not changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from retinue.app.mcp_hosts import HOSTS, HostEntry, command_of, file_of, list_hosts, shown_entry, write_entry
from retinue.errors import UsageError
from retinue.frontends.cli.project import add_cwd, add_json, folder, say, write_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", nargs="?", help=f"one of: {', '.join(HOSTS)}")
    parser.add_argument("--write", action="store_true", help="change the file of the host")
    parser.add_argument("--tools", choices=("shared", "per-agent"), help="the same option of `retinue mcp`")
    parser.add_argument("--agents", metavar="A,B", help="the same option of `retinue mcp`")
    add_cwd(parser, "the project whose agents are offered (default: here)")
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    cwd = folder(args.cwd)
    if args.host is None:
        return _list_hosts(cwd, args)
    host = HOSTS.get(args.host)
    if host is None:
        raise UsageError(f"'{args.host}' is not a known host.", remedy=f"Choose one of: {', '.join(HOSTS)}")
    file, entry = file_of(host, cwd), host.entry(command_of(host, cwd, {"tools": args.tools, "agents": args.agents}))
    written = False
    if args.write:
        written = write_entry(host, file, entry)
    if args.json:
        write_json(HostEntry(args.host, str(file), host.key, entry, written))
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
    hosts = list_hosts(cwd)
    if args.json:
        write_json(hosts)
        return 0
    for host in hosts.hosts:
        print(f"{host.host:<16}{host.title:<16}{host.file}")
    return 0
