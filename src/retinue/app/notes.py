"""Notes of a person in instruction files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retinue.core.files import read_text
from retinue.runs.system_prompt import instruction_files as instruction_files
from retinue.runs.system_prompt import user_instruction_files


def note_files(cwd: Path, environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    """Return the files that a note can go into, the one of the project first, each with words for the list."""
    shared = cwd / "AGENTS.md"
    if not shared.exists() and (cwd / "CLAUDE.md").exists():
        shared = cwd / "CLAUDE.md"
    local = cwd / shared.name.replace(".md", ".local.md")
    # Of the user's files only the first that exists is read.
    candidates = list(user_instruction_files(environment))
    own = next((path for path in candidates if path.exists()), candidates[0])
    return [
        (shared, f"{shared.name}: of this project, for all who work on it"),
        (local, f"{local.name}: of this project, for you alone (keep it out of git)"),
        (own, f"{own}: yours, for all projects"),
    ]


def append_note(path: Path, note: str) -> None:
    """Add a line to a file, which is made if there is none."""
    before = read_text(path) if path.exists() else ""
    gap = "" if not before or before.endswith("\n") else "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{before}{gap}- {note}\n", encoding="utf-8")
