"""Fakes for testing agents and tools without a provider: documented, and used by our own tests.

Names are loaded when they are used: pytest imports this package for its plugin in every project
that has Retinue installed, and most of those tests need none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retinue.models.protocol import (
        Alive,
        Finished,
        Model,
        ModelInfo,
        ModelRequest,
        Noted,
        Part,
        Prices,
        ToolCallStarted,
    )
    from retinue.testing.fixtures import FakeClock, Repository, settle, temporary_repository
    from retinue.testing.model import SCRIPTED, ChaosModel, Rates, ScriptedModel, ScriptError
    from retinue.testing.provider_model import ProviderModel
    from retinue.testing.runs import FakeTool, Recording, check_grammar, check_history, check_prefix, drive, job
    from retinue.testing.scripts import (
        Call,
        Do,
        Expect,
        Fail,
        Hang,
        Pulse,
        Retry,
        Say,
        Spend,
        Stop,
        Think,
        Turn,
        Wait,
        script,
    )
    from retinue.testing.tool_bench import ToolBench

__all__ = [
    "SCRIPTED",
    "Alive",
    "Call",
    "ChaosModel",
    "Do",
    "Expect",
    "Fail",
    "FakeClock",
    "FakeTool",
    "Finished",
    "Hang",
    "Model",
    "ModelInfo",
    "ModelRequest",
    "Noted",
    "Part",
    "Prices",
    "ProviderModel",
    "Pulse",
    "Rates",
    "Recording",
    "Repository",
    "Retry",
    "Say",
    "ScriptError",
    "ScriptedModel",
    "Spend",
    "Stop",
    "Think",
    "ToolBench",
    "ToolCallStarted",
    "Turn",
    "Wait",
    "check_grammar",
    "check_history",
    "check_prefix",
    "drive",
    "job",
    "script",
    "settle",
    "temporary_repository",
]

_HOMES = (
    "retinue.testing.scripts",
    "retinue.testing.model",
    "retinue.testing.runs",
    "retinue.testing.fixtures",
    "retinue.testing.tool_bench",
    "retinue.models.protocol",
    "retinue.testing.provider_model",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(home)
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"retinue.testing has no {name!r}")
