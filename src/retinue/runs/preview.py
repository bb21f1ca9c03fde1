"""What the model of a run would see, without starting one.

The same steps as a launch, in the same order, but that no model is chosen, no server is started
and nothing is made: tools of MCP servers are missing, and a note says so.
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
from retinue.runs.requests import LONGEST_TASK
from retinue.runs.supervisor import Supervisor

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
    """Return what the model of a run would see. `under` is what the run that starts it would see; None for one
    that a person starts. Raise LaunchError where a launch would."""
    check(request)
    plan = LaunchPlan(request, project, delegation=Delegate(Supervisor(project), "preview"), preview=True)
    if under is not None:
        plan.mode_above, plan.above = under.mode, under.system
    await restrict(plan)
    await choose_tools(plan)
    parts = write_prompt(plan)
    if len(request.task) > LONGEST_TASK and "read" in plan.tools:
        longest = f"{LONGEST_TASK:,}"
        plan.note(f"a task of more than {longest} characters is handed over as a file: it would see the beginning")
    return Preview(parts, tuple(plan.tools.values()), request.task, plan.mode, tuple(plan.notes))
