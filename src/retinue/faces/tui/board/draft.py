"""An answer that grows: Markdown drawn piece by piece, each part of it once.

Parsing all of a long answer again with every word took seconds for a megabyte (G3 of the findings on scale). Here the
lines of finished blocks are kept as they are, only the last block is drawn again, and a block that grows too long is
finished early. So a step costs the same however long the answer is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token
from rich.text import Text

from retinue.faces.tui.board.markdown import parse, token_lines

# Characters that one step takes: a few milliseconds, so that keys are heard meanwhile.
STEP = 1_000
# The longest block that is drawn again while it grows.
LONGEST_BLOCK = 3_000
# The columns of a table depend on all its rows, so it may be longer.
LONGEST_TABLE = 6_000


@dataclass(slots=True)
class Draft:
    """The lines of one answer at one width. `parsed` counts the characters that were parsed, again and again."""

    width: int
    lines: list[Text] = field(default_factory=list)
    """Of finished blocks. They stay as they are."""
    last: list[Text] = field(default_factory=list)
    """Of the block that may still grow."""
    parsed: int = 0
    _open: str = ""
    _waiting: str = ""
    _joined: bool = True
    """Whether the next block follows without a blank line: it is the first, or goes on with one that was cut."""

    def write(self, text: str) -> None:
        """Add a piece of the answer, which the next steps draw."""
        self._waiting += text

    @property
    def behind(self) -> bool:
        return bool(self._waiting)

    @property
    def height(self) -> int:
        return len(self.lines) + len(self.last)

    def line(self, at: int) -> Text:
        """Return the line in this row; an empty one below the end."""
        if at < len(self.lines):
            return self.lines[at]
        at -= len(self.lines)
        return self.last[at] if at < len(self.last) else Text()

    def step(self) -> None:
        """Draw a part of what waits."""
        self._open += self._waiting[:STEP]
        self._waiting = self._waiting[STEP:]
        tokens = parse(self._open)
        self.parsed += len(self._open)
        at, line = _last_block(tokens, self._open)
        if line:
            self._keep(tokens[:at])
            self._open = _from_line(self._open, line)
            tokens = tokens[at:]
        if tokens and len(self._open) > _longest(tokens[0]):
            self._cut(tokens[0])
        else:
            self.last = self._spaced(token_lines(tokens, self.width))

    def _keep(self, tokens: Sequence[Token]) -> None:
        self.lines += self._spaced(token_lines(tokens, self.width))
        self._joined = not self.lines

    def _spaced(self, lines: list[Text]) -> list[Text]:
        if self._joined or not lines:
            return lines
        return [Text(), *lines]

    def _cut(self, first: Token) -> None:
        """Finish a block that is too long at the end of a line. What follows goes on as the same kind of block."""
        end = _cut_place(self._open)
        done, rest = self._open[:end], self._open[end:]
        again = ""
        if first.type == "fence":
            again = f"{first.markup}{first.info}\n"
        elif first.type == "table_open":
            again = "".join(done.splitlines(keepends=True)[:2])
        self._keep(parse(done))
        self.parsed += len(done)
        self._joined = not done.endswith("\n\n") or first.type == "fence"
        self._open, self.last = again + rest, []
        if rest:
            self.last = self._spaced(token_lines(parse(self._open), self.width))


def _last_block(tokens: Sequence[Token], text: str) -> tuple[int, int]:
    """Return the first token of the last block, and its line. A block in a line that has not ended does not count:
    `1` may become `1. an item` of the list before it."""
    unfinished = text.count("\n")
    at = line = 0
    for number, token in enumerate(tokens):
        if token.level == 0 and token.map is not None and token.nesting >= 0 and token.map[0] < unfinished:
            at, line = number, token.map[0]
    return at, line


def _from_line(text: str, line: int) -> str:
    at = 0
    for _ in range(line):
        at = text.index("\n", at) + 1
    return text[at:]


def _longest(first: Token) -> int:
    return LONGEST_TABLE if first.type == "table_open" else LONGEST_BLOCK


def _cut_place(text: str) -> int:
    """Return where to cut: before the last line that is not indented, after a line, a word, or anywhere."""
    lines = text.splitlines(keepends=True)
    end = len(text)
    for line in reversed(lines[1:]):
        end -= len(line)
        if not line.startswith((" ", "\t", "\n")):
            return end
    for sign in ("\n", " "):
        last = text.rfind(sign) + 1
        if last > 0:
            return last
    return len(text)
