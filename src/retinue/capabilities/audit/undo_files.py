"""Putting one path back, all or nothing, without ever going through a link."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from retinue.capabilities.audit.shadow import Blobs, Entry, blob_id


def current(path: str) -> Entry | None:
    """What is at `path` now; None when nothing is, or when something above it is no folder."""
    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            return Entry("", found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(path)  # noqa: PTH115  (Path would tidy the target)
            return Entry(blob_id(os.fsencode(target)), found.st_mode)
        if not stat.S_ISREG(found.st_mode):
            return Entry("?", found.st_mode)
        return Entry(blob_id(Path(path).read_bytes()), found.st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def same(one: Entry | None, other: Entry | None) -> bool:
    """Whether two entries are the same thing with the same content and permission bits. A
    link has no bits of its own, and a folder's do not count."""
    if one is None or other is None:
        return one is None and other is None
    if one.is_folder or other.is_folder:
        return one.is_folder and other.is_folder
    if one.is_link or other.is_link:
        return one.is_link and other.is_link and one.oid == other.oid
    return one.oid == other.oid and stat.S_IMODE(one.mode) == stat.S_IMODE(other.mode)


def put_back(path: str, wanted: Entry | None, blobs: Blobs) -> None:
    """Makes `path` what `wanted` says. Raises OSError with the reason, leaving it as it was."""
    if wanted is None:
        _remove(path)
    elif wanted.is_folder:
        _check_above(path)
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):  # noqa: PTH112, PTH114
            Path(path).unlink()
        Path(path).mkdir(parents=True, exist_ok=True)
    else:
        _check_above(path)
        _write(path, wanted, blobs.get(wanted.oid))


def _remove(path: str) -> None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    _check_above(path)
    if stat.S_ISDIR(found.st_mode):
        Path(path).rmdir()
    else:
        Path(path).unlink()


def _check_above(path: str) -> None:
    """No part of the way may be a link: it would lead somewhere else."""
    above = os.path.dirname(path)  # noqa: PTH120  (paths may hold bytes that are no text)
    if os.path.realpath(above) != above:
        raise OSError(40, "its folder is reached through a link now", path)
    Path(above).mkdir(parents=True, exist_ok=True)


def _write(path: str, wanted: Entry, data: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        Path(path).rmdir()  # only an empty one gives way
    beside = f"{os.path.dirname(path)}/.retinue-{secrets.token_hex(8)}.tmp"  # noqa: PTH120
    try:
        if wanted.is_link:
            os.symlink(os.fsdecode(data), beside)  # noqa: PTH211  (Path would tidy the target)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(data)
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), stat.S_IMODE(wanted.mode))
        Path(beside).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(beside).unlink()
        raise
