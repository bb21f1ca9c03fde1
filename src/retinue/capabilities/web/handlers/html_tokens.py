"""HTML as a flat stream of tags and text, in linear time whatever is sent.

`html.parser` of the standard library takes quadratic time on hostile pages, and lxml may not be
installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

_NAME = re.compile(r"/?[a-zA-Z][a-zA-Z0-9:_-]{0,40}")
_ATTRIBUTE = re.compile(r"([a-zA-Z_:@][\w:.-]{0,60})(?:\s{0,20}=\s{0,20}(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
_RAW = ("script", "style", "textarea", "title", "xmp", "noscript", "template", "iframe", "noembed", "noframes")
_LONGEST_TAG = 200_000
_MOST_TAGS = 200_000
"""No page that people read has more."""


class Token(NamedTuple):
    """Text when `tag` is empty; else a tag with what stands in it, its end with a slash in front."""

    tag: str
    text: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, *values in _ATTRIBUTE.findall(self.text[:20_000]):
            found.setdefault(name.lower(), unescape(next(filter(None, values), "")))
        return found


class _Finder:
    """`str.find` that never searches the same stretch in vain twice."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._missing: dict[str, int] = {}

    def find(self, what: str, start: int) -> int:
        if start >= self._missing.get(what, len(self._text) + 1):
            return -1
        found = self._text.find(what, start)
        if found < 0:
            self._missing[what] = min(start, self._missing.get(what, start))
        return found


def tokens(page: str) -> Iterator[Token]:
    """Text is unescaped; the content of scripts, styles and the like is one text token."""
    finder = _Finder(page)
    lower = page.lower()
    low_finder = _Finder(lower) if len(lower) == len(page) else finder
    at = seen = 0
    while at < len(page) and seen < _MOST_TAGS:
        seen += 1
        start = finder.find("<", at)
        if start < 0:
            yield Token("", unescape(page[at:]))
            return
        if start > at:
            yield Token("", unescape(page[at:start]))
        at = start
        if page.startswith("<!--", at):
            end = finder.find("-->", at + 2)
            at = len(page) if end < 0 else end + 3
            continue
        name = _NAME.match(page, at + 1)
        end = finder.find(">", at)
        if name is None or end < 0:
            if page.startswith(("<!", "<?"), at) and end >= 0:
                at = end + 1
            else:
                yield Token("", "<")
                at += 1
            continue
        end = _tag_end(page, finder, name.end(), end)
        tag = name[0].lower()
        yield Token(tag, page[name.end() : end])
        at = end + 1
        if tag in _RAW and not page.endswith("/", 0, end):
            close = low_finder.find(f"</{tag}", at)
            inside = page[at : close if close >= 0 else len(page)]
            yield Token("", unescape(inside) if tag in ("title", "textarea") else inside)
            at = len(page) if close < 0 else close


def _tag_end(page: str, finder: _Finder, start: int, end: int) -> int:
    """The `>` that ends a tag: not one inside quotes."""
    inside = page[start:end]
    for quote in "\"'":
        if inside.count(quote) % 2 and f"={quote}" in inside.replace(" ", ""):
            other = finder.find(quote, end)
            further = finder.find(">", other + 1) if other >= 0 else -1
            if 0 <= further < start + _LONGEST_TAG:
                return further
    return end
