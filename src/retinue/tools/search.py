"""What grep and find share: where a search starts, how its paths are shown, and that no result lies outside.

ripgrep follows no link it finds, but opens what it finds by name: a link that is put there in
between is followed. So what it says is believed only of folders that have not changed since it
began; anything else, and every line that is shown, is read again from a descriptor that was opened
without following a link.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.core.lean import dataclass
from retinue.core.tool import ToolContext
from retinue.tools.arguments import ToolError
from retinue.tools.files import open_regular, spot
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


class Unchanged:
    """Whether the folders of a search are as they were before it began. Exchanging a name for a
    link changes its folder, and the kernel notes when."""

    _COARSE = 0.05
    """Seconds by which the time that a folder carries may lag behind the clock."""

    def __init__(self, start: Start) -> None:
        self._root = str(start.place.root)
        self._since = time.time() - self._COARSE
        self._known: dict[str, bool] = {}
        self._start = str(start.folder)

    def holds(self, path: str) -> bool:
        """Whether everything above `path`, which is below the start of the search, is unchanged."""
        return self._is(os.path.join(self._start, path).rpartition("/")[0])  # noqa: PTH118 - many paths

    def _is(self, folder: str) -> bool:
        known = self._known.get(folder)
        if known is None:
            above = folder == self._root or self._is(folder.rpartition("/")[0])
            known = self._known[folder] = above and self._is_old(folder)
        return known

    def _is_old(self, folder: str) -> bool:
        try:
            found = os.lstat(folder)
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_ctime < self._since


def exists_inside(path: str, start: Start) -> bool:
    """Whether `path`, below the start of the search, is there without a link on the way."""
    try:
        with spot(_found(path, start)) as where:
            return where.stat() is not None
    except (OSError, ToolError):
        return False


@contextmanager
def opened_files(paths: list[str], start: Start) -> Iterator[dict[int, str]]:
    """The regular files among `paths` by their descriptors, opened without following a link."""
    opened: dict[int, str] = {}
    try:
        for path in paths:
            place = _found(path, start)
            try:
                with spot(place) as where:
                    opened[open_regular(where, place)] = path
            except (OSError, ToolError):
                continue
        yield opened
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _found(path: str, start: Start) -> Confined:
    return Confined(start.place.root, os.path.join(start.folder, path), path)  # noqa: PTH118 - many paths


def _prefix(folder: Path, context: ToolContext) -> str:
    name = shown(folder, context)
    return "" if name == "." else name.rstrip("/") + "/"


def relative(raw: bytes) -> str:
    """A path as rg prints it, without the `./` it was given."""
    text = raw.decode("utf-8", "surrogateescape").replace(os.sep, "/")
    return text.removeprefix("./")
