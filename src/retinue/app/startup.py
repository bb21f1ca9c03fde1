"""The files that the main agent of a project starts with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.app.text import plural
from retinue.capabilities.mcp.servers import project_servers
from retinue.capabilities.skills.attach import library_of
from retinue.runs.system_prompt import instruction_files

if TYPE_CHECKING:
    from retinue.runs.project import Project


def what_was_loaded(project: Project) -> tuple[str, ...]:
    """Return what the main agent starts with, in a few words each. It reads files: call it in a thread."""
    parts = [plural(len(project.catalog().agents), "agent")]
    names = [path.name for path in instruction_files(project.cwd, project.environment)]
    if not project.settings.settings.instructions_enabled:
        parts.append("no instructions (setting instructions.enabled)")
    elif names:
        parts.append(", ".join(dict.fromkeys(names)))
    else:
        parts.append("no AGENTS.md or CLAUDE.md")
    servers = project_servers(project).servers
    if servers:
        parts.append(plural(len(servers), "server"))
    library = library_of(project)
    if library is not None and library.all():
        parts.append(plural(len(library.all()), "skill"))
    return tuple(parts)
