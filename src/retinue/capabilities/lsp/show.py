"""Answers of language servers as text for a model: positions as `path:line:column`, bounded.

Only regular files of the workspace up to a size limit are read, as text.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from retinue.capabilities.lsp.protocol import Encoding, TextDocument, TextPosition
from retinue.capabilities.lsp.session import SourceFile, path_of
from retinue.capabilities.lsp.tool import bad_input
from retinue.core.tool import ToolContext
from retinue.tools.base import ToolError
from retinue.tools.content import head_and_tail
from retinue.tools.paths import Confined, confine, open_parent, open_regular, shown, visible

if TYPE_CHECKING:
    from lsprotocol import types


MAX_SOURCE_BYTES = 2 * 1024 * 1024


def read_source(confined: Confined) -> SourceFile:
    """Read a file of the workspace. Raise LspError (INVALID_INPUT), or ToolError for anything but a regular file."""
    try:
        with open_parent(confined) as where:
            descriptor = open_regular(where, confined)
    except (FileNotFoundError, NotADirectoryError):
        raise bad_input(f"{confined.shown} does not exist.") from None
    with os.fdopen(descriptor, "rb") as file:
        entry = os.fstat(file.fileno())
        # One byte above the limit shows that the file is too large, even if it grows meanwhile.
        data = file.read(MAX_SOURCE_BYTES + 1)
    if len(data) > MAX_SOURCE_BYTES:
        raise bad_input(
            f"{confined.shown} is larger than {MAX_SOURCE_BYTES // 2**20} MiB, too large for a language server."
        )
    text = data.decode("utf-8-sig", "replace")
    return SourceFile(confined.path, text, (entry.st_mtime_ns, entry.st_size))


MAX_LISTED_ENTRIES = 200
MAX_ANSWER_LENGTH = 60_000
MAX_LINE_LENGTH = 200
SEVERITY_NAMES = {1: "error", 2: "warning", 3: "info", 4: "hint"}
INFO_GRADE = 3
_GRADE_BY_NAME = dict(zip(SEVERITY_NAMES.values(), SEVERITY_NAMES, strict=True))


class Location(Struct, frozen=True):
    """A position of a server: file, line and column from 0, the column in the server's units."""

    path: Path | None
    uri: str
    line: int
    units: int


class AnswerFiles:
    """The files of an answer, each read once. Files outside of the workspace and files that rules hide from the run are
    not read."""

    def __init__(self, context: ToolContext, encoding: Encoding) -> None:
        self._context = context
        self.encoding = encoding
        self._documents: dict[Path, TextDocument | None] = {}
        self._withheld = context.withheld()

    def document(self, path: Path | None) -> TextDocument | None:
        if path is None:
            return None
        if path not in self._documents:
            self._documents[path] = None
            if self._withheld is None or not self._withheld(str(path)):
                with suppress(ToolError, OSError):
                    self._documents[path] = TextDocument(read_source(confine(str(path), self._context)).text)
        return self._documents[path]

    def is_inside(self, path: Path | None) -> bool:
        """Return whether a file is in the workspace, where the run may look."""
        return path is not None and any(root == path or root in path.parents for root in self._context.roots)

    def name(self, path: Path | None, uri: str = "") -> str:
        return shown(path, self._context) if path is not None else visible(uri)

    def spot(self, location: Location) -> TextPosition:
        document = self.document(location.path)
        if document is None:
            return TextPosition(location.line, location.units)
        return document.to_spot(location.line, location.units, self.encoding)

    def at(self, location: Location, *, with_line: bool = True) -> str:
        """Return `path:line:column`, with the text of that line."""
        text = f"{self.name(location.path, location.uri)}:{self.spot(location)}"
        document = self.document(location.path)
        if document is None:
            return f"{text}  (it cannot be read from here)"
        line = document.line(location.line).strip()
        return f"{text}  {self.short(line)}" if with_line and line else text

    @staticmethod
    def short(line: str) -> str:
        return visible(line[:MAX_LINE_LENGTH])


def list_locations(result: Any) -> list[Location]:
    """Return locations and links to them, one or many, as one list without repetitions."""
    if result is None:
        return []
    locations: dict[Location, None] = {}
    for entry in result if isinstance(result, Sequence) else (result,):
        uri = getattr(entry, "uri", None) or entry.target_uri
        span = getattr(entry, "range", None) or entry.target_selection_range
        locations[Location(path_of(uri), uri, span.start.line, span.start.character)] = None
    return list(locations)


def format_list(lines: Iterable[str], what: str, total: int | None = None, outside: int = 0) -> str:
    """Return at most `MAX_LISTED_ENTRIES` lines, with a count of those left out and of those `outside` the
    workspace."""
    entries = list(lines)
    total = len(entries) if total is None else total
    del entries[MAX_LISTED_ENTRIES:]
    if total > len(entries):
        count = f"{total - len(entries):,} more of {total:,} {what}"
        entries.append(f"[{count}; ask about fewer files or a narrower place]")
    if outside:
        entries.append(f"[{outside:,} more outside the workspace]")
    return shorten("\n".join(entries))


def shorten(text: str) -> str:
    return head_and_tail(text, MAX_ANSWER_LENGTH, "ask about less at once", head_share=0.8)


def prose(contents: Any) -> str:
    """Return the text of a hover or of documentation, in any of the four shapes of the protocol."""
    if contents is None:
        return ""
    if isinstance(contents, str):
        return contents.strip()
    if isinstance(contents, Sequence):
        return "\n\n".join(filter(None, map(prose, contents)))
    language = getattr(contents, "language", None)
    value = str(getattr(contents, "value", contents)).strip()
    if language and value:
        return f"```{language}\n{value}\n```"
    return re.sub(r"\n{3,}", "\n\n", value)


class ServerDiagnostic(NamedTuple):
    """One diagnostic. Diagnostics sort by severity, then by position."""

    grade: int
    path: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line + 1}:{self.column + 1} {SEVERITY_NAMES[self.grade]}: {self.text}"


def problems(
    path: Path, reported: Iterable[types.Diagnostic], texts: AnswerFiles, severity: str
) -> list[ServerDiagnostic]:
    """Return the diagnostics of a file. `severity` is the least to keep."""
    least = _GRADE_BY_NAME.get(severity, 4)
    listed = []
    for diagnostic in reported:
        # The protocol leaves a missing severity to the client.
        grade = int(diagnostic.severity or 1)
        if grade > least:
            continue
        start = diagnostic.range.start
        spot = texts.spot(Location(path, "", start.line, start.character))
        code = f" [{diagnostic.code}]" if diagnostic.code not in (None, "") else ""
        message = visible(" ".join(str(diagnostic.message).split()))
        listed.append(ServerDiagnostic(grade, texts.name(path), spot.line, spot.column, f"{message}{code}"))
    return listed


def summary(diagnostics: Iterable[ServerDiagnostic]) -> str:
    """Return the number of diagnostics, such as `2 errors, 1 warning`."""
    parts = []
    for grade, count in sorted(Counter(diagnostic.grade for diagnostic in diagnostics).items()):
        # "info" has no plural.
        parts.append(f"{count} {SEVERITY_NAMES[grade]}{'s' if count > 1 and grade != INFO_GRADE else ''}")
    return ", ".join(parts)
