"""Packs of small files, sent through the shared database as one value that is named by its hash.

| kind | contents | from, to |
|---|---|---|
| `home` | skills and memories of the sender's home, and hashes of files with consent | sender, workers |
| `memory` | the present memories of the run | worker, sender and the next worker |
| `outputs` | complete outputs of tools, which the model got shortened | worker, sender and the next worker |

Files that contain a secret of their machine, or are too large, are left out and listed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from retinue.errors import StateError
from retinue.guard.redact import Redactor
from retinue.tools.safe_dir import SafeDir, files, is_safe, read, write

MAX_PACKED_FILE_BYTES = 4 * 2**20
MAX_PACK_BYTES = 32 * 2**20
MAX_ENCODED_BYTES = MAX_PACK_BYTES + 4 * 2**20
"""Also includes the names, and the list of what was left out."""


class FilePack(Struct, frozen=True):
    """Files by their paths below one folder. `left_out` lists the missing ones with reasons. `consents` has the hashes
    of files with consent, by their paths below the project."""

    files: dict[str, bytes] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    consents: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the pack as bytes. Equal packs have equal bytes."""
        return zlib.compress(msgspec.msgpack.encode(self, order="sorted"), 1)

    def below(self, folder: str) -> dict[str, bytes]:
        """Return the files of one folder, by their paths in it."""
        start = f"{folder}/"
        return {path.removeprefix(start): data for path, data in self.files.items() if path.startswith(start)}

    def folders(self) -> set[str]:
        """Return the folders at the top."""
        return {path.partition("/")[0] for path in self.files}

    def write(self, folder: Path) -> None:
        """Write the files below `folder`. Existing files stay unchanged."""
        directory = SafeDir(folder.parent, (folder.name,), private=True)
        for path, data in self.files.items():
            if not (folder / path).exists():
                write(directory, path.split("/"), data, over=None)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def decode(digest: str, data: bytes) -> FilePack:
    """Decode a pack. Raise StateError if it does not match its digest, or has paths that lead elsewhere."""
    if digest_of(data) != digest:
        raise StateError("A pack of files in the database does not match its hash.", remedy="Send the run again.")
    unpacker = zlib.decompressobj()
    try:
        packed = unpacker.decompress(data, MAX_ENCODED_BYTES)
        if not unpacker.eof:
            raise StateError(f"A pack of files in the database is larger than {MAX_ENCODED_BYTES} bytes, or cut off.")
        pack = msgspec.msgpack.decode(packed, type=FilePack)
    except (zlib.error, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise StateError(f"A pack of files in the database cannot be read: {error}.") from None
    for path in pack.files:
        if not all(map(is_safe, path.split("/"))):
            raise StateError(f"A file from another machine has a name that leads elsewhere: {path!r}.")
    return pack


class Packer:
    """Collects files of one machine for a pack, up to its maximum size."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._files: dict[str, bytes] = {}
        self._left_out: list[str] = []
        self._size = 0

    def add(self, folder: SafeDir, under: str = "", *, clean: bool = False) -> None:
        """Add every file of `folder`, except links and dot files. With `clean`, secrets are removed from a file;
        otherwise the file is left out."""
        for names in files(folder):
            path = "/".join((under, *names)) if under else "/".join(names)
            try:
                data = read(folder, *names, most=MAX_PACKED_FILE_BYTES + 1)
            except OSError as error:
                self._left_out.append(f"{path} (it cannot be read: {error.strerror})")
                continue
            if clean:
                data = self._redactor(data.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
            elif self._redactor.suspects(data):
                self._left_out.append(f"{path} (it holds a secret)")
                continue
            self._put(path, data)

    def _put(self, path: str, data: bytes) -> None:
        if not all(map(is_safe, path.split("/"))):
            self._left_out.append(f"{path} (its name is not safe)")
        elif len(data) > MAX_PACKED_FILE_BYTES or self._size + len(data) > MAX_PACK_BYTES:
            self._left_out.append(f"{path} (it is too large)")
        else:
            self._size += len(data)
            self._files[path] = data

    def pack(self, consents: Mapping[str, tuple[str, ...]] | None = None) -> FilePack | None:
        """Return the pack; None if it would be empty."""
        if not (self._files or self._left_out or consents):
            return None
        return FilePack(self._files, tuple(self._left_out), dict(consents or {}))
