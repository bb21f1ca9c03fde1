"""Skills: found on disk, listed for models, loaded when one is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability, Wrap

if TYPE_CHECKING:
    from retinue.core.tool import Tool
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.person_prompt import PersonPrompt, PromptCommand
    from retinue.runs.project import Project


class SkillsCapability(Capability):
    """The tool that loads skills, the skills a run begins with, and the files that belong to them."""

    async def offer(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.skills.attach import offer_skills

        offer_skills(plan)

    def equip(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.skills.attach import files_of_skills

        if plan.beyond is None:
            plan.beyond = files_of_skills(plan.request, plan.project, plan.tools)

    def brief(self, plan: LaunchPlan) -> None:
        from retinue.capabilities.skills.attach import skills_text

        text = skills_text(plan.request, plan.project, plan.tools, plan.notes)
        if plan.spec.prompt_mode == "append" and plan.above and text in plan.above:
            # A twin has read it in the prompt of its parent.
            return
        plan.tell("skills", text)

    def connect(self, node: RunNode, tools: tuple[Tool, ...], wrap: Wrap, *, resumed: bool) -> None:
        from retinue.capabilities.skills.attach import connect_skill_tool

        connect_skill_tool(node, tools)

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        called = prompt.called()
        if called is None:
            return
        from retinue.capabilities.skills.attach import expand_skill

        expand_skill(prompt, *called, project)

    def prompt_commands(self, project: Project) -> Sequence[PromptCommand]:
        from retinue.capabilities.skills.attach import skill_commands

        return skill_commands(project)

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        from retinue.capabilities.skills.attach import skill_subjects

        return skill_subjects(project)
