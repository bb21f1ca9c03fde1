"""The run loop: a job, a model and a mailbox in, events out. Each name loads its module at its first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinue.loop.job import Compaction, Controls, Job
    from retinue.loop.run import run_loop
    from retinue.loop.submission import check_schema

__all__ = ["Compaction", "Controls", "Job", "check_schema", "run_loop"]
_MODULES = {"check_schema": "submission", "run_loop": "run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'retinue.loop' has no attribute {name!r}")
    return getattr(import_module(f"retinue.loop.{_MODULES.get(name, 'job')}"), name)
