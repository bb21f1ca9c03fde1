"""What a document is, by its content: its name and what a server says of it are only hints."""

from __future__ import annotations

import io
import zipfile

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"})
_PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_PARTS = {
    "word/document.xml": ".docx",
    "ppt/presentation.xml": ".pptx",
    "xl/workbook.xml": ".xlsx",
    "META-INF/container.xml": ".epub",
}
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLD = frozenset({".xls", ".msg"})
_READ_AS_TEXT = frozenset({".html", ".ipynb", ".csv", ".rss", ".atom"})
_SAME = {".htm": ".html", ".xhtml": ".html", ".xml": ".xml"}
_BY_TYPE = {"text/html": ".html", "application/xhtml+xml": ".html", "text/csv": ".csv", "application/rss+xml": ".rss"}
_LOOKED_AT = 4096


def kind_of(data: bytes, extension: str, mimetype: str | None) -> str:
    """The ending of the kind that a document has; `.txt` for text of no other kind, and an empty
    text for what is none of them."""
    if data.lstrip(b"\xef\xbb\xbf \r\n\t")[:5] == b"%PDF-":
        return ".pdf"
    if data.startswith(b"PK"):
        return _kind_of_archive(data)
    if data.startswith(_PICTURES[:4]) or (data.startswith(_PICTURES) and extension in IMAGES):
        return ".png"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".png"
    if data.startswith(_OLD_OFFICE):
        return extension if extension in _OLD else ""
    if text_of(data) is None:
        return ""
    named = _SAME.get(extension, extension)
    hinted = _BY_TYPE.get(mimetype or "", named)
    start = data[:_LOOKED_AT].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return ".html"
    return hinted if hinted in _READ_AS_TEXT else ".txt"


def _kind_of_archive(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError):
        return ".zip"  # damaged: whoever opens it says how
    return next((ending for part, ending in _PARTS.items() if part in names), ".zip")


def text_of(data: bytes) -> str | None:
    """A text in one of the usual encodings; None for what is no text."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    control = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in data[:_LOOKED_AT])
    return None if control > len(data[:_LOOKED_AT]) // 50 else data.decode("cp1252", "replace")
