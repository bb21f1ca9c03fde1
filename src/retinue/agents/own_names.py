"""What each dialect calls the tools: Retinue's names to theirs, for converting."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.core.spec import DialectName
from retinue.core.toolnames import TOOLS, canonical

_PLAIN: Mapping[str, str] = {name: name for name in TOOLS}
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

OWN: Mapping[DialectName, Mapping[str, str]] = {
    "retinue": _PLAIN,
    "pi": _PLAIN,
    "devkit": _PLAIN,
    "claude": _CLAUDE,
    "cursor": {**_CLAUDE, "edit": "StrReplace", "bash": "Shell", "lsp": "ReadLints", "Agent": "Task"},
    "codingcode": {
        "read": "read_file",
        "write": "write_file",
        "edit": "edit_file",
        "bash": "execute_command",
        "grep": "search_code",
        "find": "search_files",
        "ls": "list_dir",
        "fetch_content": "fetch_url",
        "web_search": "web_search",
        "tool_search": "tool_search",
        "Agent": "dispatch_agent",
        "dispatch_agent": "dispatch_agent",
    },
    "opencode": {
        "read": "read",
        "write": "write",
        "edit": "edit",
        "bash": "bash",
        "grep": "grep",
        "find": "glob",
        "ls": "list",
        "lsp": "lsp",
        "fetch_content": "webfetch",
        "web_search": "websearch",
        "todo": "todowrite",
        "skill": "skill",
        "ask_user": "question",
        "Agent": "task",
    },
    "gemini": {
        "read": "read_file",
        "write": "write_file",
        "edit": "replace",
        "bash": "run_shell_command",
        "grep": "grep_search",
        "find": "glob",
        "ls": "list_directory",
        "fetch_content": "web_fetch",
        "web_search": "google_web_search",
        "skill": "activate_skill",
        "ask_user": "ask_user",
    },
    "copilot": {
        "read": "read",
        "write": "edit/createFile",
        "edit": "edit",
        "bash": "execute",
        "bash_output": "execute/getTerminalOutput",
        "grep": "search/textSearch",
        "find": "search/fileSearch",
        "ls": "search/listDirectory",
        "lsp": "read/problems",
        "fetch_content": "web/fetch",
        "todo": "todo",
        "Agent": "agent",
    },
}


_STARTING = frozenset({"Agent", "subagent", "dispatch_agent"})


def in_dialect(name: str, dialect: DialectName) -> tuple[str, ...]:
    """`name` as that dialect says it. A set of tools becomes its members unless the dialect has
    it too; names of servers' tools and unknown ones stay as they are."""
    own = OWN.get(dialect)
    tools = canonical(name)
    if own is None or not tools or name in own.values() or (dialect == "copilot" and len(tools) > 1):
        return (name,)
    rest = name[len(name.partition("(")[0]) :]
    return tuple(f"{said}{rest}" if (said := _own_name(own, tool)) else name for tool in tools)


def _own_name(own: Mapping[str, str], tool: str) -> str | None:
    """What a dialect calls one of our tools; of those that start agents each has only one."""
    return own.get(tool) or (own.get("Agent") if tool in _STARTING else None)


def is_foreign(name: str, dialect: DialectName) -> bool:
    """Whether `name` is how another dialect calls a tool, and not how this one calls any."""
    own = OWN.get(dialect)
    if own is None or name.lower() in {each.lower() for each in own.values()}:
        return False
    return any(name in names.values() for names in OWN.values())
