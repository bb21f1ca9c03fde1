"""The names of tools, and the grammar of lists of tools and rules in files of every dialect, flags, settings, policies,
hooks and plugins.

Retinue uses pi's names. Every other name is an alias, found without regard to case. An alias for a group of tools
(`search` of VS Code) means several tools; a name without a counterpart here is unknown, and a list of unknown names
allows nothing.

An entry is `Tool` or `Tool(specifier)`. A comma outside of parentheses ends it. A blank, `;` or `|` does so too if
everything between them names existing tools: `Write Bash` are two tools, `Microsoft Docs` is one name. Where the format
separates by blanks (flags, the Agent Skills format), they always separate.

An entry that denies and cannot be understood denies nothing by itself: `entry_problem` returns its defect, and the
reader refuses the launch, or denies more.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from retinue.core.permission import READ_ONLY, EffectKind
from retinue.core.spelling import distance

_READ: frozenset[EffectKind] = frozenset({"read"})
_WRITE: frozenset[EffectKind] = frozenset({"read", "write"})
_NETWORK: frozenset[EffectKind] = frozenset({"network"})
_ALL_EFFECTS: frozenset[EffectKind] = frozenset({"read", "write", "execute", "network"})
_SPAWN: frozenset[EffectKind] = frozenset({"spawn"})
_ASK: frozenset[EffectKind] = frozenset({"ask"})
_NONE: frozenset[EffectKind] = frozenset()

TOOL_EFFECTS: Mapping[str, frozenset[EffectKind]] = {
    "read": _READ,
    "grep": _READ,
    "find": _READ,
    "ls": _READ,
    "lsp": _READ,
    "write": _WRITE,
    "edit": _WRITE,
    "apply_patch": _NONE,
    "bash": _ALL_EFFECTS,
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

BY_NAME_ONLY: Mapping[str, str] = {
    "get_search_content": "fetch_content",
    "list_subagents": "get_subagent_result",
    "clear_subagents": "",
}
"""Tools that a run has only where its file names them; elsewhere the tool behind each, if any, does the same."""

PATH_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("read", "grep", "find", "ls", "write", "edit", "convert_content"), ("path",)),
    "lsp": ("file", "files"),
    "skill": (),
}
"""For those that read or write files themselves: the parameters that are paths. Of the others, `bash` is judged by its
command."""

STARTING_TOOLS: frozenset[str] = frozenset({"Agent", "subagent", "dispatch_agent"})
"""The tool that starts an agent, as each vocabulary calls it."""

RULE_EFFECTS: Mapping[str, EffectKind] = {
    "read": "read",
    "edit": "write",
    "write": "write",
    "bash": "execute",
    "fetch_content": "network",
    **dict.fromkeys(STARTING_TOOLS, "spawn"),
}
"""The effect that a rule of this name is about. A rule that forbids or asks holds for every tool that declares it."""

BUILT_IN_SEVEN: tuple[str, ...] = ("read", "bash", "edit", "write", "grep", "find", "ls")

_TOOL_ALIASES: Mapping[str, tuple[str, ...]] = {
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

TOOL_NAME_ALIASES: Mapping[str, tuple[str, ...]] = {
    **{name.lower(): (name,) for name in TOOL_EFFECTS},
    **{alias: (name,) for name, aliases in _TOOL_ALIASES.items() for alias in aliases},
    **_GROUPS,
}
"""Lower-case alias to canonical names."""


def base_name(name: str) -> str:
    """`Bash(git:*)` and `kimi_cli.tools.shell:Shell` without what surrounds the tool's name."""
    name = name.partition("(")[0].strip()
    module, colon, tool = name.rpartition(":")
    return tool if colon and "." in module else name


@lru_cache(maxsize=1024)
def canonical(name: str) -> tuple[str, ...]:
    """The tools of Retinue that `name` stands for; empty for MCP tools and unknown names."""
    return TOOL_NAME_ALIASES.get(base_name(name).lower(), ())


@lru_cache(maxsize=256)
def matching_tools(pattern: str) -> frozenset[str]:
    """The tools of Retinue that a pattern of names covers, under any name that they have."""
    lowered = pattern.lower()
    return frozenset(
        tool for alias, tools in TOOL_NAME_ALIASES.items() if fnmatchcase(alias, lowered) for tool in tools
    )


def fold_name(name: str) -> str:
    """A name without what spellings differ in: `filePath`, `file-path` and `file_path` are one."""
    return name.replace("_", "").replace("-", "").casefold()


def is_read_only(name: str) -> bool | None:
    """Whether every tool that `name` stands for leaves files alone; None if it is unknown."""
    tools = canonical(name)
    return all(TOOL_EFFECTS[tool] <= READ_ONLY for tool in tools) if tools else None


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_MAX_TOOL_NAME_CHARACTERS = 64
"""The longest name of a tool that every provider takes."""


MAX_SERVER_CHARACTERS = 48
"""Characters of a server's name that are whole in the names of its tools, however long those are."""


def served_word(name: str) -> str:
    """Return the name of a server or of its tool as it stands in `mcp__server__tool`: characters that providers refuse
    become `_`."""
    return _NOT_IN_NAMES.sub("_", name)


def is_telling(server: str) -> bool:
    """Return whether rules can distinguish this server from all others. The end of its name in `mcp__server__tool` must
    be clear, or the tool `b__get` of the server `a` would be `get` of the server `a__b`."""
    word = served_word(server)
    return (
        "__" not in word and not word.startswith("_") and not word.endswith("_") and len(word) <= MAX_SERVER_CHARACTERS
    )


def served_name(server: str, tool: str) -> str:
    """`mcp__server__tool`, as a model calls a tool of an MCP server. A name that is too long is cut and told apart by
    a digest."""
    name = f"mcp__{served_word(server)}__{served_word(tool)}"
    if len(name) <= _MAX_TOOL_NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{name[: _MAX_TOOL_NAME_CHARACTERS - 9]}_{digest}"


def served_alias(name: str) -> str | None:
    """`server:tool` and `server/tool` (also with `*`) as the pattern they stand for; None if
    the name has neither form."""
    for mark in (":", "/"):
        server, separator, tool = name.partition(mark)
        if separator and server and tool and not tool.startswith(mark):
            return f"mcp__{served_word(server)}__{served_word(tool) if tool != '*' else tool}"
    return None


MAX_ENTRY_CHARACTERS = 2_000
SERVED = "mcp__"
_OPENING = "([{"
_CLOSING = ")]}"
_BLANKS = " \t\r\n"
_BLANK_SEPARATORS = f",{_BLANKS}"
_SOFT_SEPARATORS = f"{_BLANKS};|"
_QUOTES = "'\"`"
_TOOL_NAME = re.compile(r"[\w*?][\w.:/@$*?-]*")
_NO_NAME = re.compile(r"[-+.\d]*|true|false|null|yes|no", re.IGNORECASE)
_JOINED = re.compile(r"[/:.@$-]+")
_MIN_WORD_CHARACTERS = 3
_SHELL = "bash"
_COMMA = "Put a comma between two tools."


class EntryProblem(NamedTuple):
    """Why an entry cannot be understood, to stand after it, and what to do."""

    why: str
    remedy: str = ""


def split_entries(text: str, *, blanks: bool = False) -> tuple[str, ...]:
    """Return the entries of a list that is written as one text, without quotes around them. Nothing is split
    inside parentheses, unless one of them is never closed. With `blanks` every blank separates."""
    if text.isidentifier():
        return (text,)
    if blanks:
        return _bare_entries(_split(text, _BLANK_SEPARATORS))
    entries: list[str] = []
    for entry in _bare_entries(_split(text, ",")):
        words = _bare_entries(_split(entry, _SOFT_SEPARATORS))
        if len(words) > 1 and all(map(_is_tool, words)):
            entries += words
        else:
            entries.append(entry)
    return tuple(entries)


def split_entry(entry: str) -> tuple[str, str | None]:
    """Return `Bash(git *)` as `Bash` and `git *`; None for the latter without parentheses."""
    name, bracket, specifier = entry.strip().partition("(")
    name = name.strip()
    if name[: len(SERVED)].lower() == SERVED:
        name = SERVED + name[len(SERVED) :]
    if not bracket:
        return name, None
    return name, specifier.rstrip().removesuffix(")").strip()


def split_selector(selector: str) -> tuple[str, str]:
    """Return `ext:Weather/forecast` as `weather`, the extension or server, and `forecast`; empty for all its tools."""
    extension, _, tool = selector.removeprefix("ext:").partition("/")
    return extension.strip().lower(), tool.strip()


def bare(text: str) -> str:
    """Return a text without blanks and without a pair of quotes around it."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in _QUOTES:
        return text[1:-1].strip()
    return text


@lru_cache(maxsize=1024)
def entry_problem(entry: str) -> EntryProblem | None:
    """Return why an entry that denies cannot be understood: its form, or a name that is almost that of a tool. Names
    that resemble no tool are those of other programs, of which there are many."""
    name = split_entry(entry)[0]
    problem = form_problem(entry)
    if problem is not None:
        return problem
    if _NO_NAME.fullmatch(name):
        return EntryProblem("is no name of a tool", "Write the names of tools.")
    words = [word for word in _JOINED.split(name) if word]
    if len(words) > 1 and not canonical(name) and all(map(_is_tool, words)):
        return EntryProblem("joins several tools", f"Write '{', '.join(words)}'.")
    inner = name.strip("_")
    if inner != name and not canonical(name) and _is_tool(inner):
        return EntryProblem("is no tool", f"Did you mean '{inner}'?")
    meant = misspelt_tool(base_name(name))
    if meant is not None:
        return EntryProblem("is no tool", f"Did you mean '{meant}'?")
    return None


def form_problem(entry: str) -> EntryProblem | None:
    """Return why a text is not one entry that denies, `Tool` or `Tool(specifier)`, whatever tools there are."""
    problem = shape_problem(entry)
    name, specifier = split_entry(entry)
    if problem is not None or specifier is None:
        return problem
    if _closes_early(specifier):
        return EntryProblem("holds more than one rule", _COMMA)
    if _SHELL in canonical(name) and _lists_commands(specifier):
        return EntryProblem("holds more than one command", "Write one rule for each: Bash(rm:*), Bash(touch:*).")
    return None


def shape_problem(entry: str) -> EntryProblem | None:
    """Return why a text is no entry at all, whether it denies or allows."""
    written = entry.strip()
    if not written or len(written) > MAX_ENTRY_CHARACTERS or not written.isprintable():
        return EntryProblem(f"is empty, longer than {MAX_ENTRY_CHARACTERS:,} characters or holds unprintable ones")
    name, bracket, specifier = written.partition("(")
    if bracket and not specifier.endswith(")"):
        return EntryProblem("does not end with a closing parenthesis", _COMMA)
    if bracket and not specifier[:-1].strip():
        return EntryProblem("has nothing in its parentheses; leave them out to mean every call")
    if not _TOOL_NAME.fullmatch(name.strip()):
        why = "has no tool's name before the parenthesis" if bracket else "is not the name of one tool"
        return EntryProblem(why, _COMMA)
    return None


@lru_cache(maxsize=1024)
def misspelt_tool(name: str) -> str | None:
    """Return the tool that `name` was meant to be, if it is one letter off; None for any other name,
    and for a pattern that covers tools."""
    lowered = name.lower()
    if lowered in TOOL_NAME_ALIASES or len(lowered) < _MIN_WORD_CHARACTERS or matching_tools(lowered):
        return None
    for alias in TOOL_NAME_ALIASES:
        if len(alias) >= _MIN_WORD_CHARACTERS and off_by_one(lowered, alias):
            return alias
    return None


def off_by_one(word: str, other: str) -> bool:
    """Return whether one letter was added, dropped or changed, or two neighbours swapped."""
    return distance(word, other, 1) == 1


def _is_tool(entry: str) -> bool:
    name = split_entry(entry)[0]
    return form_problem(entry) is None and (name.startswith(SERVED) or bool(canonical(name)))


def _bare_entries(texts: list[str]) -> tuple[str, ...]:
    return tuple([name for text in texts if (name := bare(text))])


def _split(text: str, ends: str) -> list[str]:
    """Return the parts of a text between the letters of `ends`, outside of parentheses."""
    if "(" not in text and "[" not in text and "{" not in text:
        return _split_anywhere(text, ends)
    parts: list[str] = []
    depth = start = 0
    for position, letter in enumerate(text):
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth = max(0, depth - 1)
        elif depth == 0 and letter in ends:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        # A parenthesis that never closes must not swallow names.
        return _split_anywhere(text, ends)
    parts.append(text[start:])
    return parts


def _split_anywhere(text: str, ends: str) -> list[str]:
    first = ends[0]
    for other in ends[1:]:
        text = text.replace(other, first)
    return text.split(first)


def _closes_early(specifier: str) -> bool:
    """Return whether a parenthesis closes what none in the specifier has opened: `touch:*) Write(x`."""
    depth = 0
    for letter in specifier:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return True
    return False


def _lists_commands(specifier: str) -> bool:
    """Return whether a specifier of the shell is a list: `:*` ends a command, and no program is called `rm,`."""
    first = specifier.split(maxsplit=1)[0]
    return ":*" in specifier[:-2] or first.endswith((",", ";", "|"))
