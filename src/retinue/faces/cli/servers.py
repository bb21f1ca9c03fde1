"""`retinue servers list` and `servers check`."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError
from retinue.faces.cli.project import add_cwd, add_json, folder, warn, write_json
from retinue.faces.text import clip, indent

if TYPE_CHECKING:
    from retinue.capabilities.mcp.config import ServerConfig
    from retinue.runs.project import Project


LOOK_AT = "the project to look at (default: here)"


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_cwd(parser, LOOK_AT)
    add_json(parser, "print one JSON document")


def execute_list(args: argparse.Namespace) -> int:
    """List the MCP servers that agents of this project may use, and who brought each.

    Servers come from `mcpServers` in the settings, the project's .mcp.json, ~/.claude.json, and the
    files of pi and CodingCode. Nothing is started; tools are those that a server had when it was
    last connected. Use them in an agent file by name: mcp__SERVER__TOOL, or mcp__SERVER for all.
    """
    from retinue.capabilities.mcp.servers import project_servers
    from retinue.engine import open_project

    project = open_project(folder(args.cwd))
    found = project_servers(project)
    servers = [describe(config, project) for config in found.servers.values()]
    if args.json:
        write_json({"servers": servers, "problems": list(found.problems)})
        return 0
    warn(found.problems)
    for server in servers:
        print(line(server))
    if not servers:
        print("No MCP servers. Add one to mcpServers in the settings, or to .mcp.json.")
    return 0


def describe(config: ServerConfig, project: Project) -> dict[str, Any]:
    """Return what is known of a server without starting it."""
    from retinue.capabilities.mcp.servers import is_trusted, pool_options

    tools = None
    if config.problem is None:
        known = pool_options(project).memory.recall(config.digest)
        if known is not None:
            tools = [tool.name for tool in known.tools]
    return {
        "name": config.name,
        "transport": config.transport,
        "target": config.target,
        "origin": config.origin,
        "trusted": is_trusted(config, project),
        "problem": config.problem,
        "tools": tools,
    }


def line(server: dict[str, Any]) -> str:
    if server["problem"]:
        state = server["problem"]
    elif not server["trusted"]:
        state = f"not trusted: retinue trust add {server['origin']}"
    elif server["tools"] is None:
        state = "tools not known yet"
    else:
        state = f"{len(server['tools'])} tools"
    target = clip(server["target"], 60)
    return f"{server['name']:<16} {server['transport']:<5} {target} · {state}  ({server['origin']})"


def configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these servers")
    parser.add_argument("--timeout", type=float, metavar="S", default=60.0, help="seconds to wait (default: 60)")
    add_cwd(parser, LOOK_AT)
    add_json(parser, "print one JSON document")


def execute_check(args: argparse.Namespace) -> int:
    """Start MCP servers, list their tools and stop them again: whether they work, and what they offer.

    retinue servers check                  all that may start
    retinue servers check github --json

    A server that does not work is shown with what it said last; all of it is in the named log file.
    """
    from retinue.capabilities.mcp.servers import project_servers
    from retinue.engine import open_project

    project = open_project(folder(args.cwd))
    known = project_servers(project).servers
    unknown = [name for name in args.names if name not in known]
    if unknown:
        names = ", ".join(known) or "none"
        raise UsageError(f"There is no MCP server named {', '.join(unknown)}.", remedy=f"There are: {names}.")
    configs = [config for name, config in known.items() if not args.names or name in args.names]
    found = asyncio.run(_check(configs, project, args.timeout))
    if args.json:
        write_json({"servers": found})
    else:
        print("\n".join(map(_story, found)) or "No MCP servers.")
    return int(not all(server["works"] for server in found))


async def _check(configs: list[ServerConfig], project: Project, seconds: float) -> list[dict[str, Any]]:
    try:
        return list(await asyncio.gather(*(_try(config, project, seconds) for config in configs)))
    finally:
        await project.close()


async def _try(config: ServerConfig, project: Project, seconds: float) -> dict[str, Any]:
    from retinue.capabilities.mcp.pool import loop_pool
    from retinue.capabilities.mcp.servers import is_trusted, pool_options
    from retinue.tools.processes import CannotStartError

    told = {**describe(config, project), "works": False, "tools": [], "notes": []}
    if not is_trusted(config, project):
        return {**told, "problem": f"it is not trusted: retinue trust add {config.origin}"}
    options = pool_options(project)
    server = loop_pool().server(config, options, (project.cwd,))
    # What the server offered when it was last connected must not pass for an answer of today.
    server.listing = None
    try:
        async with asyncio.timeout(seconds):
            await server.ready()
    except (CannotStartError, TimeoutError) as error:
        why = str(error) or f"it was not ready within {seconds:g} s"
        return {**told, "problem": why, "log": str(server.log_path)}
    found = server.listing
    if not found:
        return {**told, "works": True}
    tools = [{"name": tool.name, "description": tool.description} for tool in found.tools]
    return {**told, "works": True, "tools": tools, "notes": list(found.problems)}


def _story(server: dict[str, Any]) -> str:
    mark = "✓" if server["works"] else "✗"
    lines = [f"{mark} {server['name']} ({server['transport']}) {server['target']}"]
    if server["problem"]:
        lines.append(f"    {server['problem']}")
    if server.get("log"):
        lines.append(f"    log: {server['log']}")
    for tool in server["tools"]:
        first = tool["description"].partition("\n")[0]
        lines.append(f"    mcp__{server['name']}__{tool['name']}  {first[:80]}".rstrip())
    return "\n".join(lines + indent(server["notes"], "    note: "))
