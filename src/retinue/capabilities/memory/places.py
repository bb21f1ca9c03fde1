"""Where memories lie: Retinue's own folders, which are written, and those of others, which are read.

scope    ours                                       others, in this order
project  PROJECT/.retinue/agent-memory/NAME         .claude, .pi of the project
local    PROJECT/.retinue/agent-memory-local/NAME   .claude, .pi of the project
user     RETINUE_HOME/agent-memory/NAME             ~/.claude, pi's folder, or pi's old one
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from retinue.core.spec import MemoryScope
from retinue.errors import UsageError
from retinue.guard.safe_folder import Place
from retinue.settings.load import project_folder
from retinue.settings.places import home, pi_home, retinue_home

SCOPES: tuple[MemoryScope, ...] = ("user", "project", "local")
INDEX = "MEMORY.md"

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FOLDERS: Mapping[MemoryScope, str] = {
    "user": "agent-memory",
    "project": "agent-memory",
    "local": "agent-memory-local",
}


def is_safe(name: str) -> bool:
    """Whether `name` can be one folder and nothing else, on every system."""
    return _SAFE.fullmatch(name) is not None


def check_name(name: str) -> str:
    """`name` itself. Raises UsageError for one that could lead anywhere else."""
    if is_safe(name):
        return name
    shown = "".join(letter if letter.isprintable() else "?" for letter in name[:40])
    raise UsageError(
        f"An agent called '{shown}' can have no memory: the name cannot be a folder.",
        remedy="Use letters, digits, '-', '_' and '.', beginning with a letter or digit, at most 128.",
    )


def own_place(name: str, scope: MemoryScope, cwd: Path, environment: Mapping[str, str]) -> Place:
    """The folder that is written. Raises UsageError for an unsafe name."""
    root = retinue_home(environment) if scope == "user" else project_folder(cwd, environment)
    base, names = (root, ()) if scope == "user" else (root.parent, (root.name,))
    return Place(base, (*names, _FOLDERS[scope], check_name(name)), private=scope == "user")


def other_places(name: str, scope: MemoryScope, cwd: Path, environment: Mapping[str, str]) -> tuple[Place, ...]:
    """The folders of other systems in which this agent has a memory. Raises UsageError as above."""
    check_name(name)
    return tuple(place for place in _others(name, scope, cwd, environment) if place.exists())


def _others(name: str, scope: MemoryScope, cwd: Path, environment: Mapping[str, str]) -> Iterator[Place]:
    folder = _FOLDERS[scope]
    if scope != "user":
        project = project_folder(cwd, environment).parent
        for base in dict.fromkeys((project, cwd)):
            yield Place(base, (".claude", folder, name))
            yield Place(base, (".pi", folder, name))
        return
    house = home(environment)
    yield Place(house, (".claude", folder, name))
    modern = Place(pi_home(environment), (folder, name))
    yield modern
    if not modern.path.exists():  # the place that pi used before counts only without the new one
        yield Place(house, (".pi", folder, name))


def remembered(scope: MemoryScope, cwd: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of all agents that have a memory of Retinue's in this scope."""
    example = own_place("x", scope, cwd, environment)
    above = Place(example.base, example.names[:-1])
    try:
        names = [entry.name for entry in above.path.iterdir()] if above.exists() else []
    except OSError:
        return ()
    return tuple(sorted(n for n in names if is_safe(n) and own_place(n, scope, cwd, environment).exists()))
