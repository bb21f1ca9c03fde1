"""The limits of one run, and the names by which an outcome reports the one that fired."""

from __future__ import annotations

from typing import Literal

from retinue.core.lean import dataclass

LimitName = Literal["turns", "time", "idle", "tool_time", "tool_calls", "repeated_calls", "tokens", "cost", "spawns"]


@dataclass(frozen=True, slots=True)
class Limits:
    """None means unlimited everywhere; a 0 of a file or flag is turned into None at the border.

    `max_turns` asks once for a wrap-up; `grace_turns` later the run is aborted.
    `idle_seconds` counts from the last sign of life of model or tool.
    `repeated_calls` ends a run that makes the same failing call that many times in a row, or twice
    as often the same call with the same result.
    """

    max_turns: int | None = None
    grace_turns: int = 5
    seconds: float | None = None
    idle_seconds: float | None = 180.0
    tool_seconds: float | None = 600.0
    max_tool_calls: int | None = None
    repeated_calls: int | None = 5
    max_tokens: int | None = None
    max_cost_usd: float | None = None
