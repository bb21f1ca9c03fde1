"""Converts the document on its standard input and writes one JSON object to its standard output.

A program of its own: whatever a document does to a parser, it does it here, with little memory,
little time and, where there is a sandbox, nothing to change and nobody to reach. Started with one
argument, a JSON object: `extension`, `mimetype`, `name`, `memory`, `seconds`, `most` (bytes of text).
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from typing import IO, TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from retinue.capabilities.convert.inside.retinue_archive import RefusedArchiveError, check_archive, other_archive
    from retinue.capabilities.convert.inside.retinue_kind import kind_of, text_of
else:
    from retinue_archive import RefusedArchiveError, check_archive, other_archive
    from retinue_kind import kind_of, text_of

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
_MOST_TAGS = 60


class CannotConvertError(Exception):
    """A sentence for whoever asked."""


def main() -> int:
    wanted = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)  # what libraries print is no answer
    _limit(int(wanted["memory"]), int(wanted["seconds"]))
    try:
        text, title = convert(sys.stdin.buffer, wanted["extension"], wanted["mimetype"] or None, wanted["name"] or None)
        answer = _bounded(text, title, int(wanted["most"]))
    except (CannotConvertError, RefusedArchiveError) as error:
        answer = {"problem": str(error)}
    except MemoryError:
        answer = {"problem": f"it needs more than {int(wanted['memory']) // 2**20} MiB of memory"}
    except RecursionError:
        answer = {"problem": "it is nested too deeply"}
    json.dump(answer, answers, ensure_ascii=False)
    answers.flush()
    os._exit(0)  # threads of libraries are not waited for


def convert(stream: IO[bytes], extension: str, mimetype: str | None, name: str | None) -> tuple[str, str]:
    """The text of a document and its title. Raise CannotConvertError or RefusedArchiveError."""
    data = stream.read()
    if archive := other_archive(data[:512]):
        raise CannotConvertError(f"it is a {archive} archive. Unpack it first")
    kind = kind_of(data, extension, mimetype)
    if not kind:
        raise CannotConvertError(f"{extension or 'files of this kind'} cannot be converted: it is no known document")
    if kind != extension and extension in _CONVERTERS and kind in (".txt", ".zip"):
        raise CannotConvertError(f"it is no {extension} document, whatever its name says")
    if kind == ".txt":
        return text_of(data) or "", ""
    if kind == ".png":
        return _image(io.BytesIO(data)), ""
    if data.startswith(b"PK"):
        check_archive(io.BytesIO(data), kind)
    return _collection(data, name or "") if kind == ".zip" else _document(data, kind)


def _collection(data: bytes, name: str) -> tuple[str, str]:
    """The files of an archive that was found safe, each by itself."""
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
    """By the one converter for its kind: none of the others is to try its luck."""
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
    """The last line of an error: what went wrong, without where in a library it did."""
    text = str(error).strip().splitlines()
    return f"the document is damaged or of another kind ({(text or [type(error).__name__])[-1][:300]})"


def _image(data: BinaryIO) -> str:
    """What is known about a picture without looking at it."""
    try:
        from PIL import ExifTags, Image
    except ImportError:
        raise CannotConvertError("pictures need a part of the converter that is not installed") from None
    Image.MAX_IMAGE_PIXELS = None  # only its header is read
    try:
        with Image.open(data) as picture:
            lines = [f"Format: {picture.format}", f"Size: {picture.width} x {picture.height}", f"Mode: {picture.mode}"]
            lines += [f"{key}: {_plain(value)}" for key, value in picture.info.items() if isinstance(value, str)]
            tags = dict(picture.getexif().items())
    except (OSError, ValueError, SyntaxError) as error:
        raise CannotConvertError(_reason(error)) from None
    lines += [f"{ExifTags.TAGS.get(tag, tag)}: {_plain(value)}" for tag, value in list(tags.items())[:_MOST_TAGS]]
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
    wanted = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 16 * 2**20, "RLIMIT_CPU": seconds + 2}
    wanted["RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS"] = memory
    for name, most in wanted.items():
        number = getattr(resource, name, None)
        if number is not None:
            hard = resource.getrlimit(number)[1]
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            try:
                resource.setrlimit(number, (least, least))
            except (ValueError, OSError):
                continue  # a stricter limit holds already


if __name__ == "__main__":
    sys.exit(main())
