"""Retinue: Claude-Code-style sub-agents for Python, on any model.

    from retinue import Retinue, run, tool

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from retinue.app.retinue import Retinue
    from retinue.app.single_run import MapProgress, run, run_async
    from retinue.core.events import Event
    from retinue.core.outcome import Outcome
    from retinue.core.spec import AgentSpec
    from retinue.core.usage import Usage
    from retinue.core.version import __version__ as __version__
    from retinue.errors import RetinueError
    from retinue.runs.run import Run
    from retinue.tools.function import tool

_PUBLIC = {
    "__version__": "retinue.core.version",
    "AgentSpec": "retinue.core.spec",
    "Event": "retinue.core.events",
    "MapProgress": "retinue.app.single_run",
    "Outcome": "retinue.core.outcome",
    "Retinue": "retinue.app.retinue",
    "RetinueError": "retinue.errors",
    "Run": "retinue.runs.run",
    "Usage": "retinue.core.usage",
    "run": "retinue.app.single_run",
    "run_async": "retinue.app.single_run",
    "tool": "retinue.tools.function",
}

__all__ = [
    "AgentSpec",
    "Event",
    "MapProgress",
    "Outcome",
    "Retinue",
    "RetinueError",
    "Run",
    "Usage",
    "run",
    "run_async",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'retinue' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
