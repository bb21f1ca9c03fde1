"""Ignored files that a worktree needs all the same: what `.worktreeinclude` names is copied in.

Its syntax is that of .gitignore, because git itself matches it. Only files that git ignores are
copied: the others are in the commit, or are part of the uncommitted changes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from retinue.core.lean import dataclass
from retinue.guard.git import Git, paths


@dataclass(frozen=True, slots=True)
class Included:
    """What was copied, with size and time of each copy, and what could not be."""

    files: dict[str, list[int]]
    notes: tuple[str, ...] = ()


def include(source: Git, target: Path, name: str) -> Included:
    """Copies the ignored files of `source` that its file `name` lists. Links that lead out of the
    checkout are left out: through them the agent would reach what it must not."""
    patterns = source.folder / name
    if not name or patterns.is_symlink() or not patterns.is_file():
        return Included({})
    matching = source("ls-files", "-z", "--others", "--ignored", f"--exclude-from={patterns}")
    ignored = paths(source("ls-files", "-z", "--others", "--ignored", "--exclude-standard")) if matching else []
    known, files, notes = frozenset(ignored), {}, []
    for each in paths(matching):
        if each not in known or each.endswith("/"):
            continue
        try:
            if _copy(source.folder, target, each):
                files[each] = stamp(target / each)
            else:
                notes.append(f"{name}: {each} leads out of the checkout and was not copied")
        except OSError as error:
            notes.append(f"{name}: {each} could not be copied ({error.strerror})")
    return Included(files, tuple(notes))


def keep_out(files: Iterable[str], exclude: Path) -> None:
    """Makes git ignore the copies whatever the worktree's own .gitignore says: the user's may not
    be committed yet, and a secret must not get into a branch because of that."""
    lines = [f"/{_literal(name)}\n" for name in files]
    if lines:
        with exclude.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n# copied in by Retinue\n" + "".join(lines))


def _literal(name: str) -> str:
    """`name` as a pattern that matches nothing else."""
    escaped = "".join(f"\\{letter}" if letter in "\\*?[" else letter for letter in name)
    bare = escaped.rstrip(" ")
    return bare + "\\ " * (len(escaped) - len(bare))


def stamp(path: Path) -> list[int]:
    found = path.lstat()
    return [found.st_size, found.st_mtime_ns]


def changed(files: dict[str, list[int]], folder: Path) -> list[str]:
    """Which of the copies are no longer what they were."""
    return [name for name, known in files.items() if _differs(folder / name, known)]


def _differs(path: Path, known: list[int]) -> bool:
    try:
        return stamp(path) != known
    except OSError:
        return True


def _copy(root: Path, target: Path, name: str) -> bool:
    source, copy = root / name, target / name
    if os.path.commonpath([os.path.realpath(source), os.path.realpath(root)]) != os.path.realpath(root):
        return False
    if source.is_symlink() and source.readlink().is_absolute():
        return False
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, copy, follow_symlinks=False)
    return True
