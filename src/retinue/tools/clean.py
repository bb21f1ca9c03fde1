"""Terminal output as plain text: no escape sequences, no overwritten progress bars."""

from __future__ import annotations

import codecs
import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OVERSTRUCK = re.compile(r"[^\n]\x08")


def clean(text: str) -> str:
    """`text` as a terminal would leave it standing, roughly: of what a carriage return
    overwrites the last version stays. Tabs and newlines are the only controls left."""
    if _CONTROLS.search(text) is None:
        return text
    text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join(_standing(line) if "\r" in line else line for line in text.split("\n"))
    return _CONTROLS.sub("", _OVERSTRUCK.sub("", text))


def _standing(line: str) -> str:
    """What is left of a line after its carriage returns."""
    return line.rstrip("\r").rpartition("\r")[2]


class StreamCleaner:
    """`clean` for bytes that arrive in pieces. Works in whole lines; a line without an end is
    held back until it is HELD characters long."""

    HELD = 65_536

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        text = self._held + self._decoder.decode(data, final)
        end = len(text) if final else text.rfind("\n") + 1
        if len(text) - end > self.HELD:
            overwritten = text.rfind("\r", end, len(text) - 1)
            if overwritten >= 0:
                text = text[:end] + text[overwritten + 1 :]
            if len(text) - end > self.HELD:
                end = len(text)
        self._held = text[end:]
        return clean(text[:end])

    @property
    def pending(self) -> str:
        """The unfinished line as it stands, for live displays."""
        return clean(self._held[-2000:])[-200:]
