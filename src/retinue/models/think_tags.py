"""Thinking that a server leaves in the text, between `<think>` and `</think>`.

MiniMax without `reasoning_split`, and vLLM or llama.cpp without a reasoning parser, stream the
model's thoughts as content. Only tags at the very beginning of an answer count: later ones are
words that the model talks about.
"""

from __future__ import annotations

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkTags:
    """Splits a stream of text. `done` is set once all that follows is plain text."""

    __slots__ = ("_closed", "_held", "_inside", "done")

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._closed = False
        self.done = False

    def off(self) -> None:
        """The server sends thinking in a field of its own: tags are only words."""
        if not self._held and not self._inside:
            self.done = True

    def split(self, piece: str) -> tuple[str, str]:
        """Return what of `piece` is thinking and what is text; an end that may be a part of a tag
        is held back."""
        if self._closed:
            return "", self._begin_text(piece)
        text = self._held + piece
        self._held = ""
        if not self._inside:
            start = text.lstrip()
            if start.startswith(_OPEN):
                self._inside = True
                text = start[len(_OPEN) :]
            elif _OPEN.startswith(start):
                self._held = text
                return "", ""
            else:
                self.done = True
                return "", text
        thought, found, rest = text.partition(_CLOSE)
        if found:
            self._inside, self._closed = False, True
            return thought, self._begin_text(rest)
        kept = _partial_end(text)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept], ""

    def _begin_text(self, piece: str) -> str:
        """The answer begins after the empty lines that follow the closing tag."""
        text = piece.lstrip()
        self.done = bool(text)
        return text

    def rest(self) -> str:
        """Return what was held back when the stream ends."""
        held, self._held = self._held, ""
        return held


def _partial_end(text: str) -> int:
    """How many characters at the end of `text` could begin the closing tag."""
    for length in range(min(len(_CLOSE) - 1, len(text)), 0, -1):
        if _CLOSE.startswith(text[-length:]):
            return length
    return 0
