"""Memories on disk: their folders, and packing, unpacking and merging of complete memories.

    scope    ours                                       others, in this order
    project  PROJECT/.retinue/agent-memory/NAME         .claude, .pi of the project
    local    PROJECT/.retinue/agent-memory-local/NAME   .claude, .pi of the project
    user     RETINUE_HOME/agent-memory/NAME             ~/.claude, pi's folder, or pi's old one

Retinue writes its own folders and only reads those of others. A merge loses no text: of two versions of a file, one
keeps the name and the other becomes `NAME.conflict-DIGEST.md`. The lines of two versions of the index are combined.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from retinue.core.format import replace_unprintable
from retinue.core.spec import MemoryScope
from retinue.errors import StateError, UsageError
from retinue.settings.load import project_folder
from retinue.settings.places import home, pi_home, retinue_home
from retinue.tools.safe_dir import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_FOLDER_DEPTH,
    ChangedError,
    SafeDir,
    files,
    is_safe,
    read,
    write,
)

INDEX = "MEMORY.md"

MEMORY_FOLDERS: Mapping[MemoryScope, str] = {
    "user": "agent-memory",
    "project": "agent-memory",
    "local": "agent-memory-local",
}


CARRIED_OTHERS = "others"
"""The folder of other systems' memories in the files that came from another machine's home."""


def check_name(name: str) -> str:
    """Return `name`. Raise UsageError if it could lead out of the folder."""
    if is_safe(name):
        return name
    shown = replace_unprintable(name[:40], "?")
    raise UsageError(
        f"An agent called '{shown}' can have no memory: the name cannot be a folder.",
        remedy="Use letters, digits, '-', '_' and '.', beginning with a letter or digit, at most 128.",
    )


def own_folder(name: str, scope: MemoryScope, cwd: Path, environment: Mapping[str, str]) -> SafeDir:
    """Return the folder that is written. Raise UsageError for an unsafe name."""
    names = (MEMORY_FOLDERS[scope], check_name(name))
    if scope == "user":
        return SafeDir(retinue_home(environment), names, private=True)
    root = project_folder(cwd, environment)
    # Checked from the project down, because a repository may contain its settings folder as a link.
    return SafeDir(root.parent, (root.name, *names))


def carried_folders(name: str, scope: MemoryScope, brought: Path) -> tuple[SafeDir, tuple[SafeDir, ...]]:
    """Return the folder that is written, and those that are only read, in the files that a run brought from its
    sender's home. Raise UsageError for an unsafe name."""
    own = SafeDir(brought, (MEMORY_FOLDERS[scope], check_name(name)), private=True)
    above = SafeDir(brought, (CARRIED_OTHERS, name))
    others = sorted(above.path.iterdir()) if above.exists() else []
    return own, tuple(above.inside(other.name) for other in others)


def other_folders(name: str, scope: MemoryScope, cwd: Path, environment: Mapping[str, str]) -> tuple[SafeDir, ...]:
    """Return the folders of other systems in which an agent has a memory. Raise UsageError for an unsafe name."""
    check_name(name)
    return tuple(folder for folder in _others(name, scope, cwd, environment) if folder.exists())


def _others(name: str, scope: MemoryScope, cwd: Path, environment: Mapping[str, str]) -> Iterator[SafeDir]:
    folder = MEMORY_FOLDERS[scope]
    if scope != "user":
        project = project_folder(cwd, environment).parent
        for base in dict.fromkeys((project, cwd)):
            yield SafeDir(base, (".claude", folder, name))
            yield SafeDir(base, (".pi", folder, name))
        return
    house = home(environment)
    yield SafeDir(house, (".claude", folder, name))
    modern = SafeDir(pi_home(environment), (folder, name))
    yield modern
    # The old folder of pi is read only if the new one does not exist.
    if not modern.path.exists():
        yield SafeDir(house, (".pi", folder, name))


def list_agents(scope: MemoryScope, cwd: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all agents that have a memory of Retinue's in this scope."""
    example = own_folder("x", scope, cwd, environment)
    above = SafeDir(example.base, example.names[:-1])
    try:
        if not above.exists():
            return ()
        entries = sorted(above.path.iterdir())
    except OSError:
        return ()
    names = [entry.name for entry in entries if is_safe(entry.name)]
    return tuple(name for name in names if own_folder(name, scope, cwd, environment).exists())


MANIFEST = "retinue-memory.json"
_MAX_MERGE_ATTEMPTS = 20
_MAX_ARCHIVE_BYTES = 64 * 2**20

Content = Mapping[str, bytes]
"""The files of a memory: paths with `/` below its folder, and their content."""


class _Manifest(Struct, frozen=True):
    """The list of an archive's files, each with the digest of its content."""

    format: Literal[1]
    agent: str
    scope: MemoryScope
    files: dict[str, str]


class MemoryArchive(Struct, frozen=True):
    """The content of an archive."""

    agent: str
    scope: MemoryScope
    content: Content


class Merged(Struct, frozen=True):
    """The changes that a merge made: the paths of new files, of changed files, and of added conflict versions."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def content_of(folder: SafeDir) -> dict[str, bytes]:
    """Return every file of a memory, without links and files above the limit."""
    content: dict[str, bytes] = {}
    for names in files(folder):
        with suppress(OSError):
            data = read(folder, *names, most=MAX_FILE_BYTES + 1)
            if len(data) <= MAX_FILE_BYTES:
                content["/".join(names)] = data
    return content


def pack(snapshot: MemoryArchive) -> bytes:
    """Return an archive. The same memory always becomes the same bytes."""
    listed = _digests(snapshot.content)
    manifest = asdict(_Manifest(1, snapshot.agent, snapshot.scope, listed))
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add(archive, MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=True).encode())
        for path in listed:
            _add(archive, f"memory/{path}", snapshot.content[path])
    return buffer.getvalue()


def _digests(content: Content) -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest() for path, data in sorted(content.items())}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o600
    archive.addfile(entry, io.BytesIO(data))


def unpack(data: bytes) -> MemoryArchive:
    """Return the content of an archive of `pack`. Raise UsageError for links, paths that lead out, files that differ
    from the manifest, and archives above the limit."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as zipped:
            unzipped = zipped.read(_MAX_ARCHIVE_BYTES + 1)
        if len(unzipped) > _MAX_ARCHIVE_BYTES:
            raise _refused("it is too large for notes")
        with tarfile.open(fileobj=io.BytesIO(unzipped), mode="r:") as archive:
            entries = _entries(archive)
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        raise _refused(f"it is not an archive of a memory ({type(error).__name__})") from error
    try:
        manifest = msgspec.json.decode(entries.pop(MANIFEST, b""), type=_Manifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refused(f"it has no {MANIFEST} of this kind") from error
    content = {path.removeprefix("memory/"): data for path, data in entries.items()}
    if _digests(content) != manifest.files:
        raise _refused("its files are not those it lists")
    return MemoryArchive(check_name(manifest.agent), manifest.scope, content)


def _entries(archive: tarfile.TarFile) -> dict[str, bytes]:
    entries: dict[str, bytes] = {}
    for entry in archive:
        if len(entries) > MAX_FILES:
            raise _refused(f"it holds more than {MAX_FILES:,} files")
        if not entry.isreg():
            raise _refused(f"{entry.name!r} is not a regular file")
        if entry.name != MANIFEST and not _is_safe(entry.name):
            raise _refused(f"{entry.name!r} leads out of the folder of a memory")
        if entry.name in entries:
            raise _refused(f"{entry.name!r} is in it twice")
        if entry.size > MAX_FILE_BYTES:
            raise _refused("it is too large for notes")
        file = archive.extractfile(entry)
        assert file is not None, "a regular file has content"
        entries[entry.name] = file.read()
    return entries


def _is_safe(name: str) -> bool:
    path = PurePosixPath(name)
    names = path.parts
    if len(names) < 2 or names[0] != "memory" or len(names) > MAX_FOLDER_DEPTH or str(path) != name:
        return False
    return all(name[0] != "." and name.isprintable() and not set(name) & set('\\:<>|?*"') for name in names)


def _refused(why: str) -> UsageError:
    return UsageError(f"The archive is refused: {why}.", remedy="Make one with: retinue memory snapshot AGENT")


def merge(content: Content, folder: SafeDir) -> Merged:
    """Merge `content` into a memory. The files of the memory keep their names; another version of a file is added under
    a new name. Raise StateError if agents keep changing the memory meanwhile."""
    for _ in range(_MAX_MERGE_ATTEMPTS):
        # Each step leaves a consistent memory, so the merge can be repeated.
        with suppress(ChangedError):
            there = content_of(folder)
            return _write_changes(folder, there, _combine(there, content))
    raise StateError("The memory keeps changing.", remedy="Try again when no agent writes it.")


def _combine(first: Content, second: Content) -> dict[str, bytes]:
    """Return the files of both. Of two versions of a file, that of `first` keeps the name."""
    combined = dict(first)
    for path, data in second.items():
        version = first.get(path, data)
        if version == data:
            combined[path] = data
        elif path == INDEX:
            combined[path] = combine_lines(version, data)
        else:
            combined[conflict_name(path, data)] = data
    return combined


def _write_changes(folder: SafeDir, there: Content, content: Content) -> Merged:
    # Conflict versions are written first, so that no version is lost if this is interrupted.
    paths = sorted(content, key=lambda path: (".conflict-" not in path, path))
    written = [path for path in paths if there.get(path) != content[path]]
    for path in written:
        write(folder, path.split("/"), content[path], over=there.get(path))
    named = [path for path in written if ".conflict-" not in path]
    return Merged(
        added=tuple(path for path in named if path not in there),
        changed=tuple(path for path in named if path in there),
        conflicts=tuple(path for path in written if ".conflict-" in path),
    )


def combine_lines(first: bytes, second: bytes) -> bytes:
    """Return `first` with the lines that only `second` has, in their order, at the end."""
    present = {b"", *(line.strip() for line in first.splitlines())}
    missing = [line for line in second.splitlines() if line.strip() not in present]
    if not missing:
        return first
    if first and not first.endswith(b"\n"):
        first += b"\n"
    return first + b"\n".join(missing) + b"\n"


def conflict_name(path: str, data: bytes) -> str:
    """Return a name for another version of the same file, from its content: the same version is stored once."""
    digest = hashlib.sha256(data).hexdigest()[:8]
    folder, slash, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not dot:
        stem, suffix = name, ""
    return f"{folder}{slash}{stem.split('.conflict-')[0]}.conflict-{digest}{dot}{suffix}"


def describe(folder: SafeDir) -> list[tuple[str, int]]:
    """Return the files of a memory with their sizes."""
    return [(path, len(data)) for path, data in content_of(folder).items()]


def default_archive(agent: str, folder: Path) -> Path:
    return folder / f"{agent}.memory.tar.gz"
