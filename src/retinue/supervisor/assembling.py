"""What a run is told before its first message, put together from all who have a say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from retinue.context.documentation import documentation_block, is_guide
from retinue.context.environment import detect
from retinue.context.prompt import Extras, Part, prompt_parts, reads_instructions
from retinue.domain.effects import READ_ONLY
from retinue.domain.events import RunCreated
from retinue.domain.request import RunRequest
from retinue.domain.tool import Tool
from retinue.domain.toolnames import TOOLS
from retinue.supervisor.offer import SPAWNING, policy_text
from retinue.supervisor.skilling import skills_text

if TYPE_CHECKING:
    from retinue.context.memory.block import Memory
    from retinue.log.query import Reader
    from retinue.supervisor.isolating import Isolation
    from retinue.supervisor.launch import Launch
    from retinue.supervisor.world import World


def assemble(
    request: RunRequest,
    world: World,
    parent: str | None,
    tools: Mapping[str, Tool],
    notes: list[str],
    *,
    isolation: Isolation | None = None,
    memory: Memory | None = None,
) -> tuple[Part, ...]:
    """The parts of the system prompt. `parent` is the prompt of the run that starts this one.
    Reads files and makes none; what could not be used is noted."""
    spec, settings = request.spec, world.settings.settings
    place = ("environment", request.cwd)
    environment = world.round.get(place) or world.round.keep(place, detect(request.cwd))
    skills = skills_text(request, world, tools, notes)
    if spec.prompt_mode == "append" and parent and skills in parent:
        skills = ""  # a twin has read it already
    if is_guide(spec):
        skills = documentation_block()
    extras = Extras(skills=skills, memory=memory.block() if memory else "")
    if settings.instructions_enabled and reads_instructions(spec, request.depth, parent):
        from retinue.context.instructions import project_instructions

        extras = replace(extras, instructions=project_instructions(request.cwd, world.environment, notes))
    if request.depth == 0 and settings.inject_delegation_policy and SPAWNING & tools.keys():
        extras = replace(extras, delegation=policy_text(world, request))
    if isolation is not None:
        from retinue.context.worktree import worktree_notice

        extras = replace(extras, worktree=worktree_notice(request.cwd, isolation.top, isolation.main))
    return prompt_parts(spec, environment, parent=parent, depth=request.depth, extras=extras)


def prompt_above(request: RunRequest, world: World, parent: Launch | None) -> str | None:
    """The prompt of the run that starts this one, as far as this one may know it: an agent that
    omits the files with instructions does not get them through its parent either."""
    if parent is None:
        return None
    if not request.spec.omit_instructions or request.spec.prompt_mode != "append":
        return parent.system
    from retinue.context.instructions import project_instructions

    told = project_instructions(parent.request.cwd, world.environment, [])
    return parent.system.replace(told, "") if told else parent.system


def inherited(parts: tuple[Part, ...]) -> int:
    """How many characters of the prompt are the parent's."""
    return len(parts[0].text) if parts and parts[0].name == "parent" else 0


def kept(launch: Launch) -> Mapping[str, object]:
    """The prompt for the log: of a twin without what is its parent's, which the log has there."""
    return {"inherits": launch.inherited > 0, "text": launch.system[launch.inherited :]}


def restored(reader: Reader, created: RunCreated | None, parent_id: str | None) -> str | None:
    """The prompt that a run had, byte by byte, so that what it goes on with extends what a
    provider has seen. None for a run whose log does not tell."""
    found = created.options.get("system") if created is not None else None
    if not isinstance(found, Mapping) or not isinstance(found.get("text"), str):
        return None
    text: str = found["text"]
    if not found.get("inherits"):
        return text
    if parent_id is None:
        return None
    first = next((event for event in reader.events(parent_id, limit=1)), None)
    above = first.body if first is not None and isinstance(first.body, RunCreated) else None
    base = restored(reader, above, first.parent_id if first is not None else None)
    return None if base is None else base + text


def why_absent(launch: Launch, name: str) -> str:
    """Why a run has not got a tool that exists, for its model; empty where its file decided it."""
    if not launch.readonly or TOOLS.get(name, READ_ONLY) <= READ_ONLY:
        return ""
    if launch.mode == "plan":
        return "this run is in plan mode and changes nothing."
    return "this run is read-only."
