"""Files in folders that others may have prepared, opened without following symbolic links.

A folder is a trusted base and the names below it. Every name is opened by descriptor with O_NOFOLLOW, so a link at any
level is refused, even one that is created between two checks. Where the system has no such calls (Windows), every name
is checked before it is opened.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from retinue.core.programs import lock_file

BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
MAX_FILE_BYTES = 8 * 2**20
MAX_FILES = 10_000
MAX_FOLDER_DEPTH = 16

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_ALWAYS = _NOFOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _ALWAYS
# Without waiting: opening a pipe to read it would block until somebody writes.
OPEN_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _ALWAYS
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ALWAYS


def open_inner(folder: int, name: str, flags: int = OPEN_FOLDER, *, make: int | None = None) -> int:
    """Open a folder inside an open one, without following a link. With `make`, a mode, make it where it is missing."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if make is None:
            raise
    # Someone else may make it at the same moment; opening it below checks what it is.
    with suppress(FileExistsError):
        os.mkdir(name, make, dir_fd=folder)
    return os.open(name, flags, dir_fd=folder)


def replace_entry(
    folder: int | None, name: str, data: bytes, mode: int, finish: Callable[[int], None] = lambda descriptor: None
) -> None:
    """Put a file in place of `name` in an open folder, so that readers see the old or the new content. Without a
    folder, `name` is a whole path. `finish` gets the descriptor of the new file before it is renamed."""
    beside = os.path.join(os.path.dirname(name), f".retinue-{secrets.token_hex(8)}.tmp")  # noqa: PTH118, PTH120 - text
    descriptor = os.open(beside, _CREATE, mode, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            finish(descriptor)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise


class LinkedError(OSError):
    """A part of the path is a symbolic link, or has the wrong file type."""

    def __init__(self, path: Path, what: str = "is a symbolic link") -> None:
        super().__init__(errno.ELOOP, f"{path} {what}: it is not used")
        self.path = path


class SafeDir(Struct, frozen=True):
    """A folder: `names` below `base`. The base may be reached by links, nothing below it may. What
    is made in a `private` one only its owner can read."""

    base: Path
    names: tuple[str, ...]
    private: bool = False

    def inside(self, *names: str) -> SafeDir:
        return SafeDir(self.base, (*self.names, *names), self.private)

    @property
    def path(self) -> Path:
        return self.base.joinpath(*self.names)

    @property
    def real(self) -> Path:
        """The path as tools resolve it: only the base can hold links."""
        return Path(os.path.realpath(self.base)).joinpath(*self.names)

    def exists(self) -> bool:
        """Return whether it is a folder that can be used."""
        with suppress(OSError), open_dir(self):
            return True
        return False

    def obstacle(self) -> str | None:
        """Return why it could not be made or used; None where nothing is in the way."""
        try:
            with open_dir(self):
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            return error.strerror or str(error)


@contextmanager
def open_dir(directory: SafeDir, *, create: bool = False) -> Iterator[int]:
    """Yield a descriptor of the folder. Raise FileNotFoundError, LinkedError or another OSError."""
    for name in directory.names:
        _check_name(name, directory)
    if not BY_DESCRIPTOR:
        yield from _open_by_name(directory, create)
        return
    mode = None
    if create:
        directory.base.mkdir(parents=True, exist_ok=True)
        mode = 0o700 if directory.private else 0o777
    folder = os.open(directory.base, OPEN_FOLDER & ~_NOFOLLOW)
    try:
        for depth, name in enumerate(directory.names, 1):
            try:
                inner = open_inner(folder, name, make=mode)
            except OSError as error:
                raise _explain(error, directory.base.joinpath(*directory.names[:depth])) from error
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _check_name(name: str, directory: SafeDir) -> None:
    """Raise LinkedError for a name that leads to another folder than the one it is looked for in."""
    if name in ("", ".", "..") or "/" in name or os.sep in name or "\0" in name:
        raise LinkedError(directory.path, f"has a name that leads elsewhere ({name!r})")


def _explain(error: OSError, path: Path) -> OSError:
    """Return the error to raise. ELOOP and ENOTDIR both mean a link that was not followed."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return LinkedError(path, "is a symbolic link" if path.is_symlink() else "is not a folder")
    return error


def _open_by_name(directory: SafeDir, create: bool) -> Iterator[int]:  # pragma: no cover - Windows
    path = directory.base
    for name in directory.names:
        path = path / name
        if path.is_symlink():
            raise LinkedError(path)
    if create:
        path.mkdir(parents=True, exist_ok=True)
    elif not path.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(path))
    yield -1


def read(directory: SafeDir, *names: str, most: int = MAX_FILE_BYTES) -> bytes:
    """Return at most `most` bytes of a regular file below the folder. Never wait for a pipe."""
    inside = directory.inside(*names[:-1])
    _check_name(names[-1], inside)
    with open_dir(inside) as folder:
        try:
            if BY_DESCRIPTOR:
                descriptor = os.open(names[-1], OPEN_FILE, dir_fd=folder)
            else:  # pragma: no cover - Windows
                path = inside.path / names[-1]
                if path.is_symlink():
                    raise LinkedError(path)
                descriptor = os.open(path, OPEN_FILE)
        except OSError as error:
            raise _explain(error, inside.path / names[-1]) from error
    try:
        status = os.fstat(descriptor)
        # Reading a pipe or a device could wait forever.
        if not stat.S_ISREG(status.st_mode):
            raise LinkedError(inside.path / names[-1], "is not a regular file")
        data = os.read(descriptor, min(most, status.st_size + 1))
        if len(data) == status.st_size:
            return data
        while len(data) < most and (chunk := os.read(descriptor, min(most - len(data), 1 << 20))):
            data += chunk
        return data
    finally:
        os.close(descriptor)


class ChangedError(OSError):
    """Another writer has changed the file meanwhile. The file was not modified."""


def write(directory: SafeDir, names: Sequence[str], data: bytes, *, over: bytes | None) -> None:
    """Put a file below the folder in place of the content `over` (None: where there is none),
    whole or not at all; folders are made as needed. Holds the lock that agents' own tools take
    while they rewrite a file of that folder. Raise ChangedError when it is another one."""
    inside = directory.inside(*names[:-1])
    _check_name(names[-1], inside)
    with open_dir(inside, create=True) as folder, _lock(folder):
        try:
            now: bytes | None = read(directory, *names, most=max(MAX_FILE_BYTES, len(over or b"") + 1))
        except FileNotFoundError:
            now = None
        if now != over:
            raise ChangedError(errno.EAGAIN, "The file has changed meanwhile", str(inside.path / names[-1]))
        mode = 0o600 if directory.private else 0o666
        if BY_DESCRIPTOR:
            replace_entry(folder, names[-1], data, mode)
        else:  # pragma: no cover - Windows
            replace_entry(None, str(inside.path / names[-1]), data, mode)


def remove_folder(directory: SafeDir, name: str) -> None:
    """Remove a folder inside another one, with all that is in it. One that is not there, or a link, is passed over."""
    _check_name(name, directory)
    with suppress(FileNotFoundError), open_dir(directory) as folder:
        if BY_DESCRIPTOR:
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        else:  # pragma: no cover - Windows
            shutil.rmtree(directory.path / name, ignore_errors=True)


@contextmanager
def _lock(folder: int) -> Iterator[None]:
    # A file system without locks: renaming is still whole or nothing.
    with suppress(OSError):
        lock_file(folder)
    yield


def files(directory: SafeDir) -> tuple[tuple[str, ...], ...]:
    """Return every regular file below the folder, as names, in order. Links, dot files and what is not a file are left
    out. Bounded in number and depth."""
    listed: list[tuple[str, ...]] = []
    pending: list[tuple[str, ...]] = [()]
    while pending and len(listed) < MAX_FILES:
        names = pending.pop()
        with (
            suppress(OSError),
            open_dir(directory.inside(*names)) as folder,
            os.scandir(folder if BY_DESCRIPTOR else directory.path.joinpath(*names)) as entries,
        ):
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_file(follow_symlinks=False):
                    listed.append((*names, entry.name))
                elif entry.is_dir(follow_symlinks=False) and len(names) < MAX_FOLDER_DEPTH:
                    pending.append((*names, entry.name))
    return tuple(sorted(listed)[:MAX_FILES])


_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_safe(name: str) -> bool:
    """Return whether `name` can be one folder and nothing else, on every system."""
    return _SAFE.fullmatch(name) is not None
