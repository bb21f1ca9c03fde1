"""Secrets in text that arrives in pieces.

A secret may be cut anywhere. What could be the beginning of one is held back until the next
character that no secret contains: in ordinary text that is the last word, so what is shown runs
one word behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable

WORD_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/=.~%@!^:?&\\\"'"
_GAP = " \t\r\n\"'\\"
_OPENERS = (
    *(":", "=", "bearer", "basic", "digest", "negotiate", "apikey", "authorization", "export"),
    *("key", "token", "secret", "password", "passwd", "passphrase", "key_id"),
)
"""How text ends when the next word could be the value of a secret."""
_LONGEST_OPENER = max(len(opener) for opener in _OPENERS)
_LONGEST = 4_096
_LONGEST_BLOCK = 20_000
"""More than this is never held back: nothing known is that long."""
_SHORTEST = 16
"""Secrets made of letters only are at least this long."""
_BLOCK = re.compile(r"-----BEGIN(?: [A-Z0-9 ]{0,60}(?:-{0,5}\Z|PRIVATE KEY(?: BLOCK)?-----)|\Z)")
_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")


class RedactedStream:
    """`feed` pieces in order, then `finish` once. All that was returned, joined, is the redacted
    whole; no secret is ever split between two returns."""

    def __init__(self, redact: Callable[[str], str], characters: str = WORD_CHARACTERS) -> None:
        self._redact = redact
        self._characters = characters
        self._held = ""
        self._swallow = False

    def feed(self, text: str) -> str:
        held = self._held + text
        if self._swallow:
            held = held.lstrip(self._characters)
            self._swallow = not held
        cut, longest = self._safe_length(held), _LONGEST
        if cut and "-----BEGIN" in held:
            cut, longest = self._before_block(held, cut)
        if len(held) - cut > longest:
            return self._force(held)
        self._held, safe = held[cut:], held[:cut]
        word = safe.strip()
        # One short word of letters is most of what a model streams, and no secret.
        return safe if len(word) < _SHORTEST and (not word or word.isalpha()) else self._redact(safe)

    def finish(self) -> str:
        held, self._held, self._swallow = self._held, "", False
        return self._redact(held) if held else ""

    def _force(self, held: str) -> str:
        shown = self._redact(held)
        # If the end was part of a secret, the rest of that secret has yet to come.
        self._swallow = not shown.endswith(held[-16:])
        self._held = ""
        return shown

    def _safe_length(self, held: str) -> int:
        """How much of the text is certain not to be, or to introduce, a part of a secret."""
        cut = len(held.rstrip(self._characters))
        while cut:
            spoken = held[:cut].rstrip(_GAP)
            if not spoken[-_LONGEST_OPENER:].lower().endswith(_OPENERS):
                return cut
            cut = len(spoken.rstrip(self._characters))
        return 0

    def _before_block(self, held: str, cut: int) -> tuple[int, int]:
        """The same for a key block, which has spaces: nothing of it before all of it is here."""
        block = _BLOCK.search(held)
        while block is not None and block.start() < cut:
            end = _BLOCK_END.search(held, block.end())
            if end is None or end.end() > cut:
                return self._safe_length(held[: block.start()]), _LONGEST_BLOCK
            block = _BLOCK.search(held, end.end())
        return cut, _LONGEST
