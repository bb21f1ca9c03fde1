"""Which plugins there are, in the user's folder, settings, installed packages and the project, and the parts of each.

The layout of a plugin is Claude Code's, with `tools` added:

    .claude-plugin/plugin.json   name, version, description, further paths (or plugin.json)
    agents/  skills/             texts
    hooks/hooks.json  .mcp.json  hooks and MCP servers, which run programs
    tools.py  tools/*.py         Python functions with @tool

Without a manifest the folder's name is the plugin's. Nothing is imported or run here. A manifest
that is not a JSON object fails the plugin; a wrong field is dropped alone.

Packages name their plugins by entry points of the group `retinue.plugins`. These are read from the files beside the
packages and not through `importlib.metadata`, which takes longer to import than a run takes to start. The entry points
of a folder of `sys.path` are remembered until the folder changes, by this process and, in a file, by later ones.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.files import read_file
from retinue.core.foreign import Provenance, Right
from retinue.settings.foreign import read_object
from retinue.settings.places import private_folder, repository_root, retinue_home
from retinue.tools.safe_dir import replace_entry

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
    def rights(self) -> tuple[Right, ...]:
        """The rights it needs for all that it brings; none for one that has only texts."""
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
        return frozenset(name for table in self.servers for name in table.value)


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
    def agents(self) -> tuple[tuple[str, Path], ...]:
        """Folders of agents, each under the name of its plugin."""
        return tuple((plugin.name, folder) for plugin in self.found for folder in plugin.agents)

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


_Known = dict[str, tuple[int, tuple[EntryPoint, ...]]]
_known: _Known = {}
"""The entry points of each folder, with the time of its last change."""


def entry_points(home: Path, project: Path) -> list[EntryPoint]:
    """Return those of our group on `sys.path`; of two with one name the first on the path wins. They
    are remembered below `home`, if that exists. The folder one works in is left out: Python
    may have put it there unasked (`python -m`), and nobody has installed its files."""
    here = {"", os.curdir, str(project)}
    # The folder this was started in may be gone.
    with suppress(FileNotFoundError):
        here.add(os.getcwd())  # noqa: PTH109 (as sys.path has it)
    file = home / "cache" / "entry-points.json"
    remembered: _Known | None = None
    is_new = False
    points: dict[str, EntryPoint] = {}
    for folder in dict.fromkeys(sys.path):
        # Entries of `sys.path` may be zip files, or not exist.
        with suppress(OSError):
            if folder in here:
                continue
            changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 (asked for every folder at every launch)
            if _known.get(folder, (0,))[0] != changed:
                if remembered is None:
                    remembered = _remembered(file)
                if remembered.get(folder, (0,))[0] != changed:
                    remembered[folder], is_new = (changed, tuple(_read(folder))), True
                _known[folder] = remembered[folder]
            for point in _known[folder][1]:
                points.setdefault(point.name, point)
    if remembered is not None and is_new and home.is_dir():
        present = {folder: known for folder, known in remembered.items() if os.path.isdir(folder)}  # noqa: PTH112
        with suppress(OSError):
            replace_entry(None, str(private_folder(file.parent) / file.name), msgspec.json.encode(present), 0o600)
    return list(points.values())


def _remembered(file: Path) -> _Known:
    try:
        return msgspec.convert(read_object(file).data, _Known)
    except msgspec.ValidationError:
        # The file is a cache that anybody may have changed.
        return {}


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


MANIFESTS = (".claude-plugin/plugin.json", "plugin.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENTRY_VALUE = re.compile(r"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?")
_SHOWN = 300


def read_folder(
    root: Path,
    origin: Origin,
    *,
    provenance: Provenance,
    name: str = "",
    aliases: tuple[str, ...] = (),
    entry: str = "",
) -> Plugin | FailedPlugin:
    """Read the plugin in a folder. `name` is the name of its entry point, where it has one."""
    folder = _Folder(root)
    if folder.reason:
        return FailedPlugin(str(root), folder.reason)
    # The folder's name serves without characters that a name cannot hold.
    name = name or folder.text("name") or _ODD.sub("-", root.name).strip("-._")[:64] or "plugin"
    if not _NAME.fullmatch(name):
        return FailedPlugin(str(root), f"'{name[:80]}' is no name for a plugin: use letters, digits, '.', '_' and '-'")
    also = dict.fromkeys((folder.text("name"), root.name, *aliases))
    also.pop(name, None)
    plugin = Plugin(
        name=name,
        origin=origin,
        where=str(root),
        provenance=provenance,
        root=root,
        entry=entry,
        version=folder.text("version"),
        description=folder.text("description"),
        aliases=tuple(also),
        agents=folder.folders("agents"),
        skills=folder.folders("skills"),
        hooks=folder.tables("hooks", "hooks/hooks.json", "hooks"),
        servers=folder.tables("mcpServers", ".mcp.json", "mcpServers"),
        code=(entry,) if entry else folder.modules(),
        problems=tuple(folder.problems),
    )
    if not folder.manifest and not (plugin.agents or plugin.skills or plugin.rights):
        return FailedPlugin(str(root), "it has no manifest and nothing that a plugin can bring")
    return plugin


def read_entry_file(path: Path, origin: Origin, *, provenance: Provenance) -> Plugin | FailedPlugin:
    """Read a single Python file as a plugin: its name is the file's."""
    if path.suffix != ".py":
        return FailedPlugin(str(path), "it is no Python file: plugins are folders or .py files")
    if not _MODULE.fullmatch(path.stem.replace("-", "_")):
        return FailedPlugin(str(path), "its name cannot be imported: use letters, digits, '_' and '-'")
    return Plugin(path.stem, origin, str(path), provenance, file=path, code=(path.stem,))


class _Folder:
    """Reads one folder; `reason` says why it is no plugin, `problems` what was left out."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.problems: list[str] = []
        self.reason = ""
        self.manifest: Mapping[str, Any] = {}
        for name in MANIFESTS:
            path = root / name
            if path.is_file():
                read = read_object(path)
                if read.problem is not None:
                    self.reason = f"{name} {read.problem}"
                self.manifest = read.data
                break
        if not isinstance(self.manifest.get("name", ""), str):
            self.reason = "'name' in its manifest must be a text"

    def text(self, key: str) -> str:
        value = self.manifest.get(key, "")
        if isinstance(value, str):
            return " ".join(value.split())[:_SHOWN]
        self.problems.append(f"'{key}' in its manifest must be a text; it is ignored")
        return ""

    def folders(self, key: str) -> tuple[Path, ...]:
        """Return the folder of that name, and those the manifest adds."""
        paths = [self._root / key] if (self._root / key).is_dir() else []
        paths += [path for path in self._paths(key, self.manifest.get(key)) if self._is_there(key, path)]
        return tuple(dict.fromkeys(paths))

    def _is_there(self, key: str, path: Path) -> bool:
        if not path.exists():
            self.problems.append(f"'{key}' in its manifest names {path.name}, which is not there")
        return path.exists()

    def tables(self, key: str, usual: str, inner: str) -> tuple[PluginTable, ...]:
        """Return tables of the usual file, of files the manifest names, and of the manifest itself."""
        value, tables = self.manifest.get(key), []
        if isinstance(value, Mapping):
            if table := _inner(value, inner):
                tables.append(PluginTable(self._root, table))
            value = None
        for path in dict.fromkeys([self._root / usual, *self._paths(key, value)]):
            if not path.is_file():
                if path != self._root / usual:
                    self.problems.append(f"'{key}' in its manifest names {path.name}, which is not there")
                continue
            read = read_object(path)
            if read.problem is not None:
                self.problems.append(f"{path.relative_to(self._root)} {read.problem}; it is ignored")
            elif not isinstance(read.data.get(inner, {}), Mapping):
                self.problems.append(f"'{inner}' in {path.relative_to(self._root)} must be an object; it is ignored")
            elif table := _inner(read.data, inner):
                tables.append(PluginTable(path, table))
        return tuple(tables)

    def modules(self) -> tuple[str, ...]:
        """Return the modules that hold tools, as names below the folder."""
        paths = [self._root / "tools.py", *sorted((self._root / "tools").glob("*.py"))]
        paths += self._paths("tools", self.manifest.get("tools"))
        names: dict[str, None] = {}
        for path in dict.fromkeys(paths):
            if not path.is_file() or path.name.startswith("_"):
                continue
            parts = path.relative_to(self._root).with_suffix("").parts
            if path.suffix == ".py" and all(map(_MODULE.fullmatch, parts)):
                names[".".join(parts)] = None
            else:
                self.problems.append(f"{path.relative_to(self._root)} cannot be imported: rename it")
        return tuple(names)

    def _paths(self, key: str, value: Any) -> list[Path]:
        """Return the paths in a field of the manifest that stay within the folder."""
        if value is None:
            return []
        listed = value if isinstance(value, list) else [value]
        if not all(map(_is_path, listed)):
            self.problems.append(f"'{key}' in its manifest must be a path or a list of paths; it is ignored")
            return []
        base, inside = self._root.resolve(), []
        for each in listed:
            path = self._root / each.removeprefix("./")
            if path.resolve() != base and base in path.resolve().parents:
                inside.append(path)
            else:
                self.problems.append(f"'{key}' in its manifest leads out of the plugin ({each[:80]}); it is ignored")
        return inside


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _inner(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a table. Both forms are in use: the table itself, and an object that holds it under its name."""
    table = data.get(key)
    if isinstance(table, Mapping):
        return table
    # A table itself may have a description or a version beside its entries.
    return {name: value for name, value in data.items() if isinstance(value, (Mapping, list))}


FOLDER = "plugins"


def plugin_folders(cwd: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the folder for the user's own plugins, and then those of the project, which exist."""
    own = retinue_home(environment) / FOLDER
    folders = [own]
    top = repository_root(cwd) or cwd
    for level in (cwd, *cwd.parents):
        folder = level / ".retinue" / FOLDER
        # In the user's home folder both are one, and personal.
        if folder.is_dir() and not (own.is_dir() and folder.samefile(own)):
            folders.append(folder)
        if level == top:
            break
    return folders


def find_plugins(
    cwd: Path,
    environment: Mapping[str, str],
    *,
    listed: Iterable[tuple[Path, bool]] = (),
    disabled: Iterable[tuple[str, bool]] = (),
) -> Plugins:
    """Find all plugins. `listed` are paths of the settings, `disabled` names of plugins to leave out; each with
    whether the user said so."""
    plugins: dict[str, Plugin] = {}
    failed: list[FailedPlugin] = []
    off = [(name.lower(), own) for name, own in disabled]
    for plugin in _read_all(cwd, environment, listed):
        if isinstance(plugin, FailedPlugin):
            failed.append(plugin)
            continue
        # A project switches off only what a project brings: it must not take away what guards the user.
        if any(name in plugin.names and (own or plugin.provenance != "person") for name, own in off):
            continue
        twin = plugins.setdefault(plugin.name.lower(), plugin)
        # A plugin that is found twice, by a setting and in a folder, is no problem.
        if twin.where != plugin.where:
            failed.append(FailedPlugin(plugin.where, f"another plugin is called '{plugin.name}', too: {twin.where}"))
    return Plugins(tuple(plugins.values()), tuple(failed))


def read_path(path: Path, origin: Origin, *, provenance: Provenance) -> Plugin | FailedPlugin:
    """Read a plugin by its path: a folder, or a Python file."""
    if path.is_dir():
        return read_folder(path, origin, provenance=provenance)
    if path.is_file():
        return read_entry_file(path, origin, provenance=provenance)
    return FailedPlugin(str(path), "there is nothing at this path")


def _read_all(
    cwd: Path, environment: Mapping[str, str], listed: Iterable[tuple[Path, bool]]
) -> Iterator[Plugin | FailedPlugin]:
    """Read every plugin, the user's own first."""
    own, *folders = plugin_folders(cwd, environment)
    paths = list(listed)
    yield from _read_inside(own, "user", provenance="person")
    for path, personal in paths:
        if personal:
            yield read_path(path, "setting", provenance="person")
    for point in entry_points(retinue_home(environment), cwd):
        yield _read_package(point)
    for path, personal in paths:
        if not personal:
            yield read_path(path, "setting", provenance="project")
    for folder in folders:
        yield from _read_inside(folder, "project", provenance="project")


def _read_inside(folder: Path, origin: Origin, *, provenance: Provenance) -> Iterator[Plugin | FailedPlugin]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield FailedPlugin(str(folder), f"it cannot be listed: {error.strerror or error}")
        return
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        path = folder / entry.name
        if path.is_dir() or entry.name.endswith(".py"):
            yield read_path(path, origin, provenance=provenance)


def _read_package(point: EntryPoint) -> Plugin | FailedPlugin:
    """Return the plugin behind an entry point, as far as its files tell."""
    where = f"{point.distribution} ({point.name} = {point.value})"
    if not _ENTRY_VALUE.fullmatch(point.value):
        return FailedPlugin(where, f"'{point.value[:80]}' is no module and no object of one")
    module, _, _ = point.value.partition(":")
    folder = _find_folder(module)
    aliases = (point.distribution,)
    if folder is not None:
        plugin = read_folder(
            folder, "package", provenance="person", name=point.name, aliases=aliases, entry=point.value
        )
        if isinstance(plugin, FailedPlugin) or plugin.version:
            return plugin
        return replace(plugin, version=point.version)
    return Plugin(
        point.name,
        "package",
        where,
        provenance="person",
        entry=point.value,
        version=point.version,
        aliases=aliases,
        code=(point.value,),
    )


def _find_folder(module: str) -> Path | None:
    """Return the folder of a package, found without importing it; None for a plain module or nothing."""
    import importlib.util

    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    return folder if folder.is_dir() else None
