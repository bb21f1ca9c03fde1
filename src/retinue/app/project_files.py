"""Files of a project that match typed letters. They are listed in a thread and cached briefly."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from retinue.core.programs import TimeoutExpired, prepare, run
from retinue.guard.git import Git, GitError
from retinue.tools.content import is_image_file as is_image_file
from retinue.tools.read import MAX_IMAGE_BYTES as MAX_IMAGE_BYTES

MAX_MATCHES = 8


def rank(word: str, names: Iterable[str], most: int = MAX_MATCHES) -> list[str]:
    """Return the matching names, best first: names that begin with the word, whose last part does, that contain it,
    that contain its letters in order. Shorter names come first."""
    if not word:
        return sorted(names, key=lambda name: (name.rstrip("/").count("/"), name))[:most]
    low = word.lower()
    scored = [(score, len(name), name) for name in names if (score := _score(low, name.lower())) is not None]
    return [name for _, _, name in sorted(scored)[:most]]


def _score(word: str, name: str) -> int | None:
    if name.startswith(word):
        return 0
    if name.rstrip("/").rpartition("/")[2].startswith(word):
        return 1
    if word in name:
        return 2
    letters = iter(name)
    return 3 if all(sign in letters for sign in word) else None


MAX_LISTED_FILES = 50_000
FRESH_SECONDS = 10.0
LISTING_SECONDS = 5.0
_UNLISTED_FOLDERS = {".git", "node_modules", "__pycache__", ".venv", ".mypy_cache"}


class ProjectFiles:
    """Paths relative to `folder`, without those that git ignores."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: list[str] = []
        self._at = -FRESH_SECONDS
        self._lock = asyncio.Lock()

    async def like(self, word: str, most: int) -> list[str]:
        # One listing at a time, however fast someone types.
        async with self._lock:
            if time.monotonic() - self._at > FRESH_SECONDS:
                self._found = await asyncio.to_thread(_listed, self._folder)
                self._at = time.monotonic()
        return await asyncio.to_thread(rank, word.removeprefix("./"), self._found, most)


def _listed(folder: Path) -> list[str]:
    """Return all files, and their folders, which end with a slash."""
    files = _known_to_git(folder) or _known_to_ripgrep(folder) or _walked(folder)
    folders = {f"{parent}/" for path in files for parent in _parents(path)}
    return [*files, *folders]


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _known_to_git(folder: Path) -> list[str]:
    try:
        listed = Git(folder, os.environ)("ls-files", "-co", "--exclude-standard", seconds=LISTING_SECONDS)
    except GitError:
        return []
    return _paths(listed)


def _known_to_ripgrep(folder: Path) -> list[str]:
    if shutil.which("rg") is None:
        return []
    try:
        program = prepare(["rg", "--no-config", "--files"], clearance="own", environment=os.environ, cwd=folder)
        done = run(program, seconds=LISTING_SECONDS)
    except (OSError, TimeoutExpired):
        return []
    return _paths(done.stdout) if done.returncode == 0 else []


def _paths(output: bytes) -> list[str]:
    lines = output.decode("utf-8", "replace").splitlines()[:MAX_LISTED_FILES]
    # Git quotes names with unusual characters, which could not be typed or read here.
    return [line for line in lines if not line.startswith('"') and line.isprintable()]


def _walked(folder: Path) -> list[str]:
    paths: list[str] = []
    deadline = time.monotonic() + LISTING_SECONDS
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _UNLISTED_FOLDERS]
        paths += [os.path.relpath(os.path.join(here, name), folder) for name in names if name.isprintable()]  # noqa: PTH118
        if len(paths) >= MAX_LISTED_FILES or time.monotonic() > deadline:
            break
    return paths[:MAX_LISTED_FILES]
