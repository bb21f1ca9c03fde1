"""The names tools go by: Retinue's own, what each may do at most, and what others call them.

Retinue uses pi's names. Everything else is an alias, found without regard to case. An alias
for a group of tools (`search` of VS Code) stands for several names; a name of another system
that has no counterpart here is simply unknown, and a list of unknown names allows nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from retinue.core.permission import READ_ONLY, EffectKind

_READ: frozenset[EffectKind] = frozenset({"read"})
_WRITE: frozenset[EffectKind] = frozenset({"read", "write"})
_NETWORK: frozenset[EffectKind] = frozenset({"network"})
_ANYTHING: frozenset[EffectKind] = frozenset({"read", "write", "execute", "network"})
_SPAWN: frozenset[EffectKind] = frozenset({"spawn"})
_ASK: frozenset[EffectKind] = frozenset({"ask"})
_NONE: frozenset[EffectKind] = frozenset()

TOOLS: Mapping[str, frozenset[EffectKind]] = {
    "read": _READ,
    "grep": _READ,
    "find": _READ,
    "ls": _READ,
    "lsp": _READ,
    "write": _WRITE,
    "edit": _WRITE,
    "apply_patch": _NONE,
    "bash": _ANYTHING,
    "bash_output": _NONE,
    "web_search": _NETWORK,
    "fetch_content": _NETWORK,
    "get_search_content": _NONE,
    "convert_content": frozenset({"read", "network"}),
    "tool_search": _NONE,
    "todo": _NONE,
    "skill": _READ,
    "ask_parent": _NONE,
    "ask_user": _ASK,
    "exit_plan": _NONE,
    "Agent": _SPAWN,
    "subagent": _SPAWN,
    "dispatch_agent": _SPAWN,
    "get_subagent_result": _NONE,
    "steer_subagent": _SPAWN,
    "list_subagents": _NONE,
    "clear_subagents": _NONE,
}
"""Canonical names with the most each tool may do. `find` is what others call glob."""

PATHS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("read", "grep", "find", "ls", "write", "edit", "convert_content"), ("path",)),
    "lsp": ("file", "files"),
    "skill": (),
}
"""For those that read or write files themselves: the parameters that are paths. Of the others, `bash` is judged by its
command."""

STARTING: frozenset[str] = frozenset({"Agent", "subagent", "dispatch_agent"})
"""The tool that starts an agent, as each vocabulary calls it."""

SUBJECTS: Mapping[str, EffectKind] = {
    "read": "read",
    "edit": "write",
    "write": "write",
    "bash": "execute",
    "fetch_content": "network",
    **dict.fromkeys(STARTING, "spawn"),
}
"""The effect that a rule of this name is about. A rule that forbids or asks holds for every tool that declares it."""

BUILT_IN_SEVEN: tuple[str, ...] = ("read", "bash", "edit", "write", "grep", "find", "ls")

_ALSO: Mapping[str, tuple[str, ...]] = {
    "read": (
        "read_file",
        "readfile",
        "readmediafile",
        "notebookread",
        "view",
        "read/readfile",
        "read_many_files",
        "readmanyfiles",
    ),
    "write": ("write_file", "writefile", "createfile", "create_file", "edit/createfile", "filewrite"),
    "edit": (
        "multiedit",
        "notebookedit",
        "strreplace",
        "strreplacefile",
        "edit_file",
        "edit/editfiles",
        "editfiles",
        "patch",
        "apply_patch",
        "replace",
        "replace_in_file",
        "fileedit",
    ),
    "bash": (
        "shell",
        "powershell",
        "execute_command",
        "run_shell_command",
        "execute",
        "execute/runinterminal",
        "runinterminal",
        "runcommands",
        "terminal",
        "terminalcommand",
        "run_terminal_cmd",
    ),
    "bash_output": (
        "bashoutput",
        "killbash",
        "killshell",
        "taskoutput",
        "taskstop",
        "terminallastcommand",
        "read/terminallastcommand",
        "execute/getterminaloutput",
    ),
    "grep": (
        "search_code",
        "grep_search",
        "grep_files",
        "search_file_content",
        "codesearch",
        "search/textsearch",
        "ripgrep",
    ),
    "find": ("glob", "search_files", "find_files", "file_search", "search/filesearch"),
    "ls": ("list", "list_files", "listfiles", "list_directory", "list_dir", "search/listdirectory"),
    "lsp": ("readlints", "problems", "read/problems", "diagnostics"),
    "web_search": ("websearch", "searchweb", "google_web_search"),
    "fetch_content": ("webfetch", "web_fetch", "fetch", "fetchurl", "fetch_url", "web/fetch"),
    "tool_search": ("toolsearch", "mcpsearch"),
    "todo": (
        "todowrite",
        "todoread",
        "todo_write",
        "todos",
        "todolist",
        "settodolist",
        "taskcreate",
        "taskget",
        "tasklist",
        "taskupdate",
        "update_plan",
        "write_todos",
    ),
    "skill": ("activate_skill",),
    "steer_subagent": ("sendmessage", "send_message"),
    "list_subagents": ("listagents", "list_agents"),
    "ask_user": ("askuserquestion", "ask_user_question", "ask-user-question", "question"),
    "exit_plan": ("exitplanmode", "exit_plan_mode", "plan_exit"),
    "Agent": ("task", "runsubagent", "agent/runsubagent", "sub-agent"),
}

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "search": ("grep", "find", "ls"),
    "codebase": ("grep", "find", "ls"),
    "search/codebase": ("grep", "find", "ls"),
    "usages": ("grep", "lsp"),
    "search/usages": ("grep", "lsp"),
    "searchresults": ("grep",),
    "search/searchresults": ("grep",),
    "web": ("web_search", "fetch_content"),
}

ALIASES: Mapping[str, tuple[str, ...]] = {
    **{name.lower(): (name,) for name in TOOLS},
    **{alias: (name,) for name, aliases in _ALSO.items() for alias in aliases},
    **_GROUPS,
}
"""Lower-case alias to canonical names."""


def base_name(name: str) -> str:
    """`Bash(git:*)` and `kimi_cli.tools.shell:Shell` without what surrounds the tool's name."""
    name = name.partition("(")[0].strip()
    module, colon, rest = name.rpartition(":")
    return rest if colon and "." in module else name


@lru_cache(maxsize=1024)
def canonical(name: str) -> tuple[str, ...]:
    """The tools of Retinue that `name` stands for; empty for MCP tools and unknown names."""
    return ALIASES.get(base_name(name).lower(), ())


@lru_cache(maxsize=256)
def matching_tools(pattern: str) -> frozenset[str]:
    """The tools of Retinue that a pattern of names covers, under any name that they have."""
    lowered = pattern.lower()
    return frozenset(tool for alias, tools in ALIASES.items() if fnmatchcase(alias, lowered) for tool in tools)


def fold_name(name: str) -> str:
    """A name without what spellings differ in: `filePath`, `file-path` and `file_path` are one."""
    return name.replace("_", "").replace("-", "").casefold()


def is_read_only(name: str) -> bool | None:
    """Whether every tool that `name` stands for leaves files alone; None if it is unknown."""
    found = canonical(name)
    return all(TOOLS[each] <= READ_ONLY for each in found) if found else None


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64
"""The longest name of a tool that every provider takes."""


LONGEST_SERVER = 48
"""Characters of a server's name that are whole in the names of its tools, however long those are."""


def served_word(name: str) -> str:
    """Return the name of a server or of its tool as it stands in `mcp__server__tool`: characters that providers refuse
    become `_`."""
    return _NOT_IN_NAMES.sub("_", name)


def is_telling(server: str) -> bool:
    """Return whether rules can tell this server from every other: where its part of `mcp__server__tool` ends must be
    plain, or a tool `b__get` of the server `a` would be `get` of the server `a__b`."""
    word = served_word(server)
    return "__" not in word and not word.startswith("_") and not word.endswith("_") and len(word) <= LONGEST_SERVER


def served_name(server: str, tool: str) -> str:
    """`mcp__server__tool`, as a model calls a tool of an MCP server. A name that is too long is cut and told apart by
    a digest."""
    name = f"mcp__{served_word(server)}__{served_word(tool)}"
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{name[: _LONGEST - 9]}_{digest}"


def served_alias(name: str) -> str | None:
    """`server:tool` and `server/tool` (also with `*`) as the pattern they stand for; None if
    the name has neither form."""
    for mark in (":", "/"):
        server, found, tool = name.partition(mark)
        if found and server and tool and not tool.startswith(mark):
            return f"mcp__{served_word(server)}__{served_word(tool) if tool != '*' else tool}"
    return None
