"""The configured servers of a project: which a run may use, which need consent, and the lint checks for them.

Lint only checks whether the servers that an agent's file names are configured and their programs exist. It starts
and calls none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.capabilities.mcp import ServerScope
from retinue.capabilities.mcp.config import Configured, ServerConfig, configured_servers, read_server
from retinue.capabilities.mcp.connection import PoolOptions
from retinue.capabilities.mcp.pool import Server, loop_pool
from retinue.capabilities.mcp.tool_list import ListingCache
from retinue.capabilities.mcp.transport import find_program
from retinue.core.files import read_file
from retinue.core.request import RunRequest
from retinue.core.spelling import nearest
from retinue.core.tool_names import served_word
from retinue.errors import LaunchError
from retinue.guard.trust import TrustSubject, describe_program
from retinue.settings.foreign import parse_object
from retinue.settings.places import retinue_state
from retinue.tools.processes import CannotStartError

if TYPE_CHECKING:
    from retinue.agents.lint.subject import CheckResult, LintSubject
    from retinue.core.spec import ServerRef
    from retinue.runs.project import Project


_SETTINGS_FILES = ("settings.json", "settings.local.json")
_MAX_START_SECONDS = 120.0
"""The limit for the start of a server, also when no run waits for it."""


def project_servers(project: Project) -> Configured:
    """Return every server that is configured in the project."""
    configured: Configured | None = project.round.get("servers")
    if configured is None:
        settings = project.settings.settings
        configured = configured_servers(
            project.cwd,
            project.environment,
            settings=settings.mcp_servers,
            origin=lambda name: settings.origin(f"mcp_servers.{name}"),
            claude=settings.mcp_claude_servers,
            extra=project.extensions.servers(),
            foreign_environment=_foreign_environment(project),
        )
        project.round.keep("servers", configured)
    return configured


def _foreign_environment(project: Project) -> Mapping[str, str] | None:
    """Return the variables that servers of a sender may use on a worker, without secrets; None elsewhere."""
    return None if project.allowed is None else project.tool_environment


def choose_servers(
    request: RunRequest, project: Project, scope: ServerScope, notes: list[str]
) -> tuple[ServerConfig, ...]:
    """Return the servers of a run. Raise LaunchError when one that it requires cannot be among them."""
    spec = request.spec
    configured = project_servers(project)
    # Once for a tree of runs.
    if request.parent_id is None:
        notes += configured.problems
    chosen = {name: config for name, config in configured.servers.items() if scope.wants(name)}
    for server in spec.servers or ():
        if server.config is not None:
            foreign = None if spec.provenance == "person" else _foreign_environment(project)
            variables = project.environment if foreign is None else foreign
            origin, provenance = spec.path or f"agent {spec.name}", spec.provenance
            inline = read_server(
                server.name, server.config, variables, origin=origin, provenance=provenance, inline=True
            )
            # Untrusted parts were removed from the definition of the agent before.
            if inline is not None and project.trust.trusts(spec, "servers"):
                chosen[server.name] = inline
        elif server.name not in configured.servers:
            notes.append(f"MCP server '{server.name}' is not configured: it is left out.")
    missing = scope.missing(chosen)
    if missing:
        raise LaunchError(
            f"The agent '{spec.name}' requires MCP servers that are not configured here: {', '.join(missing)}.",
            remedy="Add them to mcpServers in the settings, or to .mcp.json. See: retinue servers list",
        )
    usable: dict[str, ServerConfig] = {}
    for config in chosen.values():
        if not _may_start(config, project, scope, spec.name, notes):
            continue
        first = usable.setdefault(served_word(config.name), config)
        if first is not config:
            same = f"its tools would have the names of those of '{first.name}'"
            notes.append(f"MCP server '{config.name}' is left out: {same}. Rename one of them.")
    return tuple(usable.values())


def is_trusted(config: ServerConfig, project: Project) -> bool:
    """Return whether a configured server may start; consent to an inline one is part of the consent to its agent."""
    return config.inline or project.trust.permits("servers", config.provenance, Path(config.origin))


def server_subjects(project: Project) -> list[TrustSubject]:
    """Return the files of the project that configure servers, as subjects of consent."""
    brought: dict[str, list[ServerConfig]] = {}
    for config in project_servers(project).servers.values():
        # Consent to a settings file as a whole is asked for elsewhere.
        if config.provenance == "project" and Path(config.origin).name not in _SETTINGS_FILES:
            brought.setdefault(config.origin, []).append(config)
    subjects = []
    for origin, servers in brought.items():
        with suppress(OSError):
            content = read_file(origin)
            lines = _describe(servers, parse_object(content)[0])
            subjects.append(TrustSubject(Path(origin), (content,), lines))
    return subjects


def _describe(servers: Sequence[ServerConfig], data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each server of a file, including one that another file overrides now. A file contains the names
    of variables, not their values, so no value is shown."""
    tables = [table for key in ("mcpServers", "servers") if isinstance(table := data.get(key), Mapping)]
    entries = [(str(name), entry) for table in tables for name, entry in table.items() if isinstance(entry, Mapping)]
    names = {name for name, _ in entries}
    lines = [f"MCP server {name}: {describe_program(entry)}" for name, entry in entries]
    lines += [f"MCP server {config.name}: {config.target}" for config in servers if config.name not in names]
    return tuple(lines)


class ProjectPool:
    """The servers of this event loop that a project uses. Unused ones are ended when the project closes."""

    def __init__(self, project: Project) -> None:
        self._pool = loop_pool()
        self._options = pool_options(project)
        project.closing.push_async_callback(self._pool.close_unused)

    def server(self, config: ServerConfig, roots: tuple[Path, ...], owner: str = "") -> Server:
        """Return the server of that configuration, only for `owner` if that is not empty."""
        return self._pool.server(config, self._options, roots, owner)


def pool_options(project: Project) -> PoolOptions:
    state, settings = retinue_state(project.environment), project.settings.settings
    return PoolOptions(
        cwd=project.cwd,
        environment=project.environment,
        logs=state / "logs" / "mcp",
        memory=ListingCache(state / "cache" / "mcp"),
        redact=project.redactor,
        start_seconds=max(_MAX_START_SECONDS, settings.mcp_start_timeout_seconds),
    )


def _may_start(config: ServerConfig, project: Project, scope: ServerScope, agent: str, notes: list[str]) -> bool:
    why = config.problem
    if why is None and not is_trusted(config, project):
        why = f"{config.origin} is not trusted. {project.trust.remedy('servers', config.origin)}"
    if why is None:
        return True
    if scope.requires(config.name):
        raise LaunchError(
            f"The agent '{agent}' requires the MCP server '{config.name}', which cannot be used: {why}",
            remedy=f"See what is wrong with: retinue servers check {config.name}",
        )
    notes.append(f"MCP server '{config.name}' cannot be used: {why}")
    return False


_ADD_SERVER_REMEDY = "Add it to mcpServers in the settings, or to .mcp.json. See: retinue servers list"


class ServerLint:
    """A check for `lint_paths` and `lint_catalog`. The configuration of the project is read when the
    first file names a server."""

    def __init__(self, open_project: Callable[[], Project]) -> None:
        self._open_project = open_project
        self._project: Project | None = None

    def __call__(self, subject: LintSubject) -> Iterator[CheckResult]:
        spec = subject.parsed.spec
        if spec is None or spec.isolated or not (spec.servers or spec.required_servers):
            return
        if self._project is None:
            self._project = self._open_project()
        configured = project_servers(self._project)
        inline = [server.name for server in spec.servers or () if server.config is not None]
        for name in ServerScope(spec, None).missing((*configured.servers, *inline)):
            reason = f"The agent requires the MCP server '{name}', which is not configured here: it is refused."
            yield subject.report(
                "server-not-configured",
                reason,
                _ADD_SERVER_REMEDY,
                field="required_servers",
                word=name,
                severity="error",
            )
        for server in spec.servers or ():
            yield from self._named(subject, server, configured, self._project)

    def _named(
        self, subject: LintSubject, server: ServerRef, configured: Configured, project: Project
    ) -> Iterator[CheckResult]:
        key = subject.key_for("servers")
        if server.config is not None:
            file, environment = subject.parsed.file, project.environment
            config = read_server(
                server.name, server.config, environment, origin=file, provenance="project", inline=True
            )
        else:
            config = configured.servers.get(server.name)
        if config is None and server.config is None:
            reason = f"The MCP server '{server.name}' is not configured here: it is left out."
            meant = nearest(server.name, configured.servers)
            remedy = _ADD_SERVER_REMEDY if meant is None else f"Did you mean '{meant}'?"
            yield subject.report("server-not-configured", reason, remedy, key=key, word=server.name)
        if config is None:
            return
        why = config.problem
        if why is None and config.transport == "stdio":
            try:
                find_program(config, project.cwd, project.environment)
            except CannotStartError as error:
                why = str(error)
        if why is not None:
            reason = f"The MCP server '{server.name}' ({config.origin}) cannot be used: {why}."
            yield subject.report("server-unusable", reason, key=key, word=server.name)
        elif not is_trusted(config, project):
            reason = f"The MCP server '{server.name}' does not start: {config.origin} is not trusted."
            remedy = f"Consent with: retinue trust add {config.origin}"
            yield subject.report("server-unusable", reason, remedy, key=key, word=server.name, severity="info")
