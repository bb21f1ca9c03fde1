"""Reading frontmatter that is not YAML, in the order the field agreed on.

First every one-line value that does not parse alone is put in quotes and the block is tried
again (this is what Claude Code, opencode and the Agent Skills guide do). What even that does
not repair is read line by line: a known key at the margin begins a value, and a description
runs on to the next known key. devkit-pi's own reading is the third function here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

from retinue.agents.yaml_items import Item, YamlDocument, YamlError, load_mapping, load_plain, load_value

FREE_TEXT = frozenset({"description", "when_to_use", "whenToUse", "prompt", "systemPrompt"})
"""Keys whose unindented continuation lines belong to them."""

MAX_SEGMENTS = 300
_KEY = re.compile(r"[A-Za-z_][\w.-]*[ \t]*")
_BLANK = frozenset({" ", "\t"})
_ANY_KEY = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(.*)")
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]*(\s+#.*)?")
_NOTHING = frozenset({"", "~", "null", '""', "''"})
_SIMPLE_LINE = re.compile(r"([\w-]+):(.*)")
_ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}
_ESCAPED = re.compile(r'\\[nt"\\]')


def load_quoted(block: str) -> YamlDocument:
    """Return `block` after quoting the one-line values that do not parse alone. A bracket that stays
    open may go on in the next lines, so it is quoted only if that does not help. Raises
    YamlError."""
    try:
        return _load_quoted(block, brackets=False)
    except YamlError:
        return _load_quoted(block, brackets=True)


def _load_quoted(block: str, *, brackets: bool) -> YamlDocument:
    # The values in question are taken out, the rest is read, and they are put in again: the same as quoting them,
    # without having to read the quotes.
    lines = block.split("\n")
    taken: dict[int, str] = {}
    following = ""
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        value = _faulty(line, following, brackets)
        if value is not None:
            taken[number] = value
            lines[number] = line.partition(":")[0] + ': ""'
        if line and not line.isspace():
            following = line
    if not taken:
        raise YamlError("no single line is at fault")
    rest = "\n".join(lines)
    document = load_plain(rest) or load_mapping(rest)
    for item in document.items:
        if item.line in taken:
            item.value = taken[item.line]
    return document


def load_lines(block: str, known: Callable[[str], bool]) -> YamlDocument:
    """Return the keys that can be found. Never raises; the document may be empty, and is if there are
    too many to be frontmatter at all."""
    indent = len(block) - len(block.lstrip(" \t"))
    text = textwrap.dedent(block) if indent and not block.startswith("\n") else block
    document = YamlDocument()
    segments = _segments(text.split("\n"), known)
    if len(segments) > MAX_SEGMENTS:
        return document
    for key, first, lines in segments:
        value = _segment_value(key, lines)
        document.items.append(Item(key, value, first, 0, first + len(lines) - 1))
    return document


def load_simple(block: str) -> YamlDocument | None:
    """devkit-pi's reading: `key: value` per line, all text, a pair of quotes removed.
    None when a line is anything else, so that lists and nested values are read as YAML."""
    document = YamlDocument()
    for number, line in enumerate(block.split("\n")):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SIMPLE_LINE.fullmatch(line)
        if match is None:
            return None
        text = match[2].strip()
        if text in ("|", ">", "|-", ">-") or text.startswith(("&", "!", "{")):
            return None
        document.items.append(Item(match[1], None if text in _NOTHING else unquote(text), number, 0, number))
    return document


def unquote(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _faulty(line: str, following: str, brackets: bool) -> str | None:
    """Return the value of a `key: value` line that does not parse alone."""
    # None where the line is fine, is no such line, or goes on in the `following` one.
    key, colon, rest = line.partition(":")
    if not colon or rest[:1] not in _BLANK or following[:1] in _BLANK or _KEY.fullmatch(key) is None:
        return None
    value = rest.strip(" \t")
    if not value or value[0] in "'\"" or _BLOCK_SCALAR.fullmatch(value):
        return None
    if (not brackets and _opens(value)) or _parses(line, value):
        return None
    return value


def _parses(line: str, value: str) -> bool:
    # Most values begin with a letter, and for these a parser need not be asked.
    if value[0].isalnum() and " #" not in value and "\t" not in value:
        return ": " not in value and value[-1] != ":"
    try:
        load_value(line)
    except YamlError:
        return False
    return True


def _opens(value: str) -> bool:
    """Return whether a flow list or map goes on beyond this line."""
    if value[0] not in "[{":
        return False
    return value.count("[") > value.count("]") or value.count("{") > value.count("}")


def _segments(lines: list[str], known: Callable[[str], bool]) -> list[tuple[str, int, list[str]]]:
    found: list[tuple[str, int, list[str]]] = []
    for number, line in enumerate(lines):
        match = _ANY_KEY.fullmatch(line)
        if match is not None and (known(match[1]) or _is_key(match, found, lines[number + 1 : number + 2])):
            found.append((match[1], number, [line]))
        elif found:
            found[-1][2].append(line)
    return found


def _is_key(line: re.Match[str], found: list[tuple[str, int, list[str]]], following: list[str]) -> bool:
    """Return whether `word: rest` begins a key nobody knows, or is part of the text above it."""
    # Text has capital letters at the start of a line; a key there has its value in the lines below.
    word, rest = line[1], line[2]
    if found and found[-1][0] in FREE_TEXT:
        return word.islower() and not rest.strip() and bool(following) and following[0][:1] in _BLANK
    return not rest or rest[0] in _BLANK


def _segment_value(key: str, lines: list[str]) -> Any:
    """Return what the lines of one key say."""
    # A key that has lines below it never says nothing: that could lift a limit.
    while lines and not lines[-1].strip():
        lines.pop()
    whole = "\n".join(lines)
    for candidate in (whole, whole.expandtabs(2)) if "\t" in whole else (whole,):
        try:
            return load_value(candidate)
        except YamlError:
            continue
    head = lines[0].partition(":")[2].strip()
    rest = [line.strip() for line in lines[1:] if line.strip()]
    if key in FREE_TEXT:
        return _text(whole.partition(":")[2].strip())
    if rest and not head and all(line[0] == "-" for line in rest):
        return [_text(line[1:].strip()) for line in rest]
    if rest and (not head or any(line[:1] in _BLANK for line in lines[1:])):
        return _text("\n".join((head, *rest)).strip())
    try:
        return load_value(lines[0])
    except YamlError:
        return _text(head)


def _text(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text[1:-1])
    return unquote(text)
