"""The skills of a run: those it can load, those in its prompt, and the permissions of each.

A run has the `skill` tool if there are skills and its file does not exclude them. Its prompt has the complete text of
preloaded skills and a line for each other one. The permissions of a skill (`allowed-tools`) apply from then on, if the
skill is the user's own or a person has consented to exactly that file of the project.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.agents.prompt_files import one_line
from retinue.capabilities.skills.parse import skill_roots
from retinue.core.lazy import LazyModule
from retinue.core.person_prompt import PromptCommand
from retinue.core.spec import AgentSpec
from retinue.core.tool import Tool
from retinue.core.tool_names import canonical, split_entry
from retinue.guard.trust import TrustSubject
from retinue.runs.guard import RunGuards
from retinue.runs.offer import has_only_builtins
from retinue.runs.prompt import shipped
from retinue.settings.places import repository_root

if TYPE_CHECKING:
    from retinue.capabilities.skills import library as _library
    from retinue.capabilities.skills import tool as _tool
    from retinue.capabilities.skills.library import Library
    from retinue.capabilities.skills.parse import Skill
    from retinue.capabilities.skills.tool import OnLoad
    from retinue.core.person_prompt import PersonPrompt
    from retinue.core.request import RunRequest
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
else:
    # A project without skills needs neither.
    _library = LazyModule("retinue.capabilities.skills.library")
    _tool = LazyModule("retinue.capabilities.skills.tool")


MAX_SKILL_NAME_CHARACTERS = 128
MAX_LISTED_CHARACTERS = 1536
"""The limit for one line of the list."""
_LINE_LIMITS = (MAX_LISTED_CHARACTERS, 768, 384, 192, 96, 40)
_CHARACTERS_PER_TOKEN = 4
MAX_LIST_TOKENS = 4_000
"""The share of a prompt for the list of skills."""


def preload_skills(names: Iterable[str], library: Library, notes: list[str]) -> str:
    """Return one section for each name, in order. A missing skill gets a placeholder and a note, and the others are
    loaded."""
    return "\n\n".join(
        f"# Preloaded Skill: {one_line(name)[:MAX_SKILL_NAME_CHARACTERS]}\n{_body(name, library, notes)}"
        for name in names
    )


def _body(name: str, library: Library, notes: list[str]) -> str:
    shown = one_line(name)[:MAX_SKILL_NAME_CHARACTERS]
    if not _library.is_name(name):
        notes.append(f"skill '{shown}' is skipped: the name is not safe")
        return f'(Skill "{shown}" skipped: the name may hold letters, digits, "-", "_" and "." only)'
    skill = library.find(name)
    if skill is None:
        notes.append(f"skill '{shown}' was not found (see: retinue skills list)")
        folders = [str(root.path) for root in library.roots if root.path.is_dir()]
        where = ", ".join(folders) or "any folder of skills: there is none"
        return f'(Skill "{shown}" not found in {where})'
    # A single file without a description is not invocable either, but an agent file may preload it by name.
    if not skill.model_invocable and skill.folder is not None:
        notes.append(f"skill '{shown}' is skipped: its file keeps it from models (disable-model-invocation)")
        return f'(Skill "{shown}" skipped: its file has disable-model-invocation)'
    try:
        text = library.text(skill)
    except OSError as error:
        notes.append(f"skill '{shown}' cannot be read: {error.strerror or error}")
        return f'(Skill "{shown}" cannot be read)'
    if library.files(skill):
        text += f"\n\n(The files of this skill are in {skill.folder}.)"
    return text


def describe_skills(skills: Sequence[Skill], tokens: int = MAX_LIST_TOKENS) -> str:
    """Return the list for a model, in at most about `tokens` tokens: descriptions are cut shorter, then
    left out, and skills that still do not fit are only counted. Empty without skills."""
    if not skills:
        return ""
    head = shipped("skills")
    room = tokens * _CHARACTERS_PER_TOKEN - len(head)
    described = [(skill.name, one_line(f"{skill.description} {skill.when_to_use}")) for skill in skills]
    for cut in _LINE_LIMITS:
        lines = [_line(name, about, cut) for name, about in described]
        if sum(map(len, lines)) + len(lines) <= room:
            return "\n".join([head, *lines])
    names: list[str] = []
    for name, _ in described:
        room -= len(name) + 3
        if room < 0 and names:
            break
        names.append(f"- {name}")
    if len(names) < len(described):
        names.append(f"- ... and {len(described) - len(names)} more: call skill with a word of what you need")
    return "\n".join([head, *names])


def _line(name: str, about: str, cut: int) -> str:
    if not about:
        return f"- {name}"
    if len(about) > cut:
        about = f"{about[: cut - 1].rstrip()}…"
    return f"- {name}: {about}"


SKILL_TOOL = "skill"


def library_of(project: Project) -> Library | None:
    """Return the skills that are visible from the project; None if no folder of skills exists."""
    # A tuple of one, so that None is cached as well.
    return project.round.once("skills", lambda: (_open_library(project),))[0]


def _open_library(project: Project) -> Library | None:
    roots = skill_roots(
        project.cwd,
        project.environment,
        extra=_extra_folders(project),
        plugins=project.extensions.skills,
        brought=project.brought,
    )
    existing = [root for root in roots if os.path.isdir(root.path)]  # noqa: PTH112 - asked at every launch
    return _library.Library(existing) if existing else None


def _extra_folders(project: Project) -> tuple[str, ...]:
    """Return the folders that settings add. A project's files may add only folders of the project, because agents can
    read these folders."""
    settings = project.settings.settings
    if not settings.skills_paths or settings.origin("skills_paths").personal:
        return settings.skills_paths
    root = (repository_root(project.cwd) or project.cwd).resolve()

    def inside(text: str) -> bool:
        return (project.cwd / Path(text).expanduser()).resolve().is_relative_to(root)

    return tuple(filter(inside, settings.skills_paths))


def offer_skills(plan: LaunchPlan) -> None:
    """Offer the tool that loads skills to a run that may have it. If the run can start agents, a skill that is meant
    for a separate agent gets one."""
    spec = plan.spec
    if spec.skills is True and plan.policy.allow and not {"*", "all"} & set(plan.policy.allow):
        # A file that asks for all skills need not list the tool that loads them.
        plan.policy = replace(plan.policy, allow=(*plan.policy.allow, SKILL_TOOL))
    # The embedding program may have its own skill tool.
    if SKILL_TOOL in plan.available or not _may_load(spec):
        return
    library = library_of(plan.project)
    if library is None or not library.invocable():
        return
    plan.available[SKILL_TOOL] = _tool.SkillTool(library, spawns=plan.may_spawn)


def _may_load(spec: AgentSpec) -> bool:
    """Return whether a run may load skills. A file that names skills preloads exactly these; only agents of Claude
    Code can load others as well."""
    if has_only_builtins(spec) or spec.skills is False:
        return False
    if isinstance(spec.skills, tuple) and spec.dialect != "claude":
        return False
    allow = spec.tools.allow
    if spec.skills is True or allow is None:
        return True
    return any(entry in ("*", "all") or SKILL_TOOL in canonical(split_entry(entry)[0]) for entry in allow)


def _names_to_preload(spec: AgentSpec) -> tuple[str, ...]:
    """Return the skills that are in the prompt from the start; an isolated agent has none."""
    return spec.skills if isinstance(spec.skills, tuple) and not spec.isolated else ()


def skills_text(request: RunRequest, project: Project, tools: Mapping[str, Tool], notes: list[str]) -> str:
    """Return the part of the prompt about skills: the complete text of those that the file names, and a line for each
    that can be loaded."""
    names = _names_to_preload(request.spec)
    if not names and SKILL_TOOL not in tools:
        return ""
    library = library_of(project) or _library.Library(())
    parts = [preload_skills(names, library, notes)] if names else []
    if SKILL_TOOL in tools:
        parts.append(describe_skills(library.invocable()))
    return "\n\n".join(filter(None, parts))


def files_of_skills(
    request: RunRequest, project: Project, tools: Mapping[str, Tool]
) -> Callable[[str], Path | None] | None:
    """Return a function from a resolved path to the folder of the skill it leads into, if the run may read
    that; None for a run without skills."""
    names = _names_to_preload(request.spec)
    if not names and SKILL_TOOL not in tools:
        return None

    def folder(path: str) -> Path | None:
        library = library_of(project)
        if library is None:
            return None
        owner = library.owner(path)
        if owner is None:
            return None
        skill, resolved = owner
        if SKILL_TOOL in tools and skill.model_invocable:
            return resolved
        # By the library and not by name: a skill of the same name may shadow this one.
        return resolved if skill in map(library.find, names) else None

    return folder


def expand_skill(prompt: PersonPrompt, name: str, arguments: str, project: Project) -> None:
    """Add the text of the skill that the person called, unless it is not for people or cannot be read."""
    library = library_of(project)
    if library is None:
        return
    skill = library.find(name)
    if skill is None or not skill.user_invocable or skill.problem:
        return
    try:
        body, bundled = library.text(skill, arguments), library.files(skill)
    except OSError as error:
        prompt.notes.append(f"The skill /{skill.name} cannot be read: {error.strerror or error}.")
        return
    if bundled:
        body += f"\n\nFiles of this skill, in {skill.folder}: {', '.join(bundled)}"
    prompt.add("skill", skill.name, f"Follow this skill now, /{skill.name}:\n\n{body}")


def skill_commands(project: Project) -> list[PromptCommand]:
    """Return the skills that a person can call."""
    library = library_of(project)
    if library is None:
        return []
    return [
        PromptCommand(skill.name, one_line(skill.description), one_line(skill.argument_hint), f"skill, {skill.source}")
        for skill in library.all()
        if skill.user_invocable and not skill.problem
    ]


def connect_skill_tool(node: Run, tools: tuple[Tool, ...]) -> None:
    """Connect the run's skill tool with the gated `Agent` tool and with the guard. `tools` are those of the run, each
    behind its gate."""
    tool = _find_tool(node.launch.tools, SKILL_TOOL)
    if tool is None or not isinstance(tool, _tool.SkillTool):
        return
    if "spawn" in tool.spec.effects:
        tool.agent = _find_tool(tools, "Agent")
    tool.on_load = _make_grants(node, node.project)


def _find_tool(tools: Iterable[Tool], name: str) -> Tool | None:
    return next((tool for tool in tools if tool.spec.name == name), None)


def _make_grants(node: Run, project: Project) -> OnLoad:
    """Return a function that grants a run the permissions of a loaded skill, and returns notes for the model."""

    async def grant(skill: Skill) -> tuple[str, ...]:
        guard = project.part(RunGuards).get(node.id)
        if not skill.allowed_tools or guard is None:
            return ()
        if not _is_trusted(skill, project):
            remedy = project.trust.remedy("permissions", skill.path)
            return (f"its allowed-tools have no effect: {skill.path} is not trusted. {remedy}",)
        tools = {tool.spec.name for tool in node.tools}
        refused = []
        for entry in skill.allowed_tools:
            name, pattern = split_entry(entry)
            rule = next((own for own in (name, *canonical(name)) if own in tools), None)
            if rule is None:
                continue
            if pattern is not None:
                rule = f"{rule}({pattern})"
            try:
                guard.permissions.grant(rule)
            except ValueError:
                refused.append(entry)
        if not refused:
            return ()
        return (f"these of its allowed-tools cannot be understood: {', '.join(refused)}",)

    return grant


def _is_trusted(skill: Skill, project: Project) -> bool:
    library = library_of(project)
    if library is None:
        return False
    return project.trust.permits("permissions", skill.provenance, skill.path, lambda: library.content(skill))


def skill_subjects(project: Project) -> list[TrustSubject]:
    """Return the skills of a project that would allow something, as subjects of consent."""
    library = library_of(project)
    if library is None:
        return []
    subjects = []
    for skill in library.all():
        if skill.allowed_tools and skill.source == "project":
            with suppress(OSError):
                what = (f"skill {skill.name} allows: {', '.join(skill.allowed_tools)}",)
                subjects.append(TrustSubject(skill.path, (library.content(skill),), what))
    return subjects
