"""Which plugins there are: in the user's folder, settings, installed packages and the project.

The layout of a plugin is Claude Code's, with `tools` added:

    .claude-plugin/plugin.json   name, version, description, further paths (or plugin.json)
    agents/  skills/             texts
    hooks/hooks.json  .mcp.json  what runs: hooks, MCP servers
    tools.py  tools/*.py         Python functions with @tool

Without a manifest the folder's name is the plugin's. Nothing is imported or run here. A manifest
that is not a JSON object fails the plugin; a wrong field is dropped alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.capabilities.plugins.plugin import (
    EntryPoint,
    FailedPlugin,
    Origin,
    Plugin,
    Plugins,
    PluginTable,
    entry_points,
)
from retinue.core.provenance import Provenance
from retinue.settings.foreign import read_object
from retinue.settings.places import repository_root, retinue_home

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
    found = _Folder(root)
    if found.reason:
        return FailedPlugin(str(root), found.reason)
    # The folder's name serves without what a name cannot hold.
    called = name or found.text("name") or _ODD.sub("-", root.name).strip("-._")[:64] or "plugin"
    if not _NAME.fullmatch(called):
        return FailedPlugin(
            str(root), f"'{called[:80]}' is no name for a plugin: use letters, digits, '.', '_' and '-'"
        )
    also = dict.fromkeys((found.text("name"), root.name, *aliases))
    also.pop(called, None)
    plugin = Plugin(
        name=called,
        origin=origin,
        where=str(root),
        provenance=provenance,
        root=root,
        entry=entry,
        version=found.text("version"),
        description=found.text("description"),
        aliases=tuple(also),
        agents=found.folders("agents"),
        skills=found.folders("skills"),
        hooks=found.tables("hooks", "hooks/hooks.json", "hooks"),
        servers=found.tables("mcpServers", ".mcp.json", "mcpServers"),
        code=(entry,) if entry else found.modules(),
        problems=tuple(found.problems),
    )
    if not found.manifest and not (plugin.agents or plugin.skills or plugin.acts):
        return FailedPlugin(str(root), "it has no manifest and nothing that a plugin can bring")
    return plugin


def read_file(path: Path, origin: Origin, *, provenance: Provenance) -> Plugin | FailedPlugin:
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
        paths = []
        if (self._root / key).is_dir():
            paths.append(self._root / key)
        for path in self._paths(key, self.manifest.get(key)):
            if path.exists():
                paths.append(path)
            else:
                self.problems.append(f"'{key}' in its manifest names {path.name}, which is not there")
        return tuple(dict.fromkeys(paths))

    def tables(self, key: str, usual: str, inner: str) -> tuple[PluginTable, ...]:
        """Return tables of the usual file, of files the manifest names, and of the manifest itself."""
        said, found = self.manifest.get(key), []
        if isinstance(said, Mapping):
            table = _inner(said, inner)
            if table:
                found.append(PluginTable(self._root, table))
            said = None
        paths = dict.fromkeys([self._root / usual, *self._paths(key, said)])
        for path in paths:
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
                found.append(PluginTable(path, table))
        return tuple(found)

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
    found = data.get(key)
    if isinstance(found, Mapping):
        return found
    table = {}
    for name, value in data.items():
        # A table itself may have a description or a version beside its entries.
        if isinstance(value, (Mapping, list)):
            table[name] = value
    return table


FOLDER = "plugins"


def plugin_folders(cwd: Path, environment: Mapping[str, str]) -> list[tuple[Path, bool]]:
    """Return the folders that hold plugins, with whether only the user can have put them there."""
    own = retinue_home(environment) / FOLDER
    folders = []
    if own.is_dir():
        folders.append((own, True))
    top = repository_root(cwd) or cwd
    for level in (cwd, *cwd.parents):
        folder = level / ".retinue" / FOLDER
        # In the user's home folder both are one, and personal.
        if folder.is_dir() and not (own.is_dir() and folder.samefile(own)):
            folders.append((folder, False))
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
    found: dict[str, Plugin] = {}
    failed: list[FailedPlugin] = []
    off_by_user: set[str] = set()
    off_by_project: set[str] = set()
    for name, own in disabled:
        said = off_by_user if own else off_by_project
        said.add(name.lower())
    for made in _read_all(cwd, environment, listed):
        if isinstance(made, FailedPlugin):
            failed.append(made)
            continue
        # A project switches off only what a project brings: it must not take away what guards the user.
        if made.names & off_by_user or (made.provenance != "person" and made.names & off_by_project):
            continue
        twin = found.setdefault(made.name.lower(), made)
        # A plugin that is found twice, by a setting and in a folder, is no problem.
        if twin.where != made.where:
            failed.append(FailedPlugin(made.where, f"another plugin is called '{made.name}', too: {twin.where}"))
    return Plugins(tuple(found.values()), tuple(failed))


def read_path(path: Path, origin: Origin, *, provenance: Provenance) -> Plugin | FailedPlugin:
    """Read a plugin by its path: a folder, or a Python file."""
    if path.is_dir():
        return read_folder(path, origin, provenance=provenance)
    if path.is_file():
        return read_file(path, origin, provenance=provenance)
    return FailedPlugin(str(path), "there is nothing at this path")


def _read_all(
    cwd: Path, environment: Mapping[str, str], listed: Iterable[tuple[Path, bool]]
) -> Iterator[Plugin | FailedPlugin]:
    """Read every plugin, the user's own first."""
    folders = plugin_folders(cwd, environment)
    paths = list(listed)
    for folder, personal in folders:
        if personal:
            yield from _read_inside(folder, "user", provenance="person")
    for path, personal in paths:
        if personal:
            yield read_path(path, "setting", provenance="person")
    for point in entry_points(retinue_home(environment), cwd):
        yield _read_package(point)
    for path, personal in paths:
        if not personal:
            yield read_path(path, "setting", provenance="project")
    for folder, personal in folders:
        if not personal:
            yield from _read_inside(folder, "project", provenance="project")


def _read_inside(folder: Path, origin: Origin, *, provenance: Provenance) -> Iterator[Plugin | FailedPlugin]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
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
    if folder is None:
        short = (point.distribution,) if point.distribution != point.name else ()
        return Plugin(
            point.name,
            "package",
            where,
            provenance="person",
            entry=point.value,
            version=point.version,
            aliases=short,
            code=(point.value,),
        )
    made = read_folder(
        folder, "package", provenance="person", name=point.name, aliases=(point.distribution,), entry=point.value
    )
    if isinstance(made, FailedPlugin) or made.version:
        return made
    return replace(made, version=point.version)


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
