"""Opening confined paths without ever following a symbolic link.

A confined path is walked folder by folder with descriptors and O_NOFOLLOW, starting at its
root: no component can be exchanged for a link between the check and the opening. Where the
system has no such calls (Windows) the checked path is opened by name.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from typing import Self

from retinue.core.lean import dataclass
from retinue.tools.arguments import ToolError
from retinue.tools.paths import Confined

BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW | _CLOEXEC
_PASSAGE = _FOLDER | getattr(os, "O_PATH", 0)
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _NOFOLLOW | _CLOEXEC

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link that changed just now"),
)


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A name in an open folder: what `os` functions with `dir_fd` want. Leave it through `with`,
    which closes the folder. `folder` is None where paths are opened by name; `name` is the whole
    path then."""

    folder: int | None
    name: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            os.close(self.folder)

    def stat(self) -> os.stat_result | None:
        """What is there, links not followed; None when nothing is."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


def spot(place: Confined, *, create: bool = False) -> FolderEntry:
    """`place` as a name in its open parent folder; `create` makes the folders above it."""
    parts = place.parts
    if not parts:
        raise ToolError(f"{place.shown} is the workspace folder itself, not a file.")
    if not BY_DESCRIPTOR:
        if create:
            place.path.parent.mkdir(parents=True, exist_ok=True)
        return FolderEntry(None, place.real)
    return FolderEntry(_walk(place, parts[:-1], create), parts[-1])


def _walk(place: Confined, parts: tuple[str, ...], create: bool) -> int:
    folder = os.open(place.root, _PASSAGE)
    for part in parts:
        try:
            try:
                inner = os.open(part, _PASSAGE, dir_fd=folder)
            except FileNotFoundError:
                if not create:
                    raise
                _make_folder(part, folder)
                inner = os.open(part, _PASSAGE, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _make_folder(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return  # someone else made it at the same moment; the open that follows checks it


def open_regular(where: FolderEntry, place: Confined) -> int:
    """A descriptor to read a regular file. Pipes, devices and folders are refused before they
    are opened, because opening them alone may block or have effects."""
    return _open_regular(where, place)[0]


def read_little(place: Confined, most: int) -> bytes | None:
    """The whole of a regular file that has fewer than `most` bytes; None for a larger one."""
    with spot(place) as where:
        descriptor, size = _open_regular(where, place)
    try:
        data = os.read(descriptor, most)
        whole = len(data) < most and (len(data) == size or not os.read(descriptor, 1))
        return data if whole else None
    finally:
        os.close(descriptor)


def _open_regular(where: FolderEntry, place: Confined) -> tuple[int, int]:
    found = where.stat()
    if found is None:
        raise FileNotFoundError(2, "No such file or directory", place.shown)
    refuse_irregular(found, place)
    descriptor = os.open(where.name, _READ, dir_fd=where.folder)
    try:
        opened = os.fstat(descriptor)
        refuse_irregular(opened, place)
    except ToolError:
        os.close(descriptor)
        raise
    return descriptor, opened.st_size


def refuse_irregular(found: os.stat_result, place: Confined) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{place.shown} is a folder. List it with ls, or name a file in it.")
    kind = next((label for test, label in _KINDS if test(found.st_mode)), "not a regular file")
    raise ToolError(f"{place.shown} is {kind}, not a regular file. It cannot be read or written with this tool.")


def list_folder(place: Confined, most: int) -> list[os.DirEntry[str]]:
    """At most `most` entries of a folder, in no order; links are not followed."""
    if not BY_DESCRIPTOR:
        with os.scandir(place.path) as entries:
            return list(islice(entries, most))
    descriptor = _open_folder(place)
    try:
        with os.scandir(descriptor) as found:
            return [_typed(entry) for entry in islice(found, most)]
    finally:
        os.close(descriptor)


def _open_folder(place: Confined) -> int:
    if not place.parts:
        return os.open(place.root, _FOLDER)
    with spot(place) as where:
        return os.open(where.name, _FOLDER, dir_fd=where.folder)


def _typed(entry: os.DirEntry[str]) -> os.DirEntry[str]:
    """Ask for the kind while the descriptor is open: some file systems do not list it, and the
    entry keeps the answer."""
    entry.is_dir(follow_symlinks=False)
    return entry
