"""From a command line to its simple commands, by a real parser of the shell's grammar.

tree-sitter gives a tree for any text. It is believed only where the text is of the kind that it
and the shell read alike; everything else is a doubt, which makes the guard ask.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING

from retinue.domain.lean import dataclass
from retinue.guard.permissions.marks import HOLE
from retinue.guard.permissions.shell.step import Opened
from retinue.guard.permissions.shell.words import value

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LONGEST = 10_000

_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]")
"""Signs that a parser may take for a blank and the shell does not, or that nobody sees."""
_GLUED = re.compile(r"[^\s\\]\\\n[^\s#]|\\\\\n")
"""A line continued in the middle of a word: the shell joins the halves, the parser does not."""
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=")
_PROMPT_EXPANSION = re.compile(r"@[PE]\}$")
_DECLARING = frozenset({"declaration_command", "unset_command"})
_ARITHMETIC = frozenset({"arithmetic_expansion", "c_style_for_statement", "test_command", "binary_expression"})


@dataclass(slots=True)
class Found:
    """A simple command as it stands in the text. `stdin` is its input where that is written down
    beside it, as in `bash <<'END'`."""

    words: tuple[str, ...]
    assigned: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None


@dataclass(slots=True)
class Text:
    """Everything that was found in one piece of shell text."""

    commands: list[Found] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    assigned: list[tuple[str, str]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def read(source: str) -> Text:
    text = Text()
    if len(source) > LONGEST:
        text.doubts.append(f"it is longer than {LONGEST:,} characters")
        return text
    if _STRANGE.search(source):
        text.doubts.append("it holds control characters or blanks that cannot be seen")
        return text
    if _GLUED.search(source):
        text.doubts.append("a word goes on in the next line")
    try:
        encoded = source.encode("utf-8")
        root = _parser().parse(encoded).root_node
    except UnicodeEncodeError:
        text.doubts.append("it is no valid text")
        return text
    if root.has_error:
        text.doubts.append("the shell's grammar does not explain it")
    _walk(root, text, encoded)
    return text


def _walk(root: Node, text: Text, source: bytes) -> None:
    quoted_code = arithmetic = False
    nodes = [root]
    while nodes:
        node = nodes.pop()
        kind = node.type
        if kind == "command":
            text.commands.append(_command(node))
        elif kind in _DECLARING:
            text.commands.append(Found(tuple(_declared(node))))
        elif kind == "file_redirect":
            _redirect(node, text)
        elif kind == "heredoc_redirect":
            _check_heredoc(node, text)
        elif kind == "variable_assignment":
            _assignment(node, text)
        elif kind == "expansion":
            if _PROMPT_EXPANSION.search(_source(node)):
                text.doubts.append("it expands a variable as a prompt, which can run commands")
        elif kind in ("raw_string", "ansi_c_string"):
            quoted = _source(node)
            quoted_code = quoted_code or "$(" in quoted or "`" in quoted or kind == "ansi_c_string"
        elif kind == "comment":
            _check_comment(node, source, text)
        arithmetic = arithmetic or kind in _ARITHMETIC
        nodes.extend(reversed(node.named_children))
    if quoted_code and arithmetic:
        text.doubts.append("quoted text that looks like a command stands beside arithmetic")


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")


def _command(node: Node) -> Found:
    words: list[str] = []
    assigned: list[tuple[str, str]] = []
    stdin: str | None = None
    for child in node.children:
        if child.type == "variable_assignment":
            assigned.append(_named_value(child))
        elif child.type == "herestring_redirect":
            given = "".join(value(part) for part in child.named_children)
            stdin = given if HOLE not in given else None
        elif child.type not in ("file_redirect", "heredoc_redirect"):
            words.append(value(child))
    if not words and assigned:
        words = [":"]
    return Found(tuple(words), tuple(assigned), stdin if stdin is not None else _heredoc_of(node))


def _heredoc_of(node: Node) -> str | None:
    """The text of the only heredoc of this command, if the shell changes nothing in it."""
    statement = node.parent
    if statement is None or statement.type != "redirected_statement":
        return None
    documents = [child for child in statement.named_children if child.type == "heredoc_redirect"]
    if len(documents) != 1 or statement.child_by_field_name("body") != node:
        return None
    if any(child.type not in ("heredoc_start", "heredoc_body", "heredoc_end") for child in documents[0].named_children):
        return None
    body = next((child for child in documents[0].named_children if child.type == "heredoc_body"), None)
    if body is None or any(child.type != "heredoc_content" for child in body.named_children):
        return None
    text = _source(body)
    return None if "\\" in text or "$" in text or "`" in text else text


def _declared(node: Node) -> list[str]:
    words = [node.children[0].type] if node.children else [HOLE]
    for child in node.named_children:
        if child.type == "variable_assignment":
            words.append("=".join(_named_value(child)))
        else:
            words.append(value(child))
    return words


def _named_value(node: Node) -> tuple[str, str]:
    named = node.child_by_field_name("name")
    given = node.child_by_field_name("value")
    found = _ASSIGNED.match(_source(node))
    name = found.group(1) if found else (_source(named) if named is not None else HOLE)
    return name, value(given) if given is not None else ""


def _assignment(node: Node, text: Text) -> None:
    """One that stands for itself: it holds for everything that follows."""
    parent = node.parent
    if parent is not None and parent.type not in ("command", "declaration_command"):
        text.assigned.append(_named_value(node))


def _redirect(node: Node, text: Text) -> None:
    sign = next((child.type for child in node.children if not child.is_named), "")
    for target in node.children_by_field_name("destination"):
        path = value(target)
        duplicates = sign in (">&", "<&", ">&-", "<&-") and (path.isdigit() or path == "-")
        if not duplicates:
            text.opened.append(Opened(path, writes=">" in sign))


def _check_heredoc(node: Node, text: Text) -> None:
    """The document must end where the shell ends it, or commands could hide in it."""
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    end = next((child for child in node.children if child.type == "heredoc_end"), None)
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    if start is None or end is None:
        text.doubts.append("a heredoc has no end")
        return
    written = _source(start)
    word = written.strip("'\"") if written[:1] in "'\"" else written.removeprefix("\\")
    lines = _source(body).splitlines() if body is not None else []
    plain = re.fullmatch(r"[A-Za-z0-9_.-]+", word) is not None
    if not plain or _source(end).strip("\t") != word or any(line.strip("\t") == word for line in lines):
        text.doubts.append("the end of a heredoc is not clear")


def _check_comment(node: Node, source: bytes, text: Text) -> None:
    """The shell sees a comment only where a word could begin."""
    before = source[node.start_byte - 1 : node.start_byte] if node.start_byte else b""
    if before not in (b"", b" ", b"\t", b"\n", b";", b"&", b"|", b"(", b")"):
        text.doubts.append("what looks like a comment may not be one")
