"""Fewer looks of the garbage collector while there is no garbage.

What is imported stays, and conversations are plain data without cycles that die by themselves;
but Python's collector walks all of them again and again, which for a thousand runs is a tenth of
the processor time. The command line makes it look less often from its start. While many runs of a
process live it looks when as many objects have come as so many runs may well have, so what
garbage there is never outweighs what is in use; then its thresholds are again what they were.
Thresholds that a program has set itself are left alone.
"""

from __future__ import annotations

import gc

MANY = 32
_DEFAULT = (700, 10, 10)
_CALM = (100_000, 10, 10)
"""More than a short command makes: it has 65,000 objects, and to look at them once takes a twelfth of its time."""
_OF_A_RUN = 1_000
"""Objects that a run may have, of those the collector counts; a short one has a third."""


def calm() -> None:
    """For a process that is ours from its start, whose first second is spent importing."""
    gc.set_threshold(*_CALM)


def leave() -> None:
    """For a process of ours at its end: what is left goes with it. To look for garbage in that, as
    Python does when it ends, is a twentieth of the work of a short command."""
    gc.freeze()


class Heap:
    """Of one supervisor. `runs` says how many of its runs live now."""

    def __init__(self) -> None:
        self._found: tuple[int, int, int] | None = None
        self._set: tuple[int, int, int] | None = None

    def runs(self, count: int) -> None:
        if count == 0:
            self._restore()
        elif count >= MANY and (self._set is None or count * _OF_A_RUN > self._set[0]):
            self._raise(2 * count * _OF_A_RUN)

    def _raise(self, objects: int) -> None:
        now = gc.get_threshold()
        if self._found is None and now in (_DEFAULT, _CALM):
            self._found = now
        elif now != self._set:
            return
        self._set = (max(objects, _CALM[0]), 20, 20)
        gc.set_threshold(*self._set)

    def _restore(self) -> None:
        if self._found is not None and gc.get_threshold() == self._set:
            gc.set_threshold(*self._found)
        self._found = self._set = None
