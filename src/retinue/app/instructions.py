"""The instruction files and other context that the main agent starts with, and notes that a person adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.app.text import plural
from retinue.capabilities.mcp.servers import project_servers
from retinue.capabilities.skills.attach import library_of
from retinue.core.files import read_text
from retinue.runs.system_prompt import instruction_files as instruction_files
from retinue.runs.system_prompt import user_instruction_files

if TYPE_CHECKING:
    from retinue.runs.project import Project


def what_was_loaded(project: Project) -> tuple[str, ...]:
    """Return the parts of the main agent's context in a few words each. It reads files, so call it in a thread."""
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


def note_files(cwd: Path, environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Return the files that a note can be added to, the project's first, each with a description."""
    shared = cwd / "AGENTS.md"
    if not shared.exists() and (cwd / "CLAUDE.md").exists():
        shared = cwd / "CLAUDE.md"
    local = cwd / shared.name.replace(".md", ".local.md")
    # Only the first existing file of the user is read.
    candidates = list(user_instruction_files(environment))
    own = next((path for path in candidates if path.exists()), candidates[0])
    return [
        (shared, f"{shared.name}: of this project, for all who work on it"),
        (local, f"{local.name}: of this project, for you alone (keep it out of git)"),
        (own, f"{own}: yours, for all projects"),
    ]


def append_note(path: Path, note: str) -> None:
    """Append a line to a file, which is created if necessary."""
    before = read_text(path) if path.exists() else ""
    gap = "" if not before or before.endswith("\n") else "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{before}{gap}- {note}\n", encoding="utf-8")
