"""One file under lint: what was read from it, where things stand in it, and what is found there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property

from msgspec import Struct

from retinue.agents.convert import reread
from retinue.agents.dialects import DIALECTS, Dialect
from retinue.agents.edit import FileLines, bare
from retinue.agents.frontmatter import Parsed
from retinue.agents.lint.codes import CODES
from retinue.agents.parse import SKILL, is_skill, parse_skill
from retinue.core.spec import Severity

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


class Repair(Struct, frozen=True):
    """A change to one file. `what` is what the user reads when it is made; `fields` are the
    fields of the spec that may come out different, and no other may."""

    what: str
    apply: Callable[[FileLines], FileLines]
    fields: frozenset[str] = frozenset()


class Finding(Struct, frozen=True, kw_only=True):
    """`line` and `column` are 1-based; None when the whole file or its folder is meant.
    `fixable` is a promise: the repair was tried and keeps the agent's rights."""

    file: str
    code: str
    severity: Severity
    reason: str
    remedy: str = ""
    key: str | None = None
    line: int | None = None
    column: int | None = None
    fixable: bool = False

    @property
    def order(self) -> tuple[str, int, int, int, str]:
        return (self.file, self.line or 0, self.column or 0, RANK[self.severity], self.code)


class CheckResult(Struct, frozen=True):
    """What a check yields: a finding, and a repair where one is known."""

    finding: Finding
    repair: Repair | None = None


class AppliedRepair(Struct, frozen=True, kw_only=True):
    """One repair that was made."""

    file: str
    code: str
    what: str
    line: int | None = None


@dataclasses.dataclass(frozen=True)
class LintSubject:
    """`data` is None for a path that could not be read."""

    parsed: Parsed
    data: bytes | None

    @cached_property
    def text(self) -> FileLines:
        return FileLines.read(self.data or b"")

    @cached_property
    def table(self) -> Dialect:
        if is_skill(self.parsed.file):
            return SKILL
        return DIALECTS[self.parsed.dialect]

    def read(self, data: bytes) -> LintSubject:
        """Return the same file with other content."""
        if is_skill(self.parsed.file):
            return LintSubject(parse_skill(data, path=self.parsed.file), data)
        return LintSubject(reread(self.parsed, data), data)

    def keys_for(self, field: str) -> tuple[str, ...]:
        """Return the keys of this file, as written, that speak about a field of the spec."""
        found = ((key, self.table.match(key)) for key in self.parsed.fates)
        return tuple(key for key, match in found if match is not None and match.field.to == field)

    def own_key(self, field: str | None) -> str | None:
        """Return how this dialect itself spells the key of a field; None if it has none."""
        return next((row.key for row in self.table.fields if row.to == field and field), None)

    def found(
        self,
        code: str,
        reason: str,
        remedy: str | None = None,
        *,
        key: str | None = None,
        word: str = "",
        line: int | None = None,
        column: int | None = None,
        severity: Severity | None = None,
        repair: Repair | None = None,
    ) -> CheckResult:
        """Return a finding at `key` (at `word` within its value, if that is there to see)."""
        if key is not None and line is None:
            line, column = self.place(key, word)
        known = CODES[code]
        finding = Finding(
            file=self.parsed.file,
            code=code,
            severity=severity or known.severity,
            reason=reason,
            remedy=known.remedy if remedy is None else remedy,
            key=key,
            line=line,
            column=column,
        )
        return CheckResult(finding, repair)

    def place(self, key: str, word: str = "") -> tuple[int | None, int | None]:
        """1-based line and column of a key, or of a word within its value."""
        place = self.parsed.places.get(key)
        if place is None:
            return None, None
        if word:
            for number in range(place.line, min(place.end_line, len(self.text.lines)) + 1):
                after = 0
                if number == place.line:
                    after = place.column + len(key)
                column = bare(self.text.lines[number - 1]).find(word, after)
                if column >= 0:
                    return number, column + 1
        return place.line, place.column
