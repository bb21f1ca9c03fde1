"""The list of all capabilities, and the three orders in which runs call them.

A capability never imports another one, and `runs` imports none: only this module imports all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from retinue.capabilities.attachments import AttachmentsCapability
from retinue.capabilities.audit import AuditCapability
from retinue.capabilities.commands import CommandsCapability
from retinue.capabilities.convert import ConvertCapability
from retinue.capabilities.hooks import HooksCapability
from retinue.capabilities.lsp import LspCapability
from retinue.capabilities.mcp import ConfiguredServers, McpCapability
from retinue.capabilities.memory import MemoryCapability
from retinue.capabilities.permissions import PermissionsCapability, ProjectRules
from retinue.capabilities.plugins import PluginsCapability, plugin_extensions
from retinue.capabilities.questions import QuestionsCapability
from retinue.capabilities.sandbox import SandboxCapability
from retinue.capabilities.schedule import ScheduledAgents
from retinue.capabilities.skills import SkillsCapability
from retinue.capabilities.telemetry import TelemetryCapability
from retinue.capabilities.trust import TrustCapability
from retinue.capabilities.web import WebCapability, WebDownloads
from retinue.capabilities.worktree import WorktreeCapability, WorktreeWork
from retinue.runs.capability import (
    Capabilities,
    Capability,
    Downloads,
    Extensions,
    Rules,
    Scheduling,
    Servers,
    UnsavedWork,
)

if TYPE_CHECKING:
    from retinue.runs.project import Project

_SERVICES: Mapping[type, Callable[[Project], object]] = {
    Extensions: plugin_extensions,
    Downloads: WebDownloads,
    Servers: ConfiguredServers,
    Rules: ProjectRules,
    UnsavedWork: WorktreeWork,
    Scheduling: ScheduledAgents,
}


def standard_capabilities(*added: Capability) -> Capabilities:
    """Return every capability in its orders. `added` ones are planned last, wrap tools first, and finish last."""
    permissions, hooks, worktree = PermissionsCapability(), HooksCapability(), WorktreeCapability()
    audit, lsp, questions, telemetry = AuditCapability(), LspCapability(), QuestionsCapability(), TelemetryCapability()
    plan = (
        TrustCapability(),  # before others read the agent's file
        permissions,
        SkillsCapability(),
        CommandsCapability(),  # after skills, which take precedence over a command of the same name
        AttachmentsCapability(),  # after commands, whose text may mention files
        PluginsCapability(),
        MemoryCapability(),
        McpCapability(),
        hooks,  # before a worktree is announced to hooks
        worktree,  # after tools are chosen; the sandbox needs its folder
        SandboxCapability(),
        audit,
        lsp,
        ConvertCapability(),
        WebCapability(),
        questions,
        telemetry,
    )
    # From the inside out: a checkpoint must not include the time that a person takes to answer, and a path outside of
    # the worktree is refused before a person is asked.
    wrap = (audit, lsp, permissions, worktree)
    # Hooks are called before files are restored; the worktree is saved after the last change.
    finish = (questions, permissions, hooks, audit, worktree, telemetry)
    return Capabilities((*plan, *added), (*added, *wrap), (*finish, *added), _SERVICES)
