"""The repositories of a workspace that a confined program may write: what stays as it is, and what
is looked at after each command. `inside/repositories.py` says why."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from retinue.core.lean import dataclass
from retinue.guard.sandbox.inside.repositories import disarm, survey

_INCLUDED = re.compile(r"^\s*(?:path|hookspath)\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Workspace:
    """A writable folder, with what git acted on in it when it was first looked at."""

    root: str
    known: frozenset[str]
    hook_folders: tuple[str, ...]

    def check(self, since: int) -> list[str]:
        """Put out of the way what was left since then. Return a sentence for each."""
        return disarm(self.root, self.known, since, self.hook_folders)


@lru_cache(maxsize=64)
def workspace(root: str) -> Workspace:
    """Look at a folder once per process. What is added later is new, whoever added it."""
    named = _named_paths(root)
    hook_folders = tuple(path for path in named if not os.path.isfile(path))  # noqa: PTH113 - quick
    known = survey(root, hook_folders)
    return Workspace(root, frozenset((*known, *named)), hook_folders)


def repository_files(root: Path) -> list[str]:
    """Return what in a folder decides which programs git starts, as far as it exists. The settings
    of its own repository are always among them, so that a policy shows that it keeps them."""
    top = os.path.realpath(root)
    found = workspace(top)
    folders = {os.path.dirname(path) for path in found.known if path.endswith("/config")}  # noqa: PTH120 - quick
    more = [f"{folder}/{name}" for folder in folders for name in ("hooks", "info/attributes")]
    return [f"{top}/.git/config", *sorted(found.known), *sorted(more)]


def kept_workspaces(writable: list[str], readonly: tuple[Path, ...]) -> list[Workspace]:
    """Return the writable folders whose repositories a policy keeps as they are."""
    kept = {os.path.realpath(path) for path in readonly if path.name == "config"}
    return [workspace(root) for root in writable if f"{root}/.git/config" in kept]


def _named_paths(root: str) -> list[str]:
    """Files and folders of the workspace that its own settings lead to: includes, folders of hooks."""
    try:
        text = Path(root, ".git", "config").read_text(errors="replace")
    except OSError:
        return []
    found = []
    for value in _INCLUDED.findall(text):
        name = value.strip('"')
        for base in (f"{root}/.git", root):  # includes start at the file, folders of hooks at the top
            path = os.path.realpath(os.path.join(base, name))  # noqa: PTH118 - an absolute name wins
            if path.startswith(root + "/"):
                found.append(path)
    return found
