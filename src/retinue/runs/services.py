"""What capabilities add to a project, and what runs need of single ones of them.

A service is a class with a default that stands for a project without the capability; `project.part(Rules)` returns
the capability's own, where the project has it. So neither side imports the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from pathlib import Path

    from retinue.core.person_prompt import PersonPrompt, PromptCommand
    from retinue.core.spec import AgentSpec, PermissionMode
    from retinue.core.tool import Tool
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.guard.trust import TrustSubject
    from retinue.http.address import Fetched
    from retinue.runs.project import Project

Download = Callable[[str, int, Callable[[str], str | None]], Awaitable["Fetched"]]
"""Fetches a URL, at most so many bytes, from hosts for which the function returns no objection."""


class ProjectCapability:
    """What a capability adds to a project. Every method does nothing until a capability overrides it."""

    def tools(self, project: Project) -> Mapping[str, Tool]:
        """Return the tools that every run of the project could have."""
        return {}

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        """Return the tools that cannot work on this machine, each with the reason as a sentence for a model."""
        return {}

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        """Return the files of the project that would bring something of this capability."""
        return ()

    def prompt_commands(self, project: Project) -> Sequence[PromptCommand]:
        """Return what a person can say as `/name`."""
        return ()

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        """Add what the person's words stand for: the text of a command, a skill or a file that they name."""


class ProjectCapabilities(Struct, frozen=True):
    """The capabilities of a project, and what makes its services."""

    plan: tuple[ProjectCapability, ...] = ()
    services: Mapping[type, Callable[[Project], object]] = field(default_factory=dict)


class Service:
    """Something that a capability does for others, once per project."""

    def __init__(self, project: Project) -> None:
        self.project = project


class Rules(Service):
    """The permission rules of a project where no run is."""

    def denied_agents(self) -> frozenset[str]:
        """Return the agents, in small letters, that no run may start: models are not told of them."""
        return frozenset()

    def permissions(self, grants: Sequence[str], mode: PermissionMode | None) -> PermissionPolicy | None:
        """Return the permissions of a call outside of any run, such as a command line of a prompt, or None."""
        return None


class Servers(Service):
    """The MCP servers of a project."""

    def names(self) -> frozenset[str]:
        """Return the names of those that are configured."""
        return frozenset()


class Downloads(Service):
    """The way of tools to the web."""

    def function(self) -> Download | None:
        """Return what fetches a URL behind the guard of the web, or None."""
        return None


class UnsavedWork(Service):
    """Work of runs that exists in one place only."""

    def runs(self) -> Sequence[str]:
        """Return the runs whose work is not saved yet: what belongs to them must not be removed."""
        return ()


class Extensions(Service):
    """What plugins add to a project. This one adds nothing; the capability `plugins` has the other."""

    @property
    def agents(self) -> tuple[tuple[str, Path], ...]:
        """Folders of agents, each under the name of its plugin."""
        return ()

    @property
    def skills(self) -> tuple[tuple[str, Path], ...]:
        """Folders of skills, each under the name of its plugin."""
        return ()

    @property
    def has_code(self) -> bool:
        """Whether a plugin has tools, whose names are known only when it is loaded."""
        return False

    @property
    def has_hooks(self) -> bool:
        return False

    @property
    def has_servers(self) -> bool:
        return False

    def hooks(self) -> Sequence[ExtensionHooks]:
        """Return the tables of hooks that may take effect."""
        return ()

    def servers(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Return the tables of MCP servers that may be started, each with what brought it."""
        return ()

    def with_servers(self, spec: AgentSpec) -> AgentSpec:
        """Return `spec` with the servers of the plugins that it names as extensions."""
        return spec


class ExtensionHooks(Struct, frozen=True):
    """A table of hooks as a file has it. `source` names what brought it, `folder` is the project that it belongs to,
    and `variables` are put into the environment of what it starts."""

    table: Any
    source: str
    folder: Path | None
    variables: Mapping[str, str]
