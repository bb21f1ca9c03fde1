"""What lint says about the MCP servers that an agent's file names: whether they are configured, and
whether the program of each is there. Nothing is started and nobody is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from retinue.agents.lint.keys import nearest
from retinue.capabilities.mcp.config import ServerConfig, find_program, read_server
from retinue.capabilities.mcp.scope import Configured, ServerScope
from retinue.capabilities.mcp.servers import is_trusted, project_servers
from retinue.tools.server_process import CannotStartError

if TYPE_CHECKING:
    from retinue.agents.lint.subject import CheckResult, LintSubject
    from retinue.core.spec import ServerRef
    from retinue.runs.project import Project

_ADD = "Add it to mcpServers in the settings, or to .mcp.json. See: retinue servers list"


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
        for name in ServerScope(spec, None).missing([*configured.servers, *inline]):
            reason = f"The agent requires the MCP server '{name}', which is not configured here: it is refused."
            key = _key(subject, "required_servers")
            yield subject.found("server-not-configured", reason, _ADD, key=key, word=name, severity="error")
        for server in spec.servers or ():
            yield from self._named(subject, server, configured, self._project)

    def _named(
        self, subject: LintSubject, server: ServerRef, configured: Configured, project: Project
    ) -> Iterator[CheckResult]:
        key = _key(subject, "servers")
        if server.config is not None:
            where = subject.parsed.file
            config = read_server(server.name, server.config, project.environment, origin=where, inline=True)
        else:
            config = configured.servers.get(server.name)
        if config is None:
            if server.config is None:
                reason = f"The MCP server '{server.name}' is not configured here: it is left out."
                meant = nearest(server.name, configured.servers)
                remedy = _ADD if meant is None else f"Did you mean '{meant}'?"
                yield subject.found("server-not-configured", reason, remedy, key=key, word=server.name)
            return
        why = config.problem or self._missing_program(config, project)
        if why is not None:
            reason = f"The MCP server '{server.name}' ({config.origin}) cannot be used: {why}."
            yield subject.found("server-unusable", reason, key=key, word=server.name)
        elif not config.inline and not is_trusted(config, project):
            reason = f"The MCP server '{server.name}' does not start: {config.origin} is not trusted."
            remedy = f"Consent with: retinue trust add {config.origin}"
            yield subject.found("server-unusable", reason, remedy, key=key, word=server.name, severity="info")

    def _missing_program(self, config: ServerConfig, project: Project) -> str | None:
        if config.transport != "stdio":
            return None
        try:
            find_program(config, project.cwd, project.environment)
        except CannotStartError as error:
            return str(error)
        return None


def _key(subject: LintSubject, field: str) -> str | None:
    return next(iter(subject.keys_for(field)), None)
