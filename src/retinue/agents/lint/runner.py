"""Lint over files, folders, or everything that is visible from a folder, and the repairs of `--fix`.

Some checks need several files: names that are taken, replaced, or nearly the same.

Repairs are made one at a time, each tried before it is written. A repair counts only if the file still reads as the
same agent: no field may change but those the repair names, no right may be added, no new problem may appear, and an
agent that did not load must not begin to. Therefore a second `--fix` changes nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from retinue.agents.catalog import Catalog, LoadedAgent, is_profile, unknown_types
from retinue.agents.convert import adds_rights, differences
from retinue.agents.edit import write_atomically
from retinue.agents.folders import PluginFolder, by_place
from retinue.agents.frontmatter import Parsed
from retinue.agents.lint.checks import lint_subject
from retinue.agents.lint.subject import AppliedRepair, CheckResult, Finding, LintSubject, Repair
from retinue.agents.parse import is_skill, parse, parse_skill, read_bytes, unusable
from retinue.core.files import read_head
from retinue.core.spec import Problem, Severity
from retinue.errors import UsageError

Check = Callable[[LintSubject], Iterable[CheckResult]]
"""A check of one file."""

_MAX_REPAIRS = 100
"""Repairs in one file. Each removes a problem, so this is only a guard against the absurd."""


def repair_file(subject: LintSubject, checks: Check) -> tuple[LintSubject, tuple[AppliedRepair, ...]]:
    """Return the file after every repair that is safe, and what was done."""
    changes: list[AppliedRepair] = []
    while len(changes) < _MAX_REPAIRS:
        for result in checks(subject):
            repaired = attempt(subject, result.repair)
            if repaired is not None and result.repair is not None:
                finding = result.finding
                what = result.repair.what
                changes.append(AppliedRepair(file=finding.file, code=finding.code, what=what, line=finding.line))
                subject = repaired
                break
        else:
            break
    return subject, tuple(changes)


def judge_finding(subject: LintSubject, result: CheckResult) -> Finding:
    """Return the finding, with the truth about whether it can be fixed."""
    if attempt(subject, result.repair) is None:
        return result.finding
    return replace(result.finding, fixable=True)


def attempt(subject: LintSubject, repair: Repair | None) -> LintSubject | None:
    """Return the file with the repair made, or None if it must not be made."""
    if repair is None or subject.data is None:
        return None
    data = repair.apply(subject.text).encode()
    if data == subject.data:
        return None
    after = subject.read(data)
    return after if _safe(subject.parsed, after.parsed, repair) else None


def _safe(before: Parsed, after: Parsed, repair: Repair) -> bool:
    # A repair may turn a recovered reading into YAML, and no reading into another recovery.
    if _problems(after) - _problems(before) or (after.reading != before.reading and after.reading != "yaml"):
        return False
    if before.spec is None or after.spec is None:
        return before.spec is None and after.spec is None
    if adds_rights(before.spec, after.spec):
        return False
    return set(differences(before.spec, after.spec)) <= repair.fields


def _problems(parsed: Parsed) -> set[tuple[str, str | None]]:
    return {(problem.code, problem.key) for problem in parsed.problems}


_SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"}
)
_MARKDOWN = (".md", ".markdown")
_YAML = (".yaml", ".yml")


class LintReport(Struct, frozen=True):
    """`findings` by file and line; `changes` what --fix did; `files` how many were looked at."""

    findings: tuple[Finding, ...]
    changes: tuple[AppliedRepair, ...]
    files: int


def _nothing(_: LintSubject) -> Iterable[CheckResult]:
    return ()


def lint_paths(paths: Iterable[Path | str], *, fix: bool = False, check: Check = _nothing) -> LintReport:
    """Files as they are named; folders with everything below that looks like an agent. Findings
    name files as they were given. `check` is one more check, of what only the caller can know.
    Raise UsageError for a path that does not exist."""
    names = {os.path.abspath(path): str(path) for path in _expand_paths(paths)}  # noqa: PTH100 (links are not resolved)
    report = _report([_subject(path) for path in names], names if fix else (), check_names, check)
    findings = tuple(replace(finding, file=names.get(finding.file, finding.file)) for finding in report.findings)
    changes = tuple(replace(change, file=names.get(change.file, change.file)) for change in report.changes)
    return LintReport(findings, changes, report.files)


def lint_catalog(
    cwd: Path,
    *,
    fix: bool = False,
    plugins: Iterable[PluginFolder] = (),
    check: Check = _nothing,
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
    check: Check,
) -> LintReport:
    changes: list[AppliedRepair] = []
    findings: dict[Finding, None] = {}
    checked: list[LintSubject] = []
    for subject in subjects:
        if subject.parsed.file in fixable:
            after, repairs = repair_file(subject, lint_subject)
            trouble = _write(subject, after) if repairs else ""
            if trouble:
                findings[subject.report("not-writable", trouble).finding] = None
            else:
                subject = after
                changes += repairs
        checked.append(subject)
        findings |= dict.fromkeys(judge_finding(subject, result) for result in lint_subject(subject))
        findings |= dict.fromkeys(result.finding for result in check(subject))
    findings |= dict.fromkeys(together(checked))
    return LintReport(tuple(sorted(findings, key=lambda finding: finding.order)), tuple(changes), len(checked))


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
    # Read by its whole path, because the folder decides the dialect.
    data = read_bytes(path)
    if isinstance(data, Problem):
        return LintSubject(unusable(path, data), None)
    read = parse_skill if is_skill(path) else parse
    return LintSubject(read(data, path=path), data)


def _data(path: str) -> bytes | None:
    data = read_bytes(path)
    return None if isinstance(data, Problem) else data


def _expand_paths(paths: Iterable[Path | str]) -> list[Path]:
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        if not (path.exists() or path.is_symlink()):
            raise UsageError(f"{path} does not exist.", remedy="Name a file or a folder of agents.")
        for file in _below(path) if path.is_dir() else (path,):
            files.setdefault(os.path.realpath(file), file)
    return list(files.values())


def _below(folder: Path) -> Iterator[Path]:
    """Yield the agent files below a folder: in places where agents live every Markdown file, elsewhere those that
    begin with frontmatter."""
    # Links to folders are not followed: they may lead back.
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
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


_AGENT_FOLDER_NAMES = ("agents", "agent")


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
            reason = f"This file is broken, so its agent is loaded from {failed.instead}."
            yield LintSubject(failed.parsed, None).report("weaker-file-loads", reason, line=failed.line).finding
    for entry in catalog.winners:
        if entry.source == "builtin":
            continue
        for other in catalog.winners:
            # CodingCode's profiles also have a name of their own.
            if is_profile(other) or other.name == entry.name or other.name.casefold() != entry.name.casefold():
                continue
            reason = f"'{entry.name}' and '{other.name}' ({other.path}) differ only in capital letters."
            yield _finding("case-clash", entry, reason)
        for name, reason in unknown_types(entry.spec, catalog.names):
            yield _finding("unknown-subagent", entry, reason, key=_naming_key(entry, name))


def _naming_key(entry: LoadedAgent, agent: str) -> str:
    """Return the key of the file that names an agent which it may start."""
    own = entry.spec.subagents
    return "allowed_subagents" if isinstance(own, tuple) and agent in own else "tools"


def check_names(subjects: Iterable[LintSubject]) -> Iterator[Finding]:
    """Yield findings on names that several files of one folder of agents have, for files that were named one by one."""
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
    return subject.report(code, reason, field="name").finding


def _finding(
    code: str, entry: LoadedAgent, reason: str, severity: Severity | None = None, key: str | None = "name"
) -> Finding:
    subject, line = LintSubject(entry.parsed, None), None
    if key not in entry.parsed.places:
        key, line = None, 1
    return subject.report(code, reason, key=key, line=line, column=line, severity=severity).finding


def _home(path: str) -> str:
    """Return the folder that is read as one: the nearest one called agents, else the file's own."""
    folders = PurePath(path).parents
    return str(next((folder for folder in folders if folder.name in _AGENT_FOLDER_NAMES), folders[0]))
