"""The text of an agent file, edited by lines: what is not named by an edit stays byte for byte.

Comments, key order, quotes, line endings, a byte order mark, the missing last newline and even
bytes that are no UTF-8 survive, because an edit replaces whole lines and joins the rest as read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.yaml_reader import YamlError, load_mapping

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_YAML_BREAKS = str.maketrans("\x85\u2028\u2029", "   ")
"""YAML 1.1 counts these as line ends, files and editors do not."""
_PLAIN_KEY = re.compile(r"[^\s#\"'\[\]{},&*!|>%@`:-][^#]*")


class FrontmatterKey(Struct, frozen=True):
    """A top-level key of the frontmatter. Lines are 0-based indexes into `FileLines.lines`, the last
    one included; columns bound the key as written, quotes and all."""

    key: str
    first: int
    last: int
    start: int
    stop: int


class FileLines(Struct, frozen=True):
    """A file as lines with their own endings. `close` is the index of the closing fence, and
    None when there is no frontmatter."""

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
            for number, line in enumerate(lines[1:], 1):
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
            lines[-1] = new[-1] + ending(self.lines[last])
        return FileLines._of((*self.lines[:first], *lines, *self.lines[last + 1 :]), self.bom)

    def insert(self, index: int, new: str) -> FileLines:
        return FileLines._of((*self.lines[:index], new + self.eol, *self.lines[index:]), self.bom)

    def remove(self, first: int, last: int) -> FileLines:
        return FileLines._of(self.lines[:first] + self.lines[last + 1 :], self.bom)

    def with_eol(self, eol: str) -> FileLines:
        lines = [bare(line) + eol if ending(line) else line for line in self.lines]
        return FileLines._of(tuple(lines), self.bom)

    @property
    def frontmatter(self) -> str:
        """The text between the fences, with LF endings, for a YAML reader."""
        return "".join(bare(line) + "\n" for line in self.lines[1 : self.close or 1])

    def entries(self) -> tuple[FrontmatterKey, ...]:
        """Return every top-level key in order, duplicates included: by YAML's own account when the block is
        YAML, else by the lines that look like keys."""
        if self.close is None:
            return ()
        try:
            return tuple(_by_yaml(self))
        except (YamlError, UnicodeEncodeError):
            return tuple(_by_lines(self))

    def find(self, *keys: str) -> tuple[FrontmatterKey, ...]:
        return tuple(entry for entry in self.entries() if entry.key in keys)


def ending(line: str) -> str:
    """Return the line break at the end of `line`, or an empty string."""
    return line[len(bare(line)) :]


def bare(line: str) -> str:
    return line.rstrip("\r\n")


def rename(text: FileLines, entry: FrontmatterKey, key: str) -> FileLines:
    """Another spelling of a key; value, comment and spacing stay."""
    line = text.lines[entry.first]
    new = bare(line[: entry.start] + key + line[entry.stop :])
    return text.replace_lines(entry.first, entry.first, (new,))


def write_atomically(path: Path, data: bytes, *, exclusive: bool = False) -> None:
    """Replace `path` (or the file a link leads to) in one step and keep its mode. With
    `exclusive` an existing file is left alone and FileExistsError raised, also in a race."""
    import secrets

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


def _by_yaml(text: FileLines) -> Iterator[FrontmatterKey]:
    """Yield the keys where YAML has them. Raise YamlError unless each stands on one line, at its beginning."""
    for item in load_mapping(text.frontmatter.translate(_YAML_BREAKS)):
        first = item.line + 1
        if item.key_end is None or text.lines[first][: item.column].strip(" ?"):
            raise YamlError("a key is not at the beginning of a line")
        last = max(first, min(item.leaf_line, (text.close or 1) - 2) + 1)
        while last > first and not text.lines[last].strip():
            last -= 1
        yield FrontmatterKey(item.key, first, last, item.column, item.key_end)


def _by_lines(text: FileLines) -> list[FrontmatterKey]:
    entries: list[FrontmatterKey] = []
    for number in range(1, text.close or 1):
        line = text.lines[number]
        key = _key(bare(line))
        if key is not None:
            entries.append(FrontmatterKey(key[0], number, number, 0, key[1]))
        elif entries and line.strip() and not line.startswith("#"):
            entries[-1] = replace(entries[-1], last=number)
    return entries


def _key(line: str) -> tuple[str, int] | None:
    """Return the key a line begins with, and where the key ends; None if it begins with something else."""
    quote = line[:1] if line[:1] in ("'", '"') else ""
    end = line.find(quote, 1) + 1 if quote else line.find(":")
    if end < 1:
        return None
    behind = line[end:].lstrip(" \t") if quote else line[end:]
    if behind[:1] != ":" or behind[1:2] not in ("", " ", "\t"):
        return None
    if quote:
        return line[1 : end - 1], end
    key = line[:end].rstrip()
    return (key, len(key)) if _PLAIN_KEY.fullmatch(key) else None
