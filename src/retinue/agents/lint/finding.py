"""One thing lint has to say, and the repair that would settle it."""

from __future__ import annotations

from collections.abc import Callable

from retinue.agents.edit import FileLines
from retinue.core.lean import dataclass
from retinue.core.spec import Severity

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Repair:
    """A change to one file. `what` is what the user reads when it is made; `fields` are the
    fields of the spec that may come out different, and no other may."""

    what: str
    apply: Callable[[FileLines], FileLines]
    fields: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
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


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check yields: a finding, and a repair where one is known."""

    finding: Finding
    repair: Repair | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRepair:
    """One repair that was made."""

    file: str
    code: str
    what: str
    line: int | None = None
