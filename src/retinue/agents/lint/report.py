"""Findings for people, for editors and for GitHub's workflow annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from retinue.agents.lint.subject import AppliedRepair, Finding
from retinue.core.spec import Severity

_LEVEL: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def text(findings: Iterable[Finding], base: Path | None = None) -> str:
    """`file:line:column: severity: reason [code]`, then the remedy on a line of its own. Files
    below `base` are named from there."""
    lines: list[str] = []
    for found in findings:
        place = ":".join(str(part) for part in (near(found.file, base), found.line, found.column) if part is not None)
        mark = ", fixable" if found.fixable else ""
        lines.append(f"{_one_line(place)}: {found.severity}: {_one_line(found.reason)} [{found.code}{mark}]")
        if found.remedy:
            lines.append(f"    {_one_line(found.remedy)}")
    return "".join(line + "\n" for line in lines)


def github(findings: Iterable[Finding], base: Path | None = None) -> str:
    """Workflow commands, one a line: nothing in a file's text can end or forge one. `base` is
    the workspace, from which GitHub wants its paths."""
    lines: list[str] = []
    for found in findings:
        values = {"file": near(found.file, base), "line": found.line, "col": found.column, "title": found.code}
        properties = ",".join(f"{key}={_property(str(value))}" for key, value in values.items() if value is not None)
        message = f"{found.reason} {found.remedy}".strip()
        lines.append(f"::{_LEVEL[found.severity]} {properties}::{_data(message)}")
    return "".join(line + "\n" for line in lines)


def document(findings: Iterable[Finding], changes: Iterable[AppliedRepair], files: int) -> dict[str, Any]:
    """Return the one JSON document of `retinue agents lint --json`."""
    listed = list(findings)
    return {
        "findings": [_plain(found) for found in listed],
        "fixed": [{"file": c.file, "line": c.line, "code": c.code, "change": c.what} for c in changes],
        "files": files,
        **count(listed),
    }


def count(findings: Iterable[Finding]) -> dict[str, int]:
    names: Mapping[Severity, str] = {"error": "errors", "warning": "warnings", "info": "infos"}
    totals = dict.fromkeys(names.values(), 0)
    for found in findings:
        totals[names[found.severity]] += 1
    return totals


def near(path: str, base: Path | None) -> str:
    """`path` from `base` on, if it lies below."""
    pure = PurePath(path)
    if base is not None and pure.is_relative_to(base):
        return str(pure.relative_to(base))
    return path


def _plain(found: Finding) -> dict[str, Any]:
    return {
        "file": found.file,
        "line": found.line,
        "column": found.column,
        "severity": found.severity,
        "code": found.code,
        "reason": found.reason,
        "remedy": found.remedy,
        "key": found.key,
        "fixable": found.fixable,
    }


def _one_line(value: str) -> str:
    return "".join(char if char.isprintable() else _visible(char) for char in value)


def _visible(char: str) -> str:
    # Control characters of a hostile file must not steer the terminal.
    return char.encode("unicode_escape").decode("ascii")


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
