"""The source files of a project, and which of them changed since the last look.

Servers keep what they have read. They expect their client to watch the disk and to report changes; agents and their
commands change files all the time, so a look comes before every question.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from retinue.capabilities.lsp.catalog import ServerKind, root_of

MOST_FILES = 50_000
SKIPPED = frozenset(
    ".git .hg .svn .venv venv node_modules target build dist __pycache__ .tox .nox .mypy_cache .ruff_cache "
    ".pytest_cache .idea .gradle .dart_tool .next .nuxt .cache site-packages".split()
)

Change = tuple[Path, Literal[1, 2, 3]]
"""A file that was created (1), changed (2) or deleted (3), in the protocol's numbers."""


class Inventory(Struct):
    """The files of one server's languages below one root. `whole` is False where there are more than `MOST_FILES`."""

    kind: ServerKind
    root: Path
    known: dict[str, tuple[int, int]] | None = None
    whole: bool = True

    def look(self) -> list[Change]:
        """Return what changed since the last look; nothing at the first. Reads the disk: call it in a thread."""
        found: dict[str, tuple[int, int]] = {}
        self.whole = True
        for path, stat in self._files():
            if len(found) >= MOST_FILES:
                self.whole = False
                break
            found[path] = (stat.st_mtime_ns, stat.st_size)
        before, self.known = self.known, found
        if before is None:
            return []
        changes: list[Change] = [(Path(path), 1) for path in found if path not in before]
        changes += [(Path(path), 2) for path, mark in found.items() if before.get(path, mark) != mark]
        # A file that is missing from an incomplete look may just not have been reached.
        if self.whole:
            changes += [(Path(path), 3) for path in before if path not in found]
        return changes

    def paths(self) -> list[Path]:
        """Return the source files as of the last look, in order."""
        names = sorted(self.known or ())
        return [path for path in map(Path, names) if self.kind.handles(path)]

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        for path, entry in walk(self.root):
            if counts(self.kind, entry.name):
                try:
                    if entry.is_file(follow_symlinks=False):
                        yield path, entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # gone meanwhile


def present(kinds: Sequence[ServerKind], workspace: Path, most_roots: int = 8) -> list[tuple[ServerKind, Path]]:
    """Return the projects in a workspace: the servers for its files, each with a root."""
    found: dict[tuple[str, Path], ServerKind] = {}
    for looked, (path, entry) in enumerate(walk(workspace)):
        if looked > MOST_FILES or len(found) >= most_roots:
            break
        for kind in kinds:
            if ends_like(kind, entry.name):
                found.setdefault((kind.name, root_of(kind, Path(path), workspace)), kind)
    return [(kind, root) for (_, root), kind in found.items()]


def walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield everything below `root` that is not a folder, nearest first. Links to folders are not followed."""
    folders = deque([str(root)])
    while folders:
        try:
            with os.scandir(folders.popleft()) as entries:
                for entry in sorted(entries, key=lambda each: each.name):
                    if not entry.is_dir(follow_symlinks=False):
                        yield entry.path, entry
                    elif entry.name not in SKIPPED:
                        folders.append(entry.path)
        except OSError:
            continue  # gone, or not ours to read: the server will see the same


def ends_like(kind: ServerKind, name: str) -> bool:
    return os.path.splitext(name)[1].lower() in kind.languages or name in kind.languages  # noqa: PTH122 - a name


def counts(kind: ServerKind, name: str) -> bool:
    """Return whether a server wants to know of changes of such a file."""
    return ends_like(kind, name) or name in kind.markers
