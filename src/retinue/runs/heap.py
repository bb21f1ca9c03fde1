"""Fewer passes of the garbage collector while there is little garbage.

Imported modules stay in memory, and conversations are plain data without cycles. Python's collector nevertheless
traverses all of them again and again, which takes a tenth of the processor time of a thousand runs. The command line
makes passes rarer from its start. While many runs of a process are live, a pass begins when as many new objects exist
as that many runs may have, so that garbage never exceeds the objects in use. Afterwards the thresholds are restored.
Thresholds that a program has set itself are not changed.
"""

from __future__ import annotations

import gc

MIN_RUNS = 32
"""The number of live runs from which passes become rarer."""
_DEFAULT_THRESHOLDS = (700, 10, 10)
_COMMAND_THRESHOLDS = (100_000, 10, 10)
"""Thresholds that a short command does not reach: it has 65,000 objects, and a pass takes a twelfth of its time."""
_OBJECTS_PER_RUN = 1_000
"""The number of collected objects that a run may have; a short run has a third."""


def raise_thresholds() -> None:
    """Make passes rarer in a process of our own, which imports modules in its first second."""
    gc.set_threshold(*_COMMAND_THRESHOLDS)


def skip_final_pass() -> None:
    """Skip the pass that Python makes at the end of a process, which is a twentieth of the work of a short command."""
    gc.freeze()


class CollectorThresholds:
    """Adapts the thresholds of the collector to the number of live runs of one supervisor."""

    def __init__(self) -> None:
        self._original: tuple[int, int, int] | None = None
        self._set: tuple[int, int, int] | None = None

    def adapt(self, live_runs: int) -> None:
        if live_runs == 0:
            self._restore()
        elif live_runs >= MIN_RUNS and (self._set is None or live_runs * _OBJECTS_PER_RUN > self._set[0]):
            self._raise(2 * live_runs * _OBJECTS_PER_RUN)

    def _raise(self, objects: int) -> None:
        present = gc.get_threshold()
        if self._original is None and present in (_DEFAULT_THRESHOLDS, _COMMAND_THRESHOLDS):
            self._original = present
        elif present != self._set:
            return
        self._set = (max(objects, _COMMAND_THRESHOLDS[0]), 20, 20)
        gc.set_threshold(*self._set)

    def _restore(self) -> None:
        if self._original is not None and gc.get_threshold() == self._set:
            gc.set_threshold(*self._original)
        self._original = self._set = None
