"""What runs can optionally do, one folder each, and the three orders in which runs call them.

A capability never imports another one, and `runs` imports none: only this file lists them.
"""

from __future__ import annotations

from functools import cache

from retinue.capabilities.attachments import AttachmentsCapability
from retinue.capabilities.audit import AuditCapability
from retinue.capabilities.commands import CommandsCapability
from retinue.capabilities.convert import ConvertCapability
from retinue.capabilities.hooks import HooksCapability
from retinue.capabilities.lsp import LspCapability
from retinue.capabilities.mcp import McpCapability
from retinue.capabilities.memory import MemoryCapability
from retinue.capabilities.observer import ObserverCapability
from retinue.capabilities.permissions import PermissionsCapability
from retinue.capabilities.plugins import PluginsCapability
from retinue.capabilities.questions import QuestionsCapability
from retinue.capabilities.sandbox import SandboxCapability
from retinue.capabilities.schedule import ScheduleCapability
from retinue.capabilities.skills import SkillsCapability
from retinue.capabilities.telemetry import TelemetryCapability
from retinue.capabilities.trust import TrustCapability
from retinue.capabilities.web import WebCapability
from retinue.capabilities.worktree import WorktreeCapability
from retinue.runs.capability import Capability
from retinue.runs.order import Capabilities

PLAN: tuple[type[Capability], ...] = (
    TrustCapability,  # before others read what the agent's file brings
    PermissionsCapability,
    SkillsCapability,
    CommandsCapability,  # after skills, which go before a command of the same name
    AttachmentsCapability,  # after commands, whose text may name files
    PluginsCapability,
    MemoryCapability,
    McpCapability,
    HooksCapability,  # before a worktree is announced to hooks
    WorktreeCapability,  # after tools are chosen; its folder is what the sandbox must know
    SandboxCapability,
    AuditCapability,
    LspCapability,
    ConvertCapability,
    WebCapability,
    QuestionsCapability,
    ObserverCapability,  # after all who add tools: an observer keeps those that read
    ScheduleCapability,
    TelemetryCapability,
)
WRAP = ("audit", "lsp", "permissions", "worktree")
"""From the inside out: a checkpoint is no part of the time that a person takes to answer, and a path that leads out
of the worktree is refused before anybody is asked."""
FINISH = ("observer", "questions", "permissions", "hooks", "audit", "worktree", "mcp", "telemetry")
"""Observers may still read the run's files; hooks hear of the end before files are put back; the worktree is saved
when nothing changes it any more."""


@cache
def standard_capabilities() -> Capabilities:
    """Return every capability, in the orders of this file."""
    return Capabilities([kind() for kind in PLAN], WRAP, FINISH)
