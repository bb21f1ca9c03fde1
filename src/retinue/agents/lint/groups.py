"""Checks on several files at once: names that are taken, replaced, or nearly the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from retinue.agents.catalog import Catalog, Entry
from retinue.agents.lint.codes import CODES
from retinue.agents.lint.finding import Finding
from retinue.agents.lint.subject import Subject
from retinue.agents.precedence import is_profile
from retinue.core.spec import Severity

_FOLDERS = ("agents", "agent")


def check_catalog(catalog: Catalog) -> Iterator[Finding]:
    """Which file replaces which, as precedence has it."""
    entries = {entry.path: entry for entry in catalog.entries}
    for entry in catalog.entries:
        winner = entries.get(entry.shadowed_by or "")
        if winner is None:
            continue
        if entry.source == "builtin":
            reason = f"This replaces the built-in agent '{entry.name}' completely."
            yield _finding("replaces-builtin", winner, reason)
        elif entry.duplicate_of is not None:
            reason = f"Another file of this folder is also called '{entry.name}': {winner.path}. That one counts."
            yield _finding("duplicate-name", entry, reason)
        else:
            reason = f"'{entry.name}' is loaded from {winner.path} instead of this file."
            severity: Severity = "warning" if entry.source == winner.source else "info"
            yield _finding("shadowed", entry, reason, severity)
    for failed in catalog.failed:
        if failed.instead is not None:
            code = CODES["weaker-file-loads"]
            reason = f"This file is broken, so its agent is loaded from {failed.instead}."
            yield Finding(
                file=failed.path,
                code="weaker-file-loads",
                severity=code.severity,
                reason=reason,
                remedy=code.remedy,
                line=failed.line,
            )
    others = [entry for entry in catalog.winners if not is_profile(entry)]  # those have a name of their own, too
    yield from _case_clashes([entry for entry in catalog.winners if entry.source != "builtin"], others)


def check_names(subjects: Iterable[Subject]) -> Iterator[Finding]:
    """The same for files that were named one by one: within one folder of agents a name counts
    once."""
    folders: dict[str, list[Subject]] = defaultdict(list)
    for subject in subjects:
        if subject.parsed.spec is not None and subject.table.nested_under is None:
            folders[_home(subject.parsed.file)].append(subject)
    for members in folders.values():
        names: dict[str, list[Subject]] = defaultdict(list)
        for member in members:
            if member.parsed.spec is not None:
                names[member.parsed.spec.name.casefold()].append(member)
        for same in names.values():
            for member in same:
                yield from _against(member, [other for other in same if other is not member])


def _against(subject: Subject, others: Sequence[Subject]) -> Iterator[Finding]:
    name = subject.parsed.spec.name if subject.parsed.spec is not None else ""
    for other in others[:1]:
        theirs = other.parsed.spec.name if other.parsed.spec is not None else ""
        code = "duplicate-name" if theirs == name else "case-clash"
        reason = f"'{name}' is also the name of {other.parsed.file}."
        if code == "case-clash":
            reason = f"'{name}' and '{theirs}' ({other.parsed.file}) differ only in capital letters."
        key = next(iter(subject.keys_for("name")), None)
        yield subject.found(code, reason, key=key).finding


def _case_clashes(entries: Sequence[Entry], winners: Sequence[Entry]) -> Iterator[Finding]:
    for entry in entries:
        for other in winners:
            if other.name != entry.name and other.name.casefold() == entry.name.casefold():
                reason = f"'{entry.name}' and '{other.name}' ({other.path}) differ only in capital letters."
                yield _finding("case-clash", entry, reason)


def _finding(code: str, entry: Entry, reason: str, severity: Severity | None = None) -> Finding:
    known = CODES[code]
    place = entry.parsed.places.get("name")
    return Finding(
        file=entry.path,
        code=code,
        severity=severity or known.severity,
        reason=reason,
        remedy=known.remedy,
        key="name" if place else None,
        line=place.line if place else 1,
        column=place.column if place else 1,
    )


def _home(path: str) -> str:
    """The folder that is read as one: the nearest one called agents, else the file's own."""
    pure = PurePath(path)
    for folder in pure.parents:
        if folder.name in _FOLDERS:
            return str(folder)
    return str(pure.parent)
