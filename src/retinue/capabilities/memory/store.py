"""Memories on disk: where they are, and packing, unpacking and merging whole ones.

    scope    ours                                       others, in this order
    project  PROJECT/.retinue/agent-memory/NAME         .claude, .pi of the project
    local    PROJECT/.retinue/agent-memory-local/NAME   .claude, .pi of the project
    user     RETINUE_HOME/agent-memory/NAME             ~/.claude, pi's folder, or pi's old one

Retinue writes its own folders and only reads those of others. No text is lost: where two versions of
a file meet, one keeps the name and the other is kept beside it as `NAME.conflict-DIGEST.md`; of two
versions of the index, which is a list, the lines of both are kept.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from retinue.core.format import replace_unprintable
from retinue.core.spec import MemoryScope
from retinue.errors import StateError, UsageError
from retinue.settings.load import project_folder
from retinue.settings.places import home, pi_home, retinue_home
from retinue.tools.safe_dir import DEEPEST, LARGEST, MOST_FILES, ChangedError, SafeDir, files, is_safe, read, write

SCOPES: tuple[MemoryScope, ...] = ("user", "project", "local")
INDEX = "MEMORY.md"

MEMORY_FOLDERS: Mapping[MemoryScope, str] = {
    "user": "agent-memory",
    "project": "agent-memory",
    "local": "agent-memory-local",
}


CARRIED_OTHERS = "others"
"""Where the memories of other systems are in what came from another machine's home."""


def check_name(name: str) -> str:
    """Return `name` itself. Raise UsageError for one that could lead anywhere else."""
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
    # From the project on, because a repository may bring its settings folder as a link.
    return SafeDir(root.parent, (root.name, *names))


def carried_folders(name: str, scope: MemoryScope, brought: Path) -> tuple[SafeDir, tuple[SafeDir, ...]]:
    """Return the folder that is written, and those that are only read, in what a run brought from its sender's home.
    Raise UsageError for an unsafe name."""
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
    # The former folder of pi counts only without the new one.
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
    names = []
    for entry in entries:
        if is_safe(entry.name) and own_folder(entry.name, scope, cwd, environment).exists():
            names.append(entry.name)
    return tuple(names)


MANIFEST = "retinue-memory.json"
_FORMAT = 1
_ATTEMPTS = 20
_LARGEST_ARCHIVE = 64 * 2**20

Content = Mapping[str, bytes]
"""The files of a memory: paths with `/` below its folder, and what is in them."""


class MemoryArchive(Struct, frozen=True):
    """What an archive holds."""

    agent: str
    scope: MemoryScope
    content: Content


class Merged(Struct, frozen=True):
    """What a merge did to one folder: paths of files that are new in it, that have another text
    now, and that stand beside another version."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def content_of(folder: SafeDir) -> dict[str, bytes]:
    """Return every file of a memory. Links and files that are too large to be notes are left out."""
    found: dict[str, bytes] = {}
    for names in files(folder):
        try:
            data = read(folder, *names, most=LARGEST + 1)
        except OSError:
            continue
        if len(data) <= LARGEST:
            found["/".join(names)] = data
    return found


def pack(snapshot: MemoryArchive) -> bytes:
    """Return an archive. The same memory always becomes the same bytes."""
    listed = _digests(snapshot.content)
    manifest = {"format": _FORMAT, "agent": snapshot.agent, "scope": snapshot.scope, "files": listed}
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
    """Raise UsageError for anything but an archive of `pack`: one with links, with paths that
    lead out, with files that are not listed or not as listed, or one that is too large."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as zipped:
            whole = zipped.read(_LARGEST_ARCHIVE + 1)
        if len(whole) > _LARGEST_ARCHIVE:
            raise _refused("it is too large for notes")
        with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as archive:
            found = _entries(archive)
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        raise _refused(f"it is not an archive of a memory ({type(error).__name__})") from error
    manifest = _manifest(found.pop(MANIFEST, None))
    content = {path.removeprefix("memory/"): each for path, each in found.items()}
    if _digests(content) != manifest["files"]:
        raise _refused("its files are not those it lists")
    return MemoryArchive(check_name(manifest["agent"]), manifest["scope"], content)


def _entries(archive: tarfile.TarFile) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in archive:
        if len(found) > MOST_FILES:
            raise _refused(f"it holds more than {MOST_FILES:,} files")
        if not entry.isreg():
            raise _refused(f"{entry.name!r} is not a regular file")
        if entry.name != MANIFEST and not _is_safe(entry.name):
            raise _refused(f"{entry.name!r} leads out of the folder of a memory")
        if entry.name in found:
            raise _refused(f"{entry.name!r} is in it twice")
        if entry.size > LARGEST:
            raise _refused("it is too large for notes")
        file = archive.extractfile(entry)
        assert file is not None, "a regular file has content"
        found[entry.name] = file.read()
    return found


def _is_safe(name: str) -> bool:
    path = PurePosixPath(name)
    parts = path.parts
    if len(parts) < 2 or parts[0] != "memory" or len(parts) > DEEPEST or str(path) != name:
        return False
    return all(part[0] != "." and part.isprintable() and not set(part) & set('\\:<>|?*"') for part in parts)


def _manifest(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise _refused(f"it has no {MANIFEST}") from error
    known = isinstance(found, dict) and found.get("format") == _FORMAT
    if not known or found.get("scope") not in ("user", "project", "local") or not isinstance(found.get("agent"), str):
        raise _refused(f"its {MANIFEST} is of another kind")
    return dict(found)


def _refused(why: str) -> UsageError:
    return UsageError(f"The archive is refused: {why}.", remedy="Make one with: retinue memory snapshot AGENT")


def merge(content: Content, folder: SafeDir) -> Merged:
    """Put `content` into a memory. What it has keeps its name; another version of a file comes
    beside it."""

    def once() -> Merged:
        there = content_of(folder)
        return _write_all(folder, there, _combine(there, content))

    return _repeat(once)


def _combine(first: Content, second: Content) -> dict[str, bytes]:
    """Return the files of both. Where versions differ, that of `first` has the name."""
    wanted = dict(first)
    for path, data in second.items():
        mine = first.get(path)
        if mine is None:
            wanted[path] = data
        elif mine != data and path == INDEX:
            wanted[path] = union(mine, data)
        elif mine != data:
            wanted[conflict_name(path, data)] = data
    return wanted


def _repeat(work: Callable[[], Merged]) -> Merged:
    """Start again where an agent wrote meanwhile; each step leaves everything whole."""
    for _ in range(_ATTEMPTS):
        try:
            return work()
        except ChangedError:
            continue
    raise StateError("The memory keeps changing.", remedy="Try again when no agent writes it.")


def _write_all(folder: SafeDir, there: Content, wanted: Content) -> Merged:
    added: list[str] = []
    changed: list[str] = []
    conflicts: list[str] = []
    copies_first = sorted(wanted.items(), key=lambda item: (".conflict-" not in item[0], item[0]))
    # Copies come first, so that no version is lost if this is cut off.
    for path, data in copies_first:
        old = there.get(path)
        if old == data:
            continue
        write(folder, path.split("/"), data, over=old)
        if ".conflict-" in path:
            conflicts.append(path)
        elif old is None:
            added.append(path)
        else:
            changed.append(path)
    return Merged(tuple(added), tuple(changed), tuple(conflicts))


def union(first: bytes, second: bytes) -> bytes:
    """Return `first` with the lines that only `second` has, in their order, at the end."""
    known = {line.strip() for line in first.splitlines()}
    more = []
    for line in second.splitlines():
        if line.strip() and line.strip() not in known:
            more.append(line)
    if not more:
        return first
    if first and not first.endswith(b"\n"):
        first += b"\n"
    return first + b"\n".join(more) + b"\n"


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
