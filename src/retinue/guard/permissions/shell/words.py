"""A word of the shell as the program will get it: quotes and escapes gone, the rest marked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retinue.guard.permissions.marks import GLOB, HOLE

if TYPE_CHECKING:
    from tree_sitter import Node

_SIMPLE_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_DOTS = re.compile(rf"(?:(?<=/)|^)\.{{1,2}}{GLOB}[^/]*")
"""`.*` can become `..`, and so lead out of its folder."""
_UNKNOWN = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})


def value(node: Node) -> str:
    """The text of a word, with marks. What this file does not know becomes a hole."""
    kind = node.type
    if kind in ("word", "number", "variable_name", "file_descriptor", "test_operator"):
        return _bare(_source(node)) if not node.named_children else HOLE
    if kind == "command_name":
        return "".join(value(child) for child in node.children)
    if kind == "raw_string":
        return _source(node)[1:-1]
    if kind == "string":
        return _quoted(node)
    if kind == "ansi_c_string":
        return _ansi(_source(node)[2:-1])
    if kind == "concatenation":
        return _concatenation(node)
    if kind == "process_substitution":
        return "/dev/fd/" + HOLE
    if kind in ("extglob_pattern", "regex"):
        return GLOB
    if not node.is_named and kind in ("$",):
        return "$"
    return HOLE


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")


def _bare(text: str) -> str:
    """A word without quotes: a backslash takes the meaning from the next sign, and globs and
    braces are open."""
    if not any(sign in text for sign in "\\*?[{~"):
        return text
    out: list[str] = []
    signs = iter(text)
    for sign in signs:
        if sign == "\\":
            following = next(signs, "\\")
            out.append("" if following == "\n" else following)
        elif sign == "[":
            return "".join(out) + HOLE
        elif sign in "*?":
            out.append(GLOB)
        elif sign == "{" and ("," in text or ".." in text):
            out.append(HOLE)
        else:
            out.append(sign)
    made = _DOTS.sub(HOLE, "".join(out))
    if text.startswith("~") and not text.startswith(("~/", "~\\")) and text != "~":
        return HOLE  # the home of another, or a stack of folders
    return made


def _concatenation(node: Node) -> str:
    """Pieces side by side. An open brace in one of them can expand over all of them."""
    if any(child.type == "brace_expression" for child in node.children):
        return HOLE
    raw = "".join(_source(child) for child in node.children if child.type == "word")
    if "{" in raw and ("," in _source(node) or ".." in _source(node)):
        return HOLE
    out: list[str] = []
    for child in node.children:
        out.append(value(child))
        if child.type == "word" and re.search(r"(?<!\\)\[", _source(child)):
            return "".join(out)  # the hole at its end stands for all that follows
    return _DOTS.sub(HOLE, "".join(out))


def _quoted(node: Node) -> str:
    """Inside double quotes only `$`, backquotes and backslashes are special."""
    text = _source(node)
    if text.startswith("$"):
        return HOLE  # $"…" is translated by the locale
    parts = [child for child in node.named_children if child.type in _UNKNOWN]
    out: list[str] = []
    at = node.start_byte + 1
    whole = node.text or b""
    for part in parts:
        out.append(_unescaped(_slice(whole, node, at, part.start_byte)))
        out.append(HOLE)
        at = part.end_byte
    out.append(_unescaped(_slice(whole, node, at, node.end_byte - 1)))
    if any(child.type not in _UNKNOWN and child.type != "string_content" for child in node.named_children):
        return HOLE
    return "".join(out)


def _slice(whole: bytes, node: Node, start: int, end: int) -> str:
    return whole[start - node.start_byte : end - node.start_byte].decode("utf-8", "surrogateescape")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    signs = iter(text)
    for sign in signs:
        if sign != "\\":
            out.append(sign)
            continue
        following = next(signs, "")
        if following == "\n":
            continue
        out.append(following if following and following in '$`"\\' else "\\" + following)
    return "".join(out)


def _ansi(text: str) -> str:
    r"""$'…' with its escapes done; a hole where there is one that is not plain."""
    out: list[str] = []
    at = 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign != "\\":
            out.append(sign)
            continue
        letter = text[at : at + 1]
        at += 1
        if letter in _SIMPLE_ESCAPES:
            out.append(_SIMPLE_ESCAPES[letter])
            continue
        number, at = _number(text, letter, at)
        most = 0x110000 if letter in ("u", "U") else 0x80  # above that, bytes that join to a letter
        if number is None or not 1 < number < most or 0xD800 <= number < 0xE000:
            return HOLE
        out.append(chr(number))
    return "".join(out)


def _number(text: str, letter: str, at: int) -> tuple[int | None, int]:
    """A sign by its number: \\x6d, \\u006d, \\U…, \\155."""
    if letter and letter in "01234567":
        start, most, base = at - 1, 3, 8
    elif letter and letter in "xuU":
        start, most, base = at, {"x": 2, "u": 4, "U": 8}[letter], 16
    else:
        return None, at
    digits = "0123456789abcdef"[:base]
    end = start
    while end < len(text) and end - start < most and text[end].lower() in digits:
        end += 1
    return (int(text[start:end], base) if end > start else None), end
