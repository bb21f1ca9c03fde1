"""Discovery of plugins in the user's folder, settings, installed packages and the project, and the parts of each.

The layout of a plugin is Claude Code's, with `tools` added:

    .claude-plugin/plugin.json   name, version, description, further paths (or plugin.json)
    agents/  skills/             texts
    hooks/hooks.json  .mcp.json  hooks and MCP servers, which run programs
    tools.py  tools/*.py         Python functions with @tool

Without a manifest the plugin has the name of its folder. Nothing is imported or run here. A manifest that is not a JSON
object fails the plugin; a wrong field is ignored.

Packages declare their plugins as entry points of the group `retinue.plugins`. These are read from the metadata files of
the packages directly, because importing `importlib.metadata` takes longer than the start of a run. The entry points of
each folder of `sys.path` are cached, in this process and in a file, until the folder changes.
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
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.files import read_file
from retinue.core.foreign import Provenance, Right
from retinue.settings.foreign import read_object
from retinue.settings.places import private_folder, repository_root, retinue_home
from retinue.tools.safe_dir import replace_entry

Origin = Literal["user", "setting", "package", "project", "agent"]
"""The source of a plugin: RETINUE_HOME/plugins, the setting `plugins`, an installed Python package, the project's
.retinue/plugins, or a path in an agent's file."""


class PluginTable(Struct, frozen=True):
    """A table of hooks or servers of a plugin, and the file that contains it."""

    path: Path
    value: Mapping[str, Any]


class Plugin(Struct, frozen=True):
    """A plugin. `root` is its folder; None for a single file or module. `code` are the modules with its tools: names
    below `root`, the single file, or the value of an entry point."""

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
    """Other names that agent files may use: of its folder, its manifest, its package."""
    agents: tuple[Path, ...] = ()
    skills: tuple[Path, ...] = ()
    hooks: tuple[PluginTable, ...] = ()
    servers: tuple[PluginTable, ...] = ()
    code: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """All its names, in lower case: names of extensions match in any case."""
        return frozenset(name.lower() for name in (self.name, *self.aliases) if name)

    @property
    def rights(self) -> tuple[Right, ...]:
        """The rights that its parts need; none for a plugin with texts only."""
        parts: tuple[tuple[Right, object], ...] = (
            ("extensions", self.code),
            ("hooks", self.hooks),
            ("servers", self.servers),
        )
        return tuple(right for right, content in parts if content)

    @property
    def path(self) -> Path:
        """The folder or file that consent applies to."""
        return self.root or self.file or Path(self.where)

    @property
    def server_names(self) -> frozenset[str]:
        return frozenset(name for table in self.servers for name in table.value)


class FailedPlugin(Struct, frozen=True):
    """A plugin that cannot be used, and the reason."""

    path: str
    reason: str


class Plugins(Struct, frozen=True):
    """All plugins of a project, the user's own first. Of two with one name the first is used, so that a project cannot
    replace a plugin of the user."""

    usable: tuple[Plugin, ...] = ()
    failed: tuple[FailedPlugin, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems, one line each."""
        lines = [f"Plugin {plugin.path} is left out: {plugin.reason}" for plugin in self.failed]
        for plugin in self.usable:
            lines += [f"Plugin '{plugin.name}': {text}" for text in plugin.problems]
        return tuple(lines)

    @property
    def agents(self) -> tuple[tuple[str, Path], ...]:
        """Folders of agents, each under the name of its plugin."""
        return tuple((plugin.name, folder) for plugin in self.usable for folder in plugin.agents)

    @property
    def brought(self) -> Plugins:
        """Only the plugins of a project."""
        return Plugins(tuple(plugin for plugin in self.usable if plugin.provenance != "person"))

    def find(self, name: str) -> Plugin | None:
        for plugin in self.usable:
            if name.lower() in plugin.names:
                return plugin
        return None


ENTRY_POINT_GROUP = "retinue.plugins"
_GROUP_BYTES = ENTRY_POINT_GROUP.encode()
_DISTRIBUTION = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)?.*\.(?:dist|egg)-info")


class EntryPoint(NamedTuple):
    name: str
    value: str
    distribution: str
    version: str


_EntryPointCache = dict[str, tuple[int, tuple[EntryPoint, ...]]]
_entry_points: _EntryPointCache = {}
"""The entry points of each folder, with the time of its last change."""


def entry_points(home: Path, project: Path) -> list[EntryPoint]:
    """Return the entry points of our group on `sys.path`; of two with one name the first is used. They are cached below
    `home`, if that exists. The working directory is skipped: Python may have added it (`python -m`), and its files are
    not installed."""
    here = {"", os.curdir, str(project)}
    # The working directory may have been deleted.
    with suppress(FileNotFoundError):
        here.add(os.getcwd())  # noqa: PTH109 (as sys.path has it)
    file = home / "cache" / "entry-points.json"
    cached: _EntryPointCache | None = None
    is_new = False
    points: dict[str, EntryPoint] = {}
    for folder in dict.fromkeys(sys.path):
        # Entries of `sys.path` may be zip files, or not exist.
        with suppress(OSError):
            if folder in here:
                continue
            changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 (asked for every folder at every launch)
            if _entry_points.get(folder, (0,))[0] != changed:
                if cached is None:
                    cached = _read_cache(file)
                if cached.get(folder, (0,))[0] != changed:
                    cached[folder], is_new = (changed, tuple(_read_entry_points(folder))), True
                _entry_points[folder] = cached[folder]
            for point in _entry_points[folder][1]:
                points.setdefault(point.name, point)
    if cached is not None and is_new and home.is_dir():
        present = {folder: entry for folder, entry in cached.items() if os.path.isdir(folder)}  # noqa: PTH112
        with suppress(OSError):
            replace_entry(None, str(private_folder(file.parent) / file.name), msgspec.json.encode(present), 0o600)
    return list(points.values())


def _read_cache(file: Path) -> _EntryPointCache:
    try:
        return msgspec.convert(read_object(file).data, _EntryPointCache)
    except msgspec.ValidationError:
        # The file is a cache and may be damaged.
        return {}


def _read_entry_points(folder: str) -> Iterator[EntryPoint]:
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 (asked for every folder of `sys.path`)
        if not name.endswith((".dist-info", ".egg-info")):
            continue
        try:
            text = read_file(f"{folder}/{name}/entry_points.txt")
        except OSError:
            continue
        match = _DISTRIBUTION.fullmatch(name)
        if _GROUP_BYTES in text and match is not None:
            distribution = match["name"].replace("_", "-")
            yield from _parse_entry_points(text.decode(errors="replace"), distribution, match["version"] or "")


def _parse_entry_points(text: str, distribution: str, version: str) -> Iterator[EntryPoint]:
    ours = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            ours = line == f"[{ENTRY_POINT_GROUP}]"
        elif ours and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.partition("[")[0].strip(), distribution, version)


MANIFESTS = (".claude-plugin/plugin.json", "plugin.json")
_PLUGIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")
_MODULE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENTRY_VALUE = re.compile(r"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?")
_MAX_MANIFEST_TEXT = 300


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
    folder = _FolderReader(root)
    if folder.reason:
        return FailedPlugin(str(root), folder.reason)
    # Without a name, the folder's name is used, without characters that a name cannot contain.
    name = name or folder.text("name") or _UNSAFE_CHARACTERS.sub("-", root.name).strip("-._")[:64] or "plugin"
    if not _PLUGIN_NAME.fullmatch(name):
        return FailedPlugin(
            str(root), f"'{name[:80]}' is not a name for a plugin: use letters, digits, '.', '_' and '-'"
        )
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
    """Read a single Python file as a plugin, named after the file."""
    if path.suffix != ".py":
        return FailedPlugin(str(path), "it is not a Python file: plugins are folders or .py files")
    if not _MODULE_NAME.fullmatch(path.stem.replace("-", "_")):
        return FailedPlugin(str(path), "its name cannot be imported: use letters, digits, '_' and '-'")
    return Plugin(path.stem, origin, str(path), provenance, file=path, code=(path.stem,))


class _FolderReader:
    """Reads one folder. `reason` says why it is not a plugin, `problems` which parts were ignored."""

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
            self.reason = "'name' in its manifest must be a string"

    def text(self, key: str) -> str:
        value = self.manifest.get(key, "")
        if isinstance(value, str):
            return " ".join(value.split())[:_MAX_MANIFEST_TEXT]
        self.problems.append(f"'{key}' in its manifest must be a string; it is ignored")
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
        """Return the tables of the manifest, of the usual file, and of files that the manifest names."""
        value, tables = self.manifest.get(key), []
        if isinstance(value, Mapping):
            if table := _unwrap_table(value, inner):
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
            elif table := _unwrap_table(read.data, inner):
                tables.append(PluginTable(path, table))
        return tuple(tables)

    def modules(self) -> tuple[str, ...]:
        """Return the modules with tools, as names below the folder."""
        paths = [self._root / "tools.py", *sorted((self._root / "tools").glob("*.py"))]
        paths += self._paths("tools", self.manifest.get("tools"))
        names: dict[str, None] = {}
        for path in dict.fromkeys(paths):
            if not path.is_file() or path.name.startswith("_"):
                continue
            parts = path.relative_to(self._root).with_suffix("").parts
            if path.suffix == ".py" and all(map(_MODULE_NAME.fullmatch, parts)):
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
        for text in listed:
            path = self._root / text.removeprefix("./")
            if path.resolve() != base and base in path.resolve().parents:
                inside.append(path)
            else:
                self.problems.append(f"'{key}' in its manifest leads out of the plugin ({text[:80]}); it is ignored")
        return inside


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _unwrap_table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a table. Two forms are in use: the table itself, and an object with the table under its name."""
    table = data.get(key)
    if isinstance(table, Mapping):
        return table
    # A table itself may have a description or a version beside its entries.
    return {name: value for name, value in data.items() if isinstance(value, (Mapping, list))}


PLUGIN_FOLDER = "plugins"


def plugin_folders(cwd: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the folder for the user's own plugins, and then those of the project, which exist."""
    own = retinue_home(environment) / PLUGIN_FOLDER
    folders = [own]
    top = repository_root(cwd) or cwd
    for level in (cwd, *cwd.parents):
        folder = level / ".retinue" / PLUGIN_FOLDER
        # In the user's home folder both are the same, and personal.
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
    """Find all plugins. `listed` are paths from settings and `disabled` names of plugins to skip; the flag tells
    whether the settings are the user's own."""
    plugins: dict[str, Plugin] = {}
    failed: list[FailedPlugin] = []
    off = [(name.lower(), own) for name, own in disabled]
    for plugin in _read_all(cwd, environment, listed):
        if isinstance(plugin, FailedPlugin):
            failed.append(plugin)
            continue
        # A project can disable only plugins of a project: the others may guard the user.
        if any(name in plugin.names and (own or plugin.provenance != "person") for name, own in off):
            continue
        first = plugins.setdefault(plugin.name.lower(), plugin)
        # The same plugin may be found twice, by a setting and in a folder.
        if first.where != plugin.where:
            failed.append(FailedPlugin(plugin.where, f"another plugin has the name '{plugin.name}': {first.where}"))
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
    """Return the plugin of an entry point, from its files alone."""
    where = f"{point.distribution} ({point.name} = {point.value})"
    if not _ENTRY_VALUE.fullmatch(point.value):
        return FailedPlugin(where, f"'{point.value[:80]}' is neither a module nor an object of one")
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
    """Return the folder of a package without importing it; None if it is not a package."""
    import importlib.util

    package, *below = module.split(".")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))).joinpath(*below)
    return folder if folder.is_dir() else None
