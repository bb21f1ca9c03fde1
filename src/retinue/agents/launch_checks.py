"""Checks on an agent's file when it runs: whether it may start, its problems, and the agents that it may start.

Every run reports each error and warning of its file once, with file, line, reason and remedy.
`lint` reports the same and more, for all files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from retinue.agents.frontmatter import place_of
from retinue.agents.parse import parse
from retinue.core.spec import AgentSpec, Problem
from retinue.core.spelling import nearest
from retinue.core.tool_list import split_entry
from retinue.core.toolnames import STARTING, canonical
from retinue.errors import RefusedAgentError

if TYPE_CHECKING:
    from retinue.agents.catalog import Catalog

MAX_NOTES = 5
_FOUND_BY_LAUNCH = frozenset(
    {"missing-description", "readonly-write-tool", "tools-resolve-to-nothing", "all-tools-denied"}
)
"""Codes of lint about facts that a launch knows better: it has chosen the agent, and knows the tools that are there."""
_NOTES: dict[tuple[str, str], list[str]] = {}
_MAX_CACHED_NOTES = 512


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
    if key not in _NOTES:
        if len(_NOTES) >= _MAX_CACHED_NOTES:
            _NOTES.clear()
        problems = _lint_file(spec)
        if problems is None:
            problems = [problem for problem in spec.problems if problem.severity != "info"]
        _NOTES[key] = [_note(spec.path, problem, problem.message) for problem in problems[:MAX_NOTES]]
        if len(problems) > MAX_NOTES:
            text = f"{len(problems) - MAX_NOTES} more problems. See: retinue agents lint {spec.path}"
            _NOTES[key].append(f"{spec.path}: {text}")
    notes = list(_NOTES[key])
    if catalog is not None:
        notes += _displaced_notes(spec, catalog)
    return notes


def is_file_note(spec: AgentSpec, note: str) -> bool:
    """Return whether a note of a launch is one of `file_notes` about the agent's own file."""
    return spec.path is not None and note.startswith(f"{spec.path}:")


def _note(path: str, problem: Problem, text: str) -> str:
    return f"{place_of(path, problem)}: {text} {problem.remedy}".rstrip()


def _lint_file(spec: AgentSpec) -> list[Problem] | None:
    """Return the problems that lint reports; None where the file is gone or has changed since it was read."""
    from retinue.agents.lint.checks import lint_subject
    from retinue.agents.lint.subject import LintSubject
    from retinue.agents.scan import read_bytes

    path = spec.path or ""
    data = read_bytes(path)
    if isinstance(data, Problem):
        return None
    parsed = parse(data, path=path, dialect=spec.dialect, source=spec.source)
    if parsed.spec is None or parsed.spec.hash != spec.hash:
        return None
    problems = []
    for result in sorted(lint_subject(LintSubject(parsed, data)), key=lambda result: result.finding.order):
        finding = result.finding
        # The launch reports an unknown name of an allow list with the tools of the run; it does not look at the deny
        # list.
        is_unknown = finding.code == "unknown-tool" and result.field == "tools.allow"
        if finding.severity != "info" and finding.code not in _FOUND_BY_LAUNCH and not is_unknown:
            problems.append(
                Problem(finding.code, finding.severity, finding.reason, finding.remedy, finding.key, finding.line)
            )
    return problems


def _displaced_notes(spec: AgentSpec, catalog: Catalog) -> list[str]:
    """Return notes on stronger files of the same name that are not loaded, because they could not be read."""
    notes = [
        _note(failed.path, failed.problem, failed.reason) for failed in catalog.failed if failed.instead == spec.path
    ]
    for entry in catalog.entries:
        if entry.name == spec.name and entry.recovered_under == spec.path:
            text = f"its frontmatter is not valid YAML, so '{spec.name}' is loaded from {spec.path} instead."
            notes.append(f"{entry.path}: {text} Correct the frontmatter: retinue agents lint {entry.path}")
    return notes


def startable_types(spec: AgentSpec) -> tuple[str, ...] | None:
    """Return the agents that a file names as those it may start, or None when it names none."""
    in_tools = _types_in_tools(spec)
    if not isinstance(spec.subagents, tuple):
        return in_tools
    if in_tools is None:
        return spec.subagents
    # A file that names agents in both places means those that stand in both.
    folded = set(map(str.casefold, in_tools))
    return tuple(name for name in spec.subagents if name.casefold() in folded)


def unknown_types(spec: AgentSpec, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each agent that the file may start and that is not among `names`, with the sentence about it."""
    folded = set(map(str.casefold, names))
    for name in startable_types(spec) or ():
        if name.casefold() in folded:
            continue
        near = nearest(name, names)
        remedy = f"Did you mean '{near}'?" if near else "Correct the name: `retinue agents list` shows all."
        yield name, f"It may start '{name}', but there is no such agent. {remedy}"


def _types_in_tools(spec: AgentSpec) -> tuple[str, ...] | None:
    """Return the agents that stand in parentheses behind a tool which starts agents, such as `Agent(a, b)`."""
    types: list[str] = []
    names_types = False
    for name, pattern in map(split_entry, spec.tools.allow or ()):
        if pattern and STARTING.intersection(canonical(name)):
            names_types = True
            types += filter(None, map(str.strip, pattern.split(",")))
    return tuple(types) if names_types else None
