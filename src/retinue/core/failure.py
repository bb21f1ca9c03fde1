"""Failure as data: what went wrong with a model request or a run, and what to do about it."""

from __future__ import annotations

from typing import Literal

from retinue.core.lean import dataclass

FailureKind = Literal[
    "authentication",  # key missing, wrong or without rights
    "quota",  # no credit left, or a spend limit reached: no retry helps
    "rate_limit",  # 429; retry_after may be known
    "overloaded",  # 529 / 503: the provider is busy
    "server",  # other 5xx
    "context_overflow",  # the conversation does not fit the model's window
    "invalid_request",  # the provider rejected what we sent
    "not_found",  # no such model or route
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


@dataclass(frozen=True, slots=True)
class Failure:
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
