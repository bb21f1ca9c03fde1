"""Long pasted text stands in the editor as a short placeholder and is sent whole."""

from __future__ import annotations

import re

LONG_LINES = 10
LONG_CHARACTERS = 1_000
_PLACEHOLDER = re.compile(r"\[Pasted text #(\d+)[^\]\n]*\]")


class Pastes:
    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._last = 0

    def take(self, text: str) -> str:
        """What to put into the editor for a paste: the text, or a placeholder for a long one."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= LONG_LINES and len(text) <= LONG_CHARACTERS:
            return text
        self._last += 1
        self._texts[self._last] = text
        size = f"+{lines} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[Pasted text #{self._last} {size}]"

    def whole(self, text: str) -> str:
        """The text with every placeholder replaced by what it stands for."""
        return _PLACEHOLDER.sub(lambda found: self._texts.get(int(found[1]), found[0]), text)

    def before(self, text: str) -> int:
        """The length of the placeholder that `text` ends with; 0 when it ends with none."""
        found = next((each for each in _PLACEHOLDER.finditer(text) if each.end() == len(text)), None)
        return len(found[0]) if found is not None and int(found[1]) in self._texts else 0

    def forget(self) -> None:
        self._texts.clear()
