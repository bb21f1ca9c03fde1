"""The agents of a project, and how each field of their files is handled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.agents.catalog import Catalog as Catalog
from retinue.agents.catalog import FailedFile as FailedFile
from retinue.agents.catalog import LoadedAgent as LoadedAgent
from retinue.agents.catalog import is_profile
from retinue.agents.catalog import shadows as shadows
from retinue.app.text import optional
from retinue.capabilities.plugins import visible_plugins
from retinue.core.spec import AgentSpec, Fate, Problem
from retinue.models.keys import environment
from retinue.settings.load import load_settings

if TYPE_CHECKING:
    pass


NO_TASK = "(the task)"
"""The task that a preview of a prompt shows if none is given."""


class AgentFacts(Struct, frozen=True, kw_only=True):
    """One agent and its file. `shadowed_by` is the file that takes effect instead."""

    name: str
    description: str
    source: str
    dialect: str
    path: str
    enabled: bool
    shadowed_by: str | None
    problems: Sequence[Problem]


class AgentView(AgentFacts, frozen=True, kw_only=True):
    """An agent of the list. `tools` is None if its file does not limit them."""

    tools: Sequence[str] | None
    model: str | Sequence[str] | None
    readonly: bool


class RefusedFile(Struct, frozen=True):
    """A plugin or skill that cannot be used."""

    path: str
    reason: str


class RefusedAgentFile(RefusedFile, frozen=True):
    """An agent file that could not be loaded."""

    line: int | None


class AgentList(Struct, frozen=True):
    """Every agent visible from the project, and the files that could not be loaded."""

    agents: list[AgentView]
    failed: list[RefusedAgentFile]


class FateView(Fate, frozen=True, omit_defaults=True):
    """How one field of a file is handled, without empty values."""


class AgentDetail(AgentFacts, frozen=True, kw_only=True):
    """One agent with its definition and the handling of each field of its file."""

    reading: str
    shadows: list[str]
    spec: AgentSpec
    fates: Mapping[str, FateView]


def plugin_folders(cwd: Path, *, own: bool = True) -> tuple[tuple[str, Path], ...]:
    """Return the agent folders of plugins, without running any plugin. With `own` False, return only those of the
    project's plugins."""
    plugins = visible_plugins(cwd, environment(), load_settings(cwd))
    return (plugins if own else plugins.brought).agents


def load_catalog(cwd: Path, agents_json: str | None = None) -> Catalog:
    """Load the agents visible from `cwd`, including those of plugins and those given as JSON."""
    return Catalog.load(cwd, agents_json=agents_json, plugin_folders=plugin_folders(cwd))


def list_agents(catalog: Catalog) -> AgentList:
    """List every agent visible from the project: first those in effect, then those replaced by others, each group by
    name."""
    entries = sorted(
        catalog.entries, key=lambda entry: (entry.shadowed_by is not None, entry.name.casefold(), entry.path)
    )
    failed = [RefusedAgentFile(file.path, file.reason, file.line) for file in catalog.failed]
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
    """Return the tools that a file names, by the names it uses; empty if it allows none."""
    if entry.spec.tools.allow == ():
        return ()
    return entry.parsed.tools


def tools_text(tools: Sequence[str] | None) -> str:
    """Return the tools of an agent's file as text: `all` if it does not limit them, `none` if it allows none."""
    if tools is None:
        return "all"
    return ", ".join(tools) or "none"


def describe_agent(catalog: Catalog, name: str) -> AgentDetail:
    """Describe one agent. Raise UnknownAgentError."""
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
        shadows=[shadow.path for shadow in shadows(catalog.entries, entry)],
        spec=entry.spec,
        fates=view_fates(entry.parsed.fates),
        problems=entry.problems,
    )


def view_fates(fates: Mapping[str, Fate]) -> dict[str, FateView]:
    """Return the fields without empty values."""
    return {key: FateView(fate.fate, fate.to, fate.why) for key, fate in fates.items()}


def fate_text(key: str, fate: Fate) -> str:
    """Describe how a field is handled, such as `kept → max_turns (why)`."""
    to = optional(" → {}", fate.to) if fate.to != key else ""
    return f"{fate.fate}{to}{optional(' ({})', fate.why)}"
