"""How the programs in `inside/` are started: by the interpreter this runs in, with nothing of the
user's or the project's around it."""

from __future__ import annotations

import sys
from pathlib import Path

INSIDE = Path(__file__).with_name("inside")


def in_python(module: str) -> list[str]:
    """Return the words that start a module of `inside/`. The interpreter is the one below a virtual
    environment, if there is one: that saves looking for it."""
    start = f"import sys;sys.path.append({str(INSIDE.parent)!r});import inside.{module}"
    return [interpreter(), "-I", "-S", "-c", start]


def interpreter() -> str:
    return getattr(sys, "_base_executable", "") or sys.executable
