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
_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_FRAME = re.compile(r'^(\s+)File "[^"\n]+", line \d+')
_FRAME_PATH = re.compile(r"^(\s{1,64})at [^\n()]{0,400}\([^\n()]{1,1000}\)", re.MULTILINE)
_HOMES = re.compile(r"(?<![\w.~-])(?:/home|/Users)/[\w.-]+|(?<!\w)[A-Za-z]:\\Users\\[\w.-]+|(?<!\w)G:\\[\w.-]+")


def sanitise(
    text: str, environment: Mapping[str, str] | None = None, redact: Callable[[str], str] | None = None
) -> str:
    """Secrets first, then the places of stack frames, home folders, and all but five stack frames:
    in this order, because a path can be part of a secret and never the other way round."""
    environment = process_environment() if environment is None else environment
    text = (redact or Redactor(environment))(text)
    text = _FRAME_PATH.sub(r"\1at [REDACTED_PATH]", text)
    return _shortened_tracebacks(_shortened(_without_homes(text, environment)))


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


def _shortened_tracebacks(text: str) -> str:
    """Keep the last frames of each traceback of Python, where the newest call comes last."""
    if _TRACEBACK not in text:
        return text
    lines = text.split("\n")
    kept: list[str] = []
    at = 0
    while at < len(lines):
        kept.append(lines[at])
        at += 1
        if kept[-1].strip() != _TRACEBACK:
            continue
        frames = _python_frames(lines, at)
        at += sum(map(len, frames))
        if len(frames) > FRAMES_KEPT:
            kept.append(f"  {_MORE}")
            frames = frames[-FRAMES_KEPT:]
        for frame in frames:
            kept += frame
    return "\n".join(kept)


def _python_frames(lines: list[str], start: int) -> list[list[str]]:
    """Return the frames of one traceback, each with its lines of code, from line `start` on."""
    frames: list[list[str]] = []
    for line in lines[start:]:
        if _PYTHON_FRAME.match(line):
            frames.append([line])
        elif frames and _belongs_to(line, frames[-1][0]):
            frames[-1].append(line)
        else:
            break
    return frames


def _belongs_to(line: str, frame: str) -> bool:
    """Whether a line is code of a frame or says how often it was repeated: it stands further in."""
    indent = len(frame) - len(frame.lstrip())
    repeated = line.lstrip().startswith("[Previous line repeated")
    return bool(line.strip()) and (repeated or len(line) - len(line.lstrip()) > indent)
