from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from retinue.faces.cli.task import folder

if TYPE_CHECKING:
    from retinue.capabilities.mcp.config import ServerConfig
    from retinue.runs.world import World


def configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="the project to look at (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute_list(args: argparse.Namespace) -> int:
    """List the MCP servers that agents of this project may use, and who brought each.

    Servers come from `mcpServers` in the settings, the project's .mcp.json, ~/.claude.json, and the
    files of pi and CodingCode. Nothing is started; tools are those that a server had when it was
    last connected. Use them in an agent file by name: mcp__SERVER__TOOL, or mcp__SERVER for all.
    """
    from retinue.capabilities.mcp.servers import project_servers
    from retinue.runs.world import World

    world = World(folder(args.cwd))
    found = project_servers(world)
    servers = [describe(config, world) for config in found.servers.values()]
    if args.json:
        print(json.dumps({"servers": servers, "problems": list(found.problems)}, ensure_ascii=False, indent=2))
        return 0
    for problem in found.problems:
        print(f"warning: {problem}", file=sys.stderr)
    for server in servers:
        print(line(server))
    if not servers:
        print("No MCP servers. Add one to mcpServers in the settings, or to .mcp.json.")
    return 0


def describe(config: ServerConfig, world: World) -> dict[str, Any]:
    """What is known of a server without starting it."""
    from retinue.capabilities.mcp.servers import habits_of, is_trusted

    known = habits_of(world).memory.recall(config.digest) if config.problem is None else None
    trusted = is_trusted(config, world)
    return {
        "name": config.name,
        "transport": config.transport,
        "target": config.target,
        "origin": config.origin,
        "trusted": trusted,
        "problem": config.problem,
        "tools": [tool.name for tool in known.tools] if known is not None else None,
    }


def line(server: dict[str, Any]) -> str:
    state = server["problem"] or ("" if server["trusted"] else f"not trusted: retinue trust add {server['origin']}")
    tools = "tools not known yet" if server["tools"] is None else f"{len(server['tools'])} tools"
    target = server["target"] if len(server["target"]) <= 60 else f"{server['target'][:59]}…"
    parts = [f"{server['name']:<16} {server['transport']:<5} {target}", state or tools, f"({server['origin']})"]
    return " · ".join(parts[:2]) + f"  {parts[2]}"
