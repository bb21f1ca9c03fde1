"""How a run ended: its outcome, its failure, and the evidence of its actions.

An outcome never claims more than happened: the text of a run without success is marked as partial.
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
    """Why a request or a run failed. `message` is for people and models, and never contains a secret."""

    kind: FailureKind
    message: str
    remedy: str = ""
    status: int | None = None
    retry_after: float | None = None
    again: bool | None = None
    """Whether the server allows a retry (`x-should-retry`); None: the kind decides."""

    @property
    def transient(self) -> bool:
        return self.kind in TRANSIENT if self.again is None else self.again


Ended = Literal["completed", "steered", "aborted", "stopped", "timeout", "over-budget", "refused", "error"]
StoppedBy = Literal["person", "agent", "program"]

CUT_OFF = "cut off at the output limit"
"""The text of all front ends for a truncated answer."""

RECORD = "Record: "
"""The beginning of the note about the actions of a run."""

SUCCESS: frozenset[Ended] = frozenset({"completed", "steered"})


class Evidence(Struct, frozen=True):
    """The actions of a run, from the effects of its calls and not from its answer."""

    files_read: tuple[str, ...] = ()
    files_written: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    denials: tuple[str, ...] = ()
    unknown_effects: tuple[str, ...] = ()


class Outcome(Tagged, Generic[Value], frozen=True, tag="outcome"):
    """The result of a run. `text` is the answer, or with `partial` the text before the failure. `value` is the
    validated output if a schema was given: of the type that was given as the schema, or else as JSON. It is None if the
    run failed."""

    ended: Ended
    text: str = ""
    partial: bool = False
    truncated: bool = False
    """The answer was cut off at the model's output limit, and continuing it did not complete it."""
    value: Value | None = None
    failure: Failure | None = None
    limit: LimitName | None = None
    usage: Usage = NOTHING
    tree_usage: Usage | None = None
    """The usage of the run with all its descendants; None if it had none."""
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
        """What is missing in the result of a successful run; empty if nothing is."""
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
            # A truncated answer is no failure of the run, but a script must not take it for a complete one.
            return 1 if self.truncated else 0
        return {"timeout": 124, "stopped": 130, "refused": 2}.get(self.ended, 1)
