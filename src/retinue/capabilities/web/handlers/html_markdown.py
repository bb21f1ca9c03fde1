"""A web page as Markdown, without a library: headings, lists, links, code, tables, quotes."""

from __future__ import annotations

import re
from urllib.parse import urljoin

from retinue.capabilities.web.handlers.html_tokens import Token, tokens

_DROPPED = frozenset(
    {"script", "style", "noscript", "template", "iframe", "svg", "canvas", "object", "head", "noembed", "noframes"}
)
_FURNITURE = frozenset({"nav", "header", "footer", "aside", "form", "button", "select", "dialog", "menu"})
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "main", "figure", "figcaption", "address", "details", "summary", "dl", "dt"}
    | {"dd", "ul", "ol", "table", "tr", "hr", "fieldset", "body", "html", "center", "header", "footer", "nav", "aside"}
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MARKS = {"b": "**", "strong": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`", "tt": "`"}
_BLANKS = re.compile(r"[ \t\r\n\f]+")
_LINES = re.compile(r"\n{3,}")
_MOST_DEPTH = 20


def title_of(page: str) -> str:
    """The page's title; the first heading where it has none."""
    heading = ""
    inside = ""
    for token in tokens(page[:200_000]):
        if token.tag in ("title", "h1"):
            inside = token.tag
        elif token.tag in ("/title", "/h1"):
            inside = ""
        elif not token.tag and inside:
            text = " ".join(token.text.split())
            if inside == "title" and text:
                return text[:300]
            heading = (heading + " " + text).strip()
    return heading[:300]


def to_markdown(page: str, url: str) -> str:
    """What the page says, its furniture left out where it has a main part."""
    found = list(tokens(page))
    for part in ("main", "article"):
        inner = _inner(found, part)
        if inner:
            text = _Writer(url, furniture=False).write(inner)
            if len(text) >= 200:
                return text
    text = _Writer(url, furniture=False).write(found)
    return text if len(text) >= 80 else _Writer(url, furniture=True).write(found)


def _inner(found: list[Token], tag: str) -> list[Token]:
    """What stands inside the outermost elements of that name."""
    kept: list[Token] = []
    depth = 0
    for token in found:
        if token.tag == tag:
            depth += 1
        if depth:
            kept.append(token)
        if token.tag == f"/{tag}":
            depth = max(0, depth - 1)
    return kept


class _Writer:
    def __init__(self, url: str, *, furniture: bool) -> None:
        self._url = url
        self._dropped = _DROPPED if furniture else _DROPPED | _FURNITURE
        self._out: list[str] = []
        self._skip: list[str] = []
        self._lists: list[int | None] = []
        self._link: tuple[str, int] | None = None
        self._pre = 0
        self._cells: list[int] = []
        self._rows = 0

    def write(self, found: list[Token]) -> str:
        for token in found:
            if self._skip:
                self._skipping(token)
            elif not token.tag:
                self._text(token.text)
            elif token.tag.startswith("/"):
                self._close(token.tag[1:])
            else:
                self._open(token)
        text = "".join(self._out)
        lines = [line.rstrip() for line in text.split("\n")]
        return _LINES.sub("\n\n", "\n".join(lines)).strip()

    def _skipping(self, token: Token) -> None:
        if token.tag == self._skip[-1] and len(self._skip) < 1000:
            self._skip.append(token.tag)
        elif token.tag == f"/{self._skip[-1]}":
            self._skip.pop()

    def _text(self, text: str) -> None:
        if self._pre:
            self._out.append(text)
            return
        text = _BLANKS.sub(" ", text)
        if text == " " and (not self._out or self._out[-1].endswith((" ", "\n"))):
            return
        if not self._out or self._out[-1].endswith((" ", "\n")):
            text = text.lstrip(" ")
        self._out.append(text)

    def _open(self, token: Token) -> None:
        tag = token.tag
        if tag in self._dropped:
            if not token.text.rstrip().endswith("/"):
                self._skip.append(tag)
        elif tag in _HEADINGS:
            self._block()
            self._out.append(_HEADINGS[tag] + " ")
        elif tag in _MARKS:
            if not self._pre:
                self._out.append(_MARKS[tag])
        elif tag in ("p", "div") and self._cells:
            self._out.append(" ")
        elif tag in ("ul", "ol"):
            self._open_list(0 if tag == "ol" else None)
        elif tag in _BLOCKS:
            self._open_block(tag)
        else:
            self._open_other(token)

    def _open_list(self, number: int | None) -> None:
        if self._lists:
            self._newline()
        else:
            self._block()
        if len(self._lists) < _MOST_DEPTH:
            self._lists.append(number)

    def _open_other(self, token: Token) -> None:
        match token.tag:
            case "br":
                self._out.append("\n")
            case "pre":
                self._block()
                self._out.append("```\n")
                self._pre += 1
            case "li":
                self._item()
            case "blockquote":
                self._block()
                self._out.append("> ")
            case "a":
                self._link = (token.attributes.get("href", ""), len(self._out))
            case "img":
                self._image(token)
            case "td" | "th":
                self._out.append("| ")

    def _open_block(self, tag: str) -> None:
        if tag == "table":
            self._block()
            self._rows = 0
        elif tag == "tr":
            self._newline()
            self._cells.append(len(self._out))
        elif tag == "hr":
            self._block()
            self._out.append("---\n\n")
        elif tag == "dd":
            self._newline()
            self._out.append(": ")
        else:
            self._block()

    def _close(self, tag: str) -> None:
        if tag in _HEADINGS or tag == "p":
            if not self._cells:
                self._block()
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._newline()
            self._out.append("```\n\n")
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()
            self._newline()
            if not self._lists:
                self._block()
        elif tag == "blockquote":
            self._block()
        elif tag == "a":
            self._close_link()
        elif tag in ("td", "th"):
            self._out.append(" ")
        elif tag == "tr" and self._cells:
            self._row()
        elif tag in _MARKS and not self._pre:
            self._out.append(_MARKS[tag])
        elif tag in _BLOCKS and not self._cells:
            self._block()

    def _item(self) -> None:
        self._newline()
        depth = max(1, len(self._lists))
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        self._out.append("  " * (depth - 1) + (f"{number + 1}. " if number is not None else "- "))

    def _close_link(self) -> None:
        if self._link is None:
            return
        (href, start), self._link = self._link, None
        text = "".join(self._out[start:]).strip()
        if not text or self._pre or not href or href.startswith(("#", "javascript:", "data:")) or "\n" in text:
            return
        try:
            address = urljoin(self._url, href)
        except ValueError:
            return
        self._out[start:] = [f"[{text}]({address.replace(' ', '%20').replace(')', '%29')})"]

    def _image(self, token: Token) -> None:
        text = " ".join(token.attributes.get("alt", "").split())
        if text:
            self._out.append(f"![{text[:200]}]")

    def _row(self) -> None:
        start = self._cells.pop()
        row = " ".join("".join(self._out[start:]).split())
        self._out[start:] = [f"{row} |\n"] if row else []
        self._rows += 1
        if self._rows == 1 and row:
            self._out.append("|" + "---|" * max(1, row.count("| ")) + "\n")

    def _newline(self) -> None:
        if self._out and not self._out[-1].endswith("\n"):
            self._out.append("\n")

    def _block(self) -> None:
        if self._out and not self._out[-1].endswith("\n\n"):
            self._out.append("\n\n")
