"""Where runs execute: on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retinue.capabilities import standard_capabilities
from retinue.runs.capability import Capability
from retinue.runs.project import Project


def open_project(cwd: Path, *, innermost: Sequence[Capability] = (), **options: Any) -> Project:
    """Return the project at `cwd` with everything its runs can do. `innermost` are put around tools before all others;
    the other options are those of `Project`."""
    capabilities = standard_capabilities()
    if innermost:
        capabilities = capabilities.with_innermost(innermost)
    return Project(cwd, capabilities=capabilities, **options)
