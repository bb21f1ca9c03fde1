"""Which MCP servers there are, by name, and who brought them.

Later sources replace earlier ones of the same name: Claude Code's user file, CodingCode's, the
project's `.mcp.json`, then the settings. Files of others are read, never written. What cannot be
read is a problem in the result and hides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from retinue.capabilities.mcp.config import ServerConfig, read_server
from retinue.capabilities.mcp.places import claude_file, project_files, upwards, user_files
from retinue.core.lean import dataclass
from retinue.settings.field import Origin
from retinue.settings.jsonfile import read_object


@dataclass(frozen=True, slots=True)
class Configured:
    """`problems` name files that could not be read; bad entries are servers with a problem."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One table of servers. `place` tells of a single entry where it is from, and whether only
    the user can have put it there."""

    table: Mapping[str, Any]
    place: Callable[[str], tuple[str, bool]]


def configured_servers(
    cwd: Path,
    environment: Mapping[str, str],
    *,
    settings: Mapping[str, Any] | None = None,
    origin: Callable[[str], Origin] | None = None,
    claude: bool = True,
    extra: Iterable[tuple[str, Mapping[str, Any]]] = (),
) -> Configured:
    """`settings` is the table of the settings files, `origin` says for a name which layer it is
    from; `extra` are tables of plugins, each with what brought it."""
    problems: list[str] = []
    found: dict[str, ServerConfig] = {}
    sources = [
        *_foreign(cwd, environment, claude, problems),
        *(_plain(table, brought, personal=True) for brought, table in extra),
        *_project(cwd, problems),
        _settings(settings or {}, origin),
    ]
    for source in sources:
        for name, raw in source.table.items():
            where, personal = source.place(name)
            server = read_server(str(name), raw, environment, origin=where, personal=personal)
            found.pop(str(name), None)
            if server is not None:
                found[server.name] = server
    return Configured(found, tuple(problems))


def _plain(table: Mapping[str, Any], where: str, *, personal: bool) -> Source:
    return Source(table, lambda _: (where, personal))


def _settings(table: Mapping[str, Any], origin: Callable[[str], Origin] | None) -> Source:
    def place(name: str) -> tuple[str, bool]:
        found = origin(name) if origin is not None else Origin("user", "settings")
        return found.where, found.personal

    return Source(table, place)


def _foreign(cwd: Path, environment: Mapping[str, str], claude: bool, problems: list[str]) -> Iterator[Source]:
    """What the user configured for other systems."""
    if claude:
        path = claude_file(environment)
        data = _json(path, problems)
        yield _plain(_table(data, "mcpServers"), str(path), personal=True)
        projects = _table(data, "projects")
        for folder in reversed(list(upwards(cwd))):
            yield _plain(_table(projects.get(str(folder)), "mcpServers"), str(path), personal=True)
    for path in user_files(environment):
        yield _plain(_read(path, problems), str(path), personal=True)


def _project(cwd: Path, problems: list[str]) -> Iterator[Source]:
    for path in project_files(cwd):
        yield _plain(_read(path, problems), str(path), personal=False)


def _read(path: Path, problems: list[str]) -> Mapping[str, Any]:
    if path.suffix == ".json":
        return _table(_json(path, problems), "mcpServers")
    return _by_name(_yaml(path, problems), str(path), problems) if path.is_file() else {}


def _by_name(data: Any, where: str, problems: list[str]) -> dict[str, Any]:
    """`servers` (or `mcpServers`) as an object, or as a list whose entries carry their names."""
    servers = (data.get("servers") or data.get("mcpServers") or {}) if isinstance(data, dict) else {}
    if isinstance(servers, dict):
        return servers
    found: dict[str, Any] = {}
    for entry in servers if isinstance(servers, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            found[entry["name"]] = {key: value for key, value in entry.items() if key != "name"}
        else:
            problems.append(f"{where}: a server without a name is left out")
    return found


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    read = read_object(path)
    if read.problem is not None:
        problems.append(f"{path} {read.problem}")
    return read.data


def _yaml(path: Path, problems: list[str]) -> Any:
    import yaml

    try:
        return yaml.load(path.read_bytes()[:1_000_000], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path} cannot be read: {str(error).splitlines()[0]}")
        return {}


def _table(data: Any, key: str) -> Mapping[str, Any]:
    found = data.get(key) if isinstance(data, Mapping) else None
    return {str(name): raw for name, raw in found.items()} if isinstance(found, Mapping) else {}
