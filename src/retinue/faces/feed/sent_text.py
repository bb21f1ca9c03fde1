"""The text of a run's answers for protocols that only know how to add text: what was passed on, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal


class SentText:
    """The text of one turn as far as it was passed on. What was sent cannot be taken back: text of a request that
    failed and was made again is followed by the whole answer."""

    def __init__(self, part: Literal["text", "thinking"] = "text") -> None:
        self._delta, self._partial, self._part = f"{part}.delta", f"{part}.partial", part
        # Joined when it is needed: a long answer comes in thousands of pieces.
        self._pieces: list[str] = []
        self.length = 0

    def take(self, kind: str, data: Mapping[str, Any]) -> str:
        """Return what is to be sent for an event of the run."""
        if kind == self._delta:
            return self._add(data["text"])
        if kind == self._partial:
            return self._add(data["text"][self.length :])
        if kind == "assistant.ended":
            whole = text_of(data["message"], self._part)
            if whole.startswith("".join(self._pieces)):
                return self._add(whole[self.length :])
            return self._add("\n\n" + whole)
        if kind == "turn.started":
            self._pieces, self.length = [], 0
        return ""

    def _add(self, text: str) -> str:
        self._pieces.append(text)
        self.length += len(text)
        return text


def text_of(message: Mapping[str, Any], part: str = "text") -> str:
    """Return the text of an assistant's message as events have it."""
    return "\n".join(each["text"] for each in message["content"] if each["type"] == part)
