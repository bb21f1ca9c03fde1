"""The list of a server's tools, cached on disk, and the conversion of their results for a model.

The list is cached under the digest of the server's configuration, so that a run knows the tools before the server is
started. It is read again at every connection. Results are bounded.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
import orjson
from msgspec import Struct

from retinue.core.format import format_bytes
from retinue.core.messages import Content, Image, Text
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolOutput
from retinue.core.tool_names import served_word
from retinue.models.tool_schema import folded_keywords, portable_schema
from retinue.settings.foreign import read_object
from retinue.settings.places import private_folder
from retinue.tools.content import head_and_tail
from retinue.tools.delegation.frame import from_server, harmless
from retinue.tools.safe_dir import replace_entry

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock


MAX_IMAGES = 8
MAX_IMAGE_CHARACTERS = 7_000_000
"""Base64 characters of one image: five megabytes, which is what providers take."""
MAX_OUTPUT_FILE_BYTES = 16 * 1024 * 1024
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_HEAD_SHARE = 0.6


def to_output(result: CallToolResult, *, characters: int, outputs: Path, effect: ToolEffect) -> ToolOutput:
    """Convert a server's result. `characters` bounds the text; a longer text is stored under `outputs`."""
    texts: list[str] = []
    images: list[Image] = []
    for block in _blocks(result):
        if isinstance(block, Image) and len(images) < MAX_IMAGES:
            images.append(block)
        elif isinstance(block, Image):
            texts.append("[an image is left out: there are too many]")
        else:
            texts.append(block)
    text = from_server(shorten("\n".join(texts), characters, outputs))
    if not text and not images:
        text = "(no output)"
    content: tuple[Content, ...] = tuple(images)
    if text:
        content = (Text(text), *images)
    return ToolOutput(content, result.is_error, effect)


def _blocks(result: CallToolResult) -> Iterator[str | Image]:
    blocks = list(map(_convert_block, result.content))
    yield from blocks
    if not any(isinstance(block, str) for block in blocks) and result.structured_content is not None:
        with suppress(TypeError, ValueError):
            yield orjson.dumps(result.structured_content, option=orjson.OPT_INDENT_2, default=str).decode()


def _convert_block(block: ContentBlock) -> str | Image:
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
    if media_type in _IMAGE_TYPES and len(data) <= MAX_IMAGE_CHARACTERS:
        return Image(media_type, data)
    return f"[an image, {media_type}, {format_bytes(len(data) * 3 // 4)}: it cannot be shown]"


def _resource(resource: Any) -> str | Image:
    if getattr(resource, "text", None) is not None:
        return f"[resource {resource.uri}]\n{resource.text}"
    if resource.mime_type in _IMAGE_TYPES:
        return _image(resource.mime_type, resource.blob)
    kind = resource.mime_type or "of unknown type"
    return f"[resource {resource.uri}, {kind}, {format_bytes(len(resource.blob) * 3 // 4)}: it is not text]"


def shorten(text: str, most: int, outputs: Path) -> str:
    """Return the beginning and the end of a text that is too long, with the path of the complete text."""
    # Servers may send single surrogates, which providers and files refuse.
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= most:
        return text
    path = _store(text, outputs)
    return head_and_tail(text, most, "" if path is None else f"the whole is in {path}", head_share=_HEAD_SHARE)


def _store(text: str, outputs: Path) -> Path | None:
    try:
        path = private_folder(outputs) / f"mcp-{secrets.token_hex(4)}.txt"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode()[:MAX_OUTPUT_FILE_BYTES])
        return path
    except OSError:
        return None


CACHE_SECONDS = 24 * 3600
MAX_SERVER_TOOLS = 2_000
_MAX_TOOL_DESCRIPTION = 8_000
_MAX_SCHEMA_BYTES = 128 * 1024
_SAFE_ARGUMENT_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_UNSAFE_CHARACTERS = re.compile(r"[^a-zA-Z0-9_.-]+")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class ServerTool(Struct, frozen=True):
    """One tool of a server. `read_only` is the server's own claim."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool = False


class Listing(Struct, frozen=True):
    tools: tuple[ServerTool, ...]
    uses_roots: bool = False
    problems: tuple[str, ...] = ()
    at: float = 0.0


def repair_tools(tools: list[Any], left_out: list[str]) -> list[Any]:
    """Return the entries of a server's list in the form of the protocol. Parameters without a type are treated as an
    object. An entry that cannot be read is left out, and a sentence about it is added to `left_out`."""
    from mcp_types import Tool
    from pydantic import ValidationError

    repaired: list[Any] = []
    for number, entry in enumerate(tools, 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            left_out.append(f"its tool number {number} has no name and is left out: correct it in the server")
            continue
        mended = {**entry, "inputSchema": _as_object(entry.get("inputSchema"))}
        output = entry.get("outputSchema")
        if output is not None and _as_object(output) != output:
            # The library would validate results against it, which is not needed to read them.
            del mended["outputSchema"]
        try:
            Tool.model_validate(mended, by_name=False)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            left_out.append(
                f"{name[:80]!r} is left out: its {where} does not follow the protocol; correct it in the server"
            )
            continue
        repaired.append(mended)
    return repaired


def _as_object(schema: Any) -> dict[str, Any] | None:
    """Return the schema with the type `object`; None if it is not the schema of an object."""
    if schema is None:
        schema = {}
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type", "object")
    if isinstance(kind, list) and "object" in kind:
        kind = "object"
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if kind != "object" or not isinstance(properties, dict) or not isinstance(required, list):
        return None
    sound = all(isinstance(child, (dict, bool)) for child in properties.values())
    if not sound or not all(isinstance(name, str) for name in required):
        return None
    return {**schema, "type": "object"}


def listing(raw: Iterable[Any], *, uses_roots: bool = False, left_out: Iterable[str] = ()) -> Listing:
    """Convert the library's `Tool` objects. A tool that models cannot be offered becomes a problem; of two tools with
    one name the first is used."""
    usable: dict[str, ServerTool] = {}
    words: dict[str, str] = {}
    problems: list[str] = list(left_out)
    for entry in raw:
        tool, name = _read_tool(entry), f"{entry.name[:80]!r}"
        if isinstance(tool, str):
            problems.append(f"{name}: {tool}")
        elif len(usable) >= MAX_SERVER_TOOLS:
            problems.append(f"it has more than {MAX_SERVER_TOOLS} tools: the rest is left out")
            break
        elif (first := words.setdefault(served_word(tool.name), tool.name)) != tool.name:
            problems.append(f"{name} is left out: a model and rules would take it for {first[:80]!r}")
        else:
            usable.setdefault(tool.name, tool)
            problems += _note_changes(tool, name)
    return Listing(tuple(usable.values()), uses_roots, tuple(problems), time.time())


def _note_changes(tool: ServerTool, name: str) -> list[str]:
    """Return notes on the parameters that providers refuse and that are offered in a changed form."""
    notes: list[str] = []
    if folded := folded_keywords(tool.parameters):
        keywords = " and ".join(folded)
        notes.append(
            f"{name}: model providers refuse {keywords} at the top of its parameters; it is offered with "
            "one object that has all of them, and the condition in words"
        )
    if renamed := safe_keys(tool.parameters)[1]:
        pairs = ", ".join(f"{old!r} as {new!r}" for new, old in renamed.items())
        notes.append(f"{name}: model providers refuse some of its argument names; offered are {pairs}"[:400])
    return notes


def safe_keys(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, str], str]:
    """Return a schema whose argument names providers accept, the changed names (new to old), and as text the condition
    that the changed schema lost. Anthropic refuses the whole request for a name outside `^[a-zA-Z0-9_.-]{1,64}$`
    (claude-code#79418, composio#3500); only the top level is checked (decocms/studio#6874)."""
    portable, lost = portable_schema(schema)
    properties = portable["properties"]
    if all(map(_SAFE_ARGUMENT_NAME.fullmatch, properties)):
        return schema, {}, ""
    renamed: dict[str, str] = {}
    for name in properties:
        if _SAFE_ARGUMENT_NAME.fullmatch(name):
            continue
        base = _UNSAFE_CHARACTERS.sub("_", name)[:56] or "argument"
        fresh, number = base, 2
        while fresh in properties or fresh in renamed:
            fresh, number = f"{base}_{number}", number + 1
        renamed[fresh] = name
    new_of = {old: new for new, old in renamed.items()}
    changed = {**portable, "properties": {new_of.get(name, name): child for name, child in properties.items()}}
    if "required" in portable:
        changed["required"] = [new_of.get(name, name) for name in portable["required"]]
    for old, new in new_of.items():
        lost = lost.replace(old, new)
    return changed, renamed, lost


def harmless_schema(schema: Any) -> Any:
    """Return parameters whose descriptions contain no tag that is reserved for the harness. Names and values stay,
    because the server expects them."""
    if isinstance(schema, Mapping):
        return {
            key: harmless(value)
            if key in ("description", "title") and isinstance(value, str)
            else harmless_schema(value)
            for key, value in schema.items()
        }
    if isinstance(schema, list | tuple):
        return [harmless_schema(inner) for inner in schema]
    return schema


def _read_tool(tool: Any) -> ServerTool | str:
    """Return a tool, or the reason why models cannot be offered it."""
    schema = tool.input_schema
    description = _CONTROL_CHARACTERS.sub("", tool.description or tool.title or "").strip()[:_MAX_TOOL_DESCRIPTION]
    read_only = bool(tool.annotations and tool.annotations.read_only_hint)
    if not tool.name or len(tool.name) > 200:
        return "its name has no usable length"
    execution = getattr(tool, "execution", None)
    if execution is not None and execution.task_support == "required":
        return "it is left out: it can only be called as a task"
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return "its parameters are not a JSON object"
    try:
        size = len(orjson.dumps(schema))
    except (TypeError, ValueError):
        return "its parameters are not JSON"
    if size > _MAX_SCHEMA_BYTES:
        return f"its parameters take more than {_MAX_SCHEMA_BYTES} bytes"
    return ServerTool(tool.name, description, {"type": "object", "properties": {}, **schema}, read_only)


class ListingCache:
    """A cache with one small file per configuration."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, digest: str) -> Listing | None:
        """Return the stored list; None when it is missing, damaged or too old."""
        try:
            listing = msgspec.convert(read_object(self._folder / f"{digest}.json").data, Listing)
        except msgspec.ValidationError:
            return None
        # A negative age means that the clock was set back.
        return listing if 0 <= time.time() - listing.at < CACHE_SECONDS else None

    def keep(self, digest: str, listing: Listing) -> None:
        with suppress(OSError):
            path = private_folder(self._folder) / f"{digest}.json"
            replace_entry(None, str(path), msgspec.json.encode(listing), 0o600)
