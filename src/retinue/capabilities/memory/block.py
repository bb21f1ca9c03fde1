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
    """Return the beginning of MEMORY.md, with a note where it was cut; empty when the file is missing, is a
    link, or cannot be read."""
    try:
        data = read(place, INDEX, most=BYTES * 8)
    except OSError:
        return ""
    return bounded(data)


def bounded(data: bytes) -> str:
    """Return at most 200 lines and 25 KB, cut between lines where that is possible."""
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
    """Return what to tell an agent that has just written its index; empty while there is room."""
    lines, size = len(data.split(b"\n")), len(data)
    if data.endswith(b"\n") or not data:
        lines -= 1
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
        """Return the part of the prompt. Reads the index; creates nothing."""
        name = "memory" if self.writable else "memory_readonly"
        text = shipped(name).replace("{{scope}}", _SCOPES[self.scope])
        if self.writable:
            text = text.replace("{{folder}}", _line(self.folder)).replace("{{tools}}", _TOOLS[self.confined])
        parts = [text, *self._indexes()]
        return "\n\n".join(parts)

    def _indexes(self) -> Sequence[str]:
        found = []
        index = read_index(self.own)
        if index:
            found.append(_frame(index, ""))
        for place in self.others:
            theirs = read_index(place)
            where = _line(place.real) if self.writable else "elsewhere"
            if theirs:
                found.append(_frame(theirs, f' from="{where}"'))
        if found:
            return found
        if not self.writable:
            return ["There is no memory available."]
        path = _line(self.folder / INDEX)
        return [f"There is no {INDEX} yet. Create it at {path} when you have something to note."]


def _frame(index: str, attributes: str) -> str:
    # The index is what an agent wrote: it must not close the frame and speak as the system.
    return f"<memory_index{attributes}>\n{index.replace('</memory_index', '< /memory_index')}\n</memory_index>"


def _line(path: Path) -> str:
    # A name of a folder may hold line breaks and quotes, which would end the attribute or the line.
    return "".join(letter if letter.isprintable() else " " for letter in str(path)).replace('"', "'")
