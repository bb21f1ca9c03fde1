"""The files of the page, read once and served from memory.

A request names one of these files or gets 404: no path of a request ever becomes a path of the file system.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec import Struct

import retinue.faces.web

FOLDER = Path(retinue.faces.web.__file__).parent
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


class StaticFile(Struct, frozen=True):
    """One file of the page."""

    content: bytes
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return every file of the page by its address below `/static/`."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        kind = TYPES.get(path.suffix)
        if kind is not None and path.is_file():
            found[path.relative_to(FOLDER).as_posix()] = StaticFile(path.read_bytes(), kind)
    return found
