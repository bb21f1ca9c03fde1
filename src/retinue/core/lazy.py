"""Modules that are imported when they are first used. It imports nothing heavy, because every command loads it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module that not every run needs: the first use of one of its names imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        # Asking `import_module` each time costs 1 µs, a dozen times for each run.
        module = sys.modules.get(self._name) or import_module(self._name)
        return getattr(module, name)
