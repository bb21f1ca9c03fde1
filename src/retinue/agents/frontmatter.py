"""From the bytes of an agent file to its frontmatter keys and its body.

    split   decodes, drops a byte order mark, makes every newline LF, finds the two fences
    read    returns the keys in order, by the first of these readings that works:
            strict YAML, YAML with one-line values quoted, line by line

Nothing here depends on a dialect, and nothing raises. `Parsed` is the result of reading a whole file:
a spec or the reason there is none, and what became of every key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, field

from retinue.agents.yaml_items import Item, YamlDocument, YamlError, load_mapping, load_plain
from retinue.core.spec import AgentSpec, DialectName, Fate, Problem

Reading = Literal["yaml", "quoted", "lines", "simple", "none"]
"""How the frontmatter was understood: strict YAML, YAML after quoting one-line values, line by
line, a dialect's own simple reading, or there was none."""


class KeyPosition(Struct, frozen=True):
    """Where a key stands in the file, 1-based. `end_line` is the last line of its value."""

    line: int
    column: int
    end_line: int


class Parsed(Struct, frozen=True, kw_only=True):
    """`spec` is None exactly when `error` is set. `tools` are the names as the file wrote them
    (None: the file does not restrict); `spec.tools` says what they mean."""

    file: str
    dialect: DialectName
    name: str | None
    description: str | None
    tools: tuple[str, ...] | None
    disallowed_tools: tuple[str, ...] | None
    model: str | tuple[str, ...] | None
    prompt: str
    spec: AgentSpec | None
    reading: Reading
    fates: Mapping[str, Fate] = field(default_factory=dict)
    places: Mapping[str, KeyPosition] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    error: Problem | None = None


def place_of(path: str, problem: Problem) -> str:
    """Return `file:line`, or only the file where the line is not known."""
    if problem.line is not None:
        return f"{path}:{problem.line}"
    return path


MAX_BLOCK = 256 * 1024
"""Characters of frontmatter. The longest of 13,000 surveyed files has a twentieth of this."""

MAX_KEYS = 1000

BLOCK_LINE = 2
"""The line of the file on which the block begins."""

_MISPLACED = re.compile(r"\s*(?:<!--.*?-->\s*)?---[ \t]*\n[ \t]*[A-Za-z_][\w-]*[ \t]*:", re.DOTALL)
_UNFENCED = re.compile(r"\s*(?:name|description|tools)[ \t]*:", re.IGNORECASE)


class Split(NamedTuple):
    """`block` is None where there is no frontmatter; then `body` is the whole text, and
    `error` says why if someone obviously meant to have one. Both have LF newlines."""

    block: str | None
    body: str
    problems: tuple[Problem, ...] = ()
    error: Problem | None = None


class Frontmatter(NamedTuple):
    items: Sequence[Item] = ()
    reading: Reading = "none"
    problems: tuple[Problem, ...] = ()
    error: Problem | None = None


class Places(Mapping[str, KeyPosition]):
    """Where each key stands in the file. Found out by reading the block again when someone
    asks, which hardly anyone does. A repeated key is found at its last place."""

    __slots__ = ("_again", "_first_line", "_found")

    def __init__(self, again: Callable[[], Sequence[Item]], first_line: int = BLOCK_LINE) -> None:
        self._again = again
        self._first_line = first_line
        self._found: dict[str, KeyPosition] | None = None

    def _places(self) -> dict[str, KeyPosition]:
        if self._found is None:
            add = self._first_line
            self._found = {
                item.key: KeyPosition(item.line + add, item.column + 1, item.end_line + add) for item in self._again()
            }
        return self._found

    def __getitem__(self, key: str) -> KeyPosition:
        return self._places()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places())

    def __len__(self) -> int:
        return len(self._places())


def split(data: bytes) -> Split:
    """Return the block between the two fences, and the text below it."""
    text, problems, error = _open(data)
    if error is not None:
        return Split(None, text, problems, error)
    first_end = text.find("\n")
    first = text if first_end < 0 else text[:first_end]
    if first.rstrip() != "---":
        return Split(None, text.strip(), problems, _find_misplaced(text))
    position = first_end
    while position >= 0:
        position = text.find("\n---", position)
        if position < 0:
            break
        end = text.find("\n", position + 1)
        if end < 0:
            end = len(text)
        if text[position + 1 : end].rstrip() == "---":
            return Split(text[first_end + 1 : position + 1], text[end + 1 :].strip(), problems)
        position += 1
    reason = "The frontmatter begins with '---' but no later line is exactly '---'."
    unclosed = _error("frontmatter-unclosed", reason, "Add a line with only '---' after the last key.")
    return Split(None, text.strip(), problems, unclosed)


def decode(data: bytes) -> Split:
    """Return the text of a file, all of it in `body`, before any fence is looked for."""
    text, problems, error = _open(data)
    return Split(None, text, problems, error)


def read(block: str, known: Callable[[str], bool], *, simple: bool = False) -> Frontmatter:
    """`known` tells which keys end a free-text value in the line-by-line reading; `simple`
    prefers devkit-pi's own reading where the block has its shape."""
    if len(block) > MAX_BLOCK:
        return Frontmatter(error=_too_large(block))
    if simple:
        from retinue.agents.yaml_recover import load_simple

        document = load_simple(block)
        if document is not None:
            return _make_frontmatter(document, "simple", ())
    document = load_plain(block)
    if document is not None:
        return _make_frontmatter(document, "yaml", ())
    try:
        return _make_frontmatter(load_mapping(block), "yaml", ())
    except YamlError as error:
        trouble = error
    from retinue.agents.yaml_recover import load_lines, load_quoted

    try:
        return _make_frontmatter(load_quoted(block), "quoted", (_report_recovery(trouble, "quoted"),))
    except YamlError:
        document = load_lines(block, known)
    if not document.items:
        return Frontmatter(error=_unreadable(trouble))
    return _make_frontmatter(document, "lines", (_report_recovery(trouble, "lines"),))


def _make_frontmatter(document: YamlDocument, reading: Reading, problems: tuple[Problem, ...]) -> Frontmatter:
    items = document.items
    if len(items) > MAX_KEYS:
        return Frontmatter(error=_too_many(len(items)))
    if len({item.key for item in items}) != len(items):
        problems = (*problems, *_find_repeated(items))
    return Frontmatter(items, reading, problems)


def _open(data: bytes) -> tuple[str, tuple[Problem, ...], Problem | None]:
    """Return the text with LF newlines and without a byte order mark, and what was wrong with it."""
    # A file with NUL bytes is binary; Latin-1 decodes anything else, so that a bad byte costs no agent.
    problems: tuple[Problem, ...] = ()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", errors="replace")
        problems = (_encoding("UTF-16", None),)
    elif b"\0" in data:
        return "", (), Problem("binary", "error", "The file is binary, not text.", "Remove it from the agents folder.")
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            text = data.decode("latin-1")
            problems = (_encoding("Latin-1", data.count(b"\n", 0, error.start) + 1),)
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n"), problems, None


def _find_repeated(items: list[Item]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for item in items:
        if item.key in seen:
            first = seen[item.key] + BLOCK_LINE
            yield Problem(
                "duplicate-key",
                "warning",
                f"'{item.key}' is already on line {first}.",
                "Keep one of the two.",
                item.key,
                item.line + BLOCK_LINE,
                item.column + 1,
            )
        seen.setdefault(item.key, item.line)


def _report_recovery(trouble: YamlError, reading: Reading) -> Problem:
    how = "it was read line by line, which may have missed something"
    if reading == "quoted":
        how = "it was read with the one-line values in quotes"
    text = f"The frontmatter is not valid YAML ({trouble.reason}); {how}."
    remedy = "Put the value in double quotes, or write it as an indented block after '|'."
    line, column = trouble.line + BLOCK_LINE, trouble.column + 1
    return Problem("frontmatter-recovered", "warning", text, remedy, None, line, column)


def _unreadable(trouble: YamlError) -> Problem:
    text = f"The frontmatter cannot be read: {trouble.reason}."
    remedy = "Write one 'key: value' per line between the two '---' lines."
    return _error("frontmatter-unreadable", text, remedy, trouble.line + BLOCK_LINE, trouble.column + 1)


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


def _too_large(block: str) -> Problem:
    text = f"The frontmatter has {len(block):,} characters; at most {MAX_BLOCK:,} are read."
    return _error("frontmatter-too-large", text, "Move the text below the second '---'.", BLOCK_LINE)


def _too_many(count: int) -> Problem:
    text = f"The frontmatter has {count:,} keys; at most {MAX_KEYS:,} are read."
    return _error("frontmatter-too-large", text, "Keep only the keys of an agent.", BLOCK_LINE)


def _error(code: str, text: str, remedy: str, line: int = 1, column: int = 1) -> Problem:
    return Problem(code, "error", text, remedy, None, line, column)


def _encoding(found: str, line: int | None) -> Problem:
    text = f"The file is not UTF-8; it was read as {found}."
    return Problem("not-utf8", "warning", text, "Save it as UTF-8.", None, line)
