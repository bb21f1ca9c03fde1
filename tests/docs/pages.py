"""The pages that people read, taken apart: their blocks of code and their tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "action" / "README.md",
        ROOT / "examples" / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
    )
}
FENCE = re.compile(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
NAME = re.compile(r"^name: *(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of code. `file` is where its page tells the reader to put it, if it does."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def file(self) -> str:
        """Return the title, or for an agent without one the usual place of agents."""
        if self.language == "markdown" and not self.title:
            found = NAME.search(self.text)
            assert found, f"{self}: an agent without a name"
            return f".retinue/agents/{found[1]}.md"
        return self.title

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Table:
    """One table: the words of its head, and its rows of cells."""

    page: str
    line: int
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """Return the blocks of code of a page, in order."""
    text = PAGES[page]
    found = []
    for match in FENCE.finditer(text):
        language, title, body = match.groups()
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, language, title or "", body))
    return found


def tables(page: str) -> list[Table]:
    """Return the tables of a page, in order."""
    text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), PAGES[page])
    found = []
    for match in re.finditer(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        head, _, *rows = [_cells(line) for line in match[0].splitlines()]
        found.append(Table(page, text.count("\n", 0, match.start()) + 1, head, tuple(rows)))
    return found


def _cells(line: str) -> tuple[str, ...]:
    inside = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inside))
