"""What people and parent runs are told about an agent's file when it runs or is refused.

Every run reports each error and warning of its file once, with file, line, reason and remedy.
`lint` reports the same and more, for all files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.agents.frontmatter import place_of
from retinue.core.spec import AgentSpec
from retinue.errors import RefusedAgentError

if TYPE_CHECKING:
    from retinue.agents.catalog import Catalog
    from retinue.core.spec import Severity


MOST_NOTES = 5
_SAID_AT_LAUNCH = frozenset({"readonly-write-tool", "tools-resolve-to-nothing", "all-tools-denied"})
"""Codes of lint that a launch finds out by itself, with the tools that are really there."""
_KNOWN: dict[tuple[str, str], tuple[str, ...]] = {}
_MOST_KNOWN = 512


class _Line(Struct, frozen=True):
    line: int | None
    severity: Severity
    reason: str
    remedy: str


def require_startable(spec: AgentSpec) -> None:
    """Raise RefusedAgentError for an agent of which a restricting key could not be read."""
    problem = spec.refusal
    if problem is not None:
        where = place_of(spec.path or f"agent {spec.name}", problem)
        raise RefusedAgentError(f"Agent '{spec.name}': {where}: {problem.message}", remedy=problem.remedy)


def file_notes(spec: AgentSpec, catalog: Catalog | None) -> list[str]:
    """Return the problems of the file that `spec` was read from, one text each, and what the file replaced."""
    if spec.path is None or spec.source == "builtin":
        return []
    key = (spec.path, spec.hash)
    found = _KNOWN.get(key)
    if found is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        found = _KNOWN[key] = _brief(spec.path, _lines(spec))
    notes = list(found)
    if catalog is not None:
        notes += _find_displaced(spec, catalog)
    return notes


def is_file_note(spec: AgentSpec, note: str) -> bool:
    """Return whether a note of a launch is one of `file_notes` about the agent's own file."""
    return spec.path is not None and note.startswith(f"{spec.path}:")


def _brief(path: str, lines: list[_Line]) -> tuple[str, ...]:
    notes = []
    for each in lines[:MOST_NOTES]:
        where = f"{path}:{each.line}" if each.line is not None else path
        notes.append(f"{where}: {each.reason} {each.remedy}".rstrip())
    if len(lines) > MOST_NOTES:
        notes.append(f"{path}: {len(lines) - MOST_NOTES} more problems. See: retinue agents lint {path}")
    return tuple(notes)


def _lines(spec: AgentSpec) -> list[_Line]:
    linted = _lint_file(spec)
    if linted is not None:
        return linted
    lines = []
    for each in spec.problems:
        if each.severity != "info":
            lines.append(_Line(each.line, each.severity, each.message, each.remedy))
    return lines


def _lint_file(spec: AgentSpec) -> list[_Line] | None:
    """Return what lint finds in the file; None where it is gone or has changed since it was read."""
    from retinue.agents.lint.checks import lint_subject
    from retinue.agents.lint.subject import LintSubject
    from retinue.agents.parse import parse
    from retinue.agents.scan import read_bytes
    from retinue.core.spec import Problem

    path = spec.path or ""
    data = read_bytes(path)
    if isinstance(data, Problem):
        return None
    parsed = parse(data, path=path, dialect=spec.dialect, source=spec.source)
    if parsed.spec is None or parsed.spec.hash != spec.hash:
        return None
    findings = [found.finding for found in lint_subject(LintSubject(parsed, data))]
    lines = []
    for each in sorted(findings, key=lambda each: each.order):
        # The launch reports an unknown name of an allow list with the tools of the run; it does not look at the deny
        # list.
        unknown = each.code == "unknown-tool" and "denies nothing" not in each.reason
        # Who runs it has chosen it without a description.
        chosen = each.code == "missing-description"
        if each.severity != "info" and not chosen and each.code not in _SAID_AT_LAUNCH and not unknown:
            lines.append(_Line(each.line, each.severity, each.reason, each.remedy))
    return lines


def _find_displaced(spec: AgentSpec, catalog: Catalog) -> list[str]:
    """Return notes on stronger files of the same name that do not count, because they could not be read."""
    notes = []
    for failed in catalog.failed:
        if failed.instead == spec.path:
            notes.append(f"{place_of(failed.path, failed.problem)}: {failed.reason} {failed.problem.remedy}".rstrip())
    for entry in catalog.entries:
        if entry.name == spec.name and entry.recovered_under == spec.path:
            text = (
                f"{entry.path}: its frontmatter is not valid YAML, so '{spec.name}' is loaded from {spec.path} instead."
            )
            notes.append(f"{text} Correct the frontmatter: retinue agents lint {entry.path}")
    return notes
