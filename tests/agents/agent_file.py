"""One agent file, read the way a project reads it: through `Retinue(…).agents`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.git_folder import make_git_folder

from retinue import Retinue

FOLDERS = {
    "retinue": ".retinue/agents",
    "claude": ".claude/agents",
    "pi": ".pi/agents",
    "devkit": ".agents",
    "codingcode": ".codingcode/agents",
    "opencode": ".opencode/agents",
    "gemini": ".gemini/agents",
    "copilot": ".github/agents",
    "cursor": ".cursor/agents",
}
"""Where a project has the files of each dialect."""


def read_agent(content: str | bytes, path: str = ".claude/agents/x.md") -> Any:
    """Return what the catalog of a project has of a file at `path`: its `spec`, `problems`, `fates`, or its `error`."""
    with tempfile.TemporaryDirectory(prefix="retinue-agents-") as folder:
        project = Path(folder).resolve() / "project"
        make_git_folder(project)
        file = project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        environment = {"HOME": folder, "RETINUE_HOME": f"{folder}/home", "RETINUE_DISABLE_BUILTIN_AGENTS": "1"}
        catalog = Retinue(project, environment=environment).agents
        (found,) = [each for each in (*catalog.entries, *catalog.failed) if each.path == str(file)]
        return found.parsed
