"""Reading of one page: its kind is detected, its bytes are decoded, and its content is converted to text.

The declared type and encoding are ignored if the bytes contradict them. A body of a known format that cannot be parsed
is shown unchanged, with a warning."""

from __future__ import annotations

import codecs
import re
from pathlib import PurePosixPath
from typing import Literal, assert_never
from urllib.parse import urlsplit

from retinue.capabilities.web import formats as data
from retinue.capabilities.web.base import Result
from retinue.capabilities.web.formats import read_html, read_xml
from retinue.http.address import FetchError
from retinue.tools.content import clean

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET_PARAMETER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_DECLARED_CHARSET = re.compile(
    rb"<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE
)
_SUPERSET_ENCODINGS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
}
"""For some declared encodings, the superset that pages really use."""
_TEXT_ENCODINGS = re.compile(
    r"utf-(?:8|16|16-le|16-be|32|32-le|32-be)|cp\d{3,4}|iso8859-\d{1,2}|koi8-[ru]|mac-\w+|gb18030|big5(?:hkscs)?"
    r"|euc_j\w+|euc-jp|iso2022_jp\w*|shift_jis\w*|tis-620"
)
"""Encodings of text. Python's other codecs are not text encodings, or take quadratic time."""
_MAX_INVALID_SHARE = 0.002
_MIN_GUESSED_BYTES = 64
"""The encoding of fewer bytes is not guessed."""
_NEVER_UNMARKED = ("utf_7", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le")
"""Encodings that sites always declare, and that match almost any bytes."""
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def decode(body: bytes, header: str = "", *, truncated: bool = False) -> tuple[str, str | None]:
    """Return the text, and a warning if the encoding was guessed. A `truncated` body may end inside of a character."""
    for bom, name in _BOMS:
        if body.startswith(bom):
            return body.decode(name, "replace").removeprefix("\ufeff"), None
    charsets = _CHARSET_PARAMETER.findall(header)[:1]
    declared = _DECLARED_CHARSET.search(body[:4096])
    if declared is not None:
        charsets.append(declared[1].decode("ascii"))
    for name in filter(None, map(_codec, charsets)):
        text = _strict(body, name, truncated)
        if text is not None:
            return text, None
    text = _strict(body, "utf-8", truncated)
    if text is not None:
        return text, None
    # A few invalid characters are more likely than another encoding.
    text = body.decode("utf-8", "replace")
    if text.count("\ufffd") <= len(text) * _MAX_INVALID_SHARE:
        return text, "Some characters of it are broken."
    guess = _guess(body)
    warning = f"Read as {guess}."
    if charsets:
        warning = f"It is not in the encoding it claims ({charsets[0]}); read as {guess}."
    return body.decode(guess, "replace"), warning


def is_binary(text: str) -> bool:
    """Return whether decoded data is not text."""
    sample = text[:8192]
    if not sample:
        return False
    if "\0" in sample:
        return True
    return len(_CONTROLS.findall(sample)) + sample.count("\ufffd") > len(sample) * 0.1


def _codec(label: str) -> str | None:
    try:
        name = codecs.lookup(label.strip()).name
    except (LookupError, ValueError):
        return None
    name = _SUPERSET_ENCODINGS.get(name, name)
    return name if _TEXT_ENCODINGS.fullmatch(name) else None


def _strict(body: bytes, name: str, truncated: bool) -> str | None:
    decoder = codecs.getincrementaldecoder(name)("strict")
    try:
        return decoder.decode(body, final=not truncated)
    except UnicodeError:
        return None


def _guess(body: bytes) -> str:
    """Return the most probable encoding, by default that of western Windows."""
    if len(body) < _MIN_GUESSED_BYTES:
        return "cp1252"
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "cp1252"
    best = from_bytes(body[:20_000], cp_exclusion=list(_NEVER_UNMARKED)).best()
    if best is None:
        return "cp1252"
    return _codec(best.encoding) or "cp1252"


Kind = Literal["html", "json", "json-ld", "json-lines", "csv", "xml", "yaml", "markdown", "text", "document", "binary"]

_KIND_BY_TYPE: dict[str, Kind] = {
    **dict.fromkeys(("text/html", "application/xhtml+xml"), "html"),
    **dict.fromkeys(("application/json", "text/json"), "json"),
    "application/ld+json": "json-ld",
    **dict.fromkeys(("application/x-ndjson", "application/jsonl"), "json-lines"),
    **dict.fromkeys(("text/csv", "text/tab-separated-values"), "csv"),
    **dict.fromkeys(("application/xml", "text/xml"), "xml"),
    **dict.fromkeys(("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"), "yaml"),
    **dict.fromkeys(("text/markdown", "text/x-markdown"), "markdown"),
    **dict.fromkeys(("application/pdf", "application/msword", "application/rtf", "application/epub+zip"), "document"),
    **dict.fromkeys(("application/javascript", "application/x-sh", "application/toml", "application/sql"), "text"),
    **dict.fromkeys(("application/graphql", "application/x-www-form-urlencoded"), "text"),
}
_KIND_BY_EXTENSION: dict[str, Kind] = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".json", ".geojson", ".ipynb"), "json"),
    ".jsonld": "json-ld",
    **dict.fromkeys((".jsonl", ".ndjson"), "json-lines"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".xml", ".rss", ".atom", ".svg"), "xml"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **dict.fromkeys((".md", ".markdown"), "markdown"),
}
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,40}/[\w.+-]{1,90}", re.ASCII)
_DOCUMENT_TYPES = ("application/vnd.openxmlformats", "application/vnd.ms-", "application/vnd.oasis.opendocument")
_DOCUMENT_STARTS = (b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf")
_BINARY_STARTS = (
    *(b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"\x1f\x8b", b"\x7fELF", b"MZ\x90", b"ID3", b"OggS"),
    *(b"\x00\x00\x00", b"Rar!", b"7z\xbc\xaf", b"BZh", b"\xfd7zXZ", b"RIFF", b"wOFF", b"wOF2"),
)


def media_type(header: str) -> str:
    """Return the type alone, such as `text/html`; an empty text for a header of another form."""
    media = header.partition(";")[0].strip().lower()
    return media if _MEDIA_TYPE.fullmatch(media) else ""


def detect(header: str, url: str, body: bytes) -> Kind:
    """Detect the kind of a body. `header` is the content type of the server, which may be empty or wrong."""
    if body.startswith(_DOCUMENT_STARTS):
        return "document"
    if body.startswith(_BINARY_STARTS):
        return "binary"
    kind = media_type(header)
    if kind in _KIND_BY_TYPE:
        # Servers often send an error page instead of data.
        if _KIND_BY_TYPE[kind] in ("json", "csv", "yaml", "markdown") and _is_page(body):
            return "html"
        return _KIND_BY_TYPE[kind]
    if kind.endswith("+json"):
        return "json"
    if kind.endswith("+xml"):
        return "xml"
    if kind.startswith(_DOCUMENT_TYPES):
        return "document"
    # Extensions of documents are not listed, because their first bytes were checked above.
    ending = _KIND_BY_EXTENSION.get(PurePosixPath(urlsplit(url).path).suffix.lower())
    if ending is not None:
        return ending
    if kind.startswith(("image/", "audio/", "video/", "font/")):
        return "binary"
    return _guess_kind(body)


def _guess_kind(body: bytes) -> Kind:
    if _is_page(body):
        return "html"
    start = body.lstrip(b"\xef\xbb\xbf \t\r\n")[:512]
    if start.startswith((b"<?xml", b"<rss", b"<feed")):
        return "xml"
    return "json" if start[:1] in (b"{", b"[") and _is_json(body) else "text"


def _is_page(body: bytes) -> bool:
    start = body.lstrip(b"\xef\xbb\xbf \t\r\n")[:512].lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body"))


def _is_json(body: bytes) -> bool:
    import json

    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


MAX_CONVERTED_CHARACTERS = 1_000_000
"""The limit for the text of a page that is converted."""

_MAX_PAGE_TITLE_CHARACTERS = 300
_EMPTY_LINES = re.compile(r"\n{3,}")


def read(body: bytes, header: str, url: str, *, truncated: bool = False) -> Result:
    """Read a page. Its `warning` names what was guessed or left out. Raise FetchError for anything but text. Takes
    processor time: call it in a thread."""
    kind = detect(header, url, body)
    if kind == "document":
        raise FetchError(
            "ENCODING", f"{url} is a document ({media_type(header) or 'no type given'}). Read it with convert_content."
        )
    if kind == "binary":
        raise FetchError("ENCODING", f"{url} is not text ({media_type(header) or 'no type given'}).")
    text, warning = decode(body, header, truncated=truncated)
    if is_binary(text):
        raise FetchError("ENCODING", f"{url} calls itself {media_type(header) or 'nothing'}, but it is not text.")
    if len(text) > MAX_CONVERTED_CHARACTERS:
        text = text[:MAX_CONVERTED_CHARACTERS]
        warning = " ".join(
            filter(None, (warning, f"Only its first {MAX_CONVERTED_CHARACTERS:,} characters were read."))
        )
    try:
        title, content, problem = _convert(kind, text, url)
    except ValueError as error:
        what = "It was cut off, so it" if truncated else "It"
        problem = f"{what} could not be read as {kind} ({str(error)[:200]}); shown as text."
        kind, title, content = "text", "", plain(text)
    return Result(
        url=url,
        title=" ".join(clean(title).split())[:_MAX_PAGE_TITLE_CHARACTERS],
        content=clean(content),
        truncated=truncated,
        content_type=kind,
        warning=" ".join(filter(None, (warning, problem))),
    )


def _convert(kind: Kind, text: str, url: str) -> tuple[str, str, str]:
    """Return the title, the text, and a warning; empty if there is none."""
    match kind:
        case "html":
            return read_html(text, url)
        case "xml":
            return (*read_xml(text), "")
        case "json" | "json-ld" | "json-lines" | "csv" | "yaml":
            readers = {
                "json": data.read_json,
                "json-ld": data.read_linked,
                "json-lines": data.read_json_lines,
                "csv": data.read_csv,
                "yaml": data.read_yaml,
            }
            return "", readers[kind](text), ""
        case "markdown":
            return _heading(text), text.strip(), ""
        case "text" | "document" | "binary":
            return "", plain(text), ""
        case _:
            assert_never(kind)


def plain(text: str) -> str:
    """Return text without trailing blanks and without several empty lines in a row."""
    lines = map(str.rstrip, clean(text.replace("\r\n", "\n")).split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()


def _heading(text: str) -> str:
    for line in text.split("\n", 50)[:50]:
        if line.startswith("# "):
            return line[2:].strip()
    return ""
