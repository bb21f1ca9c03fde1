"""What the commands on memories share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.errors import UsageError

if TYPE_CHECKING:
    from retinue.capabilities.memory.store import Merged
    from retinue.core.spec import MemoryScope
    from retinue.guard.safe_folder import Place

SCOPES = ("user", "project", "local")


def add_scope(parser: argparse.ArgumentParser, default: str | None, help: str) -> None:
    parser.add_argument("--scope", choices=SCOPES, default=default, help=help)


def place_of(agent: str, scope: MemoryScope, cwd: Path) -> Place:
    """The folder that Retinue writes. UsageError for a name that cannot be one."""
    from retinue.capabilities.memory.places import own_place

    return own_place(agent, scope, cwd, os.environ)


def usable(place: Place) -> Place:
    """The place itself. UsageError when something in it must not be followed."""
    obstacle = place.obstacle()
    if obstacle is not None:
        raise UsageError(f"This memory cannot be used: {obstacle}.", remedy="Put a real folder there.")
    return place


def merged_data(merged: Merged) -> dict[str, Any]:
    return {"added": list(merged.added), "changed": list(merged.changed), "conflicts": list(merged.conflicts)}


def lines_of(merged: Merged) -> list[str]:
    lines = [f"  added     {path}" for path in merged.added]
    lines += [f"  changed   {path}" for path in merged.changed]
    lines += [f"  conflict  {path}: both versions are kept" for path in merged.conflicts]
    return lines or ["  nothing to do"]
