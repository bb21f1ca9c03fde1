"""Bounding text: never inside a character, always with a count of what is missing.

`head_and_tail` is for tool output, where the end matters as much as the start. The answer of a
whole run keeps its beginning under a marker line instead: see `retinue.loop.result`.
"""

from __future__ import annotations


def cut_bytes(text: str, most: int) -> str:
    """The longest beginning of `text` that fits `most` bytes of UTF-8, in whole characters.
    A lone surrogate counts as the three bytes its replacement takes."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    end = most
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass")


def byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def line_count(text: str) -> int:
    """Lines as an editor counts them: a final newline ends the last line, it starts none."""
    return text.count("\n") + (not text.endswith("\n") if text else 0)


def head_and_tail(text: str, most: int, rest: str, *, head_share: float = 0.4) -> str:
    """At most about `most` characters of `text`: its beginning and its end, cut at line ends
    where there are any, with a line between them that counts the gap and says `rest`."""
    if len(text) <= most:
        return text
    head_size = int(most * head_share)
    head = trim_head(text[:head_size])
    tail = trim_tail(text[len(text) - (most - head_size) :])
    missing = len(text) - len(head) - len(tail)
    gap = f"{missing:,} of {len(text):,} characters ({line_count(text):,} lines in all) left out here"
    return join_parts(head, f"{gap}; {rest}" if rest else gap, tail)


def join_parts(head: str, gap: str, tail: str) -> str:
    return f"{head.rstrip()}\n\n[... {gap} ...]\n\n{tail.lstrip(chr(10))}"


def trim_head(text: str) -> str:
    """Without its last, probably broken line, if that is not most of it."""
    end = text.rfind("\n")
    return text[: end + 1] if end > len(text) // 2 else text


def trim_tail(text: str) -> str:
    start = text.find("\n")
    return text[start + 1 :] if 0 <= start < len(text) // 2 else text
