"""One tool call as an editor shows it: its kind, a title, its files, and the change it makes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from retinue.app.call_text import call_title
from retinue.app.text import clip
from retinue.core.messages import Image, Text, ToolResult
from retinue.core.permission import ToolEffect
from retinue.frontends.acp.updates import Update, call_changed, text_content

_TOOL_KINDS: Mapping[str, str] = {
    "read": "read",
    "convert_content": "read",
    "bash_output": "read",
    "skill": "read",
    "grep": "search",
    "find": "search",
    "ls": "search",
    "lsp": "search",
    "tool_search": "search",
    "write": "edit",
    "edit": "edit",
    "apply_patch": "edit",
    "bash": "execute",
    "web_search": "fetch",
    "fetch_content": "fetch",
    "get_search_content": "fetch",
    "todo": "think",
    "Agent": "think",
    "subagent": "think",
    "dispatch_agent": "think",
    "exit_plan": "switch_mode",
}
_MAX_RESULT_CHARACTERS = 20_000
"""Characters of a result. Editors show it in a card; the model has read all of it."""
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)


def kind_of(name: str, arguments: Mapping[str, Any]) -> str:
    if name == "write" and arguments.get("delete") is True:
        return "delete"
    return _TOOL_KINDS.get(name, "other")


def call_facts(name: str, arguments: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """Return the fields of a call in an update: `title`, `name`, `kind`, `locations`, `rawInput`, and `content` if it
    changes a file or submits a plan."""
    facts: dict[str, Any] = {
        "title": call_title(name, arguments),
        "name": name,
        "kind": kind_of(name, arguments),
        "locations": _locations(name, arguments, cwd),
        "rawInput": dict(arguments),
    }
    content = change_content(name, arguments, cwd)
    if content:
        facts["content"] = content
    return facts


def change_content(name: str, arguments: Mapping[str, Any], cwd: str, before: str | None = None) -> list[Any]:
    """Return the change that a call makes, as its arguments describe it. `before` is the current content of a file that
    is written."""
    path = arguments.get("path")
    if name == "edit" and isinstance(path, str):
        return _edits(_absolute(path, cwd), arguments)
    if name == "write" and isinstance(path, str):
        new = arguments.get("content")
        text = new if isinstance(new, str) and arguments.get("delete") is not True else ""
        if before is not None and arguments.get("append") is True:
            text = before + text
        return [_diff(_absolute(path, cwd), before, text)]
    if name == "apply_patch":
        patch = next((argument for argument in arguments.values() if isinstance(argument, str)), "")
        return [text_content(f"```diff\n{patch}\n```")]
    if name == "exit_plan" and isinstance(arguments.get("plan"), str):
        return [text_content(arguments["plan"])]
    return []


def _edits(path: str, arguments: Mapping[str, Any]) -> list[Any]:
    edits = arguments.get("edits")
    diffs = []
    for edit in edits if isinstance(edits, list) and edits else [arguments]:
        old, new = edit.get("old_string"), edit.get("new_string")
        if isinstance(old, str) and isinstance(new, str):
            diffs.append(_diff(path, old, new))
    return diffs


def _diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    diff: dict[str, Any] = {"type": "diff", "path": path, "newText": new}
    if old is not None:
        diff["oldText"] = old
    return diff


def _locations(name: str, arguments: Mapping[str, Any], cwd: str) -> list[Any]:
    if name == "apply_patch":
        texts = [argument for argument in arguments.values() if isinstance(argument, str)]
        return [{"path": _absolute(path.strip(), cwd)} for text in texts for path in _PATCHED.findall(text)]
    path = arguments.get("path")
    if not isinstance(path, str) or not path:
        return []
    location: dict[str, Any] = {"path": _absolute(path, cwd)}
    line = arguments.get("offset")
    if name == "read" and isinstance(line, int) and line > 0:
        location["line"] = line
    return [location]


def _absolute(path: str, cwd: str) -> str:
    # Without the file system: the file may be gone when the event is read.
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))  # noqa: PTH111, PTH118


def call_began(call_id: str, name: str, arguments: Mapping[str, Any], cwd: str) -> Update:
    facts = call_facts(name, arguments, cwd)
    return {"sessionUpdate": "tool_call", "toolCallId": call_id, "status": "in_progress", **facts}


def call_ended(call_id: str, result: ToolResult, effect: ToolEffect, began: Mapping[str, Any]) -> Update:
    """Return the update for the end of a call. A successful change keeps its diff; other calls show their result."""
    changes: dict[str, Any] = {"status": "failed" if result.is_error else "completed"}
    diffs = [block for block in began.get("content", ()) if block["type"] == "diff"]
    if not diffs or result.is_error:
        changes["content"] = [*diffs, *_result_content(result)]
    if effect.writes:
        changes["locations"] = [{"path": write.path} for write in effect.writes]
    if effect.exit_code is not None:
        changes["rawOutput"] = {"exitCode": effect.exit_code}
    return call_changed(call_id, **changes)


def _result_content(result: ToolResult) -> list[Any]:
    blocks = []
    for block in result.content:
        if isinstance(block, Text) and block.text:
            blocks.append(text_content(clip(block.text, _MAX_RESULT_CHARACTERS)))
        elif isinstance(block, Image):
            image = {"type": "image", "data": block.data, "mimeType": block.media_type}
            blocks.append({"type": "content", "content": image})
    return blocks
