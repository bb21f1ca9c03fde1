"""Looking at a workspace: which files are there, what is new, and the snapshot that results.

All of it blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from retinue.capabilities.audit.shadow import CheckpointError, RootSnapshot, Shadow
from retinue.settings.places import repository_root

_MANY = 100
"""From this many new files on, one pack takes them all, instead of a file for each: the first
checkpoint of a project is eight times faster."""


class ScannedRoot:
    """One root as one run sees it: with an index of its own, begun from the last one anybody
    had of this root, so that only what is new has to be read."""

    def __init__(self, shadow: Shadow, root: Path, run_id: str) -> None:
        self.root = repository_root(root) or root
        self._shadow = shadow
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        self._base = shadow.folder / "index" / f"base-{name}"
        self._index = shadow.folder / "index" / f"{run_id}-{name}"
        self._lock = threading.Lock()
        self._known = ""

    def snapshot(self, also: Iterable[str] = ()) -> RootSnapshot:
        """Return the root as it is now. `also` are paths to keep although git ignores them."""
        with self._lock:
            self._shadow.open()
            if not self._index.exists() and self._base.exists():
                with suppress(OSError):
                    shutil.copy2(self._base, self._index)
            return self._take(also)

    def close(self) -> None:
        """Leave the index of a run that is over to the next one, unless the run's worktree is removed as well."""
        with self._lock, suppress(OSError):
            if self._shadow.folder.parent / "worktrees" in self.root.parents:
                self._index.unlink()
            else:
                self._index.replace(self._base)

    def _take(self, also: Iterable[str]) -> RootSnapshot:
        by_letter = self._scan()
        tracked = by_letter.get("H", set()) | by_letter.get("S", set())
        gone = by_letter.get("R", set())
        news = (by_letter.get("C", set()) | by_letter.get("?", set())) - gone
        above = str(self.root).rstrip("/") + "/"
        for path in also:
            below = path.removeprefix(above)
            if below != path and below not in tracked and os.path.lexists(path):
                news.add(below)
        small, large = self._sized(news)
        if len(tracked) + len(small) > self._shadow.limits.files:
            raise CheckpointError(f"the workspace has more than {self._shadow.limits.files:,} files")
        drop = gone | (large & tracked)
        if small or drop:
            # --force-remove is for files that are still there but have grown too large.
            if large & tracked:
                self._git(["update-index", "-z", "--force-remove", "--stdin"], _join(large & tracked))
            command = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]
            if len(small) > _MANY:
                # git writes files above the threshold straight into one pack.
                command[:0] = ["-c", "core.bigFileThreshold=1"]
            self._git(command, _join(small | gone))
            self._known = ""
        if not self._known:
            self._known = self._git(["write-tree"]).decode().strip()
        paths_now = (tracked | small) - drop
        usual, modes = _permissions(self.root, paths_now)
        folders = _parents(paths_now) | self._empty_folders()
        return RootSnapshot(str(self.root), self._known, usual, modes, folders, tuple(sorted(large)))

    def _scan(self) -> dict[str, set[str]]:
        """Return every path by git's letter for it: H known, C changed, R gone, ? new."""
        listed = self._git(["ls-files", "-t", "-z", "-c", "-m", "-d", "-o", *self._exclusions()])
        found: dict[str, set[str]] = {}
        for line in listed.split(b"\0"):
            # Git lists a folder where another repository begins.
            if line and not line.endswith(b"/"):
                found.setdefault(chr(line[0]), set()).add(os.fsdecode(line[2:]))
        return found

    def _exclusions(self) -> list[str]:
        said = ["--exclude-standard"]
        own = self.root / ".git" / "info" / "exclude"
        if own.is_file():
            said.append(f"--exclude-from={own}")
        for ours in (self._shadow.folder, self._shadow.folder.parent):
            with suppress(ValueError):
                said.append(f"--exclude=/{_quote(ours.relative_to(self.root).as_posix())}/")
        return said

    def _empty_folders(self) -> set[str]:
        listed = self._git(["ls-files", "-z", "-o", "--directory", *self._exclusions()])
        found: set[str] = set()
        for line in listed.split(b"\0"):
            if not line.endswith(b"/"):
                continue
            top = os.fsdecode(line).rstrip("/")
            inner = []
            empty = True
            for folder, _, names in os.walk(self.root / top):
                inner.append(os.path.relpath(folder, self.root))
                empty = empty and not names
            if empty:
                found.update(inner)
                found.update(_parents(inner))
        return found

    def _sized(self, paths: set[str]) -> tuple[set[str], set[str]]:
        """Return the files that are kept and those that are too large. What is no file is neither."""
        small: set[str] = set()
        large: set[str] = set()
        for path in paths:
            try:
                found = os.lstat(self.root / path)
            except OSError:
                continue
            if stat.S_ISLNK(found.st_mode):
                small.add(path)
            elif not stat.S_ISREG(found.st_mode):
                continue
            elif found.st_size > self._shadow.limits.file_bytes:
                large.add(path)
            elif os.access(self.root / path, os.R_OK):
                # A file that git cannot read would fail the whole checkpoint.
                small.add(path)
        return small, large

    def _git(self, arguments: list[str], given: bytes = b"") -> bytes:
        return self._shadow.git(arguments, root=self.root, index=self._index, given=given)


def _join(paths: set[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))


def _quote(path: str) -> str:
    return "".join(f"\\{char}" if char in "*?[\\!#" else char for char in path)


def _parents(paths: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(found)


def _permissions(root: Path, paths: Iterable[str]) -> tuple[tuple[int, int], dict[str, int]]:
    """Return the permission bits that most plain files and most programs have, and the exceptions."""
    plain: Counter[int] = Counter()
    programs: Counter[int] = Counter()
    every: list[tuple[str, int]] = []
    before = str(root).rstrip("/") + "/"
    for path in paths:
        try:
            mode = os.lstat(before + path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode):
            bits = stat.S_IMODE(mode)
            every.append((path, bits))
            counter = programs if bits & 0o100 else plain
            counter[bits] += 1
    usual = (_most_common(plain, 0o644), _most_common(programs, 0o755))
    exceptions = {}
    for path, bits in every:
        if bits != usual[bool(bits & 0o100)]:
            exceptions[path] = bits
    return usual, exceptions


def _most_common(bits: Counter[int], default: int) -> int:
    return bits.most_common(1)[0][0] if bits else default
