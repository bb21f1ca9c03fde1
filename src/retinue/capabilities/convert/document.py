"""The document to convert: a file of the workspace, or a download through the web's guard.

`ConvertError` says how a conversion fails; its codes are those of devkit-pi.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from retinue.core.tool import ToolContext
from retinue.tools.arguments import ToolError
from retinue.tools.paths import confine, open_regular, spot

if TYPE_CHECKING:
    from retinue.http.fetched import Fetched
    from retinue.runs.capability import Download

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
        place = confine(text, context)
    except ToolError as error:
        raise ConvertError("INVALID_INPUT", str(error)) from None
    with ExitStack() as stack:
        try:
            with spot(place) as where:
                file = stack.enter_context(os.fdopen(open_regular(where, place), "rb"))
        except (FileNotFoundError, NotADirectoryError):
            raise ConvertError("FILE_NOT_FOUND", f"{place.shown} does not exist.") from None
        except ToolError as error:
            raise ConvertError("FILE_NOT_FOUND", str(error)) from None
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ConvertError("FILE_TOO_LARGE", _too_large(place.shown, most))
        name = place.path.name
        digest = hashlib.file_digest(file, "sha256")
        # The same bytes under another ending may be converted as another kind.
        digest.update(_extension(name).encode())
        file.seek(0)
        about = About(place.real, name, _extension(name), mimetypes.guess_type(name)[0] or "", size)
        return SourceDocument(about, file, stack.pop_all(), digest.hexdigest())


async def open_url(url: str, download: Download | None, context: ToolContext, most: int) -> SourceDocument:
    """Download a document, or raise ConvertError."""
    from retinue.http.fetched import FetchError

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
    with ExitStack() as stack:
        # A file without a name cannot be left behind, however this process ends.
        file = stack.enter_context(tempfile.TemporaryFile())
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
