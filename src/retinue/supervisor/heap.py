"""Fewer looks of the garbage collector while many runs live.

Conversations are plain data without cycles and die by themselves, but a thousand of them make
Python's collector walk all of them again and again: a tenth of the processor time. While many
runs of this process live it looks less often; then its thresholds are again what they were.
Thresholds that the program has set itself are left alone.
"""

from __future__ import annotations

import gc

MANY = 32
_DEFAULT = (700, 10, 10)
_PATIENT = (100_000, 20, 20)


class Heap:
    """Of one supervisor. `runs` says how many of its runs live now."""

    def __init__(self) -> None:
        self._found: tuple[int, int, int] | None = None

    def runs(self, count: int) -> None:
        if count >= MANY and self._found is None and gc.get_threshold() == _DEFAULT:
            self._found = _DEFAULT
            gc.set_threshold(*_PATIENT)
        elif count == 0 and self._found is not None:
            if gc.get_threshold() == _PATIENT:
                gc.set_threshold(*self._found)
            self._found = None
