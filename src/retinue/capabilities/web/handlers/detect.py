"""What a body is: its own first bytes where they are unmistakable, then a header that commits
itself, then the name, then what the text looks like."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["html", "json", "json-ld", "json-lines", "csv", "xml", "yaml", "markdown", "text", "document", "binary"]

_TYPES: dict[str, Kind] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/json": "json",
    "text/json": "json",
    "application/ld+json": "json-ld",
    "application/x-ndjson": "json-lines",
    "application/jsonl": "json-lines",
    "text/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/xml": "xml",
    "text/xml": "xml",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "application/pdf": "document",
    "application/msword": "document",
    "application/rtf": "document",
    "application/epub+zip": "document",
    "application/javascript": "text",
    "application/x-sh": "text",
    "application/toml": "text",
    "application/sql": "text",
    "application/graphql": "text",
    "application/x-www-form-urlencoded": "text",
}
_ENDINGS: dict[str, Kind] = {
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".json": "json",
    ".geojson": "json",
    ".ipynb": "json",
    ".jsonld": "json-ld",
    ".jsonl": "json-lines",
    ".ndjson": "json-lines",
    ".csv": "csv",
    ".tsv": "csv",
    ".xml": "xml",
    ".rss": "xml",
    ".atom": "xml",
    ".svg": "xml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".md": "markdown",
    ".markdown": "markdown",
    ".pdf": "document",
    ".doc": "document",
    ".docx": "document",
    ".xls": "document",
    ".xlsx": "document",
    ".ppt": "document",
    ".pptx": "document",
    ".epub": "document",
    ".odt": "document",
    ".ods": "document",
    ".rtf": "document",
}
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,40}/[\w.+-]{1,90}", re.ASCII)
_DOCUMENTS = ("application/vnd.openxmlformats", "application/vnd.ms-", "application/vnd.oasis.opendocument")
_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"%PDF-", "document"),
    (b"PK\x03\x04", "document"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "document"),
    (b"{\\rtf", "document"),
    (b"\x89PNG\r\n\x1a\n", "binary"),
    (b"\xff\xd8\xff", "binary"),
    (b"GIF87a", "binary"),
    (b"GIF89a", "binary"),
    (b"\x1f\x8b", "binary"),
    (b"\x7fELF", "binary"),
    (b"MZ\x90", "binary"),
    (b"ID3", "binary"),
    (b"OggS", "binary"),
    (b"\x00\x00\x00", "binary"),
    (b"Rar!", "binary"),
    (b"7z\xbc\xaf", "binary"),
    (b"BZh", "binary"),
    (b"\xfd7zXZ", "binary"),
    (b"RIFF", "binary"),
    (b"wOFF", "binary"),
    (b"wOF2", "binary"),
)


def media_type(header: str) -> str:
    """`text/html`; empty where the header is none, whatever it says instead."""
    found = header.partition(";")[0].strip().lower()
    return found if _MEDIA_TYPE.fullmatch(found) else ""


def detect(header: str, url: str, body: bytes) -> Kind:
    """`header` is the content type the server gave, which may be empty or wrong."""
    found = next((kind for magic, kind in _MAGIC if body.startswith(magic)), None)
    if found is not None:
        return found
    kind = media_type(header)
    if kind in _TYPES:
        return _refined(_TYPES[kind], body)
    if kind.endswith("+json"):
        return "json"
    if kind.endswith("+xml"):
        return "xml"
    if kind.startswith(_DOCUMENTS):
        return "document"
    ending = _ENDINGS.get(PurePosixPath(urlsplit(url).path).suffix.lower())
    if ending is not None and ending != "document":
        return ending
    if kind.startswith(("image/", "audio/", "video/", "font/")):
        return "binary"
    return _looks(body)


def _refined(kind: Kind, body: bytes) -> Kind:
    """A header may be wrong in one way that is common: a page of errors in place of data."""
    if kind in ("json", "csv", "yaml", "markdown") and _is_page(body):
        return "html"
    return kind


def _looks(body: bytes) -> Kind:
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
