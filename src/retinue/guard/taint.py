"""Text of a run made fit for a result: no secrets, no private paths, no walls of stack frames.

Runs that have read text of strangers, and what they may no longer do without being asked.

A page may hold orders that a model follows. So, where the setting wants it (`web.taint`), a run is
tainted from the moment it got something from another host. Taint goes up to every run above, for
they will read its answer, and down to every run that is started from then on, for it gets a task
that the page may have written. It never goes away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from retinue.core.permission import Decision, EffectKind, Permissions, ToolEffect, ToolUse
from retinue.guard.redact import Redactor
from retinue.models.keys import environment as process_environment

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode


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


_OUTWARD: frozenset[EffectKind] = frozenset({"execute", "spawn"})
_READING_THE_WEB = frozenset({"web_search", "fetch_content", "convert_content", "get_search_content"})
"""They talk to others, but say no more to them than an address."""


class Taint:
    """Whether one run is tainted, and by whom first."""

    def __init__(self, above: Taint | None = None, source: str | None = None) -> None:
        self._above = above
        self.source: str | None = source or (above.source if above else None)

    def mark(self, source: str) -> None:
        """The run has got something from `source`."""
        self.source = self.source or source
        if self._above is not None and self._above.source is None:
            self._above.mark(source)

    def observe(self, effect: ToolEffect) -> None:
        if effect.hosts:
            self.mark(effect.hosts[0])


class Wary:
    """The permissions of a run that may be tainted: what they allow and what reaches outward is
    asked about, each call by itself, in every mode."""

    def __init__(self, inner: Permissions, taint: Taint) -> None:
        self._inner = inner
        self._taint = taint

    @property
    def mode(self) -> PermissionMode:
        return self._inner.mode

    def grant(self, rule: str) -> None:
        self._inner.grant(rule)

    def decide(self, use: ToolUse) -> Decision:
        decision = self._inner.decide(use)
        source = self._taint.source
        inside = decision.verdict == "allow" and decision.by == "walls"
        if decision.verdict != "allow" or inside or source is None or not reaches_outward(use):
            return decision
        reason = f"This run has read text from {source}, which may have told it to do this."
        if self.mode == "dontAsk":
            return Decision("deny", f"{reason} The mode is dontAsk.", "taint", "web.taint", "high")
        return Decision("ask", reason, "taint", "web.taint", "high")


def reaches_outward(use: ToolUse) -> bool:
    """Whether a call can do harm beyond the files of the workspace, which can be put back."""
    if use.confined or use.tool in _READING_THE_WEB:
        return False
    return bool(use.effects & (_OUTWARD | {"network"})) or use.tool.startswith("mcp__")
