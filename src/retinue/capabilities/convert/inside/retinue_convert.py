"""A program that converts the document on its standard input and writes one JSON object to its standard output.

A document that exploits a parser is confined to this process, which has little memory and time and, in a sandbox, no
write access and no network. Its argument is a JSON object: `extension`, `mimetype`, `name`, `memory`, `seconds`, `most`
(bytes of text).

The content of a document decides its kind; its name and the declared type are only hints. Office documents and books
are archives, whose sizes are checked before they are unpacked. An entry cannot unpack to more than its declared size,
because Python's reader stops there."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from typing import IO, Any, BinaryIO

MIB = 1024 * 1024
MAX_ENTRIES = 5_000
MAX_UNPACKED_BYTES = 256 * MIB
MAX_COLLECTION_ENTRIES = 200
MAX_COLLECTION_BYTES = 64 * MIB
MAX_NESTED_BYTES = 16 * MIB
MAX_COMPRESSION_RATIO = 250
_RATIO_CHECKED_BYTES = 16 * MIB
"""The compression ratio of smaller entries is not checked."""

ARCHIVE_DOCUMENTS = frozenset({".docx", ".pptx", ".xlsx", ".epub", ".xlsm", ".docm", ".pptm"})
_OTHER_ARCHIVES = (
    (b"\x1f\x8b", 0, "gzip"),
    (b"BZh", 0, "bzip2"),
    (b"\xfd7zXZ\0", 0, "xz"),
    (b"7z\xbc\xaf\x27\x1c", 0, "7z"),
    (b"Rar!", 0, "RAR"),
    (b"\x28\xb5\x2f\xfd", 0, "zstd"),
    (b"ustar", 257, "tar"),
)


class RefusedArchiveError(Exception):
    """An archive that is refused. The message completes "The document cannot be converted: …"."""


def is_zip(head: bytes) -> bool:
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"))


def other_archive(head: bytes) -> str | None:
    """Return the kind of an archive that is never opened; None for anything else."""
    return next((name for mark, at, name in _OTHER_ARCHIVES if head[at : at + len(mark)] == mark), None)


def check_archive(stream: BinaryIO, extension: str) -> None:
    """Raise RefusedArchiveError for an archive that is damaged, encrypted, a bomb, or contains other archives."""
    is_collection = extension not in ARCHIVE_DOCUMENTS
    try:
        with zipfile.ZipFile(stream) as archive:
            _check_sizes(archive, is_collection)
            if is_collection:
                _check_contents(archive)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, ValueError, RuntimeError) as error:
        raise RefusedArchiveError(f"the archive is damaged ({error})") from None


def _check_sizes(archive: zipfile.ZipFile, is_collection: bool) -> None:
    entries = archive.infolist()
    most, max_bytes = MAX_ENTRIES, MAX_UNPACKED_BYTES
    if is_collection:
        most, max_bytes = MAX_COLLECTION_ENTRIES, MAX_COLLECTION_BYTES
    if len(entries) > most:
        raise RefusedArchiveError(f"it holds {len(entries):,} files, more than {most:,}")
    # The lowest flag bit of an entry means that it is encrypted.
    if any(entry.flag_bits & 1 for entry in entries):
        raise RefusedArchiveError("it is locked with a password")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > max_bytes:
        raise RefusedArchiveError(f"it unpacks to {unpacked / MIB:,.0f} MiB, more than {max_bytes // MIB}")
    for entry in entries:
        if entry.file_size > _RATIO_CHECKED_BYTES and entry.file_size > MAX_COMPRESSION_RATIO * max(
            entry.compress_size, 1
        ):
            raise RefusedArchiveError(
                f"a file in it unpacks to {entry.file_size // max(entry.compress_size, 1)} times its size"
            )


def _check_contents(archive: zipfile.ZipFile) -> None:
    """Raise RefusedArchiveError for a collection with anything but documents and plain files."""
    for entry in archive.infolist():
        if entry.is_dir():
            continue
        with archive.open(entry) as file:
            head = file.read(512)
        name = entry.filename.lower()
        if other_archive(head):
            raise RefusedArchiveError(f"it holds another archive ({other_archive(head)})")
        if not is_zip(head):
            continue
        ending = "." + name.rpartition(".")[2]
        if ending not in ARCHIVE_DOCUMENTS:
            raise RefusedArchiveError("it holds another archive (zip)")
        if entry.file_size > MAX_NESTED_BYTES:
            raise RefusedArchiveError("a document in it is too large")
        check_archive(io.BytesIO(archive.read(entry)), ending)


IMAGE_EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"})
_IMAGE_SIGNATURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_MAIN_ENTRIES = {
    "word/document.xml": ".docx",
    "ppt/presentation.xml": ".pptx",
    "xl/workbook.xml": ".xlsx",
    "META-INF/container.xml": ".epub",
}
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLD_OFFICE_EXTENSIONS = frozenset({".xls", ".msg"})
_TEXT_EXTENSIONS = frozenset({".html", ".ipynb", ".csv", ".rss", ".atom"})
_EXTENSION_ALIASES = {".htm": ".html", ".xhtml": ".html", ".xml": ".xml"}
_EXTENSION_BY_TYPE = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "text/csv": ".csv",
    "application/rss+xml": ".rss",
}
_SNIFFED_BYTES = 4096


def kind_of(data: bytes, extension: str, mimetype: str | None) -> str:
    """Return the kind of a document as a file name extension: `.txt` for plain text, and an empty text for an unknown
    kind."""
    if data.lstrip(b"\xef\xbb\xbf \r\n\t")[:5] == b"%PDF-":
        return ".pdf"
    if data.startswith(b"PK"):
        return _kind_of_archive(data)
    # Other formats begin like TIFF (the last two), so these need the extension of a picture as well.
    if data.startswith(_IMAGE_SIGNATURES[:4]) or (data.startswith(_IMAGE_SIGNATURES) and extension in IMAGE_EXTENSIONS):
        return ".png"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".png"
    if data.startswith(_OLD_OFFICE):
        return extension if extension in _OLD_OFFICE_EXTENSIONS else ""
    if text_of(data) is None:
        return ""
    named = _EXTENSION_ALIASES.get(extension, extension)
    hinted = _EXTENSION_BY_TYPE.get(mimetype or "", named)
    start = data[:_SNIFFED_BYTES].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return ".html"
    return hinted if hinted in _TEXT_EXTENSIONS else ".txt"


def _kind_of_archive(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError):
        return ".zip"  # damaged: `check_archive` reports how
    return next((ending for name, ending in _MAIN_ENTRIES.items() if name in names), ".zip")


def text_of(data: bytes) -> str | None:
    """Return the text in one of the usual encodings; None for anything but text."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    # In this encoding every byte is a character, so control characters indicate data that is not text.
    control = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in data[:_SNIFFED_BYTES])
    return None if control > len(data[:_SNIFFED_BYTES]) // 50 else data.decode("cp1252", "replace")


_CONVERTERS = {
    ".pdf": "PdfConverter",
    ".docx": "DocxConverter",
    ".pptx": "PptxConverter",
    ".xlsx": "XlsxConverter",
    ".xls": "XlsConverter",
    ".epub": "EpubConverter",
    ".html": "HtmlConverter",
    ".ipynb": "IpynbConverter",
    ".csv": "CsvConverter",
    ".rss": "RssConverter",
    ".atom": "RssConverter",
    ".msg": "OutlookMsgConverter",
}
_MAX_EXIF_TAGS = 60


class CannotConvertError(Exception):
    """A document that cannot be converted. The message is a sentence for the model."""


def main() -> int:
    options = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    # Libraries print to standard output, which is reserved for the answer.
    os.dup2(2, 1)
    _limit(int(options["memory"]), int(options["seconds"]))
    try:
        text, title = convert(
            sys.stdin.buffer, options["extension"], options["mimetype"] or None, options["name"] or None
        )
        answer = _bounded(text, title, int(options["most"]))
    except (CannotConvertError, RefusedArchiveError) as error:
        answer = {"problem": str(error)}
    except MemoryError:
        answer = {"problem": f"it needs more than {int(options['memory']) // 2**20} MiB of memory"}
    except RecursionError:
        answer = {"problem": "it is nested too deeply"}
    json.dump(answer, answers, ensure_ascii=False)
    answers.flush()
    # A thread that a library left behind would keep a normal exit waiting.
    os._exit(0)


def convert(stream: IO[bytes], extension: str, mimetype: str | None, name: str | None) -> tuple[str, str]:
    """Return the text of a document and its title. Raise CannotConvertError or RefusedArchiveError."""
    data = stream.read()
    if archive := other_archive(data[:512]):
        raise CannotConvertError(f"it is a {archive} archive. Unpack it first")
    kind = kind_of(data, extension, mimetype)
    if not kind:
        raise CannotConvertError(
            f"{extension or 'files of this kind'} cannot be converted: the kind of document is unknown"
        )
    if kind != extension and extension in _CONVERTERS and kind in (".txt", ".zip"):
        raise CannotConvertError(f"it is not a {extension} document, although it has that extension")
    if kind == ".txt":
        return text_of(data) or "", ""
    if kind == ".png":
        return _image(io.BytesIO(data)), ""
    if data.startswith(b"PK"):
        check_archive(io.BytesIO(data), kind)
    if kind == ".zip":
        return _collection(data, name or "")
    return _document(data, kind)


def _collection(data: bytes, name: str) -> tuple[str, str]:
    """Convert every file of an archive that has passed `check_archive`."""
    parts = [f"# {name or 'Archive'}"]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            if entry.is_dir():
                continue
            try:
                text, _ = convert(archive.open(entry), "." + entry.filename.lower().rpartition(".")[2], None, None)
            except CannotConvertError as error:
                text = f"({error})"
            parts.append(f"## {entry.filename}\n\n{text.strip()}")
    return "\n\n".join(parts), ""


def _document(data: bytes, kind: str) -> tuple[str, str]:
    """Convert with the converter for this kind only: markitdown would otherwise try others."""
    try:
        import markitdown
        from markitdown import converters
        from markitdown._exceptions import MissingDependencyException
    except ImportError as error:
        raise CannotConvertError(f"the converter cannot be loaded ({error})") from None
    try:
        converter = getattr(converters, _CONVERTERS[kind])()
        result = converter.convert(io.BytesIO(data), markitdown.StreamInfo(extension=kind))
    except (MemoryError, RecursionError):
        raise
    except MissingDependencyException:
        raise CannotConvertError(f"{kind} files need a part of the converter that is not installed") from None
    except Exception as error:  # noqa: BLE001 - parsers of foreign documents raise anything
        raise CannotConvertError(_reason(error)) from None
    return result.markdown or "", result.title or ""


def _reason(error: BaseException) -> str:
    """Return the last line of an error, without its position in a library."""
    text = str(error).strip().splitlines()
    return f"the document is damaged or of another kind ({(text or [type(error).__name__])[-1][:300]})"


def _image(data: BinaryIO) -> str:
    """Describe a picture from its header."""
    try:
        from PIL import ExifTags, Image
    except ImportError:
        raise CannotConvertError("pictures need a part of the converter that is not installed") from None
    # Pillow refuses large pictures because of the memory that decoding takes; only the header is read here.
    Image.MAX_IMAGE_PIXELS = None
    try:
        with Image.open(data) as picture:
            lines = [f"Format: {picture.format}", f"Size: {picture.width} x {picture.height}", f"Mode: {picture.mode}"]
            lines += [f"{key}: {_plain(value)}" for key, value in picture.info.items() if isinstance(value, str)]
            tags = dict(picture.getexif().items())
    except (OSError, ValueError, SyntaxError) as error:
        raise CannotConvertError(_reason(error)) from None
    lines += [f"{ExifTags.TAGS.get(tag, tag)}: {_plain(value)}" for tag, value in list(tags.items())[:_MAX_EXIF_TAGS]]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return " ".join(str(value).split())[:300]


def _bounded(text: str, title: str, most: int) -> dict[str, Any]:
    data = text.encode("utf-8", "replace")
    return {"text": data[:most].decode("utf-8", "ignore"), "title": title[:300], "cut": len(data) > most}


def _limit(memory: int, seconds: int) -> None:
    try:
        import resource
    except ImportError:  # no such limits on this system
        return
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 16 * 2**20, "RLIMIT_CPU": seconds + 2}
    # Linux counts all private memory as data. Elsewhere that is the heap alone, so the address space is limited.
    memory_limit = "RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS"
    limits[memory_limit] = memory
    for name, most in limits.items():
        number = getattr(resource, name, None)
        if number is not None:
            hard = resource.getrlimit(number)[1]
            # RLIM_INFINITY is -1 on some systems, so `min` alone would take it for the smaller one.
            if hard != resource.RLIM_INFINITY:
                most = min(most, hard)
            try:
                resource.setrlimit(number, (most, most))
            except (ValueError, OSError):
                continue  # a stricter limit is in force already


if __name__ == "__main__":
    sys.exit(main())
