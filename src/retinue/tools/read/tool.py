"""read: a window of a text file, or an image."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from io import FileIO
from threading import Event
from typing import ClassVar

from retinue.domain.effects import ToolEffect
from retinue.domain.messages import Image, Text
from retinue.domain.tool import ToolContext, ToolOutput, ok
from retinue.tools.arguments import PATH_NAMES, Arguments
from retinue.tools.base import BuiltinTool, Properties
from retinue.tools.content import SNIFFED, binary_kind, content_hash, forms_of, image_type, wide_encoding
from retinue.tools.errors import ToolError
from retinue.tools.files import list_folder, open_regular, spot
from retinue.tools.paths import Confined, confine
from retinue.tools.read.lines import LINES, Line, Window, window
from retinue.tools.threads import in_thread
from retinue.tools.truncate import size_text
from retinue.tools.writing import LARGEST

IMAGE_BYTES = 3_750_000
"""What fits the 5 MB of base64 that providers take."""

_CHUNK = 1 << 20


class ReadTool(BuiltinTool):
    name = "read"
    required = ("path",)
    properties: ClassVar[Properties] = {
        "path": {"type": "string", "description": "File, relative to the working directory or absolute"},
        "offset": {"type": "integer", "description": "First line to read, from 1"},
        "limit": {"type": "integer", "description": "Number of lines"},
    }

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        place = confine(given.text("path", *PATH_NAMES), context)
        first = given.whole("offset", "start_line", "line") or 1
        limit = min(given.whole("limit", "num_lines", "max_lines", "lines", least=1) or LINES, LINES)
        stop = Event()
        return await in_thread(lambda: _read(place, first, limit, context, stop), stop)


def _read(place: Confined, first: int, limit: int, context: ToolContext, stop: Event) -> ToolOutput:
    try:
        with spot(place) as where:
            descriptor = open_regular(where, place)
    except FileNotFoundError:
        raise ToolError(f"{place.shown} does not exist.{_similar(place)}") from None
    effect = ToolEffect(reads=(str(place.path),))
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        head = file.read(SNIFFED) or b""
        file.seek(0)
        media_type = image_type(head)
        if media_type is not None:
            return _image(place, file.read(IMAGE_BYTES + 1), media_type, size, context, effect)
        kind = binary_kind(head)
        if kind is not None:
            raise ToolError(
                f"{place.shown} is {kind} ({size_text(size)}), not text. Use a program made for it, if any."
            )
        if wide_encoding(head) is not None:
            found, note = _wide_window(place, file.read(LARGEST + 1), first, limit)
        else:
            to_end = size <= LARGEST
            found = window(_chunks(file), first, limit, to_end=to_end, stopped=stop.is_set)
            note = ""
    if found.digest is not None:
        context.seen[str(place.path)] = found.digest
    return ok(_render(place, found, note), effect)


def _chunks(file: FileIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _wide_window(place: Confined, data: bytes, first: int, limit: int) -> tuple[Window, str]:
    if len(data) > LARGEST:
        raise ToolError(f"{place.shown} is UTF-16 or UTF-32 text, too large to convert here. Convert it with iconv.")
    forms = forms_of(data)
    if not forms:
        raise ToolError(f"{place.shown} starts like UTF-16 or UTF-32 text but is not valid. Treat it as binary data.")
    text = forms[0].decode(data)
    found = window(iter([text.encode("utf-8", "replace")]), first, limit, to_end=True)
    found.digest = content_hash(data)
    return found, f"[{forms[0].codec} text]"


def _image(
    place: Confined, data: bytes, media_type: str, size: int, context: ToolContext, effect: ToolEffect
) -> ToolOutput:
    if len(data) > IMAGE_BYTES:
        most = size_text(IMAGE_BYTES)
        raise ToolError(
            f"{place.shown} is an image of {size_text(size)}; at most {most} can be shown. Make it smaller."
        )
    context.seen[str(place.path)] = content_hash(data)
    text = f"{place.shown}: {media_type}, {size_text(len(data))}"
    return ToolOutput((Text(text), Image(media_type, base64.b64encode(data).decode())), effect=effect)


def _render(place: Confined, found: Window, note: str) -> str:
    if not found.lines:
        if found.total == 0 and found.first == 1:
            return "(empty file)"
        raise ToolError(f"{place.shown} has {found.total} lines; offset {found.first} is past its end.")
    notes = [note] if note else []
    codec = "utf-8"
    try:
        b"\n".join(line.data for line in found.lines).decode()
    except UnicodeDecodeError:
        codec = "latin-1"
        notes.append("[not valid UTF-8: shown as Latin-1]")
    if found.lines[0].data.endswith(b"\r"):
        notes.append("[CRLF line ends, which edit keeps]")
    if found.full:
        more = "more lines follow" if found.total is None else f"{found.total - found.next + 1:,} more lines"
        notes.append(f"[{more}; continue with offset={found.next}]")
    numbered = (f"{number}\t{_line(line, codec)}" for number, line in enumerate(found.lines, found.first))
    return "\n".join([*numbered, *notes])


def _line(line: Line, codec: str) -> str:
    text = line.data.decode(codec).removeprefix("\ufeff").removesuffix("\r").replace("\0", "\ufffd")
    return f"{text} [... cut: the line has {line.length:,} bytes]" if line.cut else text


def _similar(place: Confined) -> str:
    """Names of the same folder that look like the missing one."""
    import difflib

    parent = Confined(place.root, place.path.parent, place.shown)
    try:
        names = [entry.name for entry in list_folder(parent, 5000)]
    except OSError:
        return " Its folder does not exist either; find can look for the name."
    lower = {name.lower(): name for name in sorted(names, reverse=True)}
    close = difflib.get_close_matches(place.path.name.lower(), lower, n=3, cutoff=0.6)
    return f" Similar names there: {', '.join(lower[name] for name in close)}" if close else ""
