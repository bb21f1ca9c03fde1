"""What a run is told of its memory. Words that never change come first, the bounded index last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from retinue.capabilities.memory.store import INDEX
from retinue.core.spec import MemoryScope
from retinue.guard.safe_dir import SafeDir, read
from retinue.runs.prompt import shipped

LINES = 200
BYTES = 25_000


def read_index(place: SafeDir) -> str:
    """The beginning of MEMORY.md, with a note where it was cut; empty when there is none, when it
    is a link, or when it cannot be read."""
    try:
        data = read(place, INDEX, most=BYTES * 8)
    except OSError:
        return ""
    return bounded(data)


def bounded(data: bytes) -> str:
    """At most 200 lines and 25 KB, cut between lines where that is possible."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff").strip()
    lines = text.split("\n")
    kept, size = 0, 0
    for line in lines[:LINES]:
        size += len(line.encode()) + 1
        if size > BYTES:
            break
        kept += 1
    if kept == len(lines):
        return text
    if kept == 0:
        start = text.encode()[:BYTES].decode("utf-8", "ignore")
        return f"{start}\n... (truncated at 25 KB: shorten {INDEX}, and move details into files of their own)"
    limit = f"{LINES} lines" if kept == LINES else "25 KB"
    note = f"... (truncated at {limit}: shorten {INDEX}, and move details into files of their own)"
    return "\n".join([*lines[:kept], note])


def advice(data: bytes) -> str:
    """What to tell an agent that has just written its index; empty while there is room."""
    lines, size = data.count(b"\n") + (not data.endswith(b"\n") and bool(data)), len(data)
    if lines > LINES or size > BYTES:
        return (
            f"{INDEX} now has {lines} lines and {size:,} bytes. Only the first {LINES} lines and {BYTES:,} bytes are "
            "shown to you next time. Rewrite it shorter now: one line for each thing, details in files of their own."
        )
    if lines > LINES * 0.9 or size > BYTES * 0.9:
        return f"{INDEX} is nearly full ({lines} of {LINES} lines, {size:,} of {BYTES:,} bytes). Shorten it soon."
    return ""


_SCOPES: dict[MemoryScope, str] = {
    "user": "scope: user, for all projects",
    "project": "scope: project, shared by everyone who works on it",
    "local": "scope: local, for this project on this machine",
}


_TOOLS = {
    False: "Use the write and edit tools with absolute paths in this folder.",
    True: "Your write and edit tools work in this folder only: use absolute paths in it.",
}


class Memory(Struct, frozen=True):
    """The memory of one run. `own` is written, if anything is; `others` are only read."""

    agent: str
    scope: MemoryScope
    own: SafeDir
    others: tuple[SafeDir, ...] = ()
    writable: bool = False
    confined: bool = False
    """The run's write and edit tools are for this memory and nothing else."""

    @property
    def folder(self) -> Path:
        return self.own.real

    @property
    def folders(self) -> tuple[Path, ...]:
        """All that may be read."""
        return (self.folder, *(place.real for place in self.others))

    def block(self) -> str:
        """The part of the prompt. Reads the index; makes nothing."""
        text = shipped("memory" if self.writable else "memory_readonly").replace("{{scope}}", _SCOPES[self.scope])
        if self.writable:
            text = text.replace("{{folder}}", _line(self.folder)).replace("{{tools}}", _TOOLS[self.confined])
        parts = [text, *self._indexes()]
        return "\n\n".join(parts)

    def _indexes(self) -> Sequence[str]:
        index = read_index(self.own)
        found = [_framed(index, "")] if index else []
        for place in self.others:
            theirs = read_index(place)
            if theirs:
                found.append(_framed(theirs, f' from="{_line(place.real)}"' if self.writable else ' from="elsewhere"'))
        if found:
            return found
        if self.writable:
            return [
                f"There is no {INDEX} yet. Create it at {_line(self.folder / INDEX)} when you have something to note."
            ]
        return ["There is no memory available."]


def _framed(index: str, attributes: str) -> str:
    return f"<memory_index{attributes}>\n{index.replace('</memory_index', '< /memory_index')}\n</memory_index>"


def _line(path: Path) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(path)).replace('"', "'")
