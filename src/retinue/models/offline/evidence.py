"""What the searches brought back, read out of the conversation. Pure: the same messages always
give the same evidence, so the planner needs no memory of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field

from retinue.core.lean import dataclass
from retinue.core.messages import ToolCall, ToolResult
from retinue.models.offline.patterns import anywhere
from retinue.models.offline.toolbox import SearchTool, Toolbox
from retinue.models.offline.words import Query

_MATCH = re.compile(r"^(?P<path>[^\n]+?):(?P<line>\d+):(?P<text>.*)$")
_COUNT = re.compile(r"^(?P<path>.+):(?P<count>\d+)$")
_NUMBERED = re.compile(r"^\s*(?P<line>\d+)(?:\t|→|: ?|\| ?)(?P<text>.*)$")
_TOTAL = re.compile(r"^\[[\d,]+ of (?P<total>[\d,]+) (?:found|files)")
_MORE = re.compile(r"^\[(?P<more>[\d,]+) more lines")


@dataclass(slots=True)
class Evidence:
    """`counts[i]` are the matching lines of term i by file; `lines` what was seen of a file."""

    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    paths: dict[str, None] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    read: dict[str, set[int]] = field(default_factory=dict)
    length: dict[str, int] = field(default_factory=dict)
    total_files: int = 0
    document_frequency: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    """Folders that a listing named and that could be listed next."""
    inspected: bool = False
    """Single files were looked at."""
    places_read: bool = False
    """Places inside files were read."""

    def add(self, path: str, number: int, text: str) -> None:
        self.lines.setdefault(path, {}).setdefault(number, text)


def gather(pairs: Iterable[tuple[ToolCall, ToolResult]], toolbox: Toolbox, query: Query) -> Evidence:
    evidence = Evidence()
    by_pattern = {anywhere(term): index for index, term in enumerate(query.terms)}
    for call, result in pairs:
        tool = toolbox.named(call.name)
        if tool is None:
            continue
        if tool.kind in ("grep", "read") and tool.value(call.arguments, "path"):
            evidence.inspected = True
            evidence.places_read = evidence.places_read or tool.value(call.arguments, "offset") is not None
        if result.is_error:
            evidence.errors.append(f"{call.name}: {result.text.strip()[:300]}")
        elif tool.kind == "find":
            _listing(result.text, "", evidence)
        elif tool.kind == "ls":
            _listing(result.text, str(tool.value(call.arguments, "path") or ""), evidence)
        elif tool.kind == "grep":
            _matches(call, result.text, tool, by_pattern, evidence)
        elif tool.kind == "read":
            _reading(str(tool.value(call.arguments, "path") or ""), result.text, evidence)
    evidence.total_files = max(evidence.total_files, len(evidence.paths))
    return evidence


def _listing(text: str, folder: str, evidence: Evidence) -> None:
    """Paths, one a line. What ends with a slash is a folder; notes are in brackets or sentences."""
    above = "" if folder in ("", ".", "./") else folder.rstrip("/") + "/"
    for line in text.splitlines():
        total = _TOTAL.match(line)
        if total:
            evidence.total_files = max(evidence.total_files, int(total["total"].replace(",", "")))
        elif line.endswith("/"):
            evidence.folders.append(_tidy(above + line.strip()))
        elif line.strip() and not line.startswith("[") and not line.startswith("Nothing matches"):
            evidence.paths.setdefault(_tidy(above + line.strip()))


def _matches(call: ToolCall, text: str, tool: SearchTool, by_pattern: dict[str, int], evidence: Evidence) -> None:
    term = by_pattern.get(str(tool.value(call.arguments, "pattern")))
    mode = tool.value(call.arguments, "mode")
    only = tool.value(call.arguments, "path")
    for line in text.splitlines():
        total = _TOTAL.match(line)
        if total and term is not None:
            evidence.document_frequency[term] = int(total["total"].replace(",", ""))
            continue
        found = None if mode == "count" else _MATCH.match(line)
        if found:
            path = _tidy(found["path"])
            evidence.paths.setdefault(path)
            evidence.add(path, int(found["line"]), found["text"])
            if term is not None and not only:
                counts = evidence.counts.setdefault(term, {})
                counts[path] = counts.get(path, 0) + 1
            continue
        counted = _COUNT.match(line)
        if counted and term is not None:
            path = _tidy(counted["path"])
            evidence.paths.setdefault(path)
            evidence.counts.setdefault(term, {})[path] = int(counted["count"])
    if term is not None:
        evidence.document_frequency.setdefault(term, len(evidence.counts.get(term, {})))


def _reading(path: str, text: str, evidence: Evidence) -> None:
    path, last = _tidy(path), 0
    for line in text.splitlines():
        more = _MORE.match(line)
        if more:
            evidence.length[path] = last + int(more["more"].replace(",", ""))
            return
        found = _NUMBERED.match(line)
        if found:
            last = int(found["line"])
            evidence.add(path, last, found["text"])
            evidence.read.setdefault(path, set()).add(last)
    evidence.length.setdefault(path, last)


def _tidy(path: str) -> str:
    return path.removeprefix("./").replace("\\", "/")
