"""What a session is opened with: the folder, MCP servers and further folders that the editor brings, and the
conversations of the log that it may take up again, found, listed, and taken off the list."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.app.text import clean_line
from retinue.core.run_state import RunState
from retinue.errors import UnknownRunError, UsageError
from retinue.faces.acp.rpc import INVALID_PARAMS, RpcError
from retinue.faces.acp.tree import iso_time, task_title
from retinue.log.query import LogReader, everywhere, find_run
from retinue.settings.places import retinue_state, state_folder

_PAGE = 50
_MOST = 1_000
"""Conversations of one project that are looked at."""
_HIDDEN = "acp-deleted"
"""A file of the project's state: the ids of conversations that editors do not list any more, one a line."""


def find_conversation(session_id: str, cwd: Path | None) -> tuple[Path, RunState]:
    """Return the state folder and the main run of that id. Raise UnknownRunError, also for a run below another one."""
    first = state_folder(cwd) if cwd is not None else None
    folder, row = find_run(retinue_state(), session_id, first)
    if row.id != session_id or row.parent_id is not None:
        raise UnknownRunError(f"There is no conversation '{session_id}'.", remedy="session/list has those there are.")
    return folder, row


def list_conversations(cwd: str | None, cursor: str | None) -> dict[str, Any]:
    """Return a page of the conversations of one folder, or of all, newest first, as `session/list` has it."""
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal()):
        raise RpcError(INVALID_PARAMS, "`cursor` must be one that session/list has returned.")
    if cwd is None:
        found = [row for _, rows in everywhere(retinue_state(), _rows) for row in rows]
    else:
        if not os.path.isdir(cwd):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long.
            return {"sessions": []}
        with LogReader.open(state_folder(Path(cwd))) as reader:
            found = [row for row in _rows(reader) if row.cwd == cwd]
    found.sort(key=lambda row: row.updated_at, reverse=True)
    start = int(cursor or 0)
    page = found[start : start + _PAGE]
    listed: dict[str, Any] = {"sessions": [_entry(row) for row in page]}
    if len(found) > start + _PAGE:
        listed["nextCursor"] = str(start + _PAGE)
    return listed


def _rows(reader: LogReader) -> list[RunState]:
    hidden = _hidden(reader.path.parent)
    return [row for row in reader.list_runs(depth=0, limit=_MOST) if row.id not in hidden]


def _entry(row: RunState) -> Mapping[str, Any]:
    return {
        "sessionId": row.id,
        "cwd": row.cwd,
        "title": task_title(row.task),
        "updatedAt": iso_time(row.updated_at),
    }


def hide_conversation(folder: Path, session_id: str) -> None:
    """Take a conversation off the list. Its runs stay in the log, as evidence of what was done."""
    with os.fdopen(os.open(folder / _HIDDEN, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as file:
        file.write(f"{session_id}\n")


def _hidden(folder: Path) -> frozenset[str]:
    try:
        return frozenset((folder / _HIDDEN).read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / _HIDDEN} cannot be read: {error}") from error


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
