"""The sessions of one client: their options, the requests about them, and the conversations of the log, which can be
listed, loaded and hidden."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.app.feed import Feed
from retinue.app.lookup import find_main_run, state_folder
from retinue.app.models import resolve_model
from retinue.app.runs import list_main_runs
from retinue.app.text import clean_line
from retinue.core.delegation import LIVE, new_run_id
from retinue.core.run_state import RunState
from retinue.errors import RetinueError, UsageError
from retinue.frontends.acp.rpc import (
    AUTHENTICATION_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NOT_FOUND,
    Id,
    RpcConnection,
    RpcError,
)
from retinue.frontends.acp.session import AcpSession
from retinue.frontends.acp.tree import iso_time, task_title
from retinue.frontends.acp.updates import MODELS_METHOD, ClientFeatures

MAX_SESSIONS = 64
PAGE_CONVERSATIONS = 50
MAX_CONVERSATIONS = 1_000
"""Conversations of one project that are considered."""
_HIDDEN_SESSIONS_FILE = "acp-deleted"
"""A file in the project's state folder: the ids of conversations that editors no longer list, one per line."""

Params = Mapping[str, Any]
Result = Mapping[str, Any]


class EditorSessions:
    """The open sessions of one client, and the protocol's methods for them."""

    def __init__(self, connection: RpcConnection, features: ClientFeatures) -> None:
        self._connection = connection
        self._features = features
        self._sessions: dict[str, AcpSession] = {}
        self._prompts: dict[Id, AcpSession] = {}
        self._opening = 0

    async def request(self, method: str, params: Params, request_id: Id) -> Result:
        """Answer a request about a session."""
        match method:
            case "authenticate":
                return await self._authenticate(params)
            case "session/new":
                session = await self._open(new_run_id(), read_cwd(params), None, params)
                return {"sessionId": session.id, **await self._describe(session)}
            case "session/load" | "session/resume":
                return await self._take_up(params, sends_history=method == "session/load")
            case "session/list":
                return await self._list(params)
            case "session/close":
                await self._sessions.pop(self._session(params).id).close()
                return {}
            case "session/delete":
                return await self._delete(params)
            case "session/set_mode":
                await self._session(params).set_mode(params.get("modeId"))
                return {}
            case "session/set_config_option":
                options = await self._session(params).set_option(params.get("configId"), params.get("value"))
                return {"configOptions": options}
            case _:
                return await self._prompt(params, request_id)

    async def cancel(self, params: Params) -> None:
        """Stop the runs of a session, or of a child session."""
        session_id = _session_id(params)
        session = self._sessions.get(session_id)
        if session is not None:
            await session.cancel()
            return
        for above in self._sessions.values():
            if session_id in above.story.runs:
                await above.cancel_child(session_id)

    async def cancel_prompt(self, request_id: Id) -> bool:
        """Stop the runs of a prompt. Return False if the request is not a prompt."""
        session = self._prompts.get(request_id)
        if session is not None:
            await session.cancel()
        return session is not None

    async def close(self) -> None:
        """Stop everything that runs in this process."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for result in await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True):
            if isinstance(result, Exception):
                sys.stderr.write(f"retinue acp: {result}\n")

    async def _authenticate(self, params: Params) -> Result:
        """Check that a model is available. Keys are never requested here."""
        if params.get("methodId") != MODELS_METHOD:
            raise RpcError(INVALID_PARAMS, f"There is no such method: {MODELS_METHOD}.")
        try:
            model = await resolve_model(Path.cwd())
        except RetinueError as error:
            raise RpcError(AUTHENTICATION_REQUIRED, str(error)) from error
        if model.source == "offline":
            raise RpcError(AUTHENTICATION_REQUIRED, "No model is set up. In a terminal: retinue models add")
        return {}

    async def _take_up(self, params: Params, *, sends_history: bool) -> Result:
        session_id, cwd = _session_id(params), read_cwd(params)
        session = self._sessions.get(session_id)
        if session is None:
            folder, row = await asyncio.to_thread(find_main_run, session_id, cwd)
            session = await self._open(row.id, Path(row.cwd), folder, params)
        elif not session.has_run:
            raise RpcError(NOT_FOUND, f"Nothing has been sent in the session '{session_id}' yet.")
        await session.load(sends_history=sends_history)
        return await self._describe(session)

    async def _describe(self, session: AcpSession) -> Result:
        description = await session.describe()
        asyncio.get_running_loop().call_soon(session.send_commands)
        return description

    async def _open(self, session_id: str, cwd: Path, folder: Path | None, params: Params) -> AcpSession:
        if len(self._sessions) + self._opening >= MAX_SESSIONS:
            raise RpcError(INVALID_REQUEST, f"{MAX_SESSIONS} sessions are open. Close one with session/close.")
        feed = Feed(cwd, folder, settings=session_settings(params))
        session = AcpSession(session_id, feed, self._connection, self._features)
        self._opening += 1
        try:
            await session.open()
        except BaseException:
            await session.close()
            raise
        finally:
            self._opening -= 1
        self._sessions[session_id] = session
        return session

    async def _list(self, params: Params) -> Result:
        cwd, cursor = params.get("cwd"), params.get("cursor")
        if not isinstance(cwd, (str, type(None))) or not isinstance(cursor, (str, type(None))):
            raise RpcError(INVALID_PARAMS, "`cwd` and `cursor` must be texts.")
        return await asyncio.to_thread(list_conversations, cwd, cursor)

    async def _delete(self, params: Params) -> Result:
        session_id = _session_id(params)
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()
            if not session.has_run:
                return {}
        folder, row = await asyncio.to_thread(find_main_run, session_id, None)
        if row.state in LIVE:
            raise RpcError(INVALID_REQUEST, f"It works in another process. Stop it with: retinue runs stop {row.id}")
        await asyncio.to_thread(_hide_conversation, folder, row.id)
        return {}

    async def _prompt(self, params: Params, request_id: Id) -> Result:
        session, blocks = self._session(params), params.get("prompt")
        if not isinstance(blocks, list):
            raise RpcError(INVALID_PARAMS, "`prompt` must be a list of content blocks.")
        self._prompts[request_id] = session
        try:
            return {"stopReason": await session.prompt(blocks)}
        finally:
            self._prompts.pop(request_id, None)

    def _session(self, params: Params) -> AcpSession:
        session_id = _session_id(params)
        session = self._sessions.get(session_id)
        if session is None:
            raise RpcError(NOT_FOUND, f"No session '{session_id}' is open. Open it with session/load.")
        return session


def _session_id(params: Params) -> str:
    session_id = params.get("sessionId")
    if not isinstance(session_id, str) or not session_id:
        raise RpcError(INVALID_PARAMS, "`sessionId` must be a text.")
    return session_id


# Conversations of the log


def list_conversations(cwd: str | None, cursor: str | None) -> Result:
    """Return a page of the conversations of one folder, or of all, newest first, in the form of `session/list`."""
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal()):
        raise RpcError(INVALID_PARAMS, "`cursor` must be one that session/list has returned.")
    if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long.
        return {"sessions": []}
    rows = []
    for folder, runs in list_main_runs(None if cwd is None else state_folder(Path(cwd)), MAX_CONVERSATIONS):
        hidden = _hidden(folder)
        rows += [row for row in runs if row.id not in hidden and cwd in (None, row.cwd)]
    rows.sort(key=lambda row: row.updated_at, reverse=True)
    start = int(cursor or 0)
    listed: dict[str, Any] = {"sessions": [_entry(row) for row in rows[start : start + PAGE_CONVERSATIONS]]}
    if len(rows) > start + PAGE_CONVERSATIONS:
        listed["nextCursor"] = str(start + PAGE_CONVERSATIONS)
    return listed


def _entry(row: RunState) -> Mapping[str, Any]:
    return {
        "sessionId": row.id,
        "cwd": row.cwd,
        "title": task_title(row.task),
        "updatedAt": iso_time(row.updated_at),
    }


def _hide_conversation(folder: Path, session_id: str) -> None:
    """Remove a conversation from the list. Its runs stay in the log as a record."""
    with os.fdopen(os.open(folder / _HIDDEN_SESSIONS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as file:
        file.write(f"{session_id}\n")


def _hidden(folder: Path) -> frozenset[str]:
    try:
        return frozenset((folder / _HIDDEN_SESSIONS_FILE).read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / _HIDDEN_SESSIONS_FILE} cannot be read: {error}") from error


# Options of a session


def read_cwd(params: Mapping[str, Any]) -> Path:
    """Return the folder of a session. Raise RpcError unless it is an existing absolute path."""
    return _folder(params.get("cwd"), "cwd")


def session_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for `mcpServers` and `additionalDirectories`. The editor is the user's own program, so its
    servers need no further consent."""
    settings: dict[str, Any] = {}
    servers = _servers(params.get("mcpServers") or [])
    if servers:
        settings["mcp_servers"] = servers
    folders = params.get("additionalDirectories") or []
    if not isinstance(folders, list):
        raise RpcError(INVALID_PARAMS, "`additionalDirectories` must be a list.")
    if folders:
        settings["extra_roots"] = [str(_folder(folder, "additionalDirectories")) for folder in folders]
    return settings


def _folder(value: object, key: str) -> Path:
    if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value:  # noqa: PTH117
        raise RpcError(INVALID_PARAMS, f"`{key}` must be an absolute path.")
    # `Path.is_dir` raises for a name that is too long.
    if not os.path.isdir(value):  # noqa: PTH112
        raise RpcError(INVALID_PARAMS, f"`{key}`: there is no folder {clean_line(value, 200)}.")
    return Path(value).resolve()


def _servers(listed: object) -> dict[str, Any]:
    if not isinstance(listed, list):
        raise RpcError(INVALID_PARAMS, "`mcpServers` must be a list.")
    configs: dict[str, Any] = {}
    for entry in listed:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise RpcError(INVALID_PARAMS, "Each of `mcpServers` must be an object with a `name`.")
        kind = entry.get("type") or "stdio"
        if kind == "stdio":
            server = {"command": entry.get("command"), "args": entry.get("args") or []}
            server["env"] = _pairs(entry.get("env"), "env")
        elif kind in ("http", "sse"):
            server = {"type": kind, "url": entry.get("url"), "headers": _pairs(entry.get("headers"), "headers")}
        else:
            raise RpcError(INVALID_PARAMS, f"MCP server '{entry['name']}': there is no transport {kind!r}.")
        configs[entry["name"]] = server
    return configs


def _pairs(entries: object, key: str) -> dict[str, str]:
    """Return a list of names with values as a mapping."""
    values = {}
    for entry in entries if isinstance(entries, list) else []:
        pair = (entry.get("name"), entry.get("value")) if isinstance(entry, dict) else (None, None)
        if not all(isinstance(text, str) for text in pair):
            raise RpcError(INVALID_PARAMS, f"Each of `{key}` must be an object with `name` and `value`.")
        values[entry["name"]] = entry["value"]
    return values
