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
def preload_header() -> str:
    """Return the `Link` header that lets a browser ask for all modules at once, instead of one import after another."""
    links = []
    for name, file in static_files().items():
        if file.media_type == TYPES[".js"]:
            links.append(f"</static/{name}>; rel=modulepreload")
    return ", ".join(links)


@cache
def static_files() -> dict[str, StaticFile]:
    """Return every file of the page by its address below `/static/`."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        kind = TYPES.get(path.suffix)
        if kind is not None and path.is_file():
            found[path.relative_to(FOLDER).as_posix()] = StaticFile(path.read_bytes(), kind)
    return found
