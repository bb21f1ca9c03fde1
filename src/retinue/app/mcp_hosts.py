"""Programs that can offer the agents of a project, and the configuration that each of them needs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from retinue.core.files import read_text
from retinue.errors import StateError
from retinue.settings.write import replace_file

SERVER_NAME = "retinue"
_HOUR_SECONDS = 3600


class HostConfig(Struct, frozen=True, kw_only=True):
    """How a host is configured. `file` is relative to the project, or to the home folder if it is `shared` by all
    projects. `key` is the object that contains the servers. `entry` returns the server's entry for a command line."""

    title: str
    file: str
    key: str
    entry: Callable[[list[str]], dict[str, Any]]
    shared: bool = False
    format: Literal["json", "toml"] = "json"
    note: str = ""


def _plain(command: list[str]) -> dict[str, Any]:
    return {"command": command[0], "args": command[1:]}


def _typed(command: list[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _patient(command: list[str]) -> dict[str, Any]:
    # Gemini counts in milliseconds.
    return {**_plain(command), "timeout": _HOUR_SECONDS * 1000}


def _codex(command: list[str]) -> dict[str, Any]:
    # Without it Codex gives up after a minute. The run would continue, but its result would be lost.
    return {**_plain(command), "tool_timeout_sec": _HOUR_SECONDS}


def _opencode(command: list[str]) -> dict[str, Any]:
    return {"type": "local", "command": command, "enabled": True}


_DESKTOP = {"darwin": "Library/Application Support/Claude", "win32": "AppData/Roaming/Claude"}

HOSTS: Mapping[str, HostConfig] = {
    "claude": HostConfig(title="Claude Code", file=".mcp.json", key="mcpServers", entry=_typed),
    "claude-desktop": HostConfig(
        title="Claude Desktop",
        file=f"{_DESKTOP.get(sys.platform, '.config/Claude')}/claude_desktop_config.json",
        key="mcpServers",
        entry=_plain,
        shared=True,
        note="Restart Claude Desktop.",
    ),
    "codex": HostConfig(
        title="Codex",
        file=".codex/config.toml",
        key="mcp_servers",
        entry=_codex,
        format="toml",
        note="Codex reads this file in projects that it trusts.",
    ),
    "cursor": HostConfig(title="Cursor", file=".cursor/mcp.json", key="mcpServers", entry=_plain),
    "gemini": HostConfig(title="Gemini CLI", file=".gemini/settings.json", key="mcpServers", entry=_patient),
    "opencode": HostConfig(title="OpenCode", file="opencode.json", key="mcp", entry=_opencode),
    "vscode": HostConfig(title="VS Code", file=".vscode/mcp.json", key="servers", entry=_typed),
    "windsurf": HostConfig(
        title="Windsurf", file=".codeium/windsurf/mcp_config.json", key="mcpServers", entry=_plain, shared=True
    ),
    "zed": HostConfig(title="Zed", file=".config/zed/settings.json", key="context_servers", entry=_plain, shared=True),
}


class HostFile(Struct, frozen=True):
    """A host and the file in which it looks for servers."""

    host: str
    title: str
    file: str


class HostList(Struct, frozen=True):
    """Every known host."""

    hosts: list[HostFile]


class HostEntry(Struct, frozen=True):
    """The entry of the server in a host's file. `written` means that the file was changed."""

    host: str
    file: str
    key: str
    entry: Mapping[str, Any]
    written: bool


def list_hosts(cwd: Path) -> HostList:
    """Return every host with its file for the project at `cwd`."""
    return HostList([HostFile(name, host.title, str(file_of(host, cwd))) for name, host in HOSTS.items()])


def file_of(host: HostConfig, cwd: Path) -> Path:
    """Return the file in which a host looks for servers."""
    return (Path.home() if host.shared else cwd) / host.file


def command_of(host: HostConfig, cwd: Path, options: Mapping[str, str | None]) -> list[str]:
    """Return the command line that a host must start, with the options of `retinue mcp`."""
    program = shutil.which(SERVER_NAME)
    # Isolated, because a host starts it in a project that may contain a `retinue.py`.
    command = [sys.executable, "-I", "-m", SERVER_NAME]
    if program is not None:
        # A file of the project is shared with others; a graphical program may have another PATH.
        command = [os.path.abspath(program)] if host.shared else [SERVER_NAME]  # noqa: PTH100 - links stay
    command.append("mcp")
    if host.shared:
        command += ["--cwd", str(cwd)]
    for option, value in options.items():
        if value is not None:
            command += [f"--{option}", value]
    return command


def shown_entry(host: HostConfig, entry: dict[str, Any]) -> str:
    """Return the text that a person would add to the file."""
    if host.format == "toml":
        return _toml(host.key, entry)
    return json.dumps({host.key: {SERVER_NAME: entry}}, indent=2, ensure_ascii=False) + "\n"


def _toml(key: str, entry: dict[str, Any]) -> str:
    # JSON's strings, numbers and lists of strings are TOML as well.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()]
    return "\n".join([f"[{key}.{SERVER_NAME}]", *lines]) + "\n"


def write_entry(host: HostConfig, file: Path, entry: dict[str, Any]) -> bool:
    """Add the server to the file of a host. Return False if it was present. Raise StateError if the file cannot be
    changed without losing data."""
    try:
        before = read_text(file) if file.exists() else ""
        data = _read(host, before)
        servers = data.setdefault(host.key, {})
        if not isinstance(servers, dict):
            raise ValueError(f"`{host.key}` is no object")
        old = servers.get(SERVER_NAME)
        if old == entry:
            return False
        if host.format == "toml":
            if old is not None:
                raise ValueError(f"it has another `{host.key}.{SERVER_NAME}` already")
            gap = "\n" if before and not before.endswith("\n\n") else ""
            after = f"{before.rstrip()}\n{gap}{_toml(host.key, entry)}".lstrip("\n")
        else:
            servers[SERVER_NAME] = entry
            after = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, after.encode())
    except (OSError, ValueError) as error:
        raise StateError(
            f"{file} was left as it is: {error}.", remedy="Add it by hand: the same command without --write prints it."
        ) from error
    return True


def _read(host: HostConfig, text: str) -> dict[str, Any]:
    """Parse a file. Raise ValueError for a file with comments, which would be lost."""
    if not text.strip():
        return {}
    if host.format == "toml":
        import tomllib

        return tomllib.loads(text)
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    return data
