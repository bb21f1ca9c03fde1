"""What a paste puts into the editor: short text itself, long text as a placeholder, the path of an image as `@path`.

A terminal pastes the path of a file that is dropped on it: in quotes, with `\\` before its spaces, or as an address.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

LONG_LINES = 10
LONG_CHARACTERS = 1_000
_PLACEHOLDER = re.compile(r"\[Pasted text #(\d+)[^\]\n]*\]")


class Pastes:
    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._last = 0

    def take(self, text: str) -> str:
        """Return what to put into the editor for a paste: the text, or a placeholder for a long one, and for the
        path of an image its mention, which attaches it."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        mention = image_mention(text)
        if mention is not None:
            return mention
        lines = text.count("\n") + 1
        if lines <= LONG_LINES and len(text) <= LONG_CHARACTERS:
            return text
        self._last += 1
        self._texts[self._last] = text
        size = f"+{lines} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[Pasted text #{self._last} {size}]"

    def whole(self, text: str) -> str:
        """Return the text with every placeholder replaced by what it stands for."""
        return _PLACEHOLDER.sub(lambda found: self._texts.get(int(found[1]), found[0]), text)

    def before(self, text: str) -> int:
        """Return the length of the placeholder that `text` ends with; 0 when it ends with none."""
        found = next((each for each in _PLACEHOLDER.finditer(text) if each.end() == len(text)), None)
        return len(found[0]) if found is not None and int(found[1]) in self._texts else 0

    def forget(self) -> None:
        self._texts.clear()


def image_mention(pasted: str) -> str | None:
    """Return `@path` for the path of an image that is there, and None for any other text. Names do not count: what is
    in the file does."""
    from retinue.tools.content import is_image_file

    path = _path(pasted.strip())
    if path is None or not is_image_file(path):
        return None
    if any(map(str.isspace, str(path))):
        return f'@"{path}" '
    return f"@{path} "


def _path(text: str) -> Path | None:
    """Return the one absolute path that a text consists of."""
    if not text or "\n" in text or len(text) > LONG_CHARACTERS or text[0] not in "/~'\"f":
        return None
    if text.startswith("file://"):
        path = Path(unquote(urlsplit(text).path))
    else:
        path = _unquoted(text)
    return path if path.is_absolute() else None


def _unquoted(text: str) -> Path:
    try:
        words = shlex.split(text)
        # A path with spaces and no quotes is a path all the same, when there is such a file.
        plain = Path(words[0] if len(words) == 1 else text)
        return plain.expanduser()
    except (ValueError, RuntimeError, IndexError):
        return Path(text)
