"""read: a window of a text file, an image, or a PDF.

A window of lines is taken from a file of any size in one pass and bounded memory.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import chain
from threading import Event
from typing import Any, BinaryIO, ClassVar

from msgspec import Struct, field

from retinue.core.format import format_bytes
from retinue.core.messages import Document, Image, Text
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput, ok
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.content import (
    MAX_HASHED_BYTES,
    SNIFFED_BYTES,
    binary_kind,
    content_hash,
    forms_of,
    image_type,
    wide_encoding,
)
from retinue.tools.paths import (
    Confined,
    as_written,
    confine,
    folder_listing,
    list_folder,
    open_parent,
    open_regular,
    read_little,
)
from retinue.tools.processes import in_thread

MAX_LINES = 2000
MAX_BYTES = 50_000
MAX_LINE_BYTES = 2000
"""Longer lines are cut, with a note about their length."""


class LineWindow(Struct):
    """Lines `first` … of a file, without their newlines. `cut` has the whole length of each
    line that was cut, by its place in `lines`. `total` and `digest` (the content hash) are None
    when the file was not read to its end; `full` means that more lines follow."""

    first: int
    lines: list[bytes] = field(default_factory=list)
    cut: dict[int, int] = field(default_factory=dict)
    total: int | None = None
    digest: str | None = None
    full: bool = False
    room: int = MAX_BYTES

    @property
    def next(self) -> int:
        return self.first + len(self.lines)

    def add(self, line: bytes, length: int) -> None:
        """Add a line of `length` bytes, or set `full` if there is no room for it. `line` has at least its first
        MAX_LINE_BYTES + 1 bytes."""
        cost = min(length, MAX_LINE_BYTES) + 8
        if self.lines and cost > self.room:
            self.full = True
            return
        self.room -= cost
        if length > MAX_LINE_BYTES:
            self.cut[len(self.lines)] = length
            line = _whole_characters(line)
        self.lines.append(line)


def window_of(data: bytes, first: int, limit: int) -> LineWindow:
    """Return the window of a file that is in memory as a whole."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    page = LineWindow(first, total=len(lines), digest=hashlib.sha256(data).hexdigest())
    for line in lines[first - 1 : first - 1 + limit]:
        page.add(line, len(line))
        if page.full:
            break
    page.full = page.full or len(lines) > first - 1 + limit
    return page


def window(
    chunks: Iterable[bytes], first: int, limit: int, *, to_end: bool, stopped: Callable[[], bool] = lambda: False
) -> LineWindow:
    """Return the window of a file that is read piece by piece. With `to_end` the remaining file is also read, for the
    line count and the hash. Otherwise reading ends with the window."""
    builder = _Builder(LineWindow(first), limit)
    page = builder.page
    hasher = hashlib.sha256()
    for chunk in chunks:
        if stopped():
            return page
        if to_end:
            hasher.update(chunk)
        builder.feed(chunk)
        if page.full and not to_end:
            return page
    page.total = builder.finish()
    if to_end:
        page.digest = hasher.hexdigest()
    return page


class _Builder:
    """Counts newlines in bulk outside the window and cuts lines only inside it."""

    def __init__(self, page: LineWindow, limit: int) -> None:
        self.page = page
        self.limit = limit
        # Number, beginning and length of the line being read: only its beginning is kept, because it may be huge.
        self.number = 1
        self.part = bytearray()
        self.length = 0

    def feed(self, chunk: bytes) -> None:
        position = 0
        while position < len(chunk):
            if self.page.full or self.number < self.page.first:
                position = self._pass_over(chunk, position)
                continue
            end = chunk.find(b"\n", position)
            stop = len(chunk) if end < 0 else end
            self.length += stop - position
            self.part += chunk[position : min(stop, position + MAX_LINE_BYTES + 1 - len(self.part))]
            if end < 0:
                return
            self._close_line()
            position = end + 1

    def _pass_over(self, chunk: bytes, position: int) -> int:
        newlines = chunk.count(b"\n", position)
        missing = self.page.first - self.number
        if self.page.full or newlines < missing:
            self.number += newlines
            last = chunk.rfind(b"\n", position)
            self.length += len(chunk) - position
            if last >= 0:
                self.length = len(chunk) - 1 - last
            return len(chunk)
        for _ in range(missing):
            position = chunk.index(b"\n", position) + 1
        self.number = self.page.first
        self.length = 0
        return position

    def _close_line(self) -> None:
        if len(self.page.lines) >= self.limit:
            self.page.full = True
        else:
            self.page.add(bytes(self.part), self.length)
        self.number += 1
        self.part.clear()
        self.length = 0

    def finish(self) -> int:
        """Return the number of lines, including a last line without a newline."""
        if self.length:
            if self.number >= self.page.first and not self.page.full:
                self._close_line()
            else:
                self.number += 1
        return self.number - 1


def _whole_characters(line: bytes) -> bytes:
    """Return the first MAX_LINE_BYTES of a longer line, not ending inside a UTF-8 character."""
    end = MAX_LINE_BYTES
    while end > MAX_LINE_BYTES - 4 and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[:end]


MAX_IMAGE_BYTES = 3_750_000
"""The largest image, in bytes, whose base64 form fits the 5 MB limit of providers."""
MAX_DOCUMENT_BYTES = 4_500_000
"""Every request of the run carries the PDF, and all providers accept this size. Larger ones are read as text."""
_PDF = b"%PDF-"

_CHUNK_BYTES = 1 << 20
_MAX_SMALL_FILE_BYTES = 1 << 16
"""Smaller files are read in one call."""


class ReadTool(BuiltinTool):
    name = "read"
    required = ("path",)
    properties: ClassVar[Properties] = {
        "path": {"type": "string", "description": "Relative or absolute"},
        "offset": {"type": "integer", "description": "First line, from 1"},
        "limit": {"type": "integer", "description": "Number of lines"},
    }
    hidden: ClassVar[Properties] = {"end_line": {"type": "integer"}}
    aliases: ClassVar[Aliases] = {
        "path": PATH_NAMES,
        "offset": ("start_line", "line", "start", "line_start", "line_offset"),
        "limit": ("num_lines", "max_lines", "lines", "line_count", "n_lines"),
        "end_line": ("line_end", "end"),
    }

    @staticmethod
    def rewrite(arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept `view_range: [first, last]`."""
        span = arguments.pop("view_range", None)
        if isinstance(span, list) and len(span) == 2:
            arguments.setdefault("offset", span[0])
            arguments.setdefault("end_line", span[1])
        return arguments

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        path = arguments.text("path")
        first = arguments.whole_number("offset") or 1
        last = arguments.whole_number("end_line")
        limit = arguments.whole_number("limit", least=1) or (MAX_LINES if last is None else max(last - first + 1, 1))
        limit = min(limit, MAX_LINES)
        small_file = _read_small_file(path, context)
        if small_file is not None:
            confined, data = small_file
            output = _content(confined, data, BytesIO(), len(data), first, limit, context)
        else:
            confined, stop = confine(path, context), Event()
            output = await in_thread(lambda: _read(confined, first, limit, context, stop.is_set), stop)
        return output or await _read_converted(confined, path, call_id, first, limit, context)


def _read_small_file(text: str, context: ToolContext) -> tuple[Confined, bytes] | None:
    """Return the whole of a small file whose path has no detours; None for anything else, which is
    then looked at closely. Handing such a file to a thread would take longer than reading it."""
    confined = as_written(text, context)
    if confined is None:
        return None
    try:
        data = read_little(confined, _MAX_SMALL_FILE_BYTES)
    except (OSError, ValueError, ToolError):
        return None
    return None if data is None else (confined, data)


def _read(
    confined: Confined, first: int, limit: int, context: ToolContext, stopped: Callable[[], bool]
) -> ToolOutput | None:
    if confined.path.is_dir():
        return ok(
            f"{confined.shown} is a folder. In it:\n{folder_listing(confined)}", ToolEffect(reads=(confined.real,))
        )
    try:
        with open_parent(confined) as where:
            descriptor = open_regular(where, confined)
    except FileNotFoundError:
        raise ToolError(f"{confined.shown} does not exist.{_similar(confined)}") from None
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        return _content(confined, file.read(_CHUNK_BYTES), file, size, first, limit, context, stopped)


def _content(
    confined: Confined,
    start: bytes,
    remainder: BinaryIO,
    size: int,
    first: int,
    limit: int,
    context: ToolContext,
    stopped: Callable[[], bool] = lambda: False,
) -> ToolOutput | None:
    """Return the result for a file whose first bytes are `start`: all of it, where those are fewer than
    a chunk. None for a PDF that has to be made into text."""
    effect = ToolEffect(reads=(confined.real,))
    media_type = image_type(start)
    if media_type is not None:
        return _image(confined, start + remainder.read(MAX_IMAGE_BYTES), media_type, size, context, effect)
    if start.startswith(_PDF) and context.takes_documents() and size <= MAX_DOCUMENT_BYTES:
        return _document(confined, start + remainder.read(MAX_DOCUMENT_BYTES), context, effect)
    # A model that cannot read PDFs gets their text, where a converter is installed.
    if start.startswith(_PDF) and context.convert is not None:
        return None
    kind = binary_kind(start[:SNIFFED_BYTES])
    if kind is not None:
        raise ToolError(
            f"{confined.shown} is {kind} ({format_bytes(size)}), not text. Use a program made for it, if any."
        )
    codec = wide_encoding(start)
    if codec is not None:
        page = _wide_window(confined, start + remainder.read(MAX_HASHED_BYTES), first, limit)
    elif len(start) < _CHUNK_BYTES:
        page = window_of(start, first, limit)
    else:
        chunks = chain([start], iter(lambda: remainder.read(_CHUNK_BYTES), b""))
        page = window(chunks, first, limit, to_end=size <= MAX_HASHED_BYTES, stopped=stopped)
    # Only a file that was read to its end may be rewritten without reading it again.
    if page.digest is not None:
        context.seen[confined.real] = page.digest
    return ok(_render(confined, page, codec), effect)


def _wide_window(confined: Confined, data: bytes, first: int, limit: int) -> LineWindow:
    if len(data) > MAX_HASHED_BYTES:
        raise ToolError(f"{confined.shown} is UTF-16 or UTF-32 text, too large to convert here. Convert it with iconv.")
    forms = forms_of(data)
    if not forms:
        raise ToolError(
            f"{confined.shown} starts like UTF-16 or UTF-32 text but is not valid. Treat it as binary data."
        )
    page = window_of(forms[0].decode(data).encode("utf-8", "replace"), first, limit)
    page.digest = content_hash(data)
    return page


def _image(
    confined: Confined, data: bytes, media_type: str, size: int, context: ToolContext, effect: ToolEffect
) -> ToolOutput:
    if len(data) > MAX_IMAGE_BYTES:
        most = format_bytes(MAX_IMAGE_BYTES)
        raise ToolError(
            f"{confined.shown} is an image of {format_bytes(size)}; at most {most} can be shown. Make it smaller."
        )
    context.seen[confined.real] = content_hash(data)
    text = f"{confined.shown}: {media_type}, {format_bytes(len(data))}"
    return ToolOutput((Text(text), Image(media_type, base64.b64encode(data).decode())), effect=effect)


def _document(confined: Confined, data: bytes, context: ToolContext, effect: ToolEffect) -> ToolOutput:
    context.seen[confined.real] = content_hash(data)
    pages = len(re.findall(rb"/Type\s*/Page\b", data))
    count = f", {pages} page{'s' if pages > 1 else ''}" if pages else ""
    text = f"{confined.shown}: PDF, {format_bytes(len(data))}{count}"
    document = Document("application/pdf", base64.b64encode(data).decode(), confined.path.name, pages)
    return ToolOutput((Text(text), document), effect=effect)


async def _read_converted(
    confined: Confined, path: str, call_id: str, first: int, limit: int, context: ToolContext
) -> ToolOutput:
    """Return a window of the text of a PDF."""
    assert context.convert is not None
    text = await context.convert(call_id, path, context)
    if not text.strip():
        raise ToolError(f"{confined.shown} is a PDF without text, such as a scan. Use a model that reads PDFs itself.")
    page = window_of(text.encode("utf-8", "replace"), first, limit)
    return ok(
        f"{_render(confined, page, None)}\n[text of a PDF, without its images]", ToolEffect(reads=(confined.real,))
    )


def _render(confined: Confined, page: LineWindow, codec: str | None) -> str:
    if not page.lines:
        if page.total == 0 and page.first == 1:
            return "(empty file)"
        raise ToolError(f"{confined.shown} has {page.total} lines; offset {page.first} is past its end.")
    notes: list[str] = []
    if codec:
        notes.append(f"[{codec} text]")
    data = b"\n".join(page.lines)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        notes.append("[not valid UTF-8: shown as Latin-1]")
    if "\r\n" in text or text.endswith("\r"):
        text = text.replace("\r\n", "\n").removesuffix("\r")
        notes.append("[CRLF line ends, which edit keeps]")
    lines = text.removeprefix("\ufeff").replace("\0", "\ufffd").split("\n")
    for index, length in page.cut.items():
        lines[index] += f" [... cut: the line has {length:,} bytes]"
    if page.full:
        following = "more lines follow" if page.total is None else f"{page.total - page.next + 1:,} more lines"
        notes.append(f"[{following}; continue with offset={page.next}]")
    numbered = [f"{number}\t{line}" for number, line in enumerate(lines, page.first)]
    return "\n".join([*numbered, *notes])


def _similar(confined: Confined) -> str:
    """Return names of the same folder that look like the missing one, as a sentence."""
    import difflib

    parent = Confined(confined.root, str(confined.path.parent), confined.shown)
    try:
        names = [entry.name for entry in list_folder(parent, 5000)]
    except OSError:
        return " Its folder does not exist either; find can look for the name."
    lower = {name.lower(): name for name in sorted(names, reverse=True)}
    close = difflib.get_close_matches(confined.path.name.lower(), lower, n=3, cutoff=0.6)
    return f" Similar names there: {', '.join(map(lower.__getitem__, close))}" if close else ""
