"""Lint over files, folders, or everything that is visible from a folder.

Some checks need several files: names that are taken, replaced, or nearly the same.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.catalog import Catalog, LoadedAgent
from retinue.agents.edit import write_atomically
from retinue.agents.folders import PluginFolder, by_place
from retinue.agents.lint.checks import lint_subject
from retinue.agents.lint.fix import judge_finding, repair_file
from retinue.agents.lint.subject import CODES, AppliedRepair, CheckResult, Finding, LintSubject
from retinue.agents.parse import is_skill, parse, parse_skill, read_bytes, unusable
from retinue.agents.precedence import is_profile
from retinue.core.files import read_head
from retinue.core.spec import Problem, Severity
from retinue.errors import UsageError

_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"})
_MARKDOWN = (".md", ".markdown")
_YAML = (".yaml", ".yml")


class LintReport(Struct, frozen=True):
    """`findings` by file and line; `changes` what --fix did; `files` how many were looked at."""

    findings: tuple[Finding, ...]
    changes: tuple[AppliedRepair, ...]
    files: int

    def worst(self, *, strict: bool = False) -> bool:
        """Return whether something fails: an error, or with `strict` a warning."""
        return any(each.severity == "error" or (strict and each.severity == "warning") for each in self.findings)


def _nothing(_: LintSubject) -> Iterable[CheckResult]:
    return ()


def lint_paths(
    paths: Iterable[Path | str], *, fix: bool = False, check: Callable[[LintSubject], Iterable[CheckResult]] = _nothing
) -> LintReport:
    """Files as they are named; folders with everything below that looks like an agent. Findings
    name files as they were given. `check` is one more check, of what only the caller can know.
    Raise UsageError for a path that does not exist."""
    given = {os.path.abspath(path): str(path) for path in _expand_paths(paths)}  # noqa: PTH100 (links are not resolved)
    subjects = [_subject(path) for path in given]
    done = _report(subjects, given if fix else (), check_names, check)
    findings = tuple(replace(each, file=given.get(each.file, each.file)) for each in done.findings)
    changes = tuple(replace(each, file=given.get(each.file, each.file)) for each in done.changes)
    return LintReport(findings, changes, done.files)


def lint_catalog(
    cwd: Path,
    *,
    fix: bool = False,
    plugins: Iterable[PluginFolder] = (),
    check: Callable[[LintSubject], Iterable[CheckResult]] = _nothing,
) -> LintReport:
    """Lint every agent file visible from `cwd`, but for those of the package and of an administrator,
    which are not the user's to change; and which file replaces which. `plugins` are those whose
    agents are. `fix` changes files of the project only: those of the user serve other projects."""
    catalog = Catalog.load(cwd, plugin_folders=plugins)
    files: dict[str, LintSubject] = {}
    project: set[str] = set()
    for entry in catalog.entries:
        if entry.source in ("project", "user", "plugin"):
            files[entry.path] = LintSubject(entry.parsed, _data(entry.path))
        if fix and entry.source == "project":
            project.add(entry.path)
    for failed in catalog.failed:
        files[failed.path] = LintSubject(failed.parsed, _data(failed.path))
    # Loaded once more for the checks: repairs may have changed which file replaces which.
    again = partial(Catalog.load, cwd, plugin_folders=plugins)
    return _report(list(files.values()), project, lambda _: check_catalog(again()), check)


def _report(
    subjects: list[LintSubject],
    fixable: Collection[str],
    together: Callable[[list[LintSubject]], Iterable[Finding]],
    check: Callable[[LintSubject], Iterable[CheckResult]],
) -> LintReport:
    changes: list[AppliedRepair] = []
    findings: dict[Finding, None] = {}
    checked: list[LintSubject] = []
    for subject in subjects:
        if subject.parsed.file in fixable:
            after, made = repair_file(subject, lint_subject)
            trouble = ""
            if made:
                trouble = _write(subject, after)
            if trouble:
                findings[subject.report("not-writable", trouble).finding] = None
            else:
                subject = after
                changes += made
        checked.append(subject)
        findings.update(dict.fromkeys(judge_finding(subject, found) for found in lint_subject(subject)))
        findings.update(dict.fromkeys(found.finding for found in check(subject)))
    findings.update(dict.fromkeys(together(checked)))
    return LintReport(tuple(sorted(findings, key=lambda each: each.order)), tuple(changes), len(checked))


def _write(before: LintSubject, after: LintSubject) -> str:
    """Put the repaired file in place; return the reason if that is not possible."""
    path = Path(before.parsed.file)
    # Read again right before writing, so that an editor's change in between is not lost.
    if after.data is None or _data(str(path)) != before.data:
        return "The file changed while it was being repaired."
    try:
        write_atomically(path, after.data)
    except OSError as error:
        return f"The repaired file cannot be written: {error.strerror or error}."
    return ""


def _subject(path: str) -> LintSubject:
    # Read by its whole path, because where a file lies says which dialect it is.
    data = read_bytes(path)
    if isinstance(data, Problem):
        return LintSubject(unusable(path, data), None)
    read = parse_skill if is_skill(path) else parse
    return LintSubject(read(data, path=path), data)


def _data(path: str) -> bytes | None:
    data = read_bytes(path)
    if isinstance(data, Problem):
        return None
    return data


def _expand_paths(paths: Iterable[Path | str]) -> list[Path]:
    found: dict[str, Path] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            for each in _below(path):
                found.setdefault(os.path.realpath(each), each)
        elif path.exists() or path.is_symlink():
            found.setdefault(os.path.realpath(path), path)
        else:
            raise UsageError(f"{path} does not exist.", remedy="Name a file or a folder of agents.")
    return list(found.values())


def _below(folder: Path) -> Iterator[Path]:
    """Yield the agent files below a folder: in places where agents live every Markdown file, elsewhere those that
    begin with frontmatter."""
    # Links to folders are not followed: they may lead back.
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in sorted(files):
            path = Path(base) / name
            if _looks_like_agent(path):
                yield path


def _looks_like_agent(path: Path) -> bool:
    name = path.name.lower()
    if is_skill(str(path)):
        return False
    at_home = by_place(str(path.absolute())) is not None or {"agents", "agent"} & set(path.parts[:-1])
    if name.endswith(_MARKDOWN):
        return bool(at_home) or _starts_with(path, (b"---", b"\xef\xbb\xbf---"))
    if name.endswith(".test.yaml"):
        # The tests of an agent, which may begin with its name.
        return False
    return name.endswith(_YAML) and _starts_with(path, (b"agent:", b"version:")) and _has_agent(path)


def _starts_with(path: Path, beginnings: tuple[bytes, ...]) -> bool:
    # A file that cannot be opened is looked at all the same, so that lint reports why.
    try:
        return read_head(path, 16).startswith(beginnings)
    except OSError:
        return True


def _has_agent(path: Path) -> bool:
    data = _data(str(path)) or b""
    return data.startswith(b"agent:") or b"\nagent:" in data


_FOLDERS = ("agents", "agent")


def check_catalog(catalog: Catalog) -> Iterator[Finding]:
    """Yield findings on which file replaces which, by precedence."""
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
    startable = {name.casefold() for name in catalog.names}
    for entry in catalog.winners:
        if entry.source == "builtin":
            continue
        for other in catalog.winners:
            # CodingCode's profiles also have a name of their own.
            if is_profile(other) or other.name == entry.name or other.name.casefold() != entry.name.casefold():
                continue
            reason = f"'{entry.name}' and '{other.name}' ({other.path}) differ only in capital letters."
            yield _finding("case-clash", entry, reason)
        yield from _observers(entry, startable)


def _observers(entry: LoadedAgent, startable: Collection[str]) -> Iterator[Finding]:
    for name in entry.spec.observer:
        if name.casefold() not in startable:
            reason = f"'{name}' does not watch it: there is no such agent."
            yield _finding("unknown-observer", entry, reason, key="observer")


def check_names(subjects: Iterable[LintSubject]) -> Iterator[Finding]:
    """The same for files that were named one by one: within one folder of agents a name counts
    once."""
    folders: dict[tuple[str, str], list[tuple[str, LintSubject]]] = defaultdict(list)
    for subject in subjects:
        spec = subject.parsed.spec
        if spec is not None and subject.table.nested_under is None:
            folders[_home(subject.parsed.file), spec.name.casefold()].append((spec.name, subject))
    for same in folders.values():
        for at, (name, subject) in enumerate(same):
            if len(same) > 1:
                theirs, other = same[0 if at else 1]
                yield _name_clash(subject, name, other, theirs)


def _name_clash(subject: LintSubject, name: str, other: LintSubject, theirs: str) -> Finding:
    code = "duplicate-name"
    reason = f"'{name}' is also the name of {other.parsed.file}."
    if theirs != name:
        code = "case-clash"
        reason = f"'{name}' and '{theirs}' ({other.parsed.file}) differ only in capital letters."
    key = next(iter(subject.keys_for("name")), None)
    return subject.report(code, reason, key=key).finding


def _finding(
    code: str, entry: LoadedAgent, reason: str, severity: Severity | None = None, key: str = "name"
) -> Finding:
    known = CODES[code]
    place = entry.parsed.places.get(key)
    return Finding(
        file=entry.path,
        code=code,
        severity=severity or known.severity,
        reason=reason,
        remedy=known.remedy,
        key=key if place else None,
        line=place.line if place else 1,
        column=place.column if place else 1,
    )


def _home(path: str) -> str:
    """Return the folder that is read as one: the nearest one called agents, else the file's own."""
    pure = PurePath(path)
    for folder in pure.parents:
        if folder.name in _FOLDERS:
            return str(folder)
    return str(pure.parent)
