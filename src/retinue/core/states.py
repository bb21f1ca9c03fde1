"""The states of a run and every legal move between them: one table.

    queued → starting → running ⇄ waiting → ended
    interrupted: what is found of a run whose process died; it leads to running or ended

The log does not write `starting` down: nothing happens in it that could be lost. Every test of
the supervisor checks all moves that it sees against this table (`tests/supervisor/crew_scene.py`).
"""

from __future__ import annotations

from typing import Literal

State = Literal["queued", "starting", "running", "waiting", "interrupted", "ended"]

MOVES: dict[State, frozenset[State]] = {
    "queued": frozenset({"starting", "running", "ended", "interrupted"}),
    "starting": frozenset({"running", "ended", "interrupted"}),
    "running": frozenset({"waiting", "ended", "interrupted"}),
    "waiting": frozenset({"running", "ended", "interrupted"}),
    "interrupted": frozenset({"queued", "starting", "running", "ended"}),
    "ended": frozenset({"queued", "starting", "running"}),  # only a resume reopens an ended run
}

LIVE: frozenset[State] = frozenset({"queued", "starting", "running", "waiting"})


def can_move(old: State, new: State) -> bool:
    return new in MOVES[old]
