"""From a command line to its simple commands, by a real parser of the shell's grammar.

tree-sitter gives a tree for any text. It is believed only where the text is of the kind that it
and the shell read alike; everything else is a doubt, which makes the guard ask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING

from retinue.domain.lean import dataclass
from retinue.guard.permissions.marks import HOLE
from retinue.guard.permissions.shell.signs import calculates, gaps, no_arithmetic, unexplained
from retinue.guard.permissions.shell.step import Opened
from retinue.guard.permissions.shell.words import value

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LONGEST = 10_000

_STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]")
"""Signs that a parser may take for a blank and the shell does not, or that nobody sees."""
_GLUED = re.compile(r"[^\s\\]\\\n[^\s#]|\\\\\n")
"""A line continued in the middle of a word: the shell joins the halves, the parser does not."""
_BROKEN = re.compile(r"(?<!\\)\n")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=")
_PROMPT_EXPANSION = re.compile(r"@[PE]\}$")
_ARITHMETIC = frozenset(
    {"arithmetic_expansion", "c_style_for_statement", "compound_statement", "test_command", "expansion", "subscript"}
)
_READING = frozenset({"read", "mapfile", "readarray", "getopts"})
_QUOTED = frozenset({"raw_string", "string", "concatenation"})
_PRINTED = re.compile(r"\$\((?!\()|`")
_COUNTS = re.compile(r"\$\(seq(?: +(?:\d+|\$\w+))+\)|\{\d+\.\.\d+\}")
_DEFAULTS = re.compile(r"\$\{(\w+)(?:\[[^]]*\])?:?=")


@dataclass(slots=True)
class Found:
    """A simple command as it stands in the text. `stdin` is its input where that is written down
    beside it, as in `bash <<'END'`."""

    words: tuple[str, ...]
    assigned: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None
    fed: bool = False
    """Something may be handed to it: it has redirections, or stands in a pipeline."""


@dataclass(slots=True)
class Text:
    """Everything that was found in one piece of shell text."""

    commands: list[Found] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    assigned: list[tuple[str, str]] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    """Variables that are set without an assignment: by a loop, or where they are used."""
    foreign: bool = False
    """A loop goes over what is known only when it runs."""
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
    elif unexplained(root, encoded):
        text.doubts.append("something in it looks like a command, and the shell's grammar does not say what it is")
    _walk(root, text, encoded)
    return text


def _walk(root: Node, text: Text, source: bytes) -> None:
    arithmetic = False
    nodes = [root]
    while nodes:
        node = nodes.pop()
        kind = node.type
        look = _LOOKS.get(kind)
        if look is not None:
            look(node, text)
        elif kind == "comment":
            _check_comment(node, source, text)
        if kind in _ARITHMETIC:
            arithmetic = _arithmetic(node, text) or arithmetic
        nodes.extend(reversed(node.named_children))
    if arithmetic and _quotes_code(root):
        text.doubts.append("quoted text that looks like a command stands beside arithmetic")
    elif arithmetic and _has_foreign_values(text):
        text.doubts.append("it calculates with what is known only when it runs, which can be a command")


def _quotes_code(root: Node) -> bool:
    """Whether some text in quotes, or a part of it, may be the subscript `a[$(command)]`."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.type == "ansi_c_string":
            return True
        if node.type in _QUOTED or (node.type == "word" and b"\\" in (node.text or b"")):
            given = value(node)
            if "[" in given or "$(" in given or "`" in given:
                return True
        nodes.extend(node.named_children)
    return False


def _arithmetic(node: Node, text: Text) -> bool:
    source = _source(node)
    if node.type == "arithmetic_expansion" and no_arithmetic(source):
        text.doubts.append("what looks like arithmetic is none")
    if node.type != "subscript" and not calculates(node, source):
        return False
    if _PRINTED.search(source.partition("))")[0] if node.type == "c_style_for_statement" else source):
        text.doubts.append("it calculates with what a command prints, which can be a command itself")
    return True


def _has_foreign_values(text: Text) -> bool:
    """Whether variables may have come from files or programs."""
    if text.foreign or any(command.words[:1] and command.words[0] in _READING for command in text.commands):
        return True
    return any(HOLE in given for _, given in text.assigned)


def _concatenation(node: Node, text: Text) -> None:
    if gaps(node):
        text.doubts.append("where a word ends is not clear")


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")


def _command(node: Node, text: Text) -> None:
    text.commands.append(_found(node))


def _found(node: Node) -> Found:
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
    statement = node.parent
    fed = stdin is not None
    if statement is not None and statement.type == "redirected_statement":
        fed = True
        if statement.child_by_field_name("body") == node:
            words += map(value, _behind_redirections(statement))
            stdin = stdin if stdin is not None else _heredoc_of(statement)
        statement = statement.parent
    fed = fed or (statement is not None and statement.type in ("pipeline", "heredoc_redirect"))
    if not words and assigned:
        words = [":"]
    return Found(tuple(words), tuple(assigned), stdin, fed)


def _behind_redirections(statement: Node) -> list[Node]:
    """Words after a redirection: the shell gives them to the command, the grammar to the
    redirection."""
    found: list[Node] = []
    for redirection in statement.children_by_field_name("redirect"):
        inner = [child for child in redirection.named_children if child.type == "file_redirect"]
        for each in (redirection, *inner):
            if each.type == "file_redirect":
                found += each.children_by_field_name("destination")[1:]
        if redirection.type == "heredoc_redirect":
            found += redirection.children_by_field_name("argument")
    return sorted(found, key=lambda node: node.start_byte)


def _heredoc_of(statement: Node) -> str | None:
    """The text of its only heredoc, if the shell changes nothing in it."""
    documents = [child for child in statement.named_children if child.type == "heredoc_redirect"]
    if len(documents) != 1:
        return None
    parts = documents[0].named_children
    if any(child.type in ("pipeline", "redirect", "file_redirect") or child.is_error for child in parts):
        return None
    body = next((child for child in documents[0].named_children if child.type == "heredoc_body"), None)
    if body is None or any(child.type != "heredoc_content" for child in body.named_children):
        return None
    text = _source(body)
    start = next((child for child in parts if child.type == "heredoc_start"), None)
    if start is not None and _source(start)[:1] in ("'", '"'):
        return text
    return None if "\\" in text or "$" in text or "`" in text else text


def _declaration(node: Node, text: Text) -> None:
    text.commands.append(Found(tuple(_declared(node))))


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


def _statement(node: Node, text: Text) -> None:
    body = node.child_by_field_name("body")
    if (body is None or body.type != "command") and _behind_redirections(node):
        text.doubts.append("words stand behind a redirection of more than one command")


def _expansion(node: Node, text: Text) -> None:
    source = _source(node)
    if _PROMPT_EXPANSION.search(source):
        text.doubts.append("it expands a variable as a prompt, which can run commands")
    text.named += _DEFAULTS.findall(source)


def _loop(node: Node, text: Text) -> None:
    variable = node.child_by_field_name("variable")
    if variable is not None:
        text.named.append(_source(variable))
    given = node.children_by_field_name("value")
    text.foreign = text.foreign or any(HOLE in value(each) and not _COUNTS.fullmatch(_source(each)) for each in given)


def _word(node: Node, text: Text) -> None:
    """A word ends with its line. The parser has been seen to take the next one in."""
    if b"\n" in (node.text or b"") and _BROKEN.search(_source(node)):
        text.doubts.append("a word goes on in the next line")


def _redirect(node: Node, text: Text) -> None:
    sign = next((child.type for child in node.children if not child.is_named), "")
    for target in node.children_by_field_name("destination")[:1]:
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
    if any(each.start_point[0] != start.start_point[0] for each in node.children_by_field_name("argument")):
        text.doubts.append("where a heredoc begins is not clear")
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


_LOOKS: Mapping[str, Callable[[Node, Text], None]] = {
    "command": _command,
    "declaration_command": _declaration,
    "unset_command": _declaration,
    "redirected_statement": _statement,
    "file_redirect": _redirect,
    "heredoc_redirect": _check_heredoc,
    "variable_assignment": _assignment,
    "expansion": _expansion,
    "for_statement": _loop,
    "word": _word,
    "concatenation": _concatenation,
}
"""What is to be noticed about a node, whatever it stands in."""
