"""What a plugin is, as far as it is known without running any of it, and those that Python packages bring.

Packages name their plugins by entry points of the group `retinue.plugins`. These are read from the files beside the
packages and not through `importlib.metadata`, which takes longer to import than a run takes to start. No package is
imported. The entry points of a folder of `sys.path` are remembered until the folder changes, by this process and, in
a file, by later ones.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from retinue.core.files import read_file
from retinue.core.provenance import Provenance, Right
from retinue.settings.foreign import read_object
from retinue.settings.places import private_folder

Origin = Literal["user", "setting", "package", "project", "agent"]
"""Who brought it: RETINUE_HOME/plugins, the setting `plugins`, an installed Python package, the
project's .retinue/plugins, or an agent's file by path."""


class PluginTable(Struct, frozen=True):
    """A part of a plugin that is data: hooks or servers, and the file they are from."""

    path: Path
    value: Mapping[str, Any]


class Plugin(Struct, frozen=True):
    """`root` is its folder; None for one that is a single file or module. `code` are the modules
    that hold its tools: names below `root`, the one file, or the value of an entry point."""

    name: str
    origin: Origin
    where: str
    provenance: Provenance
    root: Path | None = None
    file: Path | None = None
    entry: str = ""
    version: str = ""
    description: str = ""
    aliases: tuple[str, ...] = ()
    """Further names by which agent files may mean it: of its folder, its manifest, its package."""
    agents: tuple[Path, ...] = ()
    skills: tuple[Path, ...] = ()
    hooks: tuple[PluginTable, ...] = ()
    servers: tuple[PluginTable, ...] = ()
    code: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """How it is called, in lower case: names of extensions match in any case."""
        return frozenset(name.lower() for name in (self.name, *self.aliases) if name)

    @property
    def acts(self) -> bool:
        """Whether it brings anything that runs, beyond texts."""
        return bool(self.code or self.hooks or self.servers)

    @property
    def rights(self) -> tuple[Right, ...]:
        """What it needs for all that it brings."""
        parts: tuple[tuple[Right, object], ...] = (
            ("extensions", self.code),
            ("hooks", self.hooks),
            ("servers", self.servers),
        )
        return tuple(right for right, part in parts if part)

    @property
    def path(self) -> Path:
        """What consent to it is about."""
        return self.root or self.file or Path(self.where)

    @property
    def server_names(self) -> frozenset[str]:
        names: set[str] = set()
        for table in self.servers:
            names.update(table.value)
        return frozenset(names)


class FailedPlugin(Struct, frozen=True):
    """A plugin that cannot be used at all, and why. The others are not affected."""

    where: str
    reason: str


class Plugins(Struct, frozen=True):
    """All plugins of a project, the user's own first: of two with one name the first counts, so
    that no project takes the place of what the user has installed."""

    found: tuple[Plugin, ...] = ()
    failed: tuple[FailedPlugin, ...] = field(default=())

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong, one line each."""
        lines = [f"Plugin {each.where} is left out: {each.reason}" for each in self.failed]
        for plugin in self.found:
            lines += [f"Plugin '{plugin.name}': {text}" for text in plugin.problems]
        return tuple(lines)

    @property
    def brought(self) -> Plugins:
        """Only what a project brings."""
        return Plugins(tuple(plugin for plugin in self.found if plugin.provenance != "person"))

    def find(self, name: str) -> Plugin | None:
        for plugin in self.found:
            if name.lower() in plugin.names:
                return plugin
        return None


GROUP = "retinue.plugins"
_MARK = GROUP.encode()
_DISTRIBUTION = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)?.*\.(?:dist|egg)-info")


class EntryPoint(NamedTuple):
    name: str
    value: str
    distribution: str
    version: str


_known: dict[str, tuple[int, tuple[EntryPoint, ...]]] = {}


def entry_points(home: Path, project: Path) -> list[EntryPoint]:
    """Return those of our group on `sys.path`; of two with one name the first on the path counts. What
    was found is kept below `home`, if that exists. The folder one works in is left out: Python
    may have put it there unasked (`python -m`), and what lies in it nobody has installed."""
    found: dict[str, EntryPoint] = {}
    memory = _Memory(home)
    here = {"", os.curdir, str(project)}
    # The folder this was started in may be gone.
    with suppress(FileNotFoundError):
        here.add(os.getcwd())  # noqa: PTH109 (as sys.path has it)
    for folder in dict.fromkeys(sys.path):
        if folder in here:
            continue
        for point in _in_folder(folder, memory):
            found.setdefault(point.name, point)
    memory.save()
    return list(found.values())


class _Memory:
    """What earlier processes found. Read when something is not known, written when it was not."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / "cache" / "entry-points.json"
        self._data: dict[str, Any] | None = None
        self._changed = False

    def recall(self, folder: str, changed: int) -> tuple[EntryPoint, ...] | None:
        if self._data is None:
            self._data = read_object(self._file).data
        entry = self._data.get(folder)
        if not isinstance(entry, Mapping) or entry.get("changed") != changed:
            return None
        try:
            return msgspec.convert(entry.get("points"), tuple[EntryPoint, ...])
        except msgspec.ValidationError:
            # The file is a cache that anybody may have changed.
            return None

    def keep(self, folder: str, changed: int, points: tuple[EntryPoint, ...]) -> None:
        if self._data is not None:
            self._data[folder] = {"changed": changed, "points": points}
            self._changed = True

    def save(self) -> None:
        if not self._changed or self._data is None or not self._home.is_dir():
            return
        from retinue.settings.write import replace_file

        for folder in list(self._data):
            if not os.path.isdir(folder):  # noqa: PTH112
                del self._data[folder]
        with suppress(OSError):
            private_folder(self._file.parent)
            replace_file(self._file, msgspec.json.encode(self._data), new_mode=0o600)


def _in_folder(folder: str, memory: _Memory) -> tuple[EntryPoint, ...]:
    try:
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 (asked for every folder at every launch)
        known = _known.get(folder)
        if known is None or known[0] != changed:
            points = memory.recall(folder, changed)
            if points is None:
                points = tuple(_read(folder))
                memory.keep(folder, changed, points)
            known = _known[folder] = (changed, points)
    except OSError:
        # Entries of `sys.path` may be zip files, or not exist.
        return ()
    return known[1]


def _read(folder: str) -> Iterator[EntryPoint]:
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 (asked for every folder of `sys.path`)
        if not name.endswith((".dist-info", ".egg-info")):
            continue
        try:
            text = read_file(f"{folder}/{name}/entry_points.txt")
        except OSError:
            continue
        match = _DISTRIBUTION.fullmatch(name)
        if _MARK in text and match is not None:
            distribution = match["name"].replace("_", "-")
            yield from _parse_entry_points(text.decode(errors="replace"), distribution, match["version"] or "")


def _parse_entry_points(text: str, distribution: str, version: str) -> Iterator[EntryPoint]:
    ours = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            ours = line == f"[{GROUP}]"
        elif ours and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.partition("[")[0].strip(), distribution, version)
