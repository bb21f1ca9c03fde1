"""Tool calls in words for people: the tool and the subject of the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from retinue.app.text import clip, optional
from retinue.core.messages import ToolCall
from retinue.core.tool_names import canonical
from retinue.guard.gate import call_title as call_title

SUBJECT_CHARACTERS = 100

SPAWNING = frozenset({"Agent", "subagent", "dispatch_agent"})
_PATH_ARGUMENTS = ("path", "file_path", "filePath", "file")
_AGENT_ARGUMENTS = ("agent_id", "id", "name", "resume")
# The arguments that state the subject of a call, by tool; the first one present is used.
_SUBJECT_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "read": _PATH_ARGUMENTS,
    "write": _PATH_ARGUMENTS,
    "edit": _PATH_ARGUMENTS,
    "bash": ("command", "cmd"),
    "grep": ("pattern", "query", "regex"),
    "find": ("pattern", "glob", "name"),
    "get_subagent_result": _AGENT_ARGUMENTS,
    "steer_subagent": _AGENT_ARGUMENTS,
    "clear_subagents": _AGENT_ARGUMENTS,
    "bash_output": ("id", "bash_id"),
    "ask_user": ("question",),
    "ask_parent": ("question",),
    "exit_plan": (),
    "todo": (),
    "lsp": ("action", "operation"),
}
_COMMON_SUBJECT_ARGUMENTS = (
    *_PATH_ARGUMENTS,
    "command",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
    "task",
    "question",
    "name",
)
# Phrases for tools whose names are not clear to people.
_TOOL_PHRASES = {
    "get_subagent_result": "result of agent",
    "steer_subagent": "message to agent",
    "list_subagents": "list of agents",
    "clear_subagents": "forget agents",
    "bash_output": "output of command",
    "ask_user": "question",
    "ask_parent": "question",
    "exit_plan": "plan",
    "fetch_content": "fetch",
    "web_search": "search the web for",
    "tool_search": "find tools for",
}


def tool_of(call: ToolCall) -> str:
    """Return our name of a tool, whichever name the model used."""
    if call.name in SPAWNING:
        return "Agent"
    names = canonical(call.name)
    return names[0] if len(names) == 1 else call.name


def heading(call: ToolCall) -> str:
    """Return the tool and the subject of the call, such as `grep login in src`. The text may contain control
    characters."""
    tool = tool_of(call)
    if tool == "Agent":
        return _agent_heading(call.arguments)
    return f"{_TOOL_PHRASES.get(tool, call.name)} {subject(call)}".rstrip()


def subject(call: ToolCall) -> str:
    """Return the subject of a call on one line: the file and its lines, the command, or the pattern and the folder."""
    tool, arguments = tool_of(call), call.arguments
    key = subject_key(tool, arguments)
    about = "" if key is None else _short(arguments[key])
    match tool:
        case "grep" | "find":
            folder = _short(_first(arguments, ("path", "folder")))
            about += optional(" in {}", "" if folder in (".", "./") else folder)
            about += optional(" ({})", _short(_first(arguments, ("glob", "include"))))
        case "read":
            about += _range(arguments)
        case "lsp":
            about += optional(" {}", _short(_first(arguments, (*_PATH_ARGUMENTS, "query", "symbol"))))
        case _:
            pass
    return about


def _agent_heading(arguments: Mapping[str, Any]) -> str:
    agent = _short(_first(arguments, ("subagent_type", "agent", "agent_type"))) or "Agent"
    if arguments.get("resume"):
        agent = f"{agent} (resumed)"
    return f"{agent} {_short(_first(arguments, ('description', 'task', 'prompt', 'message')))}".rstrip()


def _short(value: Any) -> str:
    return clip(" ".join(str(value or "").split()), SUBJECT_CHARACTERS)


def subject_key(tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the name of the argument that states the subject of a call."""
    for key in _SUBJECT_ARGUMENTS.get(tool, _COMMON_SUBJECT_ARGUMENTS):
        if arguments.get(key):
            return key
    if tool in _SUBJECT_ARGUMENTS:
        return None
    # For a tool of a server or a plugin, the first text is the best guess.
    for key, value in arguments.items():
        if isinstance(value, str) and value.strip():
            return key
    return None


def _first(arguments: Mapping[str, Any], names: Iterable[str]) -> Any:
    for name in names:
        if arguments.get(name):
            return arguments[name]
    return None


def _range(arguments: Mapping[str, Any]) -> str:
    """Return `:10-59` for a part of a file."""
    first, count = arguments.get("offset"), arguments.get("limit")
    if not isinstance(first, int) and not isinstance(count, int):
        return ""
    start = first if isinstance(first, int) and first > 0 else 1
    if not isinstance(count, int):
        return f":{start}-"
    return f":{start}-{start + max(count, 1) - 1}"
