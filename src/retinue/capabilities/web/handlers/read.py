"""One page as text: detected, decoded, converted. What cannot be parsed is shown as it is."""

from __future__ import annotations

import re
from typing import assert_never

from retinue.capabilities.web.errors import FetchError
from retinue.capabilities.web.handlers.charset import decode, is_binary
from retinue.capabilities.web.handlers.detect import Kind, detect, media_type
from retinue.core.lean import dataclass
from retinue.tools.clean import clean

MOST_CHARACTERS = 1_000_000
"""Of a page, before it is converted."""

_GAPS = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Readable:
    """`warning` says what had to be guessed or given up."""

    kind: Kind
    text: str
    title: str = ""
    warning: str | None = None


def read(body: bytes, header: str, url: str, *, truncated: bool = False) -> Readable:
    """Raises FetchError for what is no text. Takes processor time: call it in a thread."""
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
    if len(text) > MOST_CHARACTERS:
        text = text[:MOST_CHARACTERS]
        warning = " ".join(filter(None, (warning, f"Only its first {MOST_CHARACTERS:,} characters were read.")))
    try:
        title, found = _converted(kind, text, url)
    except ValueError as error:
        what = "It was cut off, so it" if truncated else "It"
        problem = f"{what} could not be read as {kind} ({str(error)[:200]}); shown as text."
        return Readable("text", plain(text), "", " ".join(filter(None, (warning, problem))))
    return Readable(kind, clean(found), " ".join(clean(title).split()), warning)


def _converted(kind: Kind, text: str, url: str) -> tuple[str, str]:
    match kind:
        case "html":
            from retinue.capabilities.web.handlers.html import read_html

            return read_html(text, url)
        case "xml":
            from retinue.capabilities.web.handlers.xml import read_xml

            return read_xml(text)
        case "json" | "json-ld" | "json-lines" | "csv" | "yaml":
            from retinue.capabilities.web.handlers import data

            readers = {
                "json": data.read_json,
                "json-ld": data.read_linked,
                "json-lines": data.read_json_lines,
                "csv": data.read_csv,
                "yaml": data.read_yaml,
            }
            return "", readers[kind](text)
        case "markdown":
            return _heading(text), text.strip()
        case "text" | "document" | "binary":
            return "", plain(text)
        case _:
            assert_never(kind)


def plain(text: str) -> str:
    """Text without trailing blanks and without gaps."""
    lines = (line.rstrip() for line in clean(text.replace("\r\n", "\n")).split("\n"))
    return _GAPS.sub("\n\n", "\n".join(lines)).strip()


def _heading(text: str) -> str:
    return next((line[2:].strip() for line in text.split("\n", 50)[:50] if line.startswith("# ")), "")
