"""Tools in the words of the program a hook was written for.

A script for Claude Code looks for `Bash` and `file_path`. It gets them, and what it gives back
is translated again, so that a changed path is the path that is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.capabilities.hooks.handler import Dialect
from retinue.core.toolnames import canonical

_CLAUDE: Mapping[str, str] = {
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "bash": "Bash",
    "bash_output": "BashOutput",
    "grep": "Grep",
    "find": "Glob",
    "ls": "LS",
    "lsp": "LSP",
    "web_search": "WebSearch",
    "fetch_content": "WebFetch",
    "tool_search": "ToolSearch",
    "todo": "TodoWrite",
    "skill": "Skill",
    "ask_user": "AskUserQuestion",
    "Agent": "Agent",
}
_CODINGCODE: Mapping[str, str] = {
    "read": "read_file",
    "write": "write_file",
    "edit": "edit_file",
    "bash": "execute_command",
    "grep": "search_code",
    "find": "search_files",
    "fetch_content": "fetch_url",
    "web_search": "web_search",
    "todo": "todo_write",
    "dispatch_agent": "dispatch_agent",
}
_TABLES: Mapping[Dialect, Mapping[str, str]] = {"retinue": {}, "claude": _CLAUDE, "codingcode": _CODINGCODE}
_OTHERS: Mapping[str, tuple[str, ...]] = {"edit": ("MultiEdit", "NotebookEdit"), "Agent": ("Task",)}
_FILES = frozenset({"read", "write", "edit"})
_EDIT = {"old": "old_string", "new": "new_string", "all": "replace_all"}
_BACK = {theirs: ours for ours, theirs in _EDIT.items()}


def names_of(tool: str) -> tuple[str, ...]:
    """Every name under which a matcher may know the tool."""
    known = (tool, _CLAUDE.get(tool), _CODINGCODE.get(tool), *_OTHERS.get(tool, ()))
    return tuple(dict.fromkeys(name for name in known if name))


def own_name(tool: str) -> str:
    """Retinue's name of a tool that may come under another."""
    found = canonical(tool)
    return found[0] if len(found) == 1 else tool


def spoken(payload: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The payload as a handler of that dialect expects it."""
    said = dict(payload)
    tool = said.get("tool_name")
    if not isinstance(tool, str) or dialect == "retinue":
        return said
    own = own_name(tool)
    said["tool_name"] = _TABLES[dialect].get(own, tool)
    given = said.get("tool_input")
    if dialect == "claude" and own in _FILES and isinstance(given, Mapping):
        said["tool_input"] = _to_claude(own, given)
        if own == "edit" and "edits" in said["tool_input"]:
            said["tool_name"] = "MultiEdit"
    if dialect == "codingcode":
        said["toolName"], said["input"] = said["tool_name"], given
    return said


def understood(tool: str, given: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """An input that a handler of that dialect gave back, in the words of our tool."""
    own = own_name(tool)
    found = dict(given)
    if dialect != "claude" or own not in _FILES:
        return found
    if "path" not in found and "file_path" in found:
        found["path"] = found.pop("file_path")
    if own == "edit":
        edits = found.pop("edits", None) or [{key: found.pop(key) for key in _BACK if key in found}]
        renamed = [{_BACK.get(key, key): value for key, value in each.items()} for each in edits if each]
        found["edits"] = renamed
    return found


def _to_claude(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(given)
    if "path" in found and "file_path" not in found:
        found["file_path"] = found.pop("path")
    edits = found.get("edits")
    if tool == "edit" and isinstance(edits, list) and all(isinstance(each, Mapping) for each in edits):
        renamed = [{_EDIT.get(key, key): value for key, value in each.items()} for each in edits]
        del found["edits"]
        found |= renamed[0] if len(renamed) == 1 else {"edits": renamed}
    return found
