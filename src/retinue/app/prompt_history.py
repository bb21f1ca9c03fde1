"""The history of typed prompts, per project, across sessions.

Each entry is a JSON line, appended in one write, so that two programs on one project do not corrupt each other's lines.
Unreadable lines are skipped. Errors are ignored: a history that cannot be written lasts for this session only.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from retinue.settings.places import private_folder

MAX_HISTORY_ENTRIES = 1_000
MAX_ENTRY_CHARACTERS = 100_000
MAX_HISTORY_BYTES = 4_000_000


class PromptHistory:
    """`redact` removes secrets from entries that are written to the file."""

    def __init__(self, path: Path, redact: Callable[[str], str] = lambda text: text) -> None:
        self._path = path
        self._redact = redact
        self._entries: list[str] | None = None
        self._at: int | None = None
        self._draft = ""

    @property
    def entries(self) -> list[str]:
        """All entries, oldest first."""
        if self._entries is None:
            self._entries = _read(self._path)
        return self._entries

    def add(self, text: str) -> None:
        self.leave()
        if not text.strip() or len(text) > MAX_ENTRY_CHARACTERS or (self.entries and self.entries[-1] == text):
            return
        self.entries.append(text)
        del self.entries[:-MAX_HISTORY_ENTRIES]
        with contextlib.suppress(OSError):
            _append(self._path, self._redact(text))

    def older(self, current: str) -> str | None:
        """Return the previous entry; the current draft is stored. None at the oldest entry."""
        at = len(self.entries) if self._at is None else self._at
        if at == 0:
            return None
        if self._at is None:
            self._draft = current
        self._at = at - 1
        return self.entries[self._at]

    def newer(self) -> str | None:
        """Return the next entry, or the stored draft after the last one. None if no entry is recalled."""
        if self._at is None:
            return None
        self._at += 1
        if self._at < len(self.entries):
            return self.entries[self._at]
        self._at = None
        return self._draft

    @property
    def recalled(self) -> str | None:
        """Return the recalled entry; None while a draft is edited."""
        return self.entries[self._at] if self._at is not None else None

    def find(self, words: str, most: int = 8) -> list[str]:
        """Return entries that contain all of these words, newest first and each once."""
        needles = words.lower().split()
        matches: dict[str, None] = {}
        for entry in reversed(self.entries):
            low = entry.lower()
            if all(word in low for word in needles):
                matches[entry] = None
            if len(matches) == most:
                break
        return list(matches)

    def leave(self) -> None:
        """Make the current text the draft."""
        self._at, self._draft = None, ""


def _read(path: Path) -> list[str]:
    entries: list[str] = []
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return entries
    for line in lines[-MAX_HISTORY_ENTRIES * 2 :]:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            text = json.loads(line)["text"]
            if isinstance(text, str) and (not entries or entries[-1] != text):
                entries.append(text)
    return entries[-MAX_HISTORY_ENTRIES:]


def _append(path: Path, text: str) -> None:
    private_folder(path.parent)
    data = (json.dumps({"text": text}, ensure_ascii=True) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, data)
        too_long = os.fstat(descriptor).st_size > MAX_HISTORY_BYTES
    finally:
        os.close(descriptor)
    if too_long:
        _shorten(path)


def _shorten(path: Path) -> None:
    """Reduce the file to its newest entries, up to half of the allowed size."""
    fresh = path.with_suffix(f".{os.getpid()}.new")
    newest: list[str] = []
    size = 0
    for text in reversed(_read(path)):
        newest.append(json.dumps({"text": text}, ensure_ascii=True) + "\n")
        size += len(newest[-1])
        if size > MAX_HISTORY_BYTES // 2:
            break
    fresh.write_text("".join(reversed(newest)), "utf-8")
    fresh.chmod(0o600)
    fresh.replace(path)
