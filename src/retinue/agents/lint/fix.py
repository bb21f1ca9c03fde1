"""Repairs of agent files, made one at a time, each tried before it is written.

A repair counts only if the file still reads as the same agent: no field may change but those the
repair names, no right may be added, no new problem may appear, and an agent that did not load must
not begin to. Therefore a second `--fix` changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from retinue.agents.convert import adds_rights, differences
from retinue.agents.edit import FileLines, bare
from retinue.agents.encode import entry, quote
from retinue.agents.frontmatter import Parsed, read, split
from retinue.agents.lint.subject import AppliedRepair, CheckResult, Finding, LintSubject, Repair
from retinue.agents.yaml_items import Item, YamlError, load_value


def quoting_repair(subject: LintSubject) -> Repair | None:
    """Quote the values that are not YAML by themselves and leave every other line alone."""
    parts = split(subject.data or b"")
    if parts.block is None:
        return None
    matter = read(parts.block, subject.table.knows, simple=subject.table.simple)
    broken = []
    for item in matter.items:
        if not _is_yaml(subject.text, item):
            broken.append(item)
    if not broken:
        return None
    keys = ", ".join(dict.fromkeys(f"'{item.key}'" for item in broken))

    def apply(text: FileLines) -> FileLines:
        for item in reversed(broken):
            first, last = item.line + 1, item.end_line + 1
            while last > first and not text.lines[last].strip():
                last -= 1
            text = text.replace_lines(first, last, _rewrite_item(text, item, first))
        return text

    return Repair(f"put the value of {keys} in quotes", apply)


def _is_yaml(text: FileLines, item: Item) -> bool:
    lines = "".join(bare(line) + "\n" for line in text.lines[item.line + 1 : item.end_line + 2])
    try:
        return bool(load_value(lines) == item.value)
    except YamlError:
        return False


def _rewrite_item(text: FileLines, item: Item, first: int) -> tuple[str, ...]:
    if not isinstance(item.value, str):
        return tuple(entry(item.key, item.value))
    head, colon, rest = bare(text.lines[first]).partition(":")
    space = rest[: len(rest) - len(rest.lstrip())] or " "
    return (f"{head}{colon}{space}{quote(item.value)}",)


Check = Callable[[LintSubject], Iterable[CheckResult]]
_MOST = 100
"""Repairs in one file. Each removes a problem, so this is only a guard against the absurd."""


def repair_file(
    subject: LintSubject, checks: Callable[[LintSubject], Iterable[CheckResult]]
) -> tuple[LintSubject, tuple[AppliedRepair, ...]]:
    """Return the file after every repair that is safe, and what was done."""
    changes: list[AppliedRepair] = []
    while len(changes) < _MOST:
        for found in checks(subject):
            new = attempt(subject, found.repair)
            if new is not None and found.repair is not None:
                place = found.finding
                changes.append(AppliedRepair(file=place.file, code=place.code, what=found.repair.what, line=place.line))
                subject = new
                break
        else:
            break
    return subject, tuple(changes)


def judge_finding(subject: LintSubject, found: CheckResult) -> Finding:
    """Return the finding, with the truth about whether it can be fixed."""
    if found.repair is None or attempt(subject, found.repair) is None:
        return found.finding
    return replace(found.finding, fixable=True)


def attempt(subject: LintSubject, repair: Repair | None) -> LintSubject | None:
    """Return the file with the repair made, or None if it must not be made."""
    if repair is None or subject.data is None:
        return None
    new: FileLines = repair.apply(subject.text)
    data = new.encode()
    if data == subject.data:
        return None
    after = subject.read(data)
    if _safe(subject.parsed, after.parsed, repair):
        return after
    return None


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
