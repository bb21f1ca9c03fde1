"""Preview of a run's prompt and tools, without starting the run.

A preview takes the steps of a launch in the same order, but chooses no model, starts no server and creates nothing. The
tools of MCP servers are missing, which a note states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.core.request import RunRequest
from retinue.core.tool import Tool
from retinue.models.protocol import overhead
from retinue.runs.delegate import Delegate
from retinue.runs.launch import LaunchPlan
from retinue.runs.plan import check, choose_tools, restrict, write_prompt
from retinue.runs.prompt import PromptPart, joined
from retinue.runs.requests import MAX_TASK_CHARACTERS
from retinue.runs.supervisor import Supervisor

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode
    from retinue.runs.project import Project


class Preview(Struct, frozen=True):
    """The prompt and tools of a run. The joined `parts` are the system prompt; `message` is the first message."""

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
        """The estimated size of the prefix that every request of the run has."""
        return overhead(self.system, [tool.spec for tool in self.tools])


async def preview(request: RunRequest, project: Project, under: Preview | None = None) -> Preview:
    """Return the preview of a run. `under` is the preview of the run that starts it; None if a person starts it. Raise
    LaunchError if a launch would."""
    check(request)
    plan = LaunchPlan(request, project, delegation=Delegate(Supervisor(project), "preview"), preview=True)
    if under is not None:
        plan.mode_above, plan.above = under.mode, under.system
    await restrict(plan)
    await choose_tools(plan)
    parts = write_prompt(plan)
    if len(request.task) > MAX_TASK_CHARACTERS and "read" in plan.tools:
        longest = f"{MAX_TASK_CHARACTERS:,}"
        plan.note(f"a task of more than {longest} characters is handed over as a file: it would see the beginning")
    return Preview(parts, tuple(plan.tools.values()), request.task, plan.mode, tuple(plan.notes))
