"""Text of a run made fit for a result: no secrets, no private paths, no walls of stack frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from retinue.guard.redact import Redactor
from retinue.models.keys import environment as process_environment

FRAMES_KEPT = 5
_FRAME_LENGTH = 100
_MORE = "[Additional stack frames truncated]"
_FRAME = re.compile(r"^(?:\s+at |(?:Error|TypeError|ReferenceError):)")
_FRAME_PATH = re.compile(r"^(\s{1,64})at [^\n()]{0,400}\([^\n()]{1,1000}\)", re.MULTILINE)
_HOMES = re.compile(r"(?<![\w.~-])(?:/home|/Users)/[\w.-]+|(?<!\w)[A-Za-z]:\\Users\\[\w.-]+|(?<!\w)G:\\[\w.-]+")


def sanitise(
    text: str, environment: Mapping[str, str] | None = None, redact: Callable[[str], str] | None = None
) -> str:
    """Secrets first, then the places of stack frames, home folders, and stack frames beyond the
    fifth: in this order, because a path can be part of a secret and never the other way round."""
    environment = process_environment() if environment is None else environment
    text = (redact or Redactor(environment))(text)
    text = _FRAME_PATH.sub(r"\1at [REDACTED_PATH]", text)
    return _shortened(_without_homes(text, environment))


def _without_homes(text: str, environment: Mapping[str, str]) -> str:
    for name in ("HOME", "USERPROFILE"):
        home = environment.get(name, "").rstrip("/\\")
        if len(home) > 1:
            text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    return _HOMES.sub("~", text)


def _shortened(text: str) -> str:
    """Keeps the first frames, a part of the next, and says that there were more."""
    if _MORE in text:
        return text
    lines = text.split("\n")
    kept: list[str] = []
    frames = 0
    for line in lines:
        if _FRAME.match(line):
            frames += 1
            if frames == FRAMES_KEPT + 1:
                kept += (f"{line[:_FRAME_LENGTH]}...", _MORE)
            if frames > FRAMES_KEPT:
                continue
        kept.append(line)
    return "\n".join(kept) if frames > FRAMES_KEPT else text
