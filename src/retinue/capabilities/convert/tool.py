"""convert_content: documents of the workspace and of the web as Markdown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from retinue.core.clearance import Confinement
from retinue.core.messages import Text
from retinue.core.permission import ToolEffect
from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.delegation.frame import NOTE, frame_untrusted
from retinue.tools.processes import in_thread

if TYPE_CHECKING:
    from retinue.capabilities.convert.attach import About, Converted, ConvertError, SourceDocument
    from retinue.runs.services import Download

PROVIDER = "markitdown"
_AT_ONCE = 2
SECONDS = 30.0
MOST_BYTES = 10 * 1024 * 1024
MOST_CHARACTERS = 50_000
"""How much text of a document a model gets at once."""
MOST_MEMORY = 2048 * 1024 * 1024
_CUT = "[The document has more text than is kept; the rest is cut off.]"


class ConvertContentTool(BuiltinTool):
    """`confine` returns a sandbox for one conversion; `download` gets what a URL names, None where there is no web."""

    name = "convert_content"
    required = ()
    properties: ClassVar[Properties] = {
        "path": {"type": "string"},
        "url": {"type": "string"},
        "offset": {"type": "integer", "description": "From 0"},
    }
    hidden: ClassVar[Properties] = {
        "maxContentChars": {"type": "integer", "minimum": 1},
        "timeoutMs": {"type": "integer", "minimum": 1},
    }
    aliases: ClassVar[Aliases] = {"path": PATH_NAMES, "url": ("uri", "link")}

    def __init__(
        self,
        confine: Callable[[], Confinement | None] = lambda: None,
        download: Callable[[], Download | None] = lambda: None,
    ) -> None:
        super().__init__()
        self._confine = confine
        self._download = download
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        from retinue.capabilities.convert.attach import ConvertError

        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except ConvertError as error:
            return _failure(error)
        except ToolError as error:
            return _failure(ConvertError("INVALID_INPUT", str(error)))
        except OSError as error:
            return _failure(ConvertError("CONVERT_FAILED", f"the document cannot be read: {error.strerror or error}."))

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        from retinue.capabilities.convert.attach import ConvertError, check_installed

        path, url = given.optional_text("path"), given.optional_text("url")
        if (path is None) == (url is None):
            raise ConvertError("INVALID_INPUT", 'send "path" or "url", one of them.')
        most = min(given.whole("maxContentChars", "max_content_chars", least=1) or MOST_CHARACTERS, MOST_CHARACTERS)
        offset = given.whole("offset") or 0
        seconds = min((given.number("timeoutMs", "timeout_ms") or SECONDS * 1000) / 1000, SECONDS)
        if seconds <= 0:
            raise ConvertError("INVALID_INPUT", '"timeoutMs" must be above 0.')
        if context.tool_timeout is not None:
            # Less than the tool's own limit, so that the call ends with the error that names the document.
            seconds = min(seconds, context.tool_timeout * 0.9)
        check_installed()
        context.progress(call_id, f"converting {path or url}"[:200])
        began = time.monotonic()
        about, converted = await self._text(path, url, context, seconds, offset)
        return _shown(about, converted, offset, most, time.monotonic() - began)

    async def text_of(self, call_id: str, path: str, context: ToolContext) -> str:
        """Return the text of a file of the workspace, for `read`. Raise ConvertError."""
        from retinue.capabilities.convert.attach import check_installed

        check_installed()
        context.progress(call_id, f"converting {path}"[:200])
        _, converted = await self._text(path, None, context, SECONDS, 0)
        if converted.cut:
            return converted.text + "\n" + _CUT
        return converted.text

    async def _text(
        self, path: str | None, url: str | None, context: ToolContext, seconds: float, offset: int
    ) -> tuple[About, Converted]:
        """Return the whole text. Later parts of a download are of the same text as the first."""
        from retinue.capabilities.convert.attach import (
            convert,
            file_of_converted,
            keep_converted,
            key_of_url,
            recall_converted,
        )

        # A page may have changed since its first part was read, so a URL is not fetched again for the next part.
        if url is not None and offset:
            known = recall_converted(file_of_converted(context.outputs, key_of_url(url)))
            if known is not None:
                return known
        give_up = time.monotonic() + seconds
        document = await self._opened(path, url, context, seconds)
        with document.resources:
            kept = file_of_converted(context.outputs, document.key)
            if path is not None and (known := recall_converted(kept)):
                return document.about, known[1]
            async with self._slots:
                # Waiting for a slot counts: the call as a whole has `seconds`.
                left = max(give_up - time.monotonic(), 0.05)
                found = await convert(document, context, seconds=left, memory=MOST_MEMORY, confine=self._confine)
        await asyncio.to_thread(keep_converted, kept, document.about, found)
        return document.about, found

    async def _opened(self, path: str | None, url: str | None, context: ToolContext, seconds: float) -> SourceDocument:
        from retinue.capabilities.convert.attach import ConvertError, open_file, open_url

        if path is not None:
            return await in_thread(lambda: open_file(path, context, MOST_BYTES))
        try:
            async with asyncio.timeout(seconds):
                return await open_url(url or "", self._download(), context, MOST_BYTES)
        except TimeoutError:
            raise ConvertError("CONVERT_TIMEOUT", f"{url} was not there within {seconds:g} s.") from None


def _shown(about: About, converted: Converted, offset: int, most: int, seconds: float) -> ToolOutput:
    whole = converted.text
    part = whole[offset : offset + most]
    end = offset + len(part)
    truncated = end < len(whole) or converted.cut
    text = "(no text)"
    if part:
        text = _framed(part, about)
    lines = [f"{about.name}: characters {min(offset + 1, end)}-{end} of {len(whole)}", text]
    if end < len(whole):
        lines.append(f"[{len(whole) - end:,} more characters; continue with offset {end}]")
    elif converted.cut:
        lines.append(_CUT)
    metadata: dict[str, Any] = {
        "contentType": about.mimetype,
        "fileName": about.name,
        "fileSize": about.size,
        "durationMs": round(seconds * 1000),
    }
    if converted.title:
        metadata["title"] = converted.title
    value = {
        "source": about.source,
        "provider": PROVIDER,
        "content": part,
        "truncated": truncated,
        "metadata": metadata,
    }
    reads = () if about.is_url else (about.source,)
    effect = ToolEffect(reads=reads, hosts=about.hosts, provider=PROVIDER)
    return ToolOutput((Text("\n\n".join(lines)),), effect=effect, value=value)


def _framed(text: str, about: About) -> str:
    """Mark text from the web as such. A file of the workspace is shown as it is."""
    if not about.is_url:
        return text
    return f"{NOTE}\n\n{frame_untrusted(text, source=about.source, type=about.mimetype)}"


def _failure(error: ConvertError) -> ToolOutput:
    effect = ToolEffect(status="failed", hosts=error.hosts, provider=PROVIDER, code=error.code)
    value = {"error": {"code": error.code, "message": error.message}}
    return ToolOutput((Text(str(error)),), is_error=True, effect=effect, value=value)
