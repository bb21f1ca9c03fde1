"""What the model of a run would see, without starting one.

The same steps as a launch, in the same order, but that no model is chosen, no server is started
and nothing is made: tools of MCP servers are missing, and a note says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.capabilities.mcp.config import any_file
from retinue.capabilities.mcp.scope import may_have_servers
from retinue.capabilities.permissions.attach import mode_for
from retinue.capabilities.plugins.tools import extend
from retinue.capabilities.sandbox.attach import is_readonly
from retinue.capabilities.trust.attach import consented
from retinue.core.request import RunRequest
from retinue.core.tool import Tool
from retinue.models.tokens import overhead
from retinue.runs.assembling import assemble
from retinue.runs.delegate import Delegate
from retinue.runs.plan import check, choose_tools
from retinue.runs.prompt import PromptPart, joined
from retinue.runs.supervisor import Supervisor
from retinue.runs.task import LONGEST_TASK

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode
    from retinue.runs.project import Project


class Preview(Struct, frozen=True):
    """`parts` joined are the system prompt; `message` is the first thing a run is told."""

    parts: tuple[PromptPart, ...]
    tools: tuple[Tool, ...]
    message: str
    mode: PermissionMode
    notes: tuple[str, ...]

    @property
    def system(self) -> str:
        return joined(self.parts)

    @property
    def tokens(self) -> int:
        """Of the prefix that every request of the run carries, as estimated before a launch."""
        return overhead(self.system, [tool.spec for tool in self.tools])


async def preview(request: RunRequest, project: Project, under: Preview | None = None) -> Preview:
    """`under` is what the run that starts it would see; None for one that a person starts.
    Raise LaunchError where a launch would."""
    check(request.spec, request)
    notes: list[str] = []
    request = consented(request, project, notes)
    mode = mode_for(request, project, under.mode if under else None, notes)
    readonly = is_readonly(request, mode, project.settings.settings, notes)
    delegation = Delegate(Supervisor(project), "preview")
    extended = await extend(request, project, notes)
    kit = choose_tools(request, project, notes, delegation, None, extended, readonly, mode)
    named = {tool.spec.name: tool for tool in kit.tools}
    parts = assemble(request, project, under.system if under else None, named, notes, mode=mode, memory=kit.memory)
    if len(request.task) > LONGEST_TASK and "read" in named:
        longest = f"{LONGEST_TASK:,}"
        notes.append(f"a task of more than {longest} characters is handed over as a file: it would see the beginning")
    if request.spec.isolation == "worktree" and project.settings.settings.worktree_isolation:
        notes.append("it works in a worktree of its own: that folder, and the notice about it, are not shown")
    if _has_servers(request, project):
        notes.append("tools of MCP servers are not shown (see: retinue servers check)")
    return Preview(parts, kit.tools, request.task, mode, tuple(notes))


def _has_servers(request: RunRequest, project: Project) -> bool:
    spec, settings = request.spec, project.settings.settings
    if not may_have_servers(spec):
        return False
    named = bool(spec.servers or spec.required_servers or settings.mcp_servers or project.extensions.has_servers)
    return named or any_file(project.cwd, project.environment, claude=settings.mcp_claude_servers)
