"""How a run ended. Never a lie: text without success is labelled as partial."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from retinue.core.failure import Failure
from retinue.core.lean import dataclass
from retinue.core.limits import LimitName
from retinue.core.usage import Usage

Ended = Literal["completed", "steered", "aborted", "stopped", "timeout", "over-budget", "error"]
StoppedBy = Literal["person", "agent", "program"]

CUT_OFF = "cut off at the output limit"
"""How every face says that an answer is truncated."""

SUCCESS: frozenset[Ended] = frozenset({"completed", "steered"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the run really touched, counted from effects and not from its words."""

    files_read: tuple[str, ...] = ()
    files_written: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    denials: tuple[str, ...] = ()
    unknown_effects: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    """What the answer claims and the record does not show, as sentences."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`text` is the answer, or with `partial` what had been said before the run failed.
    `value` is the validated structured output when a schema was asked for."""

    ended: Ended
    text: str = ""
    partial: bool = False
    truncated: bool = False
    """The answer was cut off at the model's output limit, also after it was asked to go on: the
    end is missing."""
    value: Any = None
    failure: Failure | None = None
    limit: LimitName | None = None
    usage: Usage = field(default_factory=Usage)
    tree_usage: Usage | None = None
    """What the run and all its descendants used; None when it had none."""
    turns: int = 0
    tool_uses: int = 0
    compactions: int = 0
    duration_ms: int = 0
    model: str = ""
    branch: str | None = None
    evidence: Evidence = field(default_factory=Evidence)
    notes: tuple[str, ...] = ()
    stopped_by: StoppedBy | None = None
    """Who stopped it: what a person stopped, no agent takes up again."""
    type: Literal["outcome"] = field(default="outcome", init=False)

    @property
    def ok(self) -> bool:
        return self.ended in SUCCESS

    @property
    def exit_code(self) -> int:
        if self.ok:
            return 0
        return {"timeout": 124, "stopped": 130}.get(self.ended, 1)
