"""How a run ended: the outcome, the failure behind it, and the evidence of what it did.

An outcome never claims more than happened: text without success is labelled as partial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec import Struct

from retinue.core.usage import NOTHING, LimitName, Usage
from retinue.core.value import Tagged

# A type variable with a default (PEP 696) exists from Python 3.13 on. Type checkers know it under this name, and the
# program need not import a module for it.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Value = TypeVar("Value", default=Any)
else:
    from typing import TypeVar

    Value = TypeVar("Value")

FailureKind = Literal[
    "authentication",  # key missing, wrong or without rights
    "quota",  # no credit left, or a spend limit reached: no retry helps
    "rate_limit",  # 429; retry_after may be known
    "overloaded",  # 529 / 503: the provider is busy
    "server",  # other 5xx
    "context_overflow",  # the conversation does not fit the model's window
    "invalid_request",  # the provider rejected what we sent
    "not_found",  # no such model or route
    "no-model",  # no language model is set up, and the search planner cannot do this
    "refused",  # the model or a safety system declined
    "dropped",  # connection refused, reset, or a stream that ended early
    "timeout",  # no answer in time
    "malformed",  # an answer that cannot be understood
    "length",  # the output limit was hit before any text
    "limit",  # one of the run's own limits fired
    "budget",  # the run's own budget is spent
    "stopped",  # a person or parent stopped it
    "interrupted",  # the process died while the run was going
    "validation",  # the structured output never matched its schema
    "internal",  # a defect of ours; the message names the place
]

TRANSIENT: frozenset[FailureKind] = frozenset({"rate_limit", "overloaded", "server", "dropped", "timeout", "malformed"})


class Failure(Struct, frozen=True):
    """`message` is for people and models alike; it never contains a secret."""

    kind: FailureKind
    message: str
    remedy: str = ""
    status: int | None = None
    retry_after: float | None = None
    again: bool | None = None
    """What the server says of trying again (`x-should-retry`); None: the kind decides."""

    @property
    def transient(self) -> bool:
        return self.kind in TRANSIENT if self.again is None else self.again


Ended = Literal["completed", "steered", "aborted", "stopped", "timeout", "over-budget", "refused", "error"]
StoppedBy = Literal["person", "agent", "program"]

CUT_OFF = "cut off at the output limit"
"""How every front end says that an answer is truncated."""

RECORD = "Record: "
"""How the note begins that says what the run did."""

SUCCESS: frozenset[Ended] = frozenset({"completed", "steered"})


class Evidence(Struct, frozen=True):
    """What the run really touched, counted from effects and not from its words."""

    files_read: tuple[str, ...] = ()
    files_written: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    denials: tuple[str, ...] = ()
    unknown_effects: tuple[str, ...] = ()


class Outcome(Tagged, Generic[Value], frozen=True, tag="outcome"):
    """`text` is the answer, or with `partial` what had been said before the run failed.
    `value` is the validated structured output when a schema was asked for: of the type that was given as the schema,
    otherwise as JSON has it; None where the run failed."""

    ended: Ended
    text: str = ""
    partial: bool = False
    truncated: bool = False
    """The answer was cut off at the model's output limit, also after it was asked to go on: the
    end is missing."""
    value: Value | None = None
    failure: Failure | None = None
    limit: LimitName | None = None
    usage: Usage = NOTHING
    tree_usage: Usage | None = None
    """What the run and all its descendants used; None when it had none."""
    turns: int = 0
    tool_uses: int = 0
    compactions: int = 0
    duration_ms: int = 0
    model: str = ""
    branch: str | None = None
    evidence: Evidence = Evidence()
    notes: tuple[str, ...] = ()
    stopped_by: StoppedBy | None = None
    """Who stopped it. No agent may resume a run that a person stopped."""

    @property
    def ok(self) -> bool:
        return self.ended in SUCCESS

    @property
    def shortfall(self) -> str:
        """What a run that ended well lacks all the same; empty where it lacks nothing."""
        touched = self.evidence
        if not self.ok:
            return ""
        if self.truncated:
            return CUT_OFF
        if not self.text.strip() and self.value is None:
            return "without an answer"
        if touched.denials and not (touched.files_read or touched.files_written or touched.commands or touched.hosts):
            return "with every call denied"
        return ""

    @property
    def exit_code(self) -> int:
        if self.ok:
            # An answer without its end is no failure of the run, but a script must not take it for a whole one.
            return 1 if self.truncated else 0
        return {"timeout": 124, "stopped": 130, "refused": 2}.get(self.ended, 1)
