"""Which agents there are, what became of each field of their files, and what their models see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.agents.catalog import Catalog as Catalog
from retinue.agents.catalog import FailedFile as FailedFile
from retinue.agents.catalog import LoadedAgent as LoadedAgent
from retinue.agents.catalog import is_profile
from retinue.agents.catalog import shadows as shadows
from retinue.app.text import optional
from retinue.core.spec import AgentSpec, Fate, Problem
from retinue.errors import UnknownAgentError

if TYPE_CHECKING:
    from retinue.runs.project import Project

NO_TASK = "(the task)"


class AgentView(Struct, frozen=True, kw_only=True):
    """One agent. `tools` is None where its file limits none; `shadowed_by` is the file that counts instead."""

    name: str
    description: str
    source: str
    dialect: str
    path: str
    tools: Sequence[str] | None
    model: str | Sequence[str] | None
    readonly: bool
    enabled: bool
    shadowed_by: str | None
    problems: Sequence[Problem]


class FailedFileView(Struct, frozen=True):
    """An agent file that could not be loaded."""

    path: str
    reason: str
    line: int | None


class AgentList(Struct, frozen=True):
    """Every agent visible from the project, and the files that could not be loaded."""

    agents: list[AgentView]
    failed: list[FailedFileView]


class FateView(Fate, frozen=True, omit_defaults=True):
    """What became of one field of a file; only what there is to say."""


class AgentDetail(Struct, frozen=True, kw_only=True):
    """One agent whole: its definition and what became of each field of its file."""

    name: str
    description: str
    source: str
    dialect: str
    path: str
    reading: str
    enabled: bool
    shadowed_by: str | None
    shadows: list[str]
    spec: AgentSpec
    fates: Mapping[str, FateView]
    problems: Sequence[Problem]


class PromptPartView(Struct, frozen=True):
    """A part of the system prompt, with the tokens it is estimated to have."""

    name: str
    tokens: int
    characters: int
    text: str


class ToolCost(Struct, frozen=True):
    """A tool that the agent is offered, with the tokens of its description."""

    name: str
    tokens: int
    description: str
    parameters: Mapping[str, Any]


class PromptTokens(Struct, frozen=True):
    """Estimated tokens of what the model sees. `prefix` is what every request carries."""

    system: int
    tools: int
    message: int
    prefix: int


class PromptPreview(Struct, frozen=True):
    """What the model of an agent would see: its system prompt, whole and in parts, its tools and the first message."""

    name: str
    system: str
    parts: list[PromptPartView]
    tools: list[ToolCost]
    message: str
    tokens: PromptTokens
    notes: Sequence[str]


def plugin_folders(cwd: Path, *, own: bool = True) -> tuple[tuple[str, Path], ...]:
    """Return the folders of agents that plugins bring, without running any of them; without `own` only those of
    the project."""
    from retinue.capabilities.plugins import visible_plugins
    from retinue.models.keys import environment
    from retinue.settings.load import load_settings

    plugins = visible_plugins(cwd, environment(), load_settings(cwd))
    return (plugins if own else plugins.brought).agents


def load_catalog(cwd: Path, agents_json: str | None = None) -> Catalog:
    """Return the agents visible from `cwd`, with those of plugins and those given as JSON."""
    return Catalog.load(cwd, agents_json=agents_json, plugin_folders=plugin_folders(cwd))


def list_agents(catalog: Catalog) -> AgentList:
    """Return every agent visible from the project: those that count first, each group by name."""
    entries = sorted(
        catalog.entries, key=lambda entry: (entry.shadowed_by is not None, entry.name.casefold(), entry.path)
    )
    failed = [FailedFileView(file.path, file.reason, file.line) for file in catalog.failed]
    return AgentList([_view(entry) for entry in entries], failed)


def _view(entry: LoadedAgent) -> AgentView:
    return AgentView(
        # The name under which `retinue run` starts exactly this agent.
        name=entry.qualified_name if is_profile(entry) else entry.name,
        description=entry.spec.description,
        source=entry.source,
        dialect=entry.parsed.dialect,
        path=entry.path,
        tools=named_tools(entry),
        model=entry.parsed.model,
        readonly=entry.spec.readonly is True,
        enabled=entry.enabled,
        shadowed_by=entry.shadowed_by,
        problems=entry.problems,
    )


def named_tools(entry: LoadedAgent) -> Sequence[str] | None:
    """Return the tools that a file names, as it names them; nothing where it leaves none."""
    if entry.spec.tools.allow == ():
        return ()
    return entry.parsed.tools


def tools_text(tools: Sequence[str] | None) -> str:
    """Return the tools that an agent's file names, `all` where it limits none, or `none`."""
    if tools is None:
        return "all"
    return ", ".join(tools) or "none"


def describe_agent(catalog: Catalog, name: str) -> AgentDetail:
    """Return one agent whole. Raise UnknownAgentError."""
    entry = catalog.find(name)
    return AgentDetail(
        name=entry.name,
        description=entry.spec.description,
        source=entry.source,
        dialect=entry.parsed.dialect,
        path=entry.path,
        reading=entry.parsed.reading,
        enabled=entry.enabled,
        shadowed_by=entry.shadowed_by,
        shadows=[each.path for each in shadows(catalog.entries, entry)],
        spec=entry.spec,
        fates=fates_of(entry.parsed.fates),
        problems=entry.problems,
    )


def fates_of(fates: Mapping[str, Fate]) -> dict[str, FateView]:
    """Return what became of each field."""
    return {key: FateView(fate.fate, fate.to, fate.why) for key, fate in fates.items()}


def fate_text(key: str, fate: Fate) -> str:
    """Return what became of a field, such as `kept → max_turns (why)`."""
    to = optional(" → {}", fate.to) if fate.to != key else ""
    return f"{fate.fate}{to}{optional(' ({})', fate.why)}"


async def preview_prompt(
    project: Project, name: str, *, task: str = NO_TASK, as_main: bool = False, under_main: bool = False
) -> PromptPreview:
    """Return what the model of an agent would see. `main` is the main agent, unless a file has that name. Raise
    UnknownAgentError, and LaunchError where a launch would."""
    from retinue.app.dialogue import main_agent
    from retinue.core.request import RunRequest
    from retinue.models.protocol import overhead
    from retinue.runs.preview import preview

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
    seen = await preview(RunRequest(spec=spec, task=text, cwd=project.cwd, depth=int(not as_main)), project, above)
    specs, redact = [tool.spec for tool in seen.tools], project.redactor
    return PromptPreview(
        spec.name,
        redact(seen.system),
        [PromptPartView(part.name, overhead(part.text, ()), len(part.text), redact(part.text)) for part in seen.parts],
        [ToolCost(tool.name, overhead("", (tool,)), tool.description, dict(tool.parameters)) for tool in specs],
        redact(seen.message),
        PromptTokens(overhead(seen.system, ()), overhead("", specs), overhead(seen.message, ()), seen.tokens),
        seen.notes,
    )


async def preview_in(
    cwd: Path, name: str, agents_json: str | None, *, task: str, as_main: bool, under_main: bool
) -> PromptPreview:
    """Open the project at `cwd` for one `preview_prompt`."""
    from retinue.engine import open_project

    project = open_project(cwd, agents_json=agents_json)
    return await preview_prompt(project, name, task=task, as_main=as_main, under_main=under_main)
