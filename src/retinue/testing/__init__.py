"""Fakes for testing agents and tools without a provider: documented, and used by our own tests."""

from retinue.testing.chaos import ChaosModel, Rates
from retinue.testing.checks import check_grammar, check_history, check_prefix
from retinue.testing.clock import FakeClock, settle
from retinue.testing.drive import FakeTool, Recording, drive, job
from retinue.testing.model import SCRIPTED, ScriptedModel, ScriptError
from retinue.testing.repository import Repository, temporary_repository
from retinue.testing.script import (
    Call,
    Do,
    Expect,
    Fail,
    Hang,
    Retry,
    Say,
    Spend,
    Stop,
    Think,
    Turn,
    Wait,
    script,
)

__all__ = [
    "SCRIPTED",
    "Call",
    "ChaosModel",
    "Do",
    "Expect",
    "Fail",
    "FakeClock",
    "FakeTool",
    "Hang",
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
