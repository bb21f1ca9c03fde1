"""Private folders for confined programs, and the repositories of a workspace that they may write.

The folders lie in the system's temporary folder, below one that only this user may enter. A folder's
name says which process it belongs to, so that the next process finds and removes those of processes
that were killed. `inside/watch.py` says why repositories are looked at after each command.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from functools import cache, lru_cache
from pathlib import Path

from retinue.core.lean import dataclass
from retinue.errors import StateError
from retinue.guard.sandbox.inside.watch import disarm, survey
from retinue.guard.sandbox.policy import existing_paths

_INCLUDED = re.compile(r"^\s*(?:path|hookspath)\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_OUR_SETTINGS = (
    *(".retinue/settings.json", ".retinue/settings.local.json", ".claude/settings.json"),
    *(".claude/settings.local.json", ".mcp.json"),
)


@dataclass(frozen=True, slots=True)
class WritableFolder:
    """A writable folder, with what git acted on in it when it was first looked at."""

    root: str
    known: frozenset[str]
    hook_folders: tuple[str, ...]

    def check(self, since: int) -> list[str]:
        """Put out of the way what was left since then. Return a sentence for each."""
        return disarm(self.root, self.known, since, self.hook_folders)


@lru_cache(maxsize=64)
def workspace(root: str) -> WritableFolder:
    """Look at a folder once per process. What anyone adds later counts as new."""
    named = _named_paths(root)
    hook_folders = tuple(path for path in named if not os.path.isfile(path))  # noqa: PTH113 - quick
    known = survey(root, hook_folders)
    return WritableFolder(root, frozenset((*known, *named)), hook_folders)


def repository_files(root: Path) -> list[str]:
    """Return what in a folder decides which programs git starts, as far as it exists. The settings
    of its own repository are always among them, so that a policy shows that it keeps them."""
    top = os.path.realpath(root)
    found = workspace(top)
    folders = {os.path.dirname(path) for path in found.known if path.endswith("/config")}  # noqa: PTH120 - quick
    more = [f"{folder}/{name}" for folder in folders for name in ("hooks", "info/attributes")]
    return [f"{top}/.git/config", *sorted(found.known), *sorted(more)]


def protected_places(root: Path) -> tuple[Path, ...]:
    """What in a workspace decides over what runs later without being asked: settings and hooks of
    its repositories, and our settings. A policy that keeps them also has new repositories looked
    at after each command (`inside/watch.py`)."""
    ours = existing_paths(str(root), _OUR_SETTINGS)
    return (*map(Path, repository_files(root)), *ours)


def kept_workspaces(writable: list[str], readonly: tuple[Path, ...]) -> list[WritableFolder]:
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


class Scratch:
    """`folder` is what programs may write; `void` holds stand-ins for what is hidden from them."""

    def __init__(self, run_id: str) -> None:
        base = _base()
        _sweep(base)
        own = os.getpid()
        self._place = Path(tempfile.mkdtemp(prefix=f"{run_id[:8]}.{_realm()}.{own}.{_started(own)}.", dir=base))
        self.folder = self._place / "work"
        self.void = self._place / "void"
        self.folder.mkdir(mode=0o700)
        self.void.mkdir(mode=0o700)

    def keep(self, name: str, content: bytes) -> Path:
        """Write something beside the scratch folder, where confined programs cannot change it."""
        path = self._place / name
        path.write_bytes(content)
        return path

    def remove(self) -> None:
        """Remove the folder; safe to call twice. Folders that a program made unreadable are opened first."""
        _remove(self._place)


@cache
def _base() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    base = Path(os.path.realpath(tempfile.gettempdir())) / f"retinue-{user}"
    base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or stat.S_IMODE(found.st_mode) & 0o077:
        raise StateError(
            f"{base} is not a private folder of this user.",
            remedy="Someone else made it, or its mode was changed. Remove it, or set TMPDIR to another folder.",
        )
    return base


@cache
def _sweep(base: Path) -> None:
    """Remove what dead processes left, once per process."""
    for entry in base.iterdir():
        parts = entry.name.split(".")
        if len(parts) == 5 and parts[1] == _realm() and parts[2].isdigit() and _started(int(parts[2])) != parts[3]:
            _remove(entry)


def _realm() -> str:
    """Where process numbers mean the same: containers may share the folder, not the numbers."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _started(pid: int) -> str:
    """When a process began, as the kernel counts it; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _remove(place: Path) -> None:
    def force(function: object, path: str, error: object) -> None:
        """A folder without rights: its owner may give them back."""
        for folder in (Path(path).parent, Path(path)):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o700)

    for _ in range(3):
        if not os.path.lexists(place):
            return
        shutil.rmtree(place, onerror=force)
