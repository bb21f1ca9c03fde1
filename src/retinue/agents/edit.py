"""The text of an agent file, edited by lines: what is not named by an edit stays byte for byte.

Comments, key order, quotes, line endings, a byte order mark, the missing last newline and even
bytes that are no UTF-8 survive, because an edit replaces whole lines and joins the rest as read.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from retinue.agents.yaml_reader import Item, YamlError, load_mapping

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_YAML_BREAKS = str.maketrans("\x85\u2028\u2029", "   ")
"""Line ends in YAML 1.1, but not in files and editors."""
_KEY_LINE = re.compile(
    r"""('[^']*'[ \t]*|"[^"]*"[ \t]*|[^\s#"'\[\]{},&*!|>%@`:-][^#:]*):(?:[ \t]|$)""",
)


class FileLines(Struct, frozen=True):
    """A file as lines with their own endings; edits name lines by their numbers, from 1. `close` is the number of the
    closing fence, and None for a file without frontmatter."""

    lines: tuple[str, ...]
    bom: bool = False
    close: int | None = None

    @classmethod
    def read(cls, data: bytes) -> FileLines:
        bom = data.startswith(b"\xef\xbb\xbf")
        text = data[3:] if bom else data
        return cls._of(tuple(_LINE.findall(text.decode("utf-8", "surrogateescape"))), bom)

    @classmethod
    def _of(cls, lines: tuple[str, ...], bom: bool) -> FileLines:
        if lines and lines[0].rstrip() == "---":
            for number, line in enumerate(lines[1:], 2):
                if line.rstrip() == "---":
                    return cls(lines, bom, number)
        return cls(lines, bom)

    def encode(self) -> bytes:
        mark = b"\xef\xbb\xbf" if self.bom else b""
        return mark + "".join(self.lines).encode("utf-8", "surrogateescape")

    @property
    def eol(self) -> str:
        """The ending an inserted line gets: that of the first line."""
        return (self.lines and ending(self.lines[0])) or "\n"

    def replace_lines(self, first: int, last: int, new: tuple[str, ...]) -> FileLines:
        """Lines `first` to `last` (included) become `new`, which have no endings yet."""
        lines = [line + self.eol for line in new]
        if lines and last >= first:
            lines[-1] = new[-1] + ending(self.lines[last - 1])
        return FileLines._of((*self.lines[: first - 1], *lines, *self.lines[last:]), self.bom)

    def remove(self, item: Item) -> FileLines:
        return FileLines._of(self.lines[: item.line - 1] + self.lines[item.end_line :], self.bom)

    def with_eol(self, eol: str) -> FileLines:
        lines = [bare(line) + eol if ending(line) else line for line in self.lines]
        return FileLines._of(tuple(lines), self.bom)

    @property
    def frontmatter(self) -> str:
        """The text between the fences for a YAML reader: LF endings, and an empty line for the opening fence."""
        return "\n" + "".join(bare(line) + "\n" for line in self.lines[1 : (self.close or 2) - 1])

    def entries(self) -> list[Item]:
        """Return every top-level key in order, duplicates included: the keys that a YAML reader sees, or in a block
        that is not YAML the lines that look like keys. An entry ends on the last line that an edit of it replaces."""
        if self.close is None:
            return []
        try:
            return list(_by_yaml(self))
        except (YamlError, UnicodeEncodeError):
            return _by_lines(self)

    def find(self, key: str) -> list[Item]:
        return [entry for entry in self.entries() if entry.key == key]


def ending(line: str) -> str:
    """Return the line break at the end of `line`, or an empty string."""
    return line[len(bare(line)) :]


def bare(line: str) -> str:
    return line.rstrip("\r\n")


def rename(text: FileLines, entry: Item, key: str) -> FileLines:
    """Spell a key in another way; value, comment and spacing stay."""
    line = text.lines[entry.line - 1]
    new = bare(line[: entry.column - 1] + key + line[entry.key_end - 1 :])
    return text.replace_lines(entry.line, entry.line, (new,))


def write_atomically(path: Path, data: bytes, *, exclusive: bool = False) -> None:
    """Replace `path` (or the file a link leads to) in one step and keep its mode. With
    `exclusive` an existing file is left alone and FileExistsError raised, also in a race."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    spare = target.parent / f".{target.name[:40]}.{secrets.token_hex(6)}.tmp"
    try:
        with os.fdopen(os.open(spare, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            spare.chmod(stat.S_IMODE(target.stat().st_mode))
        if exclusive:
            _link(spare, target)
        else:
            spare.replace(target)
    finally:
        spare.unlink(missing_ok=True)


def _link(spare: Path, target: Path) -> None:
    try:
        os.link(spare, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: the check and the rename are two steps
        if target.exists():
            raise FileExistsError(f"{target} exists") from None
        spare.replace(target)


def _by_yaml(text: FileLines) -> Iterator[Item]:
    """Yield the keys that a YAML reader sees. Raise YamlError unless each is on one line, at its beginning."""
    for item in load_mapping(text.frontmatter.translate(_YAML_BREAKS)):
        if not item.key_end or text.lines[item.line - 1][: item.column - 1].strip(" ?"):
            raise YamlError("a key is not at the beginning of a line")
        item.end_line = max(item.line, min(item.leaf_line, (text.close or 1) - 1))
        while item.end_line > item.line and not text.lines[item.end_line - 1].strip():
            item.end_line -= 1
        yield item


def _by_lines(text: FileLines) -> list[Item]:
    entries: list[Item] = []
    for number, line in enumerate(text.lines[1 : (text.close or 2) - 1], 2):
        match = _KEY_LINE.match(bare(line))
        if match is not None:
            written = match[1].rstrip()
            key = written[1:-1] if written[0] in "'\"" else written
            entries.append(Item(key, None, number, 1, number, key_end=len(written) + 1))
        elif entries and line.strip() and not line.startswith("#"):
            entries[-1].end_line = number
    return entries
