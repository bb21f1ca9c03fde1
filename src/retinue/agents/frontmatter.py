"""From the bytes of an agent file to its frontmatter keys and its body.

    split   decodes, drops a byte order mark, makes every newline LF, finds the two fences
    read    returns the keys in order, by the first of these readings that works:
            strict YAML, YAML with one-line values quoted, line by line

The last two recover frontmatter that is not YAML, in the order the field agreed on. First every one-line value that
does not parse alone is put in quotes and the block is read again (this is what Claude Code, opencode and the Agent
Skills guide do). A block that even this does not repair is read line by line: a known key at the margin begins a
value, and a description runs on to the next known key. devkit-pi has a simple reading of its own, which comes first
in its files.

Nothing here depends on a dialect, and nothing raises. `Parsed` is the result of reading a whole file:
a spec or the reason there is none, and what became of every key.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from retinue.agents.yaml_reader import Item, YamlError, load_mapping, load_plain, load_value
from retinue.core.spec import AgentSpec, DialectName, Fate, Problem

Reading = Literal["yaml", "quoted", "lines", "simple", "none"]
"""How the frontmatter was understood: strict YAML, YAML after quoting one-line values, line by
line, a dialect's own simple reading, or there was none."""


class Parsed(Struct, frozen=True, kw_only=True):
    """`spec` is None exactly when `error` is set. `tools` are the names as the file wrote them
    (None: the file does not restrict); `spec.tools` is their meaning."""

    file: str
    dialect: DialectName
    name: str | None = None
    description: str | None = None
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] | None = None
    model: str | tuple[str, ...] | None = None
    prompt: str = ""
    spec: AgentSpec | None = None
    reading: Reading = "none"
    fates: Mapping[str, Fate] = field(default_factory=dict)
    places: Mapping[str, Item] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    error: Problem | None = None


def place_of(path: str, problem: Problem) -> str:
    """Return `file:line`, or only the file where the line is not known."""
    if problem.line is not None:
        return f"{path}:{problem.line}"
    return path


MAX_BLOCK_CHARACTERS = 256 * 1024
"""The longest frontmatter of 13,000 surveyed files has a twentieth of this."""

MAX_KEYS = 1000
MAX_RECOVERED_KEYS = 300

_MISPLACED = re.compile(r"\s*(?:<!--.*?-->\s*)?---[ \t]*\n[ \t]*[A-Za-z_][\w-]*[ \t]*:", re.DOTALL)
_UNFENCED = re.compile(r"\s*(?:name|description|tools)[ \t]*:", re.IGNORECASE)


class Split(NamedTuple):
    """`block` is None for a file without frontmatter; then `body` is the entire text, and `error` gives the reason if
    someone obviously meant to have one. Both have LF newlines. The opening fence is an empty line in `block`, so that
    lines of the block have the numbers that they have in the file."""

    block: str | None
    body: str
    problems: tuple[Problem, ...] = ()
    error: Problem | None = None


class Frontmatter(NamedTuple):
    items: Sequence[Item] = ()
    reading: Reading = "none"
    problems: tuple[Problem, ...] = ()
    error: Problem | None = None


def split(data: bytes) -> Split:
    """Return the block between the two fences, and the text below it."""
    file = decode(data)
    text = file.body
    if file.error is not None:
        return file
    first_end = text.find("\n")
    first = text if first_end < 0 else text[:first_end]
    if first.rstrip() != "---":
        return Split(None, text.strip(), file.problems, _find_misplaced(text))
    position = first_end
    while position >= 0:
        position = text.find("\n---", position)
        if position < 0:
            break
        end = text.find("\n", position + 1)
        if end < 0:
            end = len(text)
        if text[position + 1 : end].rstrip() == "---":
            return Split(text[first_end : position + 1], text[end + 1 :].strip(), file.problems)
        position += 1
    reason = "The frontmatter begins with '---' but no later line is exactly '---'."
    unclosed = _error("frontmatter-unclosed", reason, "Add a line with only '---' after the last key.")
    return Split(None, text.strip(), file.problems, unclosed)


def decode(data: bytes) -> Split:
    """Return the text of a file, all of it in `body`, before any fence is looked for: with LF newlines and without a
    byte order mark."""
    # A file with NUL bytes is binary; Latin-1 decodes anything else, so that a bad byte costs no agent.
    problems: tuple[Problem, ...] = ()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", errors="replace")
        problems = (_encoding("UTF-16", None),)
    elif b"\0" in data:
        binary = Problem("binary", "error", "The file is binary, not text.", "Remove it from the agents folder.")
        return Split(None, "", error=binary)
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            text = data.decode("latin-1")
            problems = (_encoding("Latin-1", data.count(b"\n", 0, error.start) + 1),)
    text = text.removeprefix("\ufeff")
    return Split(None, text.replace("\r\n", "\n").replace("\r", "\n"), problems)


def read(block: str, is_known: Callable[[str], bool], *, simple: bool = False) -> Frontmatter:
    """`is_known` tells which keys end a free-text value in the line-by-line reading; `simple`
    prefers devkit-pi's own reading where the block has its shape."""
    if len(block) > MAX_BLOCK_CHARACTERS:
        text = f"The frontmatter has {len(block):,} characters; at most {MAX_BLOCK_CHARACTERS:,} are read."
        remedy = "Move the text below the second '---'."
        return Frontmatter(error=_error("frontmatter-too-large", text, remedy))
    items = _read_simple(block) if simple else None
    if items is not None:
        return _check_keys(items, "simple")
    items = load_plain(block)
    try:
        return _check_keys(load_mapping(block) if items is None else items, "yaml")
    except YamlError as error:
        fault = error
    position = (fault.line, fault.column)
    reading: Reading = "quoted"
    how = "it was read with the one-line values in quotes"
    try:
        items = _read_quoted(block)
    except YamlError:
        reading = "lines"
        how = "it was read line by line, which may have missed something"
        items = _read_lines(block, is_known)
    if not items:
        text = f"The frontmatter cannot be read: {fault.reason}."
        remedy = "Write one 'key: value' per line between the two '---' lines."
        return Frontmatter(error=_error("frontmatter-unreadable", text, remedy, *position))
    text = f"The frontmatter is not valid YAML ({fault.reason}); {how}."
    remedy = "Put the value in double quotes, or write it as an indented block after '|'."
    return _check_keys(items, reading, Problem("frontmatter-recovered", "warning", text, remedy, None, *position))


def _check_keys(items: list[Item], reading: Reading, *problems: Problem) -> Frontmatter:
    if len(items) > MAX_KEYS:
        text = f"The frontmatter has {len(items):,} keys; at most {MAX_KEYS:,} are read."
        remedy = "Keep only the keys of an agent."
        return Frontmatter(error=_error("frontmatter-too-large", text, remedy))
    if len({item.key for item in items}) != len(items):
        problems = (*problems, *_find_repeated(items))
    return Frontmatter(items, reading, problems)


def _find_repeated(items: list[Item]) -> Iterator[Problem]:
    first_lines: dict[str, int] = {}
    for item in items:
        if item.key in first_lines:
            text = f"'{item.key}' is already on line {first_lines[item.key]}."
            yield Problem("duplicate-key", "warning", text, "Keep one of the two.", item.key, item.line, item.column)
        first_lines.setdefault(item.key, item.line)


def _find_misplaced(text: str) -> Problem | None:
    if _MISPLACED.match(text):
        reason = "The frontmatter does not begin on the first line, so it does not count."
        remedy = "Remove everything before the first '---', and any indentation of it."
        return _error("frontmatter-not-first", reason, remedy, text.count("\n", 0, text.find("---")) + 1)
    if _UNFENCED.match(text):
        reason = "The file begins with keys, but without the '---' lines around them."
        remedy = "Put a line with only '---' before the first key and after the last one."
        return _error("frontmatter-unfenced", reason, remedy)
    return None


def _error(code: str, text: str, remedy: str, line: int = 1, column: int = 1) -> Problem:
    return Problem(code, "error", text, remedy, None, line, column)


def _encoding(encoding: str, line: int | None) -> Problem:
    text = f"The file is not UTF-8; it was read as {encoding}."
    return Problem("not-utf8", "warning", text, "Save it as UTF-8.", None, line)


_FREE_TEXT = frozenset({"description", "when_to_use", "whenToUse", "prompt", "systemPrompt"})
"""Keys whose unindented continuation lines belong to them."""

_KEY_PATTERN = re.compile(r"[A-Za-z_][\w.-]*[ \t]*")
_KEY_LINE = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(.*)")
_BLANK = frozenset({" ", "\t"})
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]*(\s+#.*)?")
_NOTHING = frozenset({"", "~", "null", '""', "''"})
_SIMPLE_LINE = re.compile(r"([\w-]+):(.*)")
_ESCAPED_CHARACTERS = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}
_ESCAPED = re.compile(r'\\[nt"\\]')


def _read_simple(block: str) -> list[Item] | None:
    """devkit-pi's reading: `key: value` per line, all text, a pair of quotes removed.
    None when a line is anything else, so that lists and nested values are read as YAML."""
    items = []
    for number, line in enumerate(block.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SIMPLE_LINE.fullmatch(line)
        if match is None:
            return None
        text = match[2].strip()
        if text in ("|", ">", "|-", ">-") or text.startswith(("&", "!", "{")):
            return None
        items.append(Item(match[1], None if text in _NOTHING else _unquote(text), number, 1, number))
    return items


def _read_quoted(block: str) -> list[Item]:
    """Return the keys of `block` after quoting the one-line values that do not parse alone. A bracket that stays
    open may continue in the next lines, so it is quoted only if that does not help. Raise YamlError."""
    try:
        return _quote_faulty(block, brackets=False)
    except YamlError:
        return _quote_faulty(block, brackets=True)


def _quote_faulty(block: str, *, brackets: bool) -> list[Item]:
    # The values in question are taken out, the rest is read, and they are put in again: the same as quoting them,
    # without having to read the quotes.
    lines = block.split("\n")
    faulty: dict[int, str] = {}
    following = ""
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        value = _faulty_value(line, following, brackets)
        if value is not None:
            faulty[number] = value
            lines[number] = line.partition(":")[0] + ': ""'
        if line and not line.isspace():
            following = line
    if not faulty:
        raise YamlError("no single line is at fault")
    items = load_mapping("\n".join(lines))
    for item in items:
        item.value = faulty.get(item.line - 1, item.value)
    return items


def _faulty_value(line: str, following: str, brackets: bool) -> str | None:
    """Return the value of a `key: value` line that does not parse alone."""
    # None if the line is fine, is no such line, or continues in the `following` one.
    key, colon, text = line.partition(":")
    if not colon or text[:1] not in _BLANK or following[:1] in _BLANK or _KEY_PATTERN.fullmatch(key) is None:
        return None
    value = text.strip(" \t")
    if not value or value[0] in "'\"" or _BLOCK_SCALAR.fullmatch(value):
        return None
    is_open = value.count("[") > value.count("]") or value.count("{") > value.count("}")
    if (value[0] in "[{" and is_open and not brackets) or _parses(line, value):
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


def _read_lines(block: str, is_known: Callable[[str], bool]) -> list[Item]:
    """Return the keys that can be found. Never raises; there may be none, and there are none if they are
    too many to be frontmatter at all."""
    if block.lstrip("\n")[:1] in _BLANK:
        block = textwrap.dedent(block)
    lines = block.split("\n")
    items: list[Item] = []
    for number, line in enumerate(lines, 1):
        match = _KEY_LINE.fullmatch(line)
        above = items[-1].key if items else ""
        if match is not None and (is_known(match[1]) or _is_key(match, above, lines[number : number + 1])):
            items.append(Item(match[1], None, number, 1, number))
        elif items:
            items[-1].end_line = number
    if len(items) > MAX_RECOVERED_KEYS:
        return []
    for item in items:
        while not lines[item.end_line - 1].strip():
            item.end_line -= 1
        item.value = _recover_value(item.key, lines[item.line - 1 : item.end_line])
    return items


def _is_key(line: re.Match[str], above: str, following: list[str]) -> bool:
    """Return whether `word: text` begins an unknown key, or is part of the text of the key above it."""
    # Text has capital letters at the start of a line; a key there has its value in the lines below.
    word, text = line[1], line[2]
    if above in _FREE_TEXT:
        return word.islower() and not text.strip() and bool(following) and following[0][:1] in _BLANK
    return not text or text[0] in _BLANK


def _recover_value(key: str, lines: list[str]) -> Any:
    """Return the value of one key, which begins in the first of its lines."""
    # A key with lines below it always gets a value: an empty one could lift a limit.
    text = "\n".join(lines)
    for candidate in (text, text.expandtabs(2)) if "\t" in text else (text,):
        try:
            return load_value(candidate)
        except YamlError:
            continue
    head = lines[0].partition(":")[2].strip()
    below = [line.strip() for line in lines[1:] if line.strip()]
    if key in _FREE_TEXT:
        return _unescape(text.partition(":")[2].strip())
    if below and not head and all(line[0] == "-" for line in below):
        return [_unescape(line[1:].strip()) for line in below]
    if below and (not head or any(line[:1] in _BLANK for line in lines[1:])):
        return _unescape("\n".join((head, *below)).strip())
    try:
        return load_value(lines[0])
    except YamlError:
        return _unescape(head)


def _unescape(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return _ESCAPED.sub(lambda match: _ESCAPED_CHARACTERS[match[0]], text[1:-1])
    return _unquote(text)


def _unquote(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
