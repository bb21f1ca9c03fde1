"""The files of the project, for completion: found in a thread, remembered for a moment."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

from retinue.faces.tui.editor.completion import rank

MOST_FILES = 50_000
FRESH_SECONDS = 10.0
PATIENCE_SECONDS = 5.0
_SKIPPED = {".git", "node_modules", "__pycache__", ".venv", ".mypy_cache"}


class Files:
    """Paths relative to `folder`, without what git ignores."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: list[str] = []
        self._at = -FRESH_SECONDS
        self._lock = asyncio.Lock()

    async def like(self, word: str, most: int) -> list[str]:
        async with self._lock:
            if time.monotonic() - self._at > FRESH_SECONDS:
                self._found = await asyncio.to_thread(_listed, self._folder)
                self._at = time.monotonic()
        return await asyncio.to_thread(rank, word.removeprefix("./"), self._found, most)


def _listed(folder: Path) -> list[str]:
    return _known_to_git(folder) or _known_to_ripgrep(folder) or _walked(folder)


def _known_to_git(folder: Path) -> list[str]:
    from retinue.guard.git import Git, GitError

    try:
        listed = Git(folder, os.environ)("ls-files", "-co", "--exclude-standard", seconds=PATIENCE_SECONDS)
    except GitError:
        return []
    return _paths(listed)


def _known_to_ripgrep(folder: Path) -> list[str]:
    if shutil.which("rg") is None:
        return []
    try:
        done = subprocess.run(
            ["rg", "--files"],  # noqa: S607 - the one of the path
            cwd=folder,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return _paths(done.stdout) if done.returncode == 0 else []


def _paths(output: bytes) -> list[str]:
    lines = output.decode("utf-8", "replace").splitlines()[:MOST_FILES]
    return [line for line in lines if not line.startswith('"') and line.isprintable()]


def _walked(folder: Path) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        found += [os.path.relpath(os.path.join(here, name), folder) for name in names if name.isprintable()]  # noqa: PTH118
        if len(found) >= MOST_FILES or time.monotonic() > deadline:
            break
    return found[:MOST_FILES]
