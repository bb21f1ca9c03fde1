"""convert_content: documents of the workspace and of the web as Markdown.

Converting documents for a run: the document, its sandbox, and the converter as a process.

A document is a file of the workspace, or a download through the web's guard. `ConvertError` says how a conversion
fails; its codes are those of devkit-pi. Converted text is kept among the outputs of the run, so that paging through a
document converts it once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import mimetypes
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
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
from retinue.tools.base import PATH_NAMES, Aliases, Arguments, BuiltinTool, Properties, ToolError
from retinue.tools.delegation.frame import NOTE, frame_untrusted
from retinue.tools.paths import confine, open_regular, spot
from retinue.tools.processes import ProcessEnd, in_thread, run_program

if TYPE_CHECKING:
    from retinue.http.address import Fetched
    from retinue.runs.capability import Download
    from retinue.runs.project import Project


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

        try:
            return await self.call(call_id, Arguments(self.name, arguments, self.aliases), context)
        except ConvertError as error:
            return _failure(error)
        except ToolError as error:
            return _failure(ConvertError("INVALID_INPUT", str(error)))
        except OSError as error:
            return _failure(ConvertError("CONVERT_FAILED", f"the document cannot be read: {error.strerror or error}."))

    async def call(self, call_id: str, arguments: Arguments, context: ToolContext) -> ToolOutput:

        path, url = arguments.optional_text("path"), arguments.optional_text("url")
        if (path is None) == (url is None):
            raise ConvertError("INVALID_INPUT", 'send "path" or "url", one of them.')
        most = min(arguments.whole("maxContentChars", "max_content_chars", least=1) or MOST_CHARACTERS, MOST_CHARACTERS)
        offset = arguments.whole("offset") or 0
        seconds = min((arguments.number("timeoutMs", "timeout_ms") or SECONDS * 1000) / 1000, SECONDS)
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

        # A page may have changed since its first part was read, so a URL is not fetched again for the next part.
        if url is not None and offset:
            cached = recall_converted(file_of_converted(context.outputs, key_of_url(url)))
            if cached is not None:
                return cached
        give_up = time.monotonic() + seconds
        document = await self._opened(path, url, context, seconds)
        with document.resources:
            file = file_of_converted(context.outputs, document.key)
            if path is not None and (cached := recall_converted(file)):
                return document.about, cached[1]
            async with self._slots:
                # Waiting for a slot counts: the call as a whole has `seconds`.
                remaining = max(give_up - time.monotonic(), 0.05)
                converted = await convert(
                    document, context, seconds=remaining, memory=MOST_MEMORY, confine=self._confine
                )
        await asyncio.to_thread(keep_converted, file, document.about, converted)
        return document.about, converted

    async def _opened(self, path: str | None, url: str | None, context: ToolContext, seconds: float) -> SourceDocument:

        if path is not None:
            return await in_thread(lambda: open_file(path, context, MOST_BYTES))
        try:
            async with asyncio.timeout(seconds):
                return await open_url(url or "", self._download(), context, MOST_BYTES)
        except TimeoutError:
            raise ConvertError("CONVERT_TIMEOUT", f"{url} was not there within {seconds:g} s.") from None


def _shown(about: About, converted: Converted, offset: int, most: int, seconds: float) -> ToolOutput:
    markdown = converted.text
    window = markdown[offset : offset + most]
    end = offset + len(window)
    truncated = end < len(markdown) or converted.cut
    text = "(no text)"
    if window:
        text = _framed(window, about)
    lines = [f"{about.name}: characters {min(offset + 1, end)}-{end} of {len(markdown)}", text]
    if end < len(markdown):
        lines.append(f"[{len(markdown) - end:,} more characters; continue with offset {end}]")
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
        "content": window,
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


class ConvertError(ToolError):
    """`hosts` were contacted before it failed."""

    def __init__(self, code: Code, message: str, hosts: tuple[str, ...] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Code = code
        self.message = message
        self.hosts = hosts


_CODES: dict[str, Code] = {
    "INVALID_URL": "INVALID_INPUT",
    "UNSUPPORTED_PROTOCOL": "UNSUPPORTED_PROTOCOL",
    "PRIVATE_NETWORK_BLOCKED": "PRIVATE_NETWORK_BLOCKED",
    "TIMEOUT": "CONVERT_TIMEOUT",
}
_KINDS = {"application/x-pdf": ".pdf", "text/html": ".html", "application/xhtml+xml": ".html", "image/jpeg": ".jpg"}


class About(Struct, frozen=True):
    """What is said of a document beside its text. `source` is a path or a URL; `hosts` were contacted for it."""

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
    """An open document. `file` is at its beginning; closing `resources` leaves nothing behind. `key` identifies the
    converted text."""

    about: About
    file: BinaryIO
    resources: ExitStack
    key: str


def open_file(text: str, context: ToolContext, most: int) -> SourceDocument:
    """Open a file of the workspace, or raise ConvertError. The file is read: call this in a thread."""
    try:
        path = confine(text, context)
    except ToolError as error:
        raise ConvertError("INVALID_INPUT", str(error)) from None
    with ExitStack() as stack:
        try:
            with spot(path) as where:
                file = stack.enter_context(os.fdopen(open_regular(where, path), "rb"))
        except (FileNotFoundError, NotADirectoryError):
            raise ConvertError("FILE_NOT_FOUND", f"{path.shown} does not exist.") from None
        except ToolError as error:
            raise ConvertError("FILE_NOT_FOUND", str(error)) from None
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ConvertError("FILE_TOO_LARGE", _too_large(path.shown, most))
        name = path.path.name
        digest = hashlib.file_digest(file, "sha256")
        # The same bytes under another ending may be converted as another kind.
        digest.update(_extension(name).encode())
        file.seek(0)
        about = About(path.real, name, _extension(name), mimetypes.guess_type(name)[0] or "", size)
        return SourceDocument(about, file, stack.pop_all(), digest.hexdigest())


async def open_url(url: str, download: Download | None, context: ToolContext, most: int) -> SourceDocument:
    """Download a document, or raise ConvertError."""
    scheme = url.partition(":")[0].strip().lower()
    if "://" in url and scheme not in ("http", "https"):
        raise ConvertError("UNSUPPORTED_PROTOCOL", f"only http and https URLs can be converted, not {scheme[:20]}.")
    if download is None:
        raise ConvertError("NETWORK_ERROR", "the web is switched off here (web.enabled). Convert a file instead.")
    try:
        fetched = await download(url, most, context.reach)
    except FetchError as error:
        raise ConvertError(_CODES.get(error.problem, "NETWORK_ERROR"), error.message, error.hosts) from None
    if fetched.truncated:
        raise ConvertError("FILE_TOO_LARGE", _too_large(fetched.url, most), fetched.hosts)
    return _downloaded(url, fetched)


def _downloaded(url: str, fetched: Fetched) -> SourceDocument:
    from tempfile import TemporaryFile  # not before a document is downloaded: it imports much

    with ExitStack() as stack:
        # A file without a name cannot be left behind, however this process ends.
        file = stack.enter_context(TemporaryFile())
        file.write(fetched.body)
        file.flush()
        file.seek(0)
        mimetype = fetched.content_type.partition(";")[0].strip().lower()
        name = unquote(PurePosixPath(urlsplit(fetched.url).path).name)
        extension = _KINDS.get(mimetype) or mimetypes.guess_extension(mimetype) or ""
        # Servers send these types for anything; then the name says more.
        if not extension or mimetype in ("application/octet-stream", "text/plain", "application/zip"):
            extension = _extension(name) or extension
        about = About(url, name or urlsplit(fetched.url).netloc, extension, mimetype, len(fetched.body), fetched.hosts)
        return SourceDocument(about, file, stack.pop_all(), key_of_url(url))


def key_of_url(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()


def _extension(name: str) -> str:
    return Path(name).suffix.lower()[:16]


def _too_large(name: str, most: int) -> str:
    return f"{name} is larger than {most:,} bytes (convert.maxFileBytes)."


EXTRA = install_command("convert")
MOST_TEXT = 6 * 1024 * 1024
MOST_OUTPUT = 8 * 1024 * 1024
MOST_COMPLAINT = 64 * 1024

_INSIDE = Path(__file__).with_name("inside")
_START = f"import sys;sys.path.append({str(_INSIDE)!r});import retinue_convert;retinue_convert.main()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Converted(Struct, frozen=True):
    """`cut`: the document has more text than is kept."""

    text: str
    title: str = ""
    cut: bool = False


def check_installed() -> None:
    if find_spec("markitdown") is None:
        message = f"converting documents needs the optional part 'convert'. Install it: {EXTRA}"
        raise ConvertError("COMMAND_NOT_FOUND", message)


async def convert(
    document: SourceDocument,
    context: ToolContext,
    *,
    seconds: float,
    memory: int,
    confine: Callable[[], Confinement | None] = lambda: None,
) -> Converted:
    """Convert a document, or raise ConvertError. `confine` returns a sandbox for this one program, closed with it."""
    answer, complaints = bytearray(), bytearray()

    def receive(stream: int, data: bytes) -> None:
        into, most = complaints, MOST_COMPLAINT
        if stream == 1:
            into, most = answer, MOST_OUTPUT
        # One byte more than is allowed, so that `_parsed` can tell an answer that is too long.
        into.extend(data[: max(0, most + 1 - len(into))])

    options = {
        "extension": document.about.extension,
        "mimetype": document.about.mimetype,
        "name": document.about.name,
        "memory": memory,
        "seconds": int(seconds) + 1,
        "most": MOST_TEXT,
    }
    # Neither variables of Python (-E) nor the working folder (-P) may decide what the program imports.
    argv = [sys.executable, "-E", "-P", "-B", "-X", "utf8", "-c", _START, json.dumps(options)]
    # The keys in our environment are not for a parser of foreign documents.
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
    return _understood(document, ended, bytes(answer), bytes(complaints), seconds)


def _understood(
    document: SourceDocument, ended: ProcessEnd, output: bytes, complaints: bytes, seconds: float
) -> Converted:
    # At its limit of processor time the kernel ends the program with SIGXCPU (24) or SIGKILL (9).
    if ended.timed_out or ended.code in (-24, -9):
        raise ConvertError(
            "CONVERT_TIMEOUT", f"converting {document.about.name} took longer than {seconds:g} s.", document.about.hosts
        )
    answer = _parsed(output)
    if answer is None:
        last = complaints.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = f"the converter ended with code {ended.code}"
        if last:
            why += f" ({last[0][:300]})"
        raise ConvertError("CONVERT_FAILED", f"{document.about.name} cannot be converted: {why}.", document.about.hosts)
    if "problem" in answer:
        message = f"{document.about.name} cannot be converted: {answer['problem']}."
        raise ConvertError("CONVERT_FAILED", message, document.about.hosts)
    return Converted(str(answer.get("text", "")), str(answer.get("title", "")), answer.get("cut") is True)


def _parsed(output: bytes) -> dict[str, Any] | None:
    """Return None for anything but one whole answer: the process that writes it is not trusted."""
    if len(output) > MOST_OUTPUT:
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
    """Return a document as text, for a model that does not take it as it is. Raise ToolError."""
    tool = project.tools.get("convert_content")
    if tool is None and project.settings.settings.convert_enabled:
        check_installed()
    if not isinstance(tool, ConvertContentTool):
        raise ToolError(f"{path} is a PDF, and converting is switched off here (convert.enabled).")
    return await tool.text_of(call_id, path, context)


def _confinement(project: Project) -> Confinement | None:
    """Return a sandbox in which nothing can be changed and nobody reached; None on a system without one, where
    the converter has only its limits of memory and time."""
    from retinue.guard.sandbox.box import Box

    if not can_sandbox(project.settings.settings):
        return None
    hidden: tuple[Path, ...] = project.own_folders
    return Box(SandboxPolicy(hidden=hidden, network="off", home=home(project.environment)), "convert")


def file_of_converted(outputs: Path, key: str) -> Path:
    return outputs / f"converted-{key[:32]}.json"


def recall_converted(path: Path) -> tuple[About, Converted] | None:
    try:
        about, converted = json.loads(path.read_bytes())
        return About(**{**about, "hosts": tuple(about["hosts"])}), Converted(**converted)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep_converted(path: Path, about: About, converted: Converted) -> None:
    """Write the file completely or not at all. Where it cannot be written, the next page is converted again."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(to_builtins([about, converted]), file, ensure_ascii=False)
        new.replace(path)
