"""The prompt that the model of an agent receives: system prompt in parts, tools and first message, with token
counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.app.agents import NO_TASK
from retinue.app.dialogue import main_agent
from retinue.cluster import open_project
from retinue.core.request import RunRequest
from retinue.errors import UnknownAgentError
from retinue.models.protocol import overhead
from retinue.runs.preview import preview

if TYPE_CHECKING:
    from retinue.runs.project import Project


class PromptPartView(Struct, frozen=True):
    """A part of the system prompt, with its estimated tokens."""

    name: str
    tokens: int
    characters: int
    text: str


class ToolCost(Struct, frozen=True):
    """A tool of the agent, with the estimated tokens of its description."""

    name: str
    tokens: int
    description: str
    parameters: Mapping[str, Any]


class PromptTokens(Struct, frozen=True):
    """Estimated tokens of the prompt. `prefix` is the part that every request repeats."""

    system: int
    tools: int
    message: int
    prefix: int


class PromptPreview(Struct, frozen=True):
    """The prompt that the model of an agent would receive: the system prompt, whole and in parts, the tools and the
    first message."""

    name: str
    system: str
    parts: list[PromptPartView]
    tools: list[ToolCost]
    message: str
    tokens: PromptTokens
    notes: Sequence[str]


async def preview_prompt(
    project: Project, name: str, *, task: str = NO_TASK, as_main: bool = False, under_main: bool = False
) -> PromptPreview:
    """Return the prompt that the model of an agent would receive. `main` is the main agent, unless a file has that
    name. Raise UnknownAgentError, and LaunchError if a launch would."""
    try:
        spec = project.catalog().find(name).spec
    except UnknownAgentError:
        if name != "main":
            raise
        spec, as_main = main_agent(), True
    above = None
    if under_main and not as_main:
        above = await preview(RunRequest(spec=main_agent(), task=task, cwd=project.cwd), project)
    text = project.preview_initial_prompt(spec, task)
    shown = await preview(RunRequest(spec=spec, task=text, cwd=project.cwd, depth=int(not as_main)), project, above)
    specs, redact = [tool.spec for tool in shown.tools], project.redactor
    return PromptPreview(
        spec.name,
        redact(shown.system),
        [PromptPartView(part.name, overhead(part.text, ()), len(part.text), redact(part.text)) for part in shown.parts],
        [ToolCost(tool.name, overhead("", (tool,)), tool.description, dict(tool.parameters)) for tool in specs],
        redact(shown.message),
        PromptTokens(overhead(shown.system, ()), overhead("", specs), overhead(shown.message, ()), shown.tokens),
        shown.notes,
    )


async def preview_in(
    cwd: Path, name: str, agents_json: str | None, *, task: str, as_main: bool, under_main: bool
) -> PromptPreview:
    """Open the project at `cwd` and call `preview_prompt`."""
    project = open_project(cwd, agents_json=agents_json)
    return await preview_prompt(project, name, task=task, as_main=as_main, under_main=under_main)
