"""What an editor brings to a session: its MCP servers and further folders, as settings that hold for this session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.faces.acp.rpc import INVALID_PARAMS, RpcError
from retinue.faces.text import clean_line


def read_cwd(params: Mapping[str, Any]) -> Path:
    """Return the folder of a session. Raise RpcError for one that is not absolute or not there."""
    return _folder(params.get("cwd"), "cwd")


def session_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that `mcpServers` and `additionalDirectories` mean. The editor is the user's own program:
    its servers need no further consent."""
    found: dict[str, Any] = {}
    servers = _servers(params.get("mcpServers") or [])
    if servers:
        found["mcp_servers"] = servers
    folders = params.get("additionalDirectories") or []
    if not isinstance(folders, list):
        raise RpcError(INVALID_PARAMS, "`additionalDirectories` must be a list.")
    if folders:
        found["extra_roots"] = [str(_folder(each, "additionalDirectories")) for each in folders]
    return found


def _folder(value: object, key: str) -> Path:
    if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value:  # noqa: PTH117
        raise RpcError(INVALID_PARAMS, f"`{key}` must be an absolute path.")
    # `Path.is_dir` raises for a name that is too long.
    if not os.path.isdir(value):  # noqa: PTH112
        raise RpcError(INVALID_PARAMS, f"`{key}`: there is no folder {clean_line(value, 200)}.")
    return Path(value).resolve()


def _servers(given: object) -> dict[str, Any]:
    if not isinstance(given, list):
        raise RpcError(INVALID_PARAMS, "`mcpServers` must be a list.")
    found: dict[str, Any] = {}
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or not each["name"]:
            raise RpcError(INVALID_PARAMS, "Each of `mcpServers` must be an object with a `name`.")
        kind = each.get("type") or "stdio"
        if kind == "stdio":
            server = {"command": each.get("command"), "args": each.get("args") or []}
            server["env"] = _pairs(each.get("env"), "env")
        elif kind in ("http", "sse"):
            server = {"type": kind, "url": each.get("url"), "headers": _pairs(each.get("headers"), "headers")}
        else:
            raise RpcError(INVALID_PARAMS, f"MCP server '{each['name']}': there is no transport {kind!r}.")
        found[each["name"]] = server
    return found


def _pairs(given: object, key: str) -> dict[str, str]:
    """Return a list of names with values as a mapping."""
    found = {}
    for each in given if isinstance(given, list) else []:
        pair = (each.get("name"), each.get("value")) if isinstance(each, dict) else (None, None)
        if not all(isinstance(part, str) for part in pair):
            raise RpcError(INVALID_PARAMS, f"Each of `{key}` must be an object with `name` and `value`.")
        found[each["name"]] = each["value"]
    return found
