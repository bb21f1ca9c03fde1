"""The index of a memory, as far as it fits a prompt."""

from __future__ import annotations

from retinue.capabilities.memory.places import INDEX
from retinue.guard.safe_folder import Place, read

LINES = 200
BYTES = 25_000


def read_index(place: Place) -> str:
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
