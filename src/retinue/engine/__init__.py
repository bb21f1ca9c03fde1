"""Where runs execute: on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue.capabilities import standard_capabilities
from retinue.runs.project import Project


def open_project(cwd: Path, **options: Any) -> Project:
    """Return the project at `cwd` with everything its runs can do. The options are those of `Project`."""
    return Project(cwd, capabilities=standard_capabilities(), **options)
