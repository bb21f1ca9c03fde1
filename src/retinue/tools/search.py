"""What grep and find share: where a search starts, and how its paths are shown."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from retinue.domain.lean import dataclass
from retinue.domain.tool import ToolContext
from retinue.tools.errors import ToolError
from retinue.tools.files import spot
from retinue.tools.globs import Glob
from retinue.tools.paths import Confined, confine, shown, visible


@dataclass(frozen=True, slots=True)
class Start:
    """`folder` is where ripgrep runs and `target` what it is given; `prefix` leads from the
    working directory to the folder, for showing."""

    place: Confined
    folder: Path
    target: str
    prefix: str

    @property
    def name(self) -> str:
        """Where it starts, in words: a bare `.` at the end of a sentence reads as another folder."""
        return "the working directory" if self.place.shown == "." else self.place.shown

    def show(self, path: str) -> str:
        return self.prefix + visible(path)

    def accepts(self, path: str, glob: Glob) -> bool:
        """A glob may be meant from the start of the search or from the working directory."""
        return glob(path) or (bool(self.prefix) and glob(self.prefix + path))


def start_of(text: str | None, context: ToolContext) -> Start:
    place = confine(text or ".", context)
    found = _stat(place)
    if found is None:
        raise ToolError(f"{place.shown} does not exist. Search from . or name an existing folder.")
    if stat.S_ISDIR(found.st_mode):
        return Start(place, place.path, "./", _prefix(place.path, context))
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{place.shown} is neither a file nor a folder, so it cannot be searched.")
    return Start(place, place.path.parent, f"./{place.path.name}", _prefix(place.path.parent, context))


def _stat(place: Confined) -> os.stat_result | None:
    if not place.parts:
        return place.root.lstat() if place.root.exists() else None
    try:
        with spot(place) as where:
            return where.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _prefix(folder: Path, context: ToolContext) -> str:
    name = shown(folder, context)
    return "" if name == "." else name.rstrip("/") + "/"


def relative(raw: bytes) -> str:
    """A path as rg prints it, without the `./` it was given."""
    text = raw.decode("utf-8", "surrogateescape").replace(os.sep, "/")
    return text.removeprefix("./")
