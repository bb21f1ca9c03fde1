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

from retinue.capabilities.plugins.plugin import FailedPlugin, Origin, Plugin, Plugins, PluginTable
from retinue.settings.foreign import read_object
from retinue.settings.places import repository_root, retinue_home

MANIFESTS = (".claude-plugin/plugin.json", "plugin.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 300


def read_folder(
    root: Path, origin: Origin, *, personal: bool, name: str = "", aliases: tuple[str, ...] = (), entry: str = ""
) -> Plugin | FailedPlugin:
    """Read the plugin in a folder. `name` is the name of its entry point, where it has one."""
    found = _Folder(root)
    if found.reason:
        return FailedPlugin(str(root), found.reason)
    called = name or found.text("name") or _named_after(root)
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
        personal=personal,
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


def _named_after(root: Path) -> str:
    """Return the folder's name, without what a name cannot hold."""
    return _ODD.sub("-", root.name).strip("-._")[:64] or "plugin"


def read_file(path: Path, origin: Origin, *, personal: bool) -> Plugin | FailedPlugin:
    """Read a single Python file as a plugin: its name is the file's."""
    if path.suffix != ".py":
        return FailedPlugin(str(path), "it is no Python file: plugins are folders or .py files")
    if not _MODULE.fullmatch(path.stem.replace("-", "_")):
        return FailedPlugin(str(path), "its name cannot be imported: use letters, digits, '_' and '-'")
    return Plugin(path.stem, origin, str(path), personal, file=path, code=(path.stem,))


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
            found.append(PluginTable(self._root, _inner(said, inner)))
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
            else:
                found.append(PluginTable(path, _inner(read.data, inner)))
        return tuple(table for table in found if table.value)

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
        if not all(isinstance(each, str) and each.strip() and "\0" not in each for each in listed):
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


def _inner(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a table. Both forms are in use: the table itself, and an object that holds it under its name."""
    found = data.get(key)
    if isinstance(found, Mapping):
        return found
    # A table itself may have a description or a version beside its entries.
    return {name: value for name, value in data.items() if isinstance(value, (Mapping, list))}


FOLDER = "plugins"


def plugin_places(cwd: Path, environment: Mapping[str, str]) -> list[tuple[Path, bool]]:
    """Return the folders that hold plugins, with whether only the user can have put them there."""
    own = retinue_home(environment) / FOLDER
    places = []
    if own.is_dir():
        places.append((own, True))
    top = repository_root(cwd) or cwd
    for folder in (cwd, *cwd.parents):
        place = folder / ".retinue" / FOLDER
        if place.is_dir() and not (own.is_dir() and place.samefile(own)):
            places.append((place, False))
        if folder == top:
            break
    return places


def find_plugins(
    cwd: Path,
    environment: Mapping[str, str],
    *,
    listed: Iterable[tuple[Path, bool]] = (),
    disabled: Iterable[tuple[str, bool]] = (),
) -> Plugins:
    """Find all plugins. `listed` are paths of the settings, `disabled` names of plugins to leave out; each with
    whether the user said so. What a project says switches off only what a project brings: it
    must not take away what guards the user."""
    found: dict[str, Plugin] = {}
    failed: list[FailedPlugin] = []
    off = [(name.lower(), own) for name, own in disabled]
    for made in _all(cwd, environment, listed):
        if isinstance(made, FailedPlugin):
            failed.append(made)
            continue
        if any(name in made.names and (own or not made.personal) for name, own in off):
            continue
        twin = found.setdefault(made.name.lower(), made)
        if twin.where != made.where:  # one that is found twice, as a setting and in a folder, is no problem
            failed.append(FailedPlugin(made.where, f"another plugin is called '{made.name}', too: {twin.where}"))
    return Plugins(tuple(found.values()), tuple(failed))


def read_path(path: Path, origin: Origin, *, personal: bool) -> Plugin | FailedPlugin:
    """Read a plugin by its path: a folder, or a Python file."""
    if path.is_dir():
        return read_folder(path, origin, personal=personal)
    if path.is_file():
        return read_file(path, origin, personal=personal)
    return FailedPlugin(str(path), "there is nothing at this path")


def _all(
    cwd: Path, environment: Mapping[str, str], listed: Iterable[tuple[Path, bool]]
) -> Iterator[Plugin | FailedPlugin]:
    """Read every plugin, the user's own first."""
    places = plugin_places(cwd, environment)
    paths = list(listed)
    for place, personal in places:
        if personal:
            yield from _inside(place, "user", personal=True)
    for path, personal in paths:
        if personal:
            yield read_path(path, "setting", personal=True)
    yield from _packages(cwd, environment)
    for path, personal in paths:
        if not personal:
            yield read_path(path, "setting", personal=False)
    for place, personal in places:
        if not personal:
            yield from _inside(place, "project", personal=False)


def _inside(place: Path, origin: Origin, *, personal: bool) -> Iterator[Plugin | FailedPlugin]:
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError as error:
        yield FailedPlugin(str(place), f"it cannot be listed: {error.strerror or error}")
        return
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        path = place / entry.name
        if path.is_dir() or entry.name.endswith(".py"):
            yield read_path(path, origin, personal=personal)


def _packages(cwd: Path, environment: Mapping[str, str]) -> Iterator[Plugin | FailedPlugin]:
    from retinue.capabilities.plugins.plugin import entry_points, packaged

    return map(packaged, entry_points(retinue_home(environment), cwd))
