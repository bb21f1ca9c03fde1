"""A grep as two runs of ripgrep: count everywhere in parallel, then show the first files.

The count gives exact totals and the order (by path) whatever order rg's threads work in, at
the cost of a few bytes per file; only the files that will be shown are searched again, and those
whose folder changed meanwhile (`tools/search.py` says why). The second run gets open files, no names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from retinue.core.lean import dataclass
from retinue.core.tool import ToolContext
from retinue.tools.errors import ToolError
from retinue.tools.files import BY_DESCRIPTOR
from retinue.tools.globs import Glob
from retinue.tools.ripgrep import ripgrep
from retinue.tools.search import Start, Unchanged, opened_files, relative
from retinue.tools.threads import in_thread

COLUMNS = 500
_ARGUMENT_BYTES = 100_000
_OPEN_FILES = 200
_DESCRIPTOR = "/dev/fd/{}"
_PRINTED = re.compile(rb"(?m)^/dev/fd/(\d+)(\0|: )")
_READ_BYTES = 4_000_000
"""Far more than is ever shown: what rg prints beyond it is dropped."""
_PLAIN_NAME = re.compile(r"[\w.*?+ -]+")
_LINE = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Query:
    pattern: str
    literal: bool = False
    ignore_case: bool = False
    hidden: bool = False
    context: int = 0
    glob: Glob | None = None

    def flags(self) -> list[str]:
        multiline = "\n" in self.pattern or (not self.literal and r"\n" in self.pattern)
        chosen = {
            "--fixed-strings": self.literal,
            "--ignore-case": self.ignore_case,
            "--multiline": multiline,
        }
        return [flag for flag, wanted in chosen.items() if wanted] + [f"--regexp={self.pattern}"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Matching lines of each file, by path from the start of the search, in order."""

    files: Mapping[str, int]
    withheld: int = 0
    """How many more files match and must not be read."""

    @property
    def total(self) -> int:
        return sum(self.files.values())


async def count_matches(query: Query, start: Start, context: ToolContext) -> Counts:
    if "\0" in query.pattern:
        raise ToolError("The pattern holds a NUL character; text files have none.")
    printed = bytearray()
    unchanged = Unchanged(start)
    flags = [*hidden_flags(query.hidden), *_type_flags(query.glob), *query.flags()]
    await ripgrep(
        ["--count", "--null", "--with-filename", *flags, "--", start.target], start.folder, context, printed.extend
    )
    found = await in_thread(lambda: _counts(bytes(printed), query.glob, start))
    if BY_DESCRIPTOR:
        found = await _counted_again(query, start, context, found, unchanged)
    return await in_thread(lambda: without_withheld(found, start, context))


async def _counted_again(
    query: Query, start: Start, context: ToolContext, found: Counts, unchanged: Unchanged
) -> Counts:
    """With the files of folders that changed during the search counted from what is really there."""
    doubtful = await in_thread(lambda: [path for path in found.files if not unchanged.holds(path)])
    if not doubtful:
        return found
    counted: dict[str, int] = {}
    for at in range(0, len(doubtful), _OPEN_FILES):
        printed = bytearray()
        with opened_files(doubtful[at : at + _OPEN_FILES], start) as opened:
            shape = ["--count", "--null", "--with-filename"]
            await _search_opened([*shape, *query.flags()], opened, start, context, printed.extend)
            counted |= _counts(_named(bytes(printed), opened), None, start).files
    sure = {path: count for path, count in found.files.items() if path not in frozenset(doubtful)}
    return Counts(dict(sorted((sure | counted).items())))


async def _search_opened(
    arguments: list[str],
    opened: Mapping[int, str],
    start: Start,
    context: ToolContext,
    receive: Callable[[bytes], None],
) -> None:
    if opened:
        names = [_DESCRIPTOR.format(number) for number in opened]
        await ripgrep([*arguments, "--", *names], start.folder, context, receive, tuple(opened))


def _named(printed: bytes, opened: Mapping[int, str]) -> bytes:
    """What rg printed of descriptors, with the names of their files."""

    def name(found: re.Match[bytes]) -> bytes:
        path = opened.get(int(found[1]))
        return found[0] if path is None else b"./" + os.fsencode(path) + found[2]

    return _PRINTED.sub(name, printed)


def without_withheld(found: Counts, start: Start, context: ToolContext) -> Counts:
    """Without the files that the rules of the run keep from it."""
    withheld = context.withheld()
    if withheld is None:
        return found
    kept = {path: count for path, count in found.files.items() if not withheld(os.path.join(start.folder, path))}  # noqa: PTH118 - many paths
    return Counts(kept, len(found.files) - len(kept))


def _counts(printed: bytes, glob: Glob | None, start: Start) -> Counts:
    files: dict[str, int] = {}
    path, *rest = printed.split(b"\0")
    for piece in rest:
        count, _, following = piece.partition(b"\n")
        name = relative(path)
        if glob is None or start.accepts(name, glob):
            files[name] = int(count)
        path = following
    return Counts(dict(sorted(files.items())))


async def matching_lines(
    query: Query, start: Start, context: ToolContext, found: Counts, limit: int
) -> tuple[list[str], int]:
    """Lines to show for the first `limit` matches in path order, and how many matches they are."""
    chosen: list[str] = []
    expected = size = 0
    for path in found.files:
        size += len(os.fsencode(path)) + 3
        if expected >= limit or len(chosen) == _OPEN_FILES or (chosen and size > _ARGUMENT_BYTES):
            break
        chosen.append(path)
        expected += found.files[path]
    printed = bytearray()

    def receive(data: bytes) -> None:
        if len(printed) < _READ_BYTES:
            printed.extend(data)

    shape = ["--line-number", "--no-heading", "--null", "--with-filename", "--threads=1"]
    bounds = [f"--max-columns={COLUMNS}", "--max-columns-preview", f"--max-count={limit}", f"--context={query.context}"]
    wanted = [*shape, *bounds, *query.flags()]
    if not BY_DESCRIPTOR:  # Windows
        await ripgrep([*wanted, "--", *(f"./{path}" for path in chosen)], start.folder, context, receive)
        return _parse(bytes(printed), start, limit)
    with opened_files(chosen, start) as opened:
        await _search_opened(wanted, opened, start, context, receive)
    return _parse(_named(bytes(printed), opened), start, limit)


def _parse(printed: bytes, start: Start, limit: int) -> tuple[list[str], int]:
    lines: list[str] = []
    matches = 0
    for raw in printed.split(b"\n"):
        path, zero, rest = raw.partition(b"\0")
        parsed = _LINE.fullmatch(rest) if zero else None
        if parsed is None:
            if raw == b"--":
                lines.append("--")
            elif b"binary file matches" in raw:
                lines.append(f"{start.show(relative(raw.partition(b': ')[0]))}: binary file matches")
            continue
        number, mark, text = parsed.groups()
        if mark == b":":
            if matches == limit:
                break
            matches += 1
        separator = mark.decode()
        shown = text.decode("utf-8", "replace").rstrip("\r").replace("\0", "\ufffd")
        lines.append(f"{start.show(relative(path))}{separator}{int(number)}{separator}{shown}")
    while lines and lines[-1] == "--":
        lines.pop()
    return lines, matches


def hidden_flags(hidden: bool) -> list[str]:
    """Version control folders stay out even when hidden files are asked for."""
    return ["--hidden", "--glob=!.git", "--glob=!.hg", "--glob=!.svn"] if hidden else []


def _type_flags(glob: Glob | None) -> list[str]:
    """Lets rg skip files by name. Its own --glob would search ignored files too; a file type
    made up for the occasion does not. The exact check is done on the paths it prints."""
    if glob is None or not glob.names or not all(_PLAIN_NAME.fullmatch(name) for name in glob.names):
        return []
    definitions = [f"--type-add=wanted:{_any_case(name)}" for name in glob.names]
    return [*definitions, "--type=wanted"]


def _any_case(name: str) -> str:
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isascii() and c.isalpha() else c for c in name)
