"""The tool `convert_content`: documents of the workspace and of the web as Markdown.

A document is a file of the workspace, or a download through the web's guard. The converter is a process in a sandbox.
The codes of `ConvertError` are those of devkit-pi. Converted text is cached in the outputs of the run, so that a
document is converted only once while an agent pages through it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import mimetypes
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct, to_builtins

from retinue.core.install import install_command
from retinue.core.messages import Text
from retinue.core.permission import ToolEffect
from retinue.core.programs import Clearance, Confinement, prepare
from retinue.core.tool import Tool, ToolContext, ToolOutput
from retinue.guard.sandbox.kernel import can_sandbox
from retinue.guard.sandbox.policy import SandboxPolicy
from retinue.http.address import FetchError
from retinue.runs.capability import Downloads
from retinue.settings.places import home
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, Properties, ToolError
from retinue.tools.coded import CodedError, CodedTool
from retinue.tools.delegation.frame import NOTE, frame_untrusted
from retinue.tools.paths import confine, open_parent, open_regular
from retinue.tools.processes import ProcessEnd, in_thread, run_program
from retinue.tools.safe_dir import replace_entry

if TYPE_CHECKING:
    from retinue.http.address import Fetched
    from retinue.runs.capability import Download
    from retinue.runs.project import Project


PROVIDER = "markitdown"
_MAX_CONVERSIONS = 2
MAX_SECONDS = 30.0
MAX_DOCUMENT_BYTES = 10 * 1024 * 1024
MAX_ANSWER_CHARACTERS = 50_000
"""The limit for the text that a model gets in one answer."""
MAX_MEMORY_BYTES = 2048 * 1024 * 1024
_CUT_NOTE = "[The document has more text than is kept; the rest is cut off.]"


class ConvertContentTool(CodedTool):
    """The tool. `confine` returns a sandbox for one conversion; `download` returns the function that downloads a URL,
    or None if the web is switched off."""

    name = "convert_content"
    provider = PROVIDER
    file_error_code = "CONVERT_FAILED"
    file_error_message = "the document cannot be read"
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
        self._slots = asyncio.Semaphore(_MAX_CONVERSIONS)

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        path, url = arguments.optional_text("path"), arguments.optional_text("url")
        if (path is None) == (url is None):
            raise ConvertError("INVALID_INPUT", 'send "path" or "url", one of them.')
        limit = min(
            arguments.whole_number("maxContentChars", "max_content_chars", least=1) or MAX_ANSWER_CHARACTERS,
            MAX_ANSWER_CHARACTERS,
        )
        offset = arguments.whole_number("offset") or 0
        seconds = min((arguments.number("timeoutMs", "timeout_ms") or MAX_SECONDS * 1000) / 1000, MAX_SECONDS)
        if seconds <= 0:
            raise ConvertError("INVALID_INPUT", '"timeoutMs" must be above 0.')
        if context.tool_timeout is not None:
            # Less than the tool's own limit, so that the call ends with the error that names the document.
            seconds = min(seconds, context.tool_timeout * 0.9)
        check_installed()
        context.progress(call_id, f"converting {path or url}"[:200])
        began = time.monotonic()
        facts, converted = await self._text(path, url, context, seconds, offset)
        return _to_output(facts, converted, offset, limit, time.monotonic() - began)

    async def text_of(self, call_id: str, path: str, context: ToolContext) -> str:
        """Return the text of a file of the workspace, for `read`. Raise ConvertError."""
        check_installed()
        context.progress(call_id, f"converting {path}"[:200])
        _, converted = await self._text(path, None, context, MAX_SECONDS, 0)
        if converted.cut:
            return converted.text + "\n" + _CUT_NOTE
        return converted.text

    async def _text(
        self, path: str | None, url: str | None, context: ToolContext, seconds: float, offset: int
    ) -> tuple[DocumentFacts, Converted]:
        """Return the complete text. For a download, later parts come from the same text as the first."""
        # A page may have changed since its first part was read, so a URL is not fetched again for the next part.
        if url is not None and offset:
            cached = recall_converted(file_of_converted(context.outputs, key_of_url(url)))
            if cached is not None:
                return cached
        give_up = time.monotonic() + seconds
        document = await self._open_document(path, url, context, seconds)
        with document.resources:
            file = file_of_converted(context.outputs, document.key)
            if path is not None and (cached := recall_converted(file)):
                return document.facts, cached[1]
            async with self._slots:
                # The time limit includes the wait for a slot.
                remaining = max(give_up - time.monotonic(), 0.05)
                converted = await convert(document, context, seconds=remaining, confine=self._confine)
        await asyncio.to_thread(store_converted, file, document.facts, converted)
        return document.facts, converted

    async def _open_document(
        self, path: str | None, url: str | None, context: ToolContext, seconds: float
    ) -> SourceDocument:
        if path is not None:
            return await in_thread(lambda: open_file(path, context))
        try:
            async with asyncio.timeout(seconds):
                return await open_url(url or "", self._download(), context)
        except TimeoutError:
            raise ConvertError("CONVERT_TIMEOUT", f"{url} was not there within {seconds:g} s.") from None


def _to_output(facts: DocumentFacts, converted: Converted, offset: int, limit: int, seconds: float) -> ToolOutput:
    markdown = converted.text
    window = markdown[offset : offset + limit]
    end = offset + len(window)
    truncated = end < len(markdown) or converted.cut
    text = "(no text)"
    if window:
        text = _frame_if_foreign(window, facts)
    lines = [f"{facts.name}: characters {min(offset + 1, end)}-{end} of {len(markdown)}", text]
    if end < len(markdown):
        lines.append(f"[{len(markdown) - end:,} more characters; continue with offset {end}]")
    elif converted.cut:
        lines.append(_CUT_NOTE)
    metadata: dict[str, Any] = {
        "contentType": facts.mimetype,
        "fileName": facts.name,
        "fileSize": facts.size,
        "durationMs": round(seconds * 1000),
    }
    if converted.title:
        metadata["title"] = converted.title
    value = {
        "source": facts.source,
        "provider": PROVIDER,
        "content": window,
        "truncated": truncated,
        "metadata": metadata,
    }
    reads = () if facts.is_url else (facts.source,)
    effect = ToolEffect(reads=reads, hosts=facts.hosts, provider=PROVIDER)
    return ToolOutput((Text("\n\n".join(lines)),), effect=effect, value=value)


def _frame_if_foreign(text: str, facts: DocumentFacts) -> str:
    """Put text from the web into a frame. Text of a file in the workspace is unchanged."""
    if not facts.is_url:
        return text
    return f"{NOTE}\n\n{frame_untrusted(text, source=facts.source, type=facts.mimetype)}"


Code = Literal[
    "INVALID_INPUT",
    "FILE_NOT_FOUND",
    "FILE_TOO_LARGE",
    "UNSUPPORTED_PROTOCOL",
    "PRIVATE_NETWORK_BLOCKED",
    "NETWORK_ERROR",
    "CONVERT_TIMEOUT",
    "COMMAND_NOT_FOUND",
    "CONVERT_FAILED",
]


class ConvertError(CodedError):
    """A failed conversion."""

    def __init__(self, code: Code, message: str, hosts: tuple[str, ...] = ()) -> None:
        super().__init__(code, message, hosts)


_CODE_BY_PROBLEM: dict[str, Code] = {
    "INVALID_URL": "INVALID_INPUT",
    "UNSUPPORTED_PROTOCOL": "UNSUPPORTED_PROTOCOL",
    "PRIVATE_NETWORK_BLOCKED": "PRIVATE_NETWORK_BLOCKED",
    "TIMEOUT": "CONVERT_TIMEOUT",
}
_EXTENSION_BY_TYPE = {
    "application/x-pdf": ".pdf",
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "image/jpeg": ".jpg",
}


class DocumentFacts(Struct, frozen=True):
    """The facts about a document. `source` is a path or a URL; `hosts` were contacted for it."""

    source: str
    name: str
    extension: str
    mimetype: str
    size: int
    hosts: tuple[str, ...] = ()

    @property
    def is_url(self) -> bool:
        return "://" in self.source


class SourceDocument(Struct, frozen=True):
    """An open document. `file` is at its beginning; closing `resources` removes all temporary files. `key` identifies
    the converted text."""

    facts: DocumentFacts
    file: BinaryIO
    resources: ExitStack
    key: str


def open_file(text: str, context: ToolContext) -> SourceDocument:
    """Open a file of the workspace, or raise ConvertError. The file is read: call this in a thread."""
    try:
        path = confine(text, context)
    except ToolError as error:
        raise ConvertError("INVALID_INPUT", str(error)) from None
    with ExitStack() as stack:
        try:
            with open_parent(path) as where:
                file = stack.enter_context(os.fdopen(open_regular(where, path), "rb"))
        except (FileNotFoundError, NotADirectoryError):
            raise ConvertError("FILE_NOT_FOUND", f"{path.shown} does not exist.") from None
        except ToolError as error:
            raise ConvertError("FILE_NOT_FOUND", str(error)) from None
        size = os.fstat(file.fileno()).st_size
        if size > MAX_DOCUMENT_BYTES:
            raise ConvertError("FILE_TOO_LARGE", _too_large(path.shown))
        name = path.path.name
        digest = hashlib.file_digest(file, "sha256")
        # The same bytes under another ending may be converted as another kind.
        digest.update(_extension(name).encode())
        file.seek(0)
        facts = DocumentFacts(path.real, name, _extension(name), mimetypes.guess_type(name)[0] or "", size)
        return SourceDocument(facts, file, stack.pop_all(), digest.hexdigest())


async def open_url(url: str, download: Download | None, context: ToolContext) -> SourceDocument:
    """Download a document, or raise ConvertError."""
    scheme = url.partition(":")[0].strip().lower()
    if "://" in url and scheme not in ("http", "https"):
        raise ConvertError("UNSUPPORTED_PROTOCOL", f"only http and https URLs can be converted, not {scheme[:20]}.")
    if download is None:
        raise ConvertError("NETWORK_ERROR", "the web is switched off here (web.enabled). Convert a file instead.")
    try:
        fetched = await download(url, MAX_DOCUMENT_BYTES, context.reach)
    except FetchError as error:
        raise ConvertError(_CODE_BY_PROBLEM.get(error.problem, "NETWORK_ERROR"), error.message, error.hosts) from None
    if fetched.truncated:
        raise ConvertError("FILE_TOO_LARGE", _too_large(fetched.url), fetched.hosts)
    return _downloaded(url, fetched)


def _downloaded(url: str, fetched: Fetched) -> SourceDocument:
    from tempfile import TemporaryFile  # not before a document is downloaded: it imports much

    with ExitStack() as stack:
        # A file without a name is removed even if this process is killed.
        file = stack.enter_context(TemporaryFile())
        file.write(fetched.body)
        file.flush()
        file.seek(0)
        mimetype = fetched.content_type.partition(";")[0].strip().lower()
        name = unquote(PurePosixPath(urlsplit(fetched.url).path).name)
        extension = _EXTENSION_BY_TYPE.get(mimetype) or mimetypes.guess_extension(mimetype) or ""
        # Servers send these types for any content; then the name is more precise.
        if not extension or mimetype in ("application/octet-stream", "text/plain", "application/zip"):
            extension = _extension(name) or extension
        facts = DocumentFacts(
            url, name or urlsplit(fetched.url).netloc, extension, mimetype, len(fetched.body), fetched.hosts
        )
        return SourceDocument(facts, file, stack.pop_all(), key_of_url(url))


def key_of_url(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()


def _extension(name: str) -> str:
    return Path(name).suffix.lower()[:16]


def _too_large(name: str) -> str:
    return f"{name} is larger than {MAX_DOCUMENT_BYTES:,} bytes (convert.maxFileBytes)."


INSTALL_COMMAND = install_command("convert")
MAX_TEXT_BYTES = 6 * 1024 * 1024
MAX_ANSWER_BYTES = 8 * 1024 * 1024
MAX_STDERR_BYTES = 64 * 1024

_CONVERTER_FOLDER = Path(__file__).with_name("inside")
_START_CODE = f"import sys;sys.path.append({str(_CONVERTER_FOLDER)!r});import retinue_convert;retinue_convert.main()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Converted(Struct, frozen=True):
    """The converted text. `cut`: the document is longer than the limit."""

    text: str
    title: str = ""
    cut: bool = False


def check_installed() -> None:
    if find_spec("markitdown") is None:
        message = f"converting documents needs the optional part 'convert'. Install it: {INSTALL_COMMAND}"
        raise ConvertError("COMMAND_NOT_FOUND", message)


async def convert(
    document: SourceDocument,
    context: ToolContext,
    *,
    seconds: float,
    memory: int = MAX_MEMORY_BYTES,
    confine: Callable[[], Confinement | None] = lambda: None,
) -> Converted:
    """Convert a document, or raise ConvertError. `confine` returns a sandbox for this one program, closed with it."""
    answer, complaints = bytearray(), bytearray()

    def receive(stream: int, data: bytes) -> None:
        into, limit = complaints, MAX_STDERR_BYTES
        if stream == 1:
            into, limit = answer, MAX_ANSWER_BYTES
        # One byte above the limit, so that `_parsed` recognises an answer that is too long.
        into.extend(data[: max(0, limit + 1 - len(into))])

    options = {
        "extension": document.facts.extension,
        "mimetype": document.facts.mimetype,
        "name": document.facts.name,
        "memory": memory,
        "seconds": int(seconds) + 1,
        "most": MAX_TEXT_BYTES,
    }
    # Neither variables of Python (-E) nor the working folder (-P) may decide what the program imports.
    argv = [sys.executable, "-E", "-P", "-B", "-X", "utf8", "-c", _START_CODE, json.dumps(options)]
    # The parser of foreign documents must not see the keys in our environment.
    variables = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "SYSTEMROOT") if name in os.environ}
    environment = {**variables, **_ONE_THREAD}
    box = await in_thread(confine)
    try:
        clearance: Clearance = "inside" if box is not None else "own"
        program = await in_thread(
            lambda: prepare(argv, clearance=clearance, environment=environment, cwd=Path("/"), confine=lambda _: box)
        )
        ended = await run_program(
            program,
            receive=receive,
            seconds=seconds,
            merge=False,
            owner=context.run_id,
            stdin=document.file.fileno(),
        )
    except OSError as error:
        raise ConvertError("CONVERT_FAILED", f"the converter could not be started: {error}.") from None
    finally:
        if box is not None:
            # Shielded, because a cancelled call must not leave the sandbox's folders behind.
            await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(box.close)))
    return _read_answer(document, ended, bytes(answer), bytes(complaints), seconds)


def _read_answer(
    document: SourceDocument, ended: ProcessEnd, output: bytes, complaints: bytes, seconds: float
) -> Converted:
    # At its limit of processor time the kernel ends the program with SIGXCPU (24) or SIGKILL (9).
    if ended.timed_out or ended.code in (-24, -9):
        raise ConvertError(
            "CONVERT_TIMEOUT", f"converting {document.facts.name} took longer than {seconds:g} s.", document.facts.hosts
        )
    answer = _parse_answer(output)
    if answer is None:
        last = complaints.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = f"the converter ended with code {ended.code}"
        if last:
            why += f" ({last[0][:300]})"
        raise ConvertError("CONVERT_FAILED", f"{document.facts.name} cannot be converted: {why}.", document.facts.hosts)
    if "problem" in answer:
        message = f"{document.facts.name} cannot be converted: {answer['problem']}."
        raise ConvertError("CONVERT_FAILED", message, document.facts.hosts)
    return Converted(str(answer.get("text", "")), str(answer.get("title", "")), answer.get("cut") is True)


def _parse_answer(output: bytes) -> dict[str, Any] | None:
    """Parse the answer; None if it is not one complete object, because the process is not trusted."""
    if len(output) > MAX_ANSWER_BYTES:
        return None
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def convert_tools(project: Project) -> dict[str, Tool]:
    """Return the tool by its name."""
    tool = ConvertContentTool(lambda: _confinement(project), lambda: project.part(Downloads).function())
    return {tool.name: tool}


async def convert_to_text(project: Project, call_id: str, path: str, context: ToolContext) -> str:
    """Return a document as text, for a model that does not accept the document itself. Raise ToolError."""
    tool = project.tools.get("convert_content")
    if tool is None and project.settings.settings.convert_enabled:
        check_installed()
    if not isinstance(tool, ConvertContentTool):
        raise ToolError(f"{path} is a PDF, and converting is switched off here (convert.enabled).")
    return await tool.text_of(call_id, path, context)


def _confinement(project: Project) -> Confinement | None:
    """Return a sandbox without write access and network; None on a system without sandbox, where the converter has only
    its limits of memory and time."""
    from retinue.guard.sandbox.box import Box

    if not can_sandbox(project.settings.settings):
        return None
    hidden: tuple[Path, ...] = project.own_folders
    return Box(SandboxPolicy(hidden=hidden, network="off", home=home(project.environment)), "convert")


def file_of_converted(outputs: Path, key: str) -> Path:
    return outputs / f"converted-{key[:32]}.json"


def recall_converted(path: Path) -> tuple[DocumentFacts, Converted] | None:
    try:
        facts, converted = json.loads(path.read_bytes())
        return DocumentFacts(**{**facts, "hosts": tuple(facts["hosts"])}), Converted(**converted)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def store_converted(path: Path, facts: DocumentFacts, converted: Converted) -> None:
    """Write the file atomically. If that fails, the document is converted again for the next page."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = json.dumps(to_builtins([facts, converted]), ensure_ascii=False).encode("utf-8", "replace")
        replace_entry(None, str(path), content, 0o600)
