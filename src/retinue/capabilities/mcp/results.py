"""What a tool of a server gave back, as a model gets it: bounded, whatever the server sent."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import orjson

from retinue.core.effects import ToolEffect
from retinue.core.format import format_bytes
from retinue.core.messages import Content, Image, Text
from retinue.core.tool import ToolOutput
from retinue.settings.places import private_folder

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

MOST_IMAGES = 8
IMAGE_CHARACTERS = 7_000_000
"""Base64 characters of one image: five megabytes, which is what providers take."""
FILE_BYTES = 16 * 1024 * 1024
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_HEAD_SHARE = 0.6


def to_output(result: CallToolResult, *, characters: int, outputs: Path, effect: ToolEffect) -> ToolOutput:
    """`characters` bounds the text; what does not fit is in a file under `outputs`."""
    texts: list[str] = []
    images: list[Image] = []
    for part in _parts(result):
        if isinstance(part, Image) and len(images) < MOST_IMAGES:
            images.append(part)
        elif isinstance(part, Image):
            texts.append("[an image is left out: there are too many]")
        else:
            texts.append(part)
    text = shorten("\n".join(texts), characters, outputs)
    if not text and not images:
        text = "(no output)"
    content: tuple[Content, ...] = (*((Text(text),) if text else ()), *images)
    return ToolOutput(content, result.is_error, effect)


def _parts(result: CallToolResult) -> Iterator[str | Image]:
    said = False
    for block in result.content:
        part = _part(block)
        said = said or isinstance(part, str)
        yield part
    if not said and result.structured_content is not None:
        with suppress(TypeError, ValueError):
            yield orjson.dumps(result.structured_content, option=orjson.OPT_INDENT_2, default=str).decode()


def _part(block: ContentBlock) -> str | Image:
    match block.type:
        case "text":
            return block.text
        case "image":
            return _image(block.mime_type, block.data)
        case "audio":
            return f"[audio, {block.mime_type}, {format_bytes(len(block.data) * 3 // 4)}: it cannot be shown]"
        case "resource_link":
            return f"[resource] {block.title or block.name}: {block.uri}"
        case "resource":
            return _resource(block.resource)
        case _:
            assert_never(block.type)


def _image(media_type: str, data: str) -> str | Image:
    if media_type in _IMAGES and len(data) <= IMAGE_CHARACTERS:
        return Image(media_type, data)
    return f"[an image, {media_type}, {format_bytes(len(data) * 3 // 4)}: it cannot be shown]"


def _resource(resource: Any) -> str | Image:
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[resource {resource.uri}]\n{text}"
    if resource.mime_type in _IMAGES:
        return _image(resource.mime_type, resource.blob)
    kind = resource.mime_type or "of unknown type"
    return f"[resource {resource.uri}, {kind}, {format_bytes(len(resource.blob) * 3 // 4)}: it is not text]"


def shorten(text: str, most: int, outputs: Path) -> str:
    """The beginning and the end of a text that is too long, and where the whole of it is."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= most:
        return text
    path = _store(text, outputs)
    head = int(most * _HEAD_SHARE)
    tail = most - head
    where = f"; the whole is in {path}" if path is not None else ""
    gap = f"[... {len(text) - most:,} of {len(text):,} characters left out here{where} ...]"
    return f"{text[:head].rstrip()}\n\n{gap}\n\n{text[len(text) - tail :].lstrip()}"


def _store(text: str, outputs: Path) -> Path | None:
    try:
        path = private_folder(outputs) / f"mcp-{secrets.token_hex(4)}.txt"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode()[:FILE_BYTES])
        return path
    except OSError:
        return None
