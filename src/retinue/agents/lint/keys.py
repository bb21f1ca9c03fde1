"""Checks on frontmatter keys: unknown, misspelt, repeated, or belonging to another dialect.

`distance` and `nearest` say how close two words are; they serve names of agents and tools as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from retinue.agents.convert import differences
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.edit import FileLines, rename
from retinue.agents.folders import by_place
from retinue.agents.lint.subject import CODES, CheckResult, Finding, LintSubject, Repair
from retinue.core.spec import Problem


def fold(word: str) -> str:
    """Case and separators do not count: `Max-Turns`, `max_turns` and `maxTurns` are one."""
    return "".join(char for char in word.casefold() if char.isalnum())


def distance(left: str, right: str, limit: int = 2) -> int:
    """Insertions, deletions, replacements and swaps of neighbours; `limit` + 1 means "more"."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `word` was probably meant to be; None when two are equally likely."""
    folded = fold(word)
    if not folded:
        return None
    # Short words are easily some other word: one slip up to five letters, none up to three.
    limit = 2
    if len(folded) <= 5:
        limit = 1
    if len(folded) <= 3:
        limit = 0
    least = limit
    best: dict[str, str] = {}
    for candidate in candidates:
        other = fold(candidate)
        steps = distance(folded, other, limit)
        if steps < least:
            least = steps
            best.clear()
        if steps == least:
            best.setdefault(other, candidate)
    if len(best) != 1:
        return None
    return best.popitem()[1]


_UNKNOWN = "unknown key"


def check_problems(subject: LintSubject) -> Iterator[CheckResult]:
    """Yield what the reader reports, with the repairs that are known for it."""
    for problem in subject.parsed.problems:
        found = _plain(subject, problem)
        if problem.code == "near-miss-key" and problem.key is not None:
            yield _near_miss(subject, problem.key, found)
        elif problem.code == "duplicate-key" and problem.key is not None:
            yield replace(found, repair=_keep_one(subject, problem.key))
        elif problem.code == "frontmatter-recovered":
            from retinue.agents.lint.fix import quoting_repair

            yield replace(found, repair=quoting_repair(subject))
        else:
            yield found


def check_unknown_keys(subject: LintSubject) -> Iterator[CheckResult]:
    reported = {problem.key for problem in subject.parsed.problems}
    for key, fate in subject.parsed.fates.items():
        if fate.fate == "ignored" and fate.why == _UNKNOWN and key not in reported:
            yield _elsewhere(subject, key) or _misspelt(subject, key) or _unknown(subject, key)


def check_unused_keys(subject: LintSubject) -> Iterator[CheckResult]:
    """Keys that the file's own program knows and nothing here uses."""
    for key in subject.parsed.fates:
        row = subject.table.exact.get(key)
        if row is None or row.field.to is not None:
            continue
        reason = f"'{key}' has no effect: {row.field.note}."
        remedy = f"Leave it for {subject.table.title}, and do not rely on it here."
        yield subject.report("unused-key", reason, remedy, key=key, severity="warning" if row.field.misses else "info")


def _misspelt(subject: LintSubject, key: str) -> CheckResult | None:
    # A key that some program has is no slip, even if nothing here uses it.
    if any(key in row.spellings for dialect in DIALECTS.values() for row in dialect.fields):
        return None
    meant = nearest(key, [row.key for row in subject.table.fields if row.to is not None])
    if meant is None:
        return None
    repair = None
    if meant not in subject.parsed.fates:
        repair = _rename_key(subject, key, meant)
    reason = f"There is no key '{key}'; it is ignored."
    return subject.report("near-miss-key", reason, f"Did you mean '{meant}'?", key=key, repair=repair)


def _unknown(subject: LintSubject, key: str) -> CheckResult:
    return subject.report("unknown-key", f"'{key}' is not a key that {subject.table.title} has.", key=key)


def _plain(subject: LintSubject, problem: Problem) -> CheckResult:
    known = CODES.get(problem.code)
    finding = Finding(
        file=subject.parsed.file,
        code=problem.code,
        severity=problem.severity,
        reason=problem.message,
        remedy=problem.remedy or (known.remedy if known is not None else ""),
        key=problem.key,
        line=problem.line,
        column=problem.column,
    )
    if problem.line is None and problem.key is not None:
        line, column = subject.place(problem.key)
        finding = replace(finding, line=line, column=column)
    return CheckResult(finding)


def _near_miss(subject: LintSubject, key: str, found: CheckResult) -> CheckResult:
    match = subject.table.match(key)
    field = None
    if match is not None:
        field = match.field.to
    own = subject.own_key(field)
    if own is None and match is not None and match.how == "foreign":
        reason = f"Retinue honours '{key}', but {subject.table.title} itself does not know it."
        return subject.report("honoured-elsewhere", reason, key=key, severity="info")
    meant = own or (match.field.key if match is not None else None)
    if meant is None or meant == key or meant in subject.parsed.fates:
        return found
    finding = replace(found.finding, remedy=f"Did you mean '{meant}'?")
    if subject.parsed.fates[key].fate != "ignored":
        reason = f"'{key}' is not a key of {subject.table.title}; it was read as '{meant}'."
        finding = replace(finding, reason=reason, remedy=f"Write '{meant}'.")
    return CheckResult(finding, _rename_key(subject, key, meant))


def _elsewhere(subject: LintSubject, key: str) -> CheckResult | None:
    """Find a key that some other dialect has for a field this one spells differently, or not at all."""
    for dialect in sorted(DIALECTS.values(), key=lambda each: each.name in ("retinue", "generic")):
        row = next((row for row in dialect.fields if key in row.spellings and row.to is not None), None)
        if row is None or row.to == "prompt":
            continue
        own = subject.own_key(row.to)
        reason = f"'{key}' is a key of {dialect.title}; here it has no effect."
        if own is None:
            remedy = "Remove it, or convert the file: retinue agents convert --to retinue"
            return subject.report("foreign-key", reason, remedy, key=key, severity="info")
        if own in subject.parsed.fates:
            return subject.report("foreign-key", reason, f"'{own}' says it here.", key=key, severity="info")
        if by_place(subject.parsed.file) is None:
            remedy = f"Write '{own}', or move the file where {dialect.title} keeps its agents."
            return subject.report("foreign-key", reason, remedy, key=key, severity="info")
        repair = _rename_key(subject, key, own)
        return subject.report("foreign-key", reason, f"Write '{own}'.", key=key, repair=repair)
    return None


def _rename_key(subject: LintSubject, key: str, meant: str) -> Repair:
    match = subject.table.match(meant)
    field = None
    if match is not None:
        field = match.field.to

    def apply(text: FileLines) -> FileLines:
        entries = text.find(key)
        if len(entries) == 1:
            return rename(text, entries[0], meant)
        return text

    return Repair(f"renamed '{key}' to '{meant}'", apply, frozenset({field, "extra"} if field else ()))


def _keep_one(subject: LintSubject, key: str) -> Repair:
    """Return the repair that drops all but one of the places of a key."""
    # Only the reader knows which of them counts, so the one to keep is found by trying.

    def apply(text: FileLines) -> FileLines:
        entries = text.find(key)
        for kept in reversed(entries):
            new = text
            for entry in reversed(entries):
                if entry != kept:
                    new = new.remove(entry.first, entry.last)
            after = subject.read(new.encode()).parsed.spec
            if after is not None and subject.parsed.spec is not None and not differences(subject.parsed.spec, after):
                return new
        return text

    return Repair(f"removed the '{key}' that has no effect", apply)
