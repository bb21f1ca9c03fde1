"""Skills: found on disk, listed for models, loaded when one is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.skills import attach as _attach
    from retinue.core.person_prompt import PersonPrompt, PromptCommand
    from retinue.guard.trust import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.skills.attach")


class SkillsCapability(Capability):
    """The tool that loads skills, the skills a run begins with, and the files that belong to them."""

    async def offer(self, plan: LaunchPlan) -> None:
        _attach.offer_skills(plan)

    def equip(self, plan: LaunchPlan) -> None:
        if plan.beyond is None:
            plan.beyond = _attach.files_of_skills(plan.request, plan.project, plan.tools)

    def brief(self, plan: LaunchPlan) -> None:
        text = _attach.skills_text(plan.request, plan.project, plan.tools, plan.notes)
        if plan.spec.prompt_mode == "append" and plan.above and text in plan.above:
            # A twin has read it in the prompt of its parent.
            return
        plan.tell("skills", text)

    async def running(self, node: Run, *, resumed: bool) -> RunPart:
        return RunPart(connect=lambda tools, wrap: _attach.connect_skill_tool(node, tools))

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        called = prompt.called()
        if called is not None:
            _attach.expand_skill(prompt, *called, project)

    def prompt_commands(self, project: Project) -> Sequence[PromptCommand]:
        return _attach.skill_commands(project)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        return _attach.skill_subjects(project)
