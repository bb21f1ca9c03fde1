"""Bounding text: never inside a character, always with a count of what is missing.

Two shapes. `head_and_tail` is for tool output, where the end matters as much as the start.
`truncate_result` is for the answer of a whole run, which keeps its beginning under a marker
line of the devkit family.
"""

from __future__ import annotations

RESULT_BYTES = 200 * 1024
RESULT_LINES = 5000


def size_text(count: int) -> str:
    """Bytes for people: `512B`, `1.5KB`, `2.0MB`."""
    if count < 1024:
        return f"{count}B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f}KB"
    return f"{count / 1024 / 1024:.1f}MB"


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


def truncate_result(text: str, max_bytes: int = RESULT_BYTES, max_lines: int = RESULT_LINES) -> str:
    """The first part of `text` that fits both bounds, under a line that says what it is."""
    lines = text.split("\n")
    size = byte_length(text)
    if len(lines) <= max_lines and size <= max_bytes:
        return text
    kept = "\n".join(lines[:max_lines])
    if byte_length(kept) > max_bytes:
        cut = cut_bytes(kept, max_bytes)
        whole_lines, _, _ = cut.rpartition("\n")
        kept = whole_lines or cut
    count = kept.count("\n") + 1
    shown = f"{size_text(byte_length(kept))} of {size_text(size)}"
    return f"[TRUNCATED: showing first {count} of {len(lines)} lines, {shown}]\n{kept}"


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
