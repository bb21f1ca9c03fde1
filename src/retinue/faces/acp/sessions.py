"""The conversations of the log that an editor may take up again: found, listed, and taken off the list."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.errors import UnknownRunError, UsageError
from retinue.faces.acp.rpc import INVALID_PARAMS, RpcError
from retinue.faces.acp.tree import iso_time, task_title
from retinue.log.query import LogReader, everywhere, find_run
from retinue.log.rows import RunRow
from retinue.settings.places import retinue_state, state_folder

_PAGE = 50
_MOST = 1_000
"""Conversations of one project that are looked at."""
_HIDDEN = "acp-deleted"
"""A file of the project's state: the ids of conversations that editors do not list any more, one a line."""


def find_conversation(session_id: str, cwd: Path | None) -> tuple[Path, RunRow]:
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


def _rows(reader: LogReader) -> list[RunRow]:
    hidden = _hidden(reader.path.parent)
    return [row for row in reader.list_runs(depth=0, limit=_MOST) if row.id not in hidden]


def _entry(row: RunRow) -> Mapping[str, Any]:
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
