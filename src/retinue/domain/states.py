"""The states of a run and every legal move between them: one table, property-tested."""

from __future__ import annotations

from typing import Literal

State = Literal["queued", "starting", "running", "waiting", "interrupted", "ended"]

MOVES: dict[State, frozenset[State]] = {
    "queued": frozenset({"starting", "ended", "interrupted"}),
    "starting": frozenset({"running", "ended", "interrupted"}),
    "running": frozenset({"waiting", "ended", "interrupted"}),
    "waiting": frozenset({"running", "ended", "interrupted"}),
    "interrupted": frozenset({"running", "ended"}),
    "ended": frozenset({"running"}),  # only a resume reopens an ended run
}

LIVE: frozenset[State] = frozenset({"queued", "starting", "running", "waiting"})


def can_move(old: State, new: State) -> bool:
    return new in MOVES[old]
