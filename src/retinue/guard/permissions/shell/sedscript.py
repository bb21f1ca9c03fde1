"""Whether a script of sed only edits text: no files written or read, nothing run."""

from __future__ import annotations

import re

_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/I?)"
_PLAIN = re.compile(rf"\s*{_ADDRESS}?(?:\s*,\s*(?:{_ADDRESS}|\+\d+))?\s*!?\s*[pdqDPnNgGhHx=]?\s*\Z")
_BEFORE_S = re.compile(rf"\s*{_ADDRESS}?(?:\s*,\s*(?:{_ADDRESS}|\+\d+))?\s*!?\s*[sy]")
_FLAGS = re.compile(r"[gpIi0-9]*\s*\Z")


def only_edits(script: str) -> bool:
    """Errs on the side of no."""
    at = 0
    while at < len(script):
        found = _BEFORE_S.match(script, at)
        end = _end_of_substitution(script, found.end()) if found else -1
        if end < 0:
            stop = _separator(script, at)
            if not _PLAIN.match(script[at:stop]):
                return False
            at = stop + 1
            continue
        stop = _separator(script, end)
        if not _FLAGS.match(script[end:stop]):
            return False
        at = stop + 1
    return True


def _separator(script: str, at: int) -> int:
    found = [place for place in (script.find(";", at), script.find("\n", at)) if place >= 0]
    return min(found, default=len(script))


def _end_of_substitution(script: str, at: int) -> int:
    """The place after the third delimiter; -1 where there is none."""
    delimiter = script[at : at + 1]
    if not delimiter or delimiter.isalnum() or delimiter in "\\\n ;":
        return -1
    seen = 1
    at += 1
    while at < len(script):
        if script[at] == "\\":
            at += 2
            continue
        if script[at] == delimiter:
            seen += 1
            if seen == 3:
                return at + 1
        at += 1
    return -1
