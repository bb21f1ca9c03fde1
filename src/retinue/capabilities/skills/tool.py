"""skill: instructions on demand, with the files that belong to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import Any

from retinue.capabilities.skills.library import Library
from retinue.capabilities.skills.parse import Skill
from retinue.core.permission import ToolEffect
from retinue.core.tool import ArgumentAliases, Tool, ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.core.tool_names import PATH_PARAMETERS, TOOL_EFFECTS
from retinue.tools.base import Aliases, Arguments, ToolError, names_of, parameters_of, read_prompt
from retinue.tools.processes import in_thread

SKILL_TOOL_NAME = "skill"
MAX_SUGGESTIONS = 12
MAX_SUGGESTION_CHARACTERS = 200
_ARGUMENT_PROPERTIES = {
    "name": {"type": "string", "description": "Name of the skill"},
    "arguments": {"type": "string", "description": "What the skill is given"},
}
_ARGUMENT_ALIASES: Aliases = {"name": ("skill", "skill_name", "command"), "arguments": ("args", "input")}

OnLoad = Callable[[Skill], Awaitable[tuple[str, ...]]]
"""Called for every loaded skill; returns notes on it for the model."""


class SkillTool:
    """The skill tool of one run. `agent` starts the agents of skills that run in a separate one; without it such a
    skill is loaded like any other, with a note."""

    def __init__(self, library: Library, *, spawns: bool = False) -> None:
        self.library = library
        self.agent: Tool | None = None
        self.on_load: OnLoad | None = None
        parameters = parameters_of(_ARGUMENT_PROPERTIES, ("name",))
        effects = TOOL_EFFECTS[SKILL_TOOL_NAME]
        if spawns:
            effects |= {"spawn"}
        self.spec = ToolSpec(
            name=SKILL_TOOL_NAME,
            description=read_prompt(type(self), "skill"),
            parameters=parameters,
            effects=effects,
            paths=PATH_PARAMETERS[SKILL_TOOL_NAME],
            aliases=ArgumentAliases(parameters, names_of(_ARGUMENT_ALIASES)),
        )

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        values = Arguments(SKILL_TOOL_NAME, arguments, _ARGUMENT_ALIASES)
        try:
            name = values.text("name").strip().removeprefix("/")
            words = values.optional_text("arguments") or ""
        except ToolError as error:
            return failed(str(error))
        skill = await in_thread(lambda: self.library.find(name))
        if skill is None or skill.problem or not skill.model_invocable:
            return failed(await in_thread(lambda: self._why_not(name, skill)))
        try:
            text = await in_thread(lambda: self.library.text(skill, words))
        except OSError as error:
            return failed(f"The skill {skill.name} cannot be read: {error.strerror or error}.")
        if skill.fork and self.agent is not None:
            return await self._start_agent(call_id, skill, text, context)
        notes: tuple[str, ...] = ()
        if self.on_load is not None:
            notes = await self.on_load(skill)
        if skill.fork:
            notes = (*notes, "It is meant for a separate agent, which cannot be started here: follow it yourself.")
        bundled = await in_thread(lambda: self.library.files(skill))
        return ok(_show(skill, text, bundled, notes), ToolEffect(reads=(str(skill.path),)))

    async def _start_agent(self, call_id: str, skill: Skill, text: str, context: ToolContext) -> ToolOutput:
        """Start an agent with the skill, through the gate of the tool that starts agents."""
        assert self.agent is not None
        request: dict[str, Any] = {
            "prompt": text,
            "description": f"skill {skill.name}",
            "subagent_type": skill.agent or "general-purpose",
            "run_in_background": skill.background is True,
        }
        if skill.model:
            request["model"] = skill.model
        return await self.agent.run(call_id, request, context)

    def _why_not(self, name: str, skill: Skill | None) -> str:
        if skill is not None and skill.problem:
            return f"The skill {skill.name} cannot be used: {skill.problem}"
        if skill is not None:
            return f"The skill {skill.name} is only for people (disable-model-invocation)."
        skills = self.library.invocable()
        close = get_close_matches(name.lower(), [skill.name.lower() for skill in skills], n=3, cutoff=0.6)
        words = name.lower().split()
        alike = [skill for skill in skills if skill.name.lower() in close]
        for skill in skills:
            text = f"{skill.name} {skill.description}".lower()
            if skill not in alike and all(word in text for word in words):
                alike.append(skill)
        shown = name[:MAX_SUGGESTION_CHARACTERS]
        if not alike:
            return f'There is no skill "{shown}", and none is about it.'
        lines = [f'There is no skill "{shown}". These may be meant:']
        for skill in alike[:MAX_SUGGESTIONS]:
            lines.append(f"- {skill.name}: {' '.join(skill.description.split())[:MAX_SUGGESTION_CHARACTERS]}")
        if len(alike) > MAX_SUGGESTIONS:
            lines.append(f"- ... and {len(alike) - MAX_SUGGESTIONS} more")
        return "\n".join(lines)


def _show(skill: Skill, text: str, bundled: tuple[str, ...], notes: tuple[str, ...]) -> str:
    parts = [f"# Skill: {skill.name}", text]
    if skill.folder is not None and bundled:
        listed = "\n".join(f"- {name}" for name in bundled)
        parts.append(f"Files of this skill, in {skill.folder}; open them with read:\n{listed}")
    return "\n\n".join([*parts, *(f"Note: {note}" for note in notes)])
