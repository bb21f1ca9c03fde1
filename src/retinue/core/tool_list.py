"""The grammar of lists of tools and rules, wherever they stand: files of every dialect, flags, settings,
policies, hooks and plugins.

An entry is `Tool` or `Tool(specifier)`. A comma outside of parentheses ends it. A blank, `;` or `|` does so too
where everything between them names tools that exist: `Write Bash` are two tools, `Microsoft Docs` is one name.
Where blanks are said to separate (flags, the Agent Skills format), they always do.

An entry that denies and cannot be understood denies nothing by itself: `entry_problem` says what is wrong with it,
and whoever reads it refuses the launch, or denies more.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from retinue.core.toolnames import ALIASES, base_name, canonical, matching_tools

LONGEST_ENTRY = 2_000
SERVED = "mcp__"
_OPEN = "([{"
_CLOSE = ")]}"
_BLANKS = " \t\r\n"
_ENDS = f",{_BLANKS}"
_SOFT = f"{_BLANKS};|"
_QUOTES = "'\"`"
_NAME = re.compile(r"[\w*?][\w.:/@$*?-]*")
_NO_NAME = re.compile(r"[-+.\d]*|true|false|null|yes|no", re.IGNORECASE)
_JOINED = re.compile(r"[/:.@$-]+")
_SHORTEST = 3
_SHELL = "bash"
_COMMA = "Put a comma between two tools."


class EntryProblem(NamedTuple):
    """Why an entry cannot be understood, to stand after it, and what to do."""

    why: str
    remedy: str = ""


def split_entries(text: str, *, blanks: bool = False) -> tuple[str, ...]:
    """Return the entries of a list that is written as one text, without quotes around them. Nothing is split
    inside parentheses, unless one of them is never closed. With `blanks` every blank separates."""
    if blanks:
        return _bare_entries(_split(text, _ENDS))
    entries: list[str] = []
    for entry in _bare_entries(_split(text, ",")):
        words = _bare_entries(_split(entry, _SOFT))
        if len(words) > 1 and all(map(_is_tool, words)):
            entries += words
        else:
            entries.append(entry)
    return tuple(entries)


def split_entry(entry: str) -> tuple[str, str | None]:
    """Return `Bash(git *)` as `Bash` and `git *`; None for the latter without parentheses."""
    name, bracket, rest = entry.strip().partition("(")
    name = name.strip()
    if name[: len(SERVED)].lower() == SERVED:
        name = SERVED + name[len(SERVED) :]
    if not bracket:
        return name, None
    return name, rest.rstrip().removesuffix(")").strip()


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
    parts = [part for part in _JOINED.split(name) if part]
    if len(parts) > 1 and not canonical(name) and all(map(_is_tool, parts)):
        return EntryProblem("joins several tools", f"Write '{', '.join(parts)}'.")
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
    if not written or len(written) > LONGEST_ENTRY or not written.isprintable():
        return EntryProblem(f"is empty, longer than {LONGEST_ENTRY:,} characters or holds unprintable ones")
    name, bracket, rest = written.partition("(")
    if bracket and not rest.endswith(")"):
        return EntryProblem("does not end with a closing parenthesis", _COMMA)
    if bracket and not rest[:-1].strip():
        return EntryProblem("has nothing in its parentheses; leave them out to mean every call")
    if not _NAME.fullmatch(name.strip()):
        why = "has no tool's name before the parenthesis" if bracket else "is not the name of one tool"
        return EntryProblem(why, _COMMA)
    return None


@lru_cache(maxsize=1024)
def misspelt_tool(name: str) -> str | None:
    """Return the tool that `name` was meant to be, if it is one letter off; None for any other name,
    and for a pattern that covers tools."""
    lowered = name.lower()
    if lowered in ALIASES or len(lowered) < _SHORTEST or matching_tools(lowered):
        return None
    for known in ALIASES:
        if len(known) >= _SHORTEST and off_by_one(lowered, known):
            return known
    return None


def off_by_one(left: str, right: str) -> bool:
    """Return whether one letter was added, dropped or changed, or two neighbours swapped."""
    if abs(len(left) - len(right)) > 1 or left == right:
        return False
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    a, b = left[start:], right[start:]
    if len(a) == len(b):
        return a[1:] == b[1:] or (a[:2] == b[1::-1] and len(a) > 1 and a[2:] == b[2:])
    if len(a) > len(b):
        return a[1:] == b
    return a == b[1:]


def _is_tool(entry: str) -> bool:
    name = split_entry(entry)[0]
    return form_problem(entry) is None and (name.startswith(SERVED) or bool(canonical(name)))


def _bare_entries(parts: list[str]) -> tuple[str, ...]:
    return tuple([name for part in parts if (name := bare(part))])


def _split(text: str, ends: str) -> list[str]:
    """Return the parts of a text between the letters of `ends`, outside of parentheses."""
    if "(" not in text and "[" not in text and "{" not in text:
        return _split_anywhere(text, ends)
    parts: list[str] = []
    depth = start = 0
    for position, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
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
