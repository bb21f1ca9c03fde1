"""Fewer looks of the garbage collector while there is no garbage.

What is imported stays, and conversations are plain data without cycles that die by themselves;
but Python's collector walks all of them again and again, which for a thousand runs is a tenth of
the processor time. The command line makes it look less often from its start, and while many runs
of a process live it looks less often still; then its thresholds are again what they were.
Thresholds that a program has set itself are left alone.
"""

from __future__ import annotations

import gc

MANY = 32
_DEFAULT = (700, 10, 10)
_CALM = (50_000, 10, 10)
_PATIENT = (300_000, 20, 20)


def calm() -> None:
    """For a process that is ours from its start, whose first second is spent importing."""
    gc.set_threshold(*_CALM)


class Heap:
    """Of one supervisor. `runs` says how many of its runs live now."""

    def __init__(self) -> None:
        self._found: tuple[int, int, int] | None = None

    def runs(self, count: int) -> None:
        if count >= MANY and self._found is None and gc.get_threshold() in (_DEFAULT, _CALM):
            self._found = gc.get_threshold()
            gc.set_threshold(*_PATIENT)
        elif count == 0 and self._found is not None:
            if gc.get_threshold() == _PATIENT:
                gc.set_threshold(*self._found)
            self._found = None
