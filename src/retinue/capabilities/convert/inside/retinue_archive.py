"""Whether an archive may be opened: sizes are looked at before anything is unpacked.

Office documents and books are archives, too. What an archive claims about its sizes is what it
gets: Python's reader stops there.
"""

from __future__ import annotations

import io
import zipfile
from typing import BinaryIO

MEBI = 1024 * 1024
MOST_ENTRIES = 5_000
MOST_UNPACKED = 256 * MEBI
MOST_LOOSE_ENTRIES = 200
MOST_LOOSE_UNPACKED = 64 * MEBI
MOST_NESTED = 16 * MEBI
MOST_RATIO = 250
_WORTH_A_LOOK = 16 * MEBI
"""Small things may be packed as tightly as they like."""

DOCUMENTS = frozenset({".docx", ".pptx", ".xlsx", ".epub", ".xlsm", ".docm", ".pptm"})
_OTHER_ARCHIVES = (
    (b"\x1f\x8b", 0, "gzip"),
    (b"BZh", 0, "bzip2"),
    (b"\xfd7zXZ\0", 0, "xz"),
    (b"7z\xbc\xaf\x27\x1c", 0, "7z"),
    (b"Rar!", 0, "RAR"),
    (b"\x28\xb5\x2f\xfd", 0, "zstd"),
    (b"ustar", 257, "tar"),
)


class RefusedArchiveError(Exception):
    """Completes "The document cannot be converted: …"."""


def is_zip(head: bytes) -> bool:
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"))


def other_archive(head: bytes) -> str | None:
    """The kind of an archive that is never opened."""
    return next((name for mark, at, name in _OTHER_ARCHIVES if head[at : at + len(mark)] == mark), None)


def check_archive(stream: BinaryIO, extension: str) -> None:
    """Raise RefusedArchiveError for one that is damaged, locked, a bomb, or holds other archives."""
    loose = extension not in DOCUMENTS
    try:
        with zipfile.ZipFile(stream) as archive:
            _check_sizes(archive, loose)
            if loose:
                _check_contents(archive)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, ValueError, RuntimeError) as error:
        raise RefusedArchiveError(f"the archive is damaged ({error})") from None


def _check_sizes(archive: zipfile.ZipFile, loose: bool) -> None:
    entries = archive.infolist()
    most, bytes_ = (MOST_LOOSE_ENTRIES, MOST_LOOSE_UNPACKED) if loose else (MOST_ENTRIES, MOST_UNPACKED)
    if len(entries) > most:
        raise RefusedArchiveError(f"it holds {len(entries):,} files, more than {most:,}")
    if any(entry.flag_bits & 1 for entry in entries):
        raise RefusedArchiveError("it is locked with a password")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > bytes_:
        raise RefusedArchiveError(f"it unpacks to {unpacked / MEBI:,.0f} MiB, more than {bytes_ // MEBI}")
    for entry in entries:
        if entry.file_size > _WORTH_A_LOOK and entry.file_size > MOST_RATIO * max(entry.compress_size, 1):
            raise RefusedArchiveError(
                f"a file in it unpacks to {entry.file_size // max(entry.compress_size, 1)} times its size"
            )


def _check_contents(archive: zipfile.ZipFile) -> None:
    """A collection of files may hold documents, but no further collections."""
    for entry in archive.infolist():
        if entry.is_dir():
            continue
        with archive.open(entry) as file:
            head = file.read(512)
        name = entry.filename.lower()
        if other_archive(head):
            raise RefusedArchiveError(f"it holds another archive ({other_archive(head)})")
        if not is_zip(head):
            continue
        ending = "." + name.rpartition(".")[2]
        if ending not in DOCUMENTS:
            raise RefusedArchiveError("it holds another archive (zip)")
        if entry.file_size > MOST_NESTED:
            raise RefusedArchiveError("a document in it is too large")
        check_archive(io.BytesIO(archive.read(entry)), ending)
