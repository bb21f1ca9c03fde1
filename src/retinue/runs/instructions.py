"""AGENTS.md, CLAUDE.md and what they import: what a project and its user tell every main agent.

Read from the user's own file, then from the repository's root down to the working folder, so
that the nearest has the last word. `@path` on a line outside of code brings in another file, five
deep at most. A file of a project imports only from the project, the user's only from their home:
nobody's AGENTS.md sends a private key to a model. Everything is bounded; what was left out is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.settings.places import home, pi_home, repository_root, retinue_home

NAMES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.local.md", "CLAUDE.local.md")
DEEPEST = 5
LARGEST = 64 * 1024
"""Bytes of all files together."""

_HEAD = """# Instructions of the user and the project
They hold for all your work here; where they differ, the later one holds."""

_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:~/|\.{0,2}/)?[\w./\-~]*[\w\-])")
_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"`[^`]*`")


class _Reading(Struct):
    seen: set[str]
    left: int
    texts: list[str]
    notes: list[str]


def project_instructions(cwd: Path, environment: Mapping[str, str], notes: list[str]) -> str:
    """The block for a main agent's prompt; empty where nobody has written anything. `notes` gets
    what was not taken."""
    reading = _Reading(set(), LARGEST, [], notes)
    house = home(environment)
    for path in _user_files(environment):
        within = house if house in path.parents else path.parent
        if _take(reading, path, within, "the user's instructions for all projects"):
            break
    root = repository_root(cwd)
    for folder in _folders(cwd, root):
        for name in NAMES:
            _take(reading, folder / name, root or folder, "instructions of this project")
    if not reading.texts:
        return ""
    return "\n\n".join([_HEAD, *reading.texts])


def _user_files(environment: Mapping[str, str]) -> Iterator[Path]:
    yield retinue_home(environment) / "AGENTS.md"
    yield home(environment) / ".claude" / "CLAUDE.md"
    yield pi_home(environment) / "AGENTS.md"


def _folders(cwd: Path, root: Path | None) -> list[Path]:
    """From the root down. Without a repository only the nearest folder that has a file, and none
    that someone else could have put there."""
    if root is not None:
        above = [folder for folder in (cwd, *cwd.parents) if folder == root or root in folder.parents]
        return list(reversed(above))
    for folder in (cwd, *cwd.parents):
        if not _own(folder):
            break
        if any((folder / name).is_file() for name in NAMES):
            return [folder]
    return []


def _own(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o002)


def _take(reading: _Reading, path: Path, within: Path, what: str) -> bool:
    text = _text(reading, path, within, 0)
    if not text.strip():
        return False
    safe = text.strip().replace("</instructions_file", "< /instructions_file")
    reading.texts.append(f'<instructions_file path="{path}" kind="{what}">\n{safe}\n</instructions_file>')
    return True


def _text(reading: _Reading, path: Path, within: Path, depth: int) -> str:
    """The text of a file with its imports in place. A file is taken once, by any name."""
    real = os.path.realpath(path)
    if real in reading.seen or not os.path.isfile(real):  # noqa: PTH113 - asked for each place, never raises
        return ""
    if not _below(real, os.path.realpath(within)):
        reading.notes.append(f"{path} is not read: it leads out of {within}")
        return ""
    reading.seen.add(real)
    if reading.left <= 0:
        reading.notes.append(f"{path} is not read: instruction files are longer than {LARGEST // 1024} KB together")
        return ""
    try:
        with open(real, "rb") as file:  # noqa: PTH123 - a regular file, by its resolved name
            data = file.read(reading.left + 1)
    except OSError as error:
        reading.notes.append(f"{path} is not read: {error.strerror}")
        return ""
    if len(data) > reading.left:
        data = data[: reading.left]
        reading.notes.append(f"{path} is cut: instruction files are longer than {LARGEST // 1024} KB together")
    reading.left -= len(data)
    text = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return _with_imports(reading, text, Path(real).parent, within, depth)


def _with_imports(reading: _Reading, text: str, folder: Path, within: Path, depth: int) -> str:
    if "@" not in text or depth >= DEEPEST:
        return text
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        lines.append(line)
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and "@" in line:
            for found in _IMPORT.finditer(_CODE.sub("", line)):
                target = _target(found[1], folder, within)
                inner = _text(reading, target, within, depth + 1) if target is not None else ""
                if inner.strip():
                    lines += [f"[{found[1]}]", inner.strip()]
    return "\n".join(lines)


def _target(written: str, folder: Path, within: Path) -> Path | None:
    """The file an `@word` means, if there is one: most are names of people or packages."""
    path = Path(written.removeprefix("~/")) if written.startswith("~/") else Path(written)
    base = within if written.startswith("~/") else folder
    try:
        full = base / path
        return full if full.is_file() else None
    except (OSError, ValueError):
        return None


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
