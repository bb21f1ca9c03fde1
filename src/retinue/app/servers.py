"""The MCP servers that agents of a project may use: list them, and check that they work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from retinue.app.text import clip
from retinue.capabilities.lsp import Languages
from retinue.capabilities.lsp.catalog import server_kinds
from retinue.capabilities.mcp.servers import ProjectPool, is_trusted, pool_options, project_servers
from retinue.cluster import open_project
from retinue.errors import UsageError
from retinue.tools.processes import CannotStartError

if TYPE_CHECKING:
    from retinue.capabilities.mcp.config import ServerConfig
    from retinue.runs.project import Project


class ServerFacts(Struct, frozen=True, kw_only=True):
    """One configured server. `origin` is the file or setting that defines it."""

    name: str
    transport: str
    target: str
    origin: str
    trusted: bool
    problem: str | None


class ServerView(ServerFacts, frozen=True, kw_only=True):
    """A server that was not started. `tools` are those of its last connection."""

    tools: list[str] | None


class ServerList(Struct, frozen=True):
    """The servers that agents of a project may use."""

    servers: list[ServerView]
    problems: Sequence[str]


class CheckedTool(Struct, frozen=True):
    """A tool of a server."""

    name: str
    description: str


class CheckedServer(ServerFacts, frozen=True, kw_only=True):
    """A server that was started. If it failed, `log` is the file with its output."""

    works: bool = False
    tools: Sequence[CheckedTool] = ()
    notes: Sequence[str] = ()
    log: str | UnsetType = UNSET


class CheckedServers(Struct, frozen=True):
    """The servers that were started."""

    servers: list[CheckedServer]


def list_servers(project: Project) -> ServerList:
    """Return the servers of a project and their origins, without starting any."""
    configured = project_servers(project)
    views = []
    for config in configured.servers.values():
        listing = pool_options(project).memory.recall(config.digest) if config.problem is None else None
        tools = None if listing is None else [tool.name for tool in listing.tools]
        views.append(ServerView(**asdict(_facts(config, project)), tools=tools))
    return ServerList(views, configured.problems)


def list_servers_in(cwd: Path) -> ServerList:
    """Open the project at `cwd` and call `list_servers`."""
    return list_servers(open_project(cwd))


def _facts(config: ServerConfig, project: Project) -> ServerFacts:
    return ServerFacts(
        name=config.name,
        transport=config.transport,
        target=config.target,
        origin=config.origin,
        trusted=is_trusted(config, project),
        problem=config.problem,
    )


def server_line(server: ServerView) -> str:
    """Return one server on one line."""
    if server.problem:
        state = server.problem
    elif not server.trusted:
        state = f"not trusted: retinue trust add {server.origin}"
    elif server.tools is None:
        state = "tools not known yet"
    else:
        state = f"{len(server.tools)} tools"
    return f"{server.name:<16} {server.transport:<5} {clip(server.target, 60)} · {state}  ({server.origin})"


async def check_servers(cwd: Path, names: Sequence[str], seconds: float) -> CheckedServers:
    """Start the named servers, or all, list their tools and stop them. Raise UsageError for an unknown name."""
    project = open_project(cwd)
    configs = project_servers(project).servers
    unknown = [name for name in names if name not in configs]
    if unknown:
        configured = ", ".join(configs) or "none"
        raise UsageError(f"There is no MCP server named {', '.join(unknown)}.", remedy=f"There are: {configured}.")
    chosen = [config for name, config in configs.items() if not names or name in names]
    try:
        checks = await asyncio.gather(*(_check(config, project, seconds) for config in chosen))
    finally:
        await project.close()
    return CheckedServers(list(checks))


async def _check(config: ServerConfig, project: Project, seconds: float) -> CheckedServer:
    checked = CheckedServer(**asdict(_facts(config, project)))
    if not checked.trusted:
        return replace(checked, problem=f"it is not trusted: retinue trust add {config.origin}")
    server = project.part(ProjectPool).server(config, (project.cwd,))
    # The listing of an earlier connection must not pass for a current one.
    server.listing = None
    try:
        async with asyncio.timeout(seconds):
            await server.ready()
    except (CannotStartError, TimeoutError) as error:
        why = str(error) or f"it was not ready within {seconds:g} s"
        return replace(checked, problem=why, log=str(server.log_path))
    if not server.listing:
        return replace(checked, works=True)
    tools = [CheckedTool(tool.name, tool.description) for tool in server.listing.tools]
    return replace(checked, works=True, tools=tools, notes=server.listing.problems)


class LanguageServer(Struct, frozen=True):
    """A kind of language server: the path of its program, and for each running or failed instance its folder."""

    name: str
    program: str | None
    running: tuple[str, ...]


def list_language_servers(project: Project) -> list[LanguageServer]:
    """Return the configured kinds. It searches for programs, so call it in a thread."""
    running: dict[str, list[str]] = {}
    for slot in list(project.part(Languages).pool.slots.values()):
        state = f"failed: {slot.broken}" if slot.connection is None and slot.broken else "running"
        if slot.connection is not None or slot.broken:
            running.setdefault(slot.kind.name, []).append(f"{state} in {slot.root}")
    path = project.environment.get("PATH")
    servers = []
    for kind in server_kinds(project.settings.settings.lsp_servers):
        servers.append(LanguageServer(kind.name, kind.program(path), tuple(running.get(kind.name, ()))))
    return servers
