"""Globs and start folders for grep and find, and the check that no result lies outside the workspace.

In a glob, `*` and `?` stay within a name, `**` spans folders, `[a-z]` and `{a,b}` work, and a leading
`!` excludes. A pattern without a slash is matched against names at any depth, one with a slash
against the path from where the search starts. A pattern without capitals ignores case.

ripgrep follows no link that it finds, but it opens files by name, so it follows a link that replaces a file during
the search. Its output is therefore trusted only for folders that have not changed since it began. All other files,
and every line that is shown, are read again from a descriptor that was opened without following a link.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from retinue.core.globs import component_regex
from retinue.core.tool import ToolContext
from retinue.tools.base import ToolError
from retinue.tools.paths import Confined, confine, open_parent, open_regular, shown, visible

_MAX_ALTERNATIVES = 64
"""The most alternatives that one pattern may unfold to. A larger number is a mistake or an attack."""


class Glob(Struct, frozen=True):
    """Matches a path with `/` between its parts and none at either end."""

    included_patterns: tuple[re.Pattern[str], ...]
    excluded_patterns: tuple[re.Pattern[str], ...]
    names: tuple[str, ...]
    """Globs for the last component alone, implied by `included_patterns`; empty when it may be any."""
    hidden: bool
    """Whether the pattern names a component that starts with a dot."""

    def __call__(self, path: str) -> bool:
        if self.included_patterns and not _matches_any(self.included_patterns, path):
            return False
        return not _matches_any(self.excluded_patterns, path)


def _matches_any(patterns: tuple[re.Pattern[str], ...], path: str) -> bool:
    return any(pattern.fullmatch(path) for pattern in patterns)


def compile_glob(text: str) -> Glob:
    """Return the glob for one or several patterns, separated by commas. Raise ToolError if the text has no pattern."""
    included: list[str] = []
    excluded: list[str] = []
    for entry in _split(text, ","):
        pattern = entry.strip()
        is_exclusion = pattern.startswith("!")
        pattern = _tidy(pattern.removeprefix("!"))
        if pattern and is_exclusion:
            excluded += _unfold(pattern)
        elif pattern:
            included += _unfold(pattern)
    if not included and not excluded:
        raise ToolError(f"{text!r} is not a pattern. Send a glob such as *.py or src/**/test_*.")
    names = dict.fromkeys(pattern.rpartition("/")[2] for pattern in included)
    if "**" in names:
        names.clear()
    hidden = any(f"/{pattern}".find("/.") >= 0 for pattern in included)
    return Glob(tuple(map(_regex, included)), tuple(map(_regex, excluded)), tuple(names), hidden)


def _tidy(pattern: str) -> str:
    while pattern.startswith("./"):
        pattern = pattern[2:]
    return re.sub(r"/{2,}", "/", pattern)


def _split(text: str, separator: str) -> list[str]:
    """Split the text at `separator`, except inside braces or brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth = max(0, depth - 1)
        elif character == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _unfold(pattern: str) -> list[str]:
    """Return `a{b,c}` as `ab` and `ac`. Unbalanced braces are plain characters."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(waiting) + len(done) > _MAX_ALTERNATIVES:
            raise ToolError(f"{pattern!r} has too many alternatives in braces. Use a simpler pattern.")
        # From the end, so that the alternatives come out in the order they were written.
        current = waiting.pop()
        match = re.search(r"\{([^{}]*)\}", current)
        if match is None:
            done.append(current)
            continue
        for option in reversed(match.group(1).split(",")):
            waiting.append(current[: match.start()] + option + current[match.end() :])
    return done


def _regex(pattern: str) -> re.Pattern[str]:
    """Return an expression that takes linear time, as `core.globs` explains."""
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        parts = ["**", *parts]
    chunks: list[str] = [""]
    for component in parts:
        if component == "**":
            chunks.append("")
        else:
            chunks[-1] += component_regex(component) + "/"
    first, middle, last = chunks[0], chunks[1:-1], chunks[-1]
    text = first + "".join(f"(?>(?:[^/]+/)*?{chunk})" for chunk in middle if chunk)
    if len(chunks) == 1:
        text = first[:-1]
    elif last:
        text += f"(?:[^/]+/)*{last[:-1]}"
    else:
        text += ".+"
    flags = re.DOTALL
    if not any(map(str.isupper, pattern)):
        flags |= re.IGNORECASE
    return re.compile(text, flags)


class Start(Struct, frozen=True):
    """ripgrep runs in `folder` and searches `target`. `prefix` leads from the working directory to the folder and is
    shown before paths."""

    confined: Confined
    folder: Path
    target: str
    prefix: str

    @property
    def name(self) -> str:
        """Return the name of the start in a sentence, where a bare `.` would look like punctuation."""
        return "the working directory" if self.confined.shown == "." else self.confined.shown

    def show(self, path: str) -> str:
        return self.prefix + visible(path)

    def accepts(self, path: str, glob: Glob) -> bool:
        """A glob may be meant from the start of the search or from the working directory."""
        return glob(path) or (bool(self.prefix) and glob(self.prefix + path))


def start_of(text: str | None, context: ToolContext) -> Start:
    confined = confine(text or ".", context)
    status = _stat(confined)
    if status is None:
        raise ToolError(f"{confined.shown} does not exist. Search from . or name an existing folder.")
    if stat.S_ISDIR(status.st_mode):
        return Start(confined, confined.path, "./", _prefix(confined.path, context))
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{confined.shown} is neither a file nor a folder, so it cannot be searched.")
    return Start(confined, confined.path.parent, f"./{confined.path.name}", _prefix(confined.path.parent, context))


def _stat(confined: Confined) -> os.stat_result | None:
    if not confined.parts:
        return confined.root.lstat() if confined.root.exists() else None
    try:
        with open_parent(confined) as where:
            return where.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


class Unchanged:
    """Tells whether the folders of a search have stayed unchanged since it began. Replacing a file by a link changes
    its folder, and the kernel records the time."""

    _CLOCK_LAG_SECONDS = 0.05
    """Seconds by which the time that a folder carries may lag behind the clock."""

    def __init__(self, start: Start) -> None:
        self._root = str(start.confined.root)
        # The clock of a file system may lag behind: a doubtful folder counts as changed.
        self._since = time.time() - self._CLOCK_LAG_SECONDS
        self._known: dict[str, bool] = {}
        self._start = str(start.folder)

    def holds(self, path: str) -> bool:
        """Return whether everything above `path`, which is below the start of the search, is unchanged."""
        return self._is(os.path.join(self._start, path).rpartition("/")[0])  # noqa: PTH118 - many paths

    def _is(self, folder: str) -> bool:
        if folder not in self._known:
            above = folder == self._root or self._is(folder.rpartition("/")[0])
            self._known[folder] = above and self._is_old(folder)
        return self._known[folder]

    def _is_old(self, folder: str) -> bool:
        try:
            status = os.lstat(folder)
        except OSError:
            return False
        return stat.S_ISDIR(status.st_mode) and status.st_ctime < self._since


def exists_inside(path: str, start: Start) -> bool:
    """Return whether `path`, below the start of the search, is there without a link on the way."""
    try:
        with open_parent(_confine_found(path, start)) as where:
            return where.stat() is not None
    except (OSError, ToolError):
        return False


@contextmanager
def open_files(paths: list[str], start: Start) -> Iterator[dict[int, str]]:
    """The regular files among `paths` by their descriptors, opened without following a link."""
    opened: dict[int, str] = {}
    try:
        for path in paths:
            confined = _confine_found(path, start)
            try:
                with open_parent(confined) as where:
                    opened[open_regular(where, confined)] = path
            except (OSError, ToolError):
                continue
        yield opened
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _confine_found(path: str, start: Start) -> Confined:
    return Confined(start.confined.root, os.path.join(start.folder, path), path)  # noqa: PTH118 - many paths


def _prefix(folder: Path, context: ToolContext) -> str:
    name = shown(folder, context)
    return "" if name == "." else name.rstrip("/") + "/"


def relative(raw: bytes) -> str:
    """A path as rg prints it, without the `./` it was given."""
    text = raw.decode("utf-8", "surrogateescape").replace(os.sep, "/")
    return text.removeprefix("./")
