"""Renders Markdown as lines of a given width, without a terminal.

No text is dropped: HTML is shown as source, and a link with its address. The input must be cleaned
(`app.rich_text.clean`), so that no line can move the cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from rich.cells import cell_len
from rich.text import Text

from retinue.app.rich_text import DIFF_STYLES, STYLES, chop, wrap_text

# A table whose columns would be narrower than this is shown as a list.
MIN_COLUMN_CELLS = 6
CODE_MARGIN = "  "
_COLUMN_GAP = " │ "
_TASK_MARK = re.compile(r"\[([ xX])\]\s+")
_DIFF_LANGUAGES = frozenset({"diff", "patch", "udiff"})


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    # Without `html`, tags of a model are shown as text and have no effect.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def parse(text: str) -> list[Token]:
    return _parser().parse(text)


def markdown_lines(text: str, width: int) -> list[Text]:
    """Return the lines of a text, none wider than `width`, with one blank line between blocks."""
    return token_lines(parse(text), width)


def token_lines(tokens: Sequence[Token], width: int) -> list[Text]:
    """Return the lines of a parsed text."""
    root = SyntaxTreeNode(tokens)
    return _blocks(root.children, max(width, 10), loose=True)


def plain_text(text: str) -> str:
    """Return a text without Markdown signs, for previews of one line."""
    words = []
    for token in parse(text):
        if token.type in ("fence", "code_block"):
            words.append(token.content)
        elif token.type == "inline":
            words.append(_inline(SyntaxTreeNode([token]).children[0]).plain)
    return "\n".join(words)


# Blocks


def _blocks(nodes: Iterable[SyntaxTreeNode], width: int, *, loose: bool) -> list[Text]:
    lines: list[Text] = []
    for node in nodes:
        drawn = _block(node, width)
        if lines and drawn and loose:
            lines.append(Text())
        lines += drawn
    return lines


def _block(node: SyntaxTreeNode, width: int) -> list[Text]:
    match node.type:
        case "heading":
            return _wrap(_inline(node.children[0]), width, _heading_style(node.tag))
        case "paragraph":
            return _wrap(_inline(node.children[0]), width)
        case "bullet_list" | "ordered_list":
            return _list(node, width)
        case "blockquote":
            return _prefixed(_blocks(node.children, width - 2, loose=True), "│ ", "│ ", STYLES["dim"])
        case "fence" | "code_block":
            return code_lines(node.content, node.info if node.type == "fence" else "", width)
        case "table":
            return _table(node, width)
        case "hr":
            return [Text("─" * width, STYLES["dim"])]
        case "inline":
            return _wrap(_inline(node), width)
        case _:
            return _wrap(Text(node.content), width) if not node.children else _blocks(node.children, width, loose=True)


def _heading_style(tag: str) -> str:
    if tag in ("h1", "h2"):
        return STYLES["accent"] + (" underline" if tag == "h1" else "")
    return "bold"


def _list(node: SyntaxTreeNode, width: int) -> list[Text]:
    lines: list[Text] = []
    start = int(node.attrs.get("start") or 1)
    for number, item in enumerate(node.children, start):
        marker, style = "• ", STYLES["dim"]
        if node.type == "ordered_list":
            marker = f"{number}. "
        children = list(item.children)
        task = _task(children)
        if task is not None:
            marker, style = ("☑ ", STYLES["success"]) if task else ("☐ ", STYLES["dim"])
        tight = bool(children) and children[0].type == "paragraph" and children[0].hidden
        inner = _blocks(children, max(width - len(marker), 8), loose=not tight)
        if task is not None and inner:
            inner[0] = inner[0][4:]
        if lines and not tight:
            lines.append(Text())
        lines += _prefixed(inner or [Text()], marker, " " * len(marker), style)
    return lines


def _task(children: Sequence[SyntaxTreeNode]) -> bool | None:
    """Return whether an entry of a task list is done; None for any other entry."""
    if not children or children[0].type != "paragraph":
        return None
    match = _TASK_MARK.match(children[0].children[0].content)
    if match is None:
        return None
    return match[1] != " "


def _prefixed(lines: Iterable[Text], first: str, others: str, style: str) -> list[Text]:
    drawn = []
    prefix = first
    for line in lines:
        # Blanks at the end would be copied with the text.
        drawn.append(Text.assemble((prefix, style), line) if line else Text(prefix.rstrip(), style))
        prefix = others
    return drawn


# Code


def code_lines(code: str, language: str, width: int) -> list[Text]:
    """Return code in the colours of its language, or a diff in those of its signs. Long lines continue on the next
    row."""
    room = max(width - len(CODE_MARGIN), 8)
    name = language.split()[0].lower() if language.split() else ""
    code = code.removesuffix("\n")
    rows = [_diff_row(row) for row in code.split("\n")] if name in _DIFF_LANGUAGES else _highlighted(code, name)
    lines: list[Text] = []
    for row in rows:
        lines += _prefixed(chop(row, room), CODE_MARGIN, CODE_MARGIN, "")
    return lines


def _diff_row(row: str) -> Text:
    if row.startswith(("+++", "---", "@@")):
        return Text(row, STYLES["accent"])
    return Text(row, STYLES[DIFF_STYLES.get(row[:1], "")])


def _highlighted(code: str, language: str) -> list[Text]:
    lexer = _lexer(language)
    if lexer is None:
        return [Text(row) for row in code.split("\n")]
    text = Text()
    for kind, value in lexer(code):
        text.append(value, _token_style(kind))
    return list(text.split("\n", allow_blank=True))


@lru_cache(maxsize=32)
def _lexer(language: str) -> Callable[[str], Iterator[tuple[Any, str]]] | None:
    """Return the lexer of a language; None for an unknown one."""
    if not language:
        return None
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return lexer.get_tokens  # type: ignore[no-any-return]


# Styles of code by token type, in the colours of the theme.
_CODE_STYLES: Mapping[str, str] = {
    "Keyword": "accent",
    "Name.Function": "accent",
    "Name.Class": "accent",
    "Name.Tag": "accent",
    "Literal.String": "success",
    "Literal.Number": "warning",
    "Comment": "dim",
}


def _token_style(kind: Any) -> str:
    name = str(kind).removeprefix("Token.")
    while name:
        meaning = _CODE_STYLES.get(name)
        if meaning is not None:
            return STYLES[meaning]
        name = name.rpartition(".")[0]
    return ""


# Tables


def _table(node: SyntaxTreeNode, width: int) -> list[Text]:
    rows: list[list[Text]] = []
    sides: list[str] = []
    for section in node.children:
        for row in section.children:
            rows.append([_inline(cell.children[0]) if cell.children else Text() for cell in row.children])
            sides = sides or [str(cell.attrs.get("style", "")).removeprefix("text-align:") for cell in row.children]
    natural = [max(row[at].cell_len for row in rows) for at in range(len(sides))]
    sizes = _column_sizes(natural, width - len(_COLUMN_GAP) * (len(sides) - 1))
    if sizes is None:
        return _table_as_list(rows, width)
    lines: list[Text] = []
    for number, cells in enumerate(rows):
        lines += _table_row(cells, sizes, sides, "" if number else "bold")
        if not number:
            lines.append(Text("─┼─".join("─" * size for size in sizes), STYLES["dim"]))
    return lines


def _column_sizes(natural: Sequence[int], room: int) -> list[int] | None:
    """Return the width of each column: its natural width, or an equal share of the remaining room. None if a table does
    not fit."""
    sizes = [0] * len(natural)
    free, columns = room, sorted(range(len(natural)), key=lambda at: natural[at])
    for done, at in enumerate(columns):
        share = free // (len(columns) - done)
        sizes[at] = min(max(natural[at], 1), share)
        free -= sizes[at]
        if share < MIN_COLUMN_CELLS and natural[at] > share:
            return None
    return sizes


def _table_row(cells: Sequence[Text], sizes: Sequence[int], sides: Sequence[str], style: str) -> list[Text]:
    columns = [_wrap(cell, size, style) for cell, size in zip(cells, sizes, strict=False)]
    lines = []
    for at in range(max(map(len, columns), default=0)):
        line = Text()
        for column, size, side in zip(columns, sizes, sides, strict=False):
            text = column[at].copy() if at < len(column) else Text()
            missing = size - text.cell_len
            before = {"right": missing, "center": missing // 2}.get(side, 0)
            if line:
                line.append(_COLUMN_GAP, STYLES["dim"])
            line.append(" " * before).append_text(text).append(" " * (missing - before))
        lines.append(line)
    return lines


def _table_as_list(rows: Sequence[Sequence[Text]], width: int) -> list[Text]:
    names, *others = rows
    lines: list[Text] = []
    for row in others:
        if lines:
            lines.append(Text())
        for name, cell in zip(names, row, strict=False):
            lines += _wrap(Text.assemble((name.plain, "bold"), ": ", cell), width)
    return lines or _wrap(Text(" ").join(names), width)


# Words


def _inline(node: SyntaxTreeNode) -> Text:
    text = Text()
    for child in node.children:
        _append(text, child, "")
    return text


def _append(text: Text, node: SyntaxTreeNode, style: str) -> None:
    match node.type:
        case "text":
            text.append(node.content, style)
        case "softbreak" | "hardbreak":
            # Models write lists without blank lines, so line breaks are kept.
            text.append("\n")
        case "code_inline":
            text.append(node.content, f"{style} {STYLES['accent']} not bold")
        case "image":
            text.append(f"[image: {node.content}] ({node.attrs.get('src', '')})", STYLES["dim"])
        case "link":
            _append_link(text, node, style)
        case "strong" | "em" | "s":
            added = {"strong": "bold", "em": "italic", "s": "strike"}[node.type]
            for child in node.children:
                _append(text, child, f"{style} {added}".strip())
        case _:
            text.append(node.content, style)


def _append_link(text: Text, node: SyntaxTreeNode, style: str) -> None:
    before = len(text)
    for child in node.children:
        _append(text, child, f"{style} underline".strip())
    address = str(node.attrs.get("href", ""))
    if address and text.plain[before:] not in (address, address.removeprefix("mailto:")):
        text.append(f" ({address})", STYLES["dim"])


def _wrap(text: Text, width: int, style: str = "") -> list[Text]:
    if style:
        text.stylize(style)
    if "\n" not in text.plain and cell_len(text.plain) <= width:
        return [text]
    lines = list(wrap_text(text, width))
    for line in lines:
        line.rstrip()
    return lines
