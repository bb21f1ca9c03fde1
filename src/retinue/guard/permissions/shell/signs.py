"""Signs of the shell that the parser has not seen for what they are.

The grammar knows most places where a command can hide in a word, not all: backquotes in the
default of a variable or in a heredoc are plain text to it. So the text is looked through a second
time, without the grammar: whatever looks like the start of a command and is not explained by the
tree, is a doubt.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_OPENERS = frozenset({"$(", "$((", "`", "``", "<(", ">("})
_LITERAL = frozenset({"raw_string", "ansi_c_string", "comment"})
_TEXT = frozenset({"string_content", "heredoc_content", "heredoc_body"})
_SUSPICIOUS = re.compile(rb"`|\$\(|[<>]\(")
_IN_TEXT = re.compile(rb"`|\$\(")
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_NEIGHBOURS = re.compile(r"[\w\])]\s+[\w$(]|\\|'|\"")
"""Two values without an operator between them: no arithmetic."""
_COMPARES = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge|v|R)\s")
_ASKS_FOR_NAME = re.compile(r"\s-[vR]\s")
_SUBSCRIPT = re.compile(r"\$\{[#!]?\w+(?:\[(?![@*]\])|:(?!\s*\d+(?::\s*-?\d+)?\})\s*[^-+=?\s])|\$\{!\w+(?![\w*@\[])")
"""Also `${!name}`: the value of `name` is taken for the name of another variable."""


def unexplained(root: Node, source: bytes) -> bool:
    """Whether some sign in `source` may start a command that the tree does not have."""
    if not _SUSPICIOUS.search(source):
        return False
    left = bytearray(source)
    backquoted = False
    nodes = [root]
    while nodes:
        node = nodes.pop()
        kind = node.type
        if kind in _LITERAL or (kind == "heredoc_redirect" and _quoted(node)):
            _blank(left, node)
        elif kind in _OPENERS:
            backquoted = backquoted or kind == "`"
            _blank(left, node)
        elif kind in _TEXT and not node.children and not _IN_TEXT.search(node.text or b""):
            _blank(left, node)
        nodes.extend(node.children)
    if backquoted and b"\\`" in left:
        return True
    return _SUSPICIOUS.search(_ESCAPED.sub(b"  ", bytes(left))) is not None


def gaps(node: Node) -> bool:
    """Whether the parts of one word do not touch: the parser has been seen to skip a blank."""
    return any(one.end_byte != other.start_byte for one, other in pairwise(node.children))


def calculates(node: Node, text: str) -> bool:
    """Whether values of variables are taken for arithmetic here, where `a[$(command)]` runs."""
    kind = node.type
    if kind == "test_command":
        return (_COMPARES if text.startswith("[[") else _ASKS_FOR_NAME).search(text) is not None
    if kind == "expansion":
        return _SUBSCRIPT.search(text) is not None
    return text.startswith(("((", "$((", "$[", "for"))


def no_arithmetic(text: str) -> bool:
    """Whether what stands between double brackets is anything else than a calculation: some
    shells then take it for commands."""
    inner = text.removeprefix("$")[2:-2]
    return "$(" not in inner and _NEIGHBOURS.search(inner.strip()) is not None


def _quoted(node: Node) -> bool:
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    return start is not None and (start.text or b"")[:1] in (b"'", b'"', b"\\") and _only_document(node)


def _only_document(node: Node) -> bool:
    return all(child.type in ("<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end") for child in node.children)


def _blank(left: bytearray, node: Node) -> None:
    left[node.start_byte : node.end_byte] = b" " * (node.end_byte - node.start_byte)
