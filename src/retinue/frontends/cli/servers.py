"""`retinue servers list` and `servers check`."""

from __future__ import annotations

import argparse
import asyncio

from retinue.app.servers import CheckedServer, check_servers, list_servers_in, server_line
from retinue.app.text import indent
from retinue.frontends.cli.project import add_where, folder, warn, write_json

LOOKED_AT_HELP = "the project to look at (default: here)"


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser, LOOKED_AT_HELP)


def execute_list(args: argparse.Namespace) -> int:
    """List the MCP servers that agents of this project may use, with their origins.

    Servers come from `mcpServers` in the settings, the project's .mcp.json, ~/.claude.json, and the
    files of pi and CodingCode. No server is started; the tools are those of its last connection.
    Use them in an agent file by name: mcp__SERVER__TOOL, or mcp__SERVER for all.
    """
    servers = list_servers_in(folder(args.cwd))
    if args.json:
        write_json(servers)
        return 0
    warn(servers.problems)
    for server in servers.servers:
        print(server_line(server))
    if not servers.servers:
        print("No MCP servers. Add one to mcpServers in the settings, or to .mcp.json.")
    return 0


def configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these servers")
    parser.add_argument("--timeout", type=float, metavar="S", default=60.0, help="seconds to wait (default: 60)")
    add_where(parser, LOOKED_AT_HELP)


def execute_check(args: argparse.Namespace) -> int:
    """Start MCP servers, list their tools and stop them, to check that they work.

        retinue servers check                  all that may start
        retinue servers check github --json

    For a server that fails, its last output is printed; the named log file has all of it.
    """
    checked = asyncio.run(check_servers(folder(args.cwd), args.names, args.timeout))
    if args.json:
        write_json(checked)
    else:
        print("\n".join(map(_story, checked.servers)) or "No MCP servers.")
    return int(not all(server.works for server in checked.servers))


def _story(server: CheckedServer) -> str:
    lines = [f"{'✓' if server.works else '✗'} {server.name} ({server.transport}) {server.target}"]
    if server.problem:
        lines.append(f"    {server.problem}")
    if server.log:
        lines.append(f"    log: {server.log}")
    for tool in server.tools:
        first = tool.description.partition("\n")[0]
        lines.append(f"    mcp__{server.name}__{tool.name}  {first[:80]}".rstrip())
    return "\n".join(lines + indent(server.notes, "    note: "))
