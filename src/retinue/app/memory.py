"""Memories of agents: list them, pack one into a file, and restore it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from msgspec import Struct
from msgspec.structs import asdict

from retinue.capabilities.memory.attach import read_index
from retinue.capabilities.memory.store import (
    MemoryArchive,
    content_of,
    default_archive,
    describe,
    list_agents,
    merge,
    other_folders,
    own_folder,
    pack,
    unpack,
)
from retinue.core.spec import MemoryScope
from retinue.errors import UsageError
from retinue.models.keys import environment
from retinue.settings.write import replace_file
from retinue.tools.safe_dir import SafeDir

MEMORY_SCOPES: tuple[MemoryScope, ...] = get_args(MemoryScope)
MAX_ARCHIVE_BYTES = 128 * 2**20


class MemoryFile(Struct, frozen=True):
    """A file of a memory. `path` is relative to the memory's folder."""

    path: str
    bytes: int


class MemoryView(Struct, frozen=True):
    """One memory of an agent. If it is not `own`, it belongs to another program and Retinue never writes it."""

    agent: str
    scope: MemoryScope
    path: str
    own: bool
    files: list[MemoryFile]
    index: str


class MemoryList(Struct, frozen=True):
    """The memories visible from a folder."""

    memories: list[MemoryView]


class MemorySnapshot(Struct, frozen=True):
    """A memory that was packed into a file."""

    agent: str
    scope: MemoryScope
    archive: str
    files: list[str]


class RestoredMemory(Struct, frozen=True, kw_only=True):
    """A memory that was restored from an archive. Both versions of files in `conflicts` are kept."""

    agent: str
    scope: MemoryScope
    path: str
    added: Sequence[str]
    changed: Sequence[str]
    conflicts: Sequence[str]


def list_memories(cwd: Path, agent: str | None = None, scope: MemoryScope | None = None) -> MemoryList:
    """Return every memory visible from `cwd`, or those of one agent or scope. Raise UsageError for an agent without
    one."""
    variables = environment()
    memories = []
    for listed_scope in (scope,) if scope else MEMORY_SCOPES:
        for name in (agent,) if agent else list_agents(listed_scope, cwd, variables):
            own = own_folder(name, listed_scope, cwd, variables)
            if own.exists():
                memories.append(_view(name, listed_scope, own, own=True))
            for folder in other_folders(name, listed_scope, cwd, variables):
                memories.append(_view(name, listed_scope, folder, own=False))
    if agent and not memories:
        raise UsageError(f"{agent} has no memory here.", remedy="See all with: retinue memory show")
    return MemoryList(memories)


def _view(agent: str, scope: MemoryScope, folder: SafeDir, *, own: bool) -> MemoryView:
    files = [MemoryFile(path, size) for path, size in describe(folder)]
    return MemoryView(agent, scope, str(folder.path), own, files, read_index(folder))


def _open(agent: str, scope: MemoryScope, cwd: Path) -> SafeDir:
    """Return the folder that Retinue writes. Raise UsageError for an invalid name, and if the folder contains a link
    that must not be followed."""
    folder = own_folder(agent, scope, cwd, environment())
    obstacle = folder.obstacle()
    if obstacle is not None:
        raise UsageError(f"This memory cannot be used: {obstacle}.", remedy="Put a real folder there.")
    return folder


def pack_memory(
    agent: str, scope: MemoryScope, cwd: Path, *, to: str | None = None, force: bool = False
) -> MemorySnapshot:
    """Write an agent's memory into one file. Raise UsageError for an empty memory and for a file that exists."""
    content = content_of(_open(agent, scope, cwd))
    if not content:
        raise UsageError(f"{agent} remembers nothing in the scope {scope}.", remedy="See: retinue memory show")
    target = cwd / Path(to).expanduser() if to else default_archive(agent, cwd)
    if target.exists() and not force:
        raise UsageError(f"{target} exists.", remedy="Choose another name with --to, or replace it with --force.")
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent} is not a folder.", remedy="Choose another place with --to.")
    replace_file(target, pack(MemoryArchive(agent, scope, content)), new_mode=0o600)
    return MemorySnapshot(agent, scope, str(target), sorted(content))


def restore_memory(
    archive: str, cwd: Path, *, agent: str | None = None, scope: MemoryScope | None = None
) -> RestoredMemory:
    """Restore a memory that `pack_memory` wrote. Existing files are kept."""
    path = cwd / Path(archive).expanduser()
    try:
        with path.open("rb") as file:
            # One byte more than allowed detects a file that is too large.
            data = file.read(MAX_ARCHIVE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", remedy="Name an archive of a memory.") from error
    if len(data) > MAX_ARCHIVE_BYTES:
        raise UsageError(f"{path} is too large for an archive of a memory.")
    snapshot = unpack(data)
    agent, scope = agent or snapshot.agent, scope or snapshot.scope
    folder = _open(agent, scope, cwd)
    merged = merge(snapshot.content, folder)
    return RestoredMemory(agent=agent, scope=scope, path=str(folder.path), **asdict(merged))
