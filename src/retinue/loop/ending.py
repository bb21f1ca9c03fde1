"""Why a run ends. Made where the reason is known, turned into an outcome in one place."""

from __future__ import annotations

from typing import Any

from retinue.core.failure import Failure
from retinue.core.lean import dataclass
from retinue.core.limits import LimitName
from retinue.core.outcome import Ended


@dataclass(frozen=True, slots=True)
class Ending:
    """`text` replaces the answer found in the conversation (structured output has its own)."""

    ended: Ended
    failure: Failure | None = None
    limit: LimitName | None = None
    value: Any = None
    text: str | None = None


def stopped(reason: str) -> Ending:
    return Ending("stopped", Failure("stopped", reason))


def out_of_time(seconds: float) -> Ending:
    message = f"The run exceeded maximum runtime after {seconds * 1000:.0f}ms."
    return Ending("timeout", Failure("limit", message, "Raise the time limit, or give it a smaller task."), "time")


def gone_quiet(seconds: float) -> Ending:
    message = f"The run timed out after {seconds * 1000:.0f}ms without activity."
    remedy = "The model sent nothing for that long: check the provider, or raise the idle limit."
    return Ending("timeout", Failure("limit", message, remedy), "idle")
