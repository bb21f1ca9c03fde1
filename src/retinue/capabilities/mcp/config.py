"""The configured MCP servers, validated, with their variables filled in.

A later source replaces servers of the same name in an earlier one: Claude Code's user file, CodingCode's, plugins, the
project's `.mcp.json`, then the settings. Files of other programs are read, never written. A file that cannot be read is
reported as a problem and does not affect the others.

The forms of all systems are accepted: `command` and `args` for a program, `url` for HTTP (`type` or `transport` names
the kind), `${VAR}` and `${VAR:-default}` in any text. A server with a wrong configuration is returned with a `problem`:
the others still work, and an agent that needs it is told why it is missing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agents.yaml_reader import YamlError, load_mapping
from retinue.core.files import read_file
from retinue.core.foreign import Provenance
from retinue.core.tool_names import MAX_SERVER_CHARACTERS, is_telling, served_word
from retinue.settings.field import Origin
from retinue.settings.foreign import read_object
from retinue.settings.places import home, pi_home, repository_root

CODINGCODE_FILES = ("mcp.yaml", "mcp.yml")
_MAX_CONFIG_BYTES = 1_000_000


class Configured(Struct, frozen=True):
    """`problems` name files that could not be read; a wrong entry is a server with a `problem`."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def configured_servers(
    cwd: Path,
    environment: Mapping[str, str],
    *,
    settings: Mapping[str, Any] = MappingProxyType({}),
    origin: Callable[[str], Origin] = lambda name: Origin("user", "settings"),
    claude: bool = True,
    extra: Iterable[tuple[str, Mapping[str, Any]]] = (),
    foreign_environment: Mapping[str, str] | None = None,
) -> Configured:
    """Return every configured server. `settings` is the table of the settings files, `origin` returns the layer of a
    name, and `extra` are the tables of plugins with their sources. In servers that were not configured by a person of
    this machine, variables are filled in from `foreign_environment`, if there is one."""
    problems: list[str] = []
    servers: dict[str, ServerConfig] = {}

    def add(table: Mapping[str, Any], where: str, provenance: Provenance = "person") -> None:
        variables = environment
        if provenance != "person" and foreign_environment is not None:
            variables = foreign_environment
        for name, raw in table.items():
            server = read_server(str(name), raw, variables, origin=where, provenance=provenance)
            # A nearer file may disable a server.
            servers.pop(str(name), None)
            if server is not None:
                servers[server.name] = server

    if claude:
        path = claude_file(environment)
        data = _json(path, problems)
        add(_table(data, "mcpServers"), str(path))
        projects = _table(data, "projects")
        for folder in reversed(list(upwards(cwd))):
            add(_table(projects.get(str(folder)), "mcpServers"), str(path))
    for path in user_files(environment):
        add(_tables_of(path, problems), str(path))
    for where, table in extra:
        add(table, where)
    for path in project_files(cwd):
        add(_tables_of(path, problems), str(path), "project")
    for name, raw in settings.items():
        source = origin(name)
        add({name: raw}, source.where, source.provenance)
    return Configured(servers, tuple(problems))


def claude_file(environment: Mapping[str, str]) -> Path:
    return home(environment) / ".claude.json"


def user_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the user's own files of systems other than Claude Code."""
    yield pi_home(environment) / "mcp.json"
    for name in CODINGCODE_FILES:
        yield home(environment) / ".codingcode" / name


def project_files(cwd: Path) -> Iterator[Path]:
    """Yield the files of the project, the nearest last, so that it wins."""
    for folder in reversed(list(upwards(cwd))):
        for name in CODINGCODE_FILES:
            yield folder / ".codingcode" / name
        yield folder / ".pi" / "mcp.json"
        yield folder / ".mcp.json"


def upwards(cwd: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to the repository's root; outside of a repository only the folder."""
    top = repository_root(cwd)
    for folder in (cwd, *cwd.parents):
        yield folder
        if top is None or folder == top:
            return


def any_file(cwd: Path, environment: Mapping[str, str], *, claude: bool) -> bool:
    """Return whether there is any such file at all."""
    if claude and claude_file(environment).is_file():
        return True
    return any(path.is_file() for path in (*user_files(environment), *project_files(cwd)))


def _tables_of(path: Path, problems: list[str]) -> Mapping[str, Any]:
    """Return the servers of a file. In YAML, `servers` or `mcpServers` is an object, or a list of entries with a
    `name`."""
    if path.suffix == ".json":
        return _table(_json(path, problems), "mcpServers")
    if not path.is_file():
        return {}
    try:
        data = {item.key: item.value for item in load_mapping(read_file(path, _MAX_CONFIG_BYTES).decode())}
    except (OSError, ValueError, YamlError) as error:
        problems.append(f"{path} cannot be read: {str(error).splitlines()[0]}")
        return {}
    servers = data.get("servers") or data.get("mcpServers") or {}
    if isinstance(servers, dict):
        return servers
    named: dict[str, Any] = {}
    for entry in servers if isinstance(servers, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            entry = dict(entry)
            named[entry.pop("name")] = entry
        else:
            problems.append(f"{path}: a server without a name is left out")
    return named


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    read = read_object(path)
    if read.problem is not None:
        problems.append(f"{path} {read.problem}")
    return read.data


def _table(data: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or not isinstance(data.get(key), Mapping):
        return {}
    return {str(name): raw for name, raw in data[key].items()}


Transport = Literal["stdio", "http", "sse"]

_TRANSPORT_NAMES: Mapping[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "sse": "sse",
}
_VARIABLE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_MAX_SERVER_NAME_LENGTH = 64
DEFAULT_CONCURRENCY = 8


class ServerConfig(Struct, frozen=True, kw_only=True):
    """`provenance` decides whether the server needs consent to start. With `trust_annotations` (a person's servers
    only) a tool that the server marks as read-only is treated so. `origin` names the file or setting in messages."""

    name: str
    provenance: Provenance
    transport: Transport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = DEFAULT_CONCURRENCY
    start_seconds: float | None = None
    call_seconds: float | None = None
    restart: bool = True
    trust_annotations: bool = False
    inline: bool = False
    origin: str = ""
    problem: str | None = None

    @property
    def digest(self) -> str:
        """Equal for configurations that may share one connection."""
        connection = (self.transport, self.command, self.args, sorted(self.env.items()), self.cwd, self.url)
        options = (sorted(self.headers.items()), self.concurrency, self.call_seconds, self.restart)
        identity = (self.name, self.trust_annotations)
        return hashlib.sha256(orjson.dumps([connection, options, identity])).hexdigest()[:24]

    @property
    def target(self) -> str:
        """The command or address in messages, without values of `env` or `headers`."""
        return self.url.partition("?")[0] if self.url else " ".join((self.command, *self.args))


def read_server(
    name: str,
    raw: Any,
    environment: Mapping[str, str],
    *,
    origin: str,
    provenance: Provenance,
    inline: bool = False,
) -> ServerConfig | None:
    """Return the server of one entry; None if it is disabled, or if it is Retinue itself. That entry is for other
    programs: an agent that used it would start runs without the limits of its tree."""
    base = ServerConfig(name=name, provenance=provenance, origin=origin, inline=inline)
    if not isinstance(raw, Mapping):
        return replace(base, problem="its configuration is not an object")
    if raw.get("disabled") is True or raw.get("enabled") is False:
        return None
    for key, value in raw.items():
        # A server that was meant to be disabled must not be started because of a typo.
        is_switch = key in ("disabled", "enabled") and isinstance(value, bool)
        if not is_switch and str(key).lower() in ("disabled", "disable", "enabled", "enable"):
            return replace(base, problem=f"`{key}: {value}` is not valid; write `disabled: true` or `disabled: false`")
    try:
        server = _read(base, raw, environment)
    except _ServerConfigError as error:
        return replace(base, problem=str(error))
    words = [os.path.basename(server.command), *server.args]  # noqa: PTH119 - a word, not a path that must exist
    is_retinue = (
        words[:2] == ["retinue", "mcp"]
        or words[1:4] == ["-m", "retinue", "mcp"]
        or words[1:5] == ["-I", "-m", "retinue", "mcp"]
    )
    return None if is_retinue else server


class _ServerConfigError(Exception):
    """Completes "the server cannot be used: …"."""


def _read(base: ServerConfig, raw: Mapping[str, Any], environment: Mapping[str, str]) -> ServerConfig:
    if not base.name.strip() or not base.name.isprintable() or len(base.name) > _MAX_SERVER_NAME_LENGTH:
        raise _ServerConfigError(
            f"a server's name is one printable line of at most {_MAX_SERVER_NAME_LENGTH} characters"
        )
    if not is_telling(base.name):
        raise _ServerConfigError(
            f"rules could not tell its tools (mcp__{served_word(base.name)}__…) from those of another server; give it "
            f"a name of at most {MAX_SERVER_CHARACTERS} letters without two of '_', '.' or spaces in a row or at an end"
        )
    fill = partial(_fill, environment)
    command, args = _command(raw, fill)
    url = fill(_text(raw.get("url") or raw.get("httpUrl") or raw.get("serverUrl"), "url")).strip()
    transport = _transport(raw, command, url)
    if transport == "stdio":
        if not command:
            raise _ServerConfigError("it has neither `command` nor `url`")
        url = ""
    elif not url.startswith(("http://", "https://")):
        raise _ServerConfigError("`url` must start with http:// or https://")
    else:
        command, args = "", ()
    return replace(
        base,
        transport=transport,
        command=command,
        args=args,
        env=_texts(raw.get("env"), "env", fill),
        cwd=fill(_text(raw.get("cwd"), "cwd")) or None,
        url=url,
        headers=_texts(raw.get("headers"), "headers", fill),
        concurrency=_concurrency_of(raw.get("concurrency")),
        start_seconds=_seconds(raw, "startTimeout", "start_timeout"),
        call_seconds=_seconds(raw, "timeout", "callTimeout"),
        restart=raw.get("autoReconnect") is not False,
        trust_annotations=base.provenance == "person" and raw.get("trustAnnotations") is True,
    )


FillVariables = Callable[[str], str]


def _fill(environment: Mapping[str, str], text: str) -> str:
    """Fill in variables. Raise _ServerConfigError for one that is not set and has no default."""

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        # As in a shell, `:-` also replaces an empty value.
        value = environment.get(name) or default
        if value is None:
            raise _ServerConfigError(f"the variable {name} is not set; set it, or write ${{{name}:-DEFAULT}}")
        return str(value)

    return _VARIABLE_REFERENCE.sub(value, text)


def _command(raw: Mapping[str, Any], fill: FillVariables) -> tuple[str, tuple[str, ...]]:
    """Return the program and its arguments. In opencode's form `command` contains both."""
    command: Any = raw.get("command")
    args = raw.get("args") or []
    if isinstance(command, list) and isinstance(args, list):
        command, args = next(iter(command), None), [*command[1:], *args]
    if not isinstance(args, list) or not all(isinstance(word, (str, int, float)) for word in args):
        raise _ServerConfigError("`args` must be a list of strings")
    words = [fill(_text(command, "command")), *(fill(str(word)) for word in args)]
    if "\0" in "".join(words):
        raise _ServerConfigError("`command` and `args` cannot contain a NUL character")
    return words[0].strip(), tuple(words[1:])


def _transport(raw: Mapping[str, Any], command: str, url: str) -> Transport:
    named = raw.get("type") or raw.get("transport")
    if named is None:
        return "http" if url and not command else "stdio"
    transport = _TRANSPORT_NAMES.get(str(named).lower())
    if transport is None:
        raise _ServerConfigError(f"its transport '{named}' is not one of stdio, http, sse")
    return transport


def _text(value: Any, key: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _ServerConfigError(f"`{key}` must be a string")
    return value


def _texts(value: Any, key: str, fill: FillVariables) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _ServerConfigError(f"`{key}` must be an object of strings")
    texts: dict[str, str] = {}
    for name, raw in value.items():
        if isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
            raise _ServerConfigError(f"`{key}.{name}` must be a string")
        text = fill(str(raw))
        if "\0" in f"{name}{text}" or not str(name) or "=" in str(name):
            raise _ServerConfigError(f"`{key}` has a name or value that cannot be passed on")
        texts[str(name)] = text
    return texts


def _concurrency_of(value: Any) -> int:
    if value is None:
        return DEFAULT_CONCURRENCY
    if type(value) is not int or not 1 <= value <= 1_000:
        raise _ServerConfigError("`concurrency` must be a whole number from 1 to 1000")
    return value


def _seconds(raw: Mapping[str, Any], *keys: str) -> float | None:
    """Return a number of seconds. Numbers from 1000 are milliseconds, which other systems use."""
    for key in keys:
        value = raw.get(key)
        if value is None:
            continue
        if type(value) not in (int, float) or not 0 < value <= 86_400_000:
            raise _ServerConfigError(f"`{key}` must be a number of seconds, or of milliseconds from 1000 on")
        return value / 1000 if value >= 1000 else float(value)
    return None
