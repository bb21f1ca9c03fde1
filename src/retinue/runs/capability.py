"""The seam between runs and what they can optionally do.

A capability (hooks, MCP servers, memory, …) is a folder under `capabilities/` with everything it needs. Runs know
none of them: they call the methods of `Capability` at fixed moments, in one of the three orders of `Capabilities`. A
capability overrides what it needs. It keeps its state for one run by type: `plan.put(memory)` while the run is
planned, `node.get(Audit)` while it works. A run that does not use a capability loads no more than its `__init__`.

What single capabilities do for others is a service: a class with a default for a project without the capability.
`project.part(Rules)` returns the capability's own, where the project has it. So neither side imports the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from retinue.core.delegation import Refusal, Scheduled, SpawnCall

if TYPE_CHECKING:
    from pathlib import Path

    from retinue.core.events import Body
    from retinue.core.outcome import Outcome
    from retinue.core.person_prompt import PersonPrompt, PromptCommand
    from retinue.core.spec import AgentSpec, PermissionMode
    from retinue.core.tool import Tool, ToolContext, Wrap
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.guard.trust import TrustSubject
    from retinue.http.address import Fetched
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run


class RunPart(Struct, frozen=True):
    """What a capability does in one attempt of a run. A field that is left out costs the run nothing."""

    context: Callable[[ToolContext], ToolContext] | None = None
    """Returns the context in which the run's tools work, in the order `plan`."""
    wrap: Callable[[Wrap], Wrap] | None = None
    """Puts something around each tool, outside of what was put around it before, in the order `wrap`."""
    connect: Callable[[tuple[Tool, ...], Wrap], None] | None = None
    """Takes notice of the wrapped tools, and of how tools that come later are wrapped."""
    late_tools: Callable[[], tuple[Tool, ...]] | None = None
    """Returns the tools that came since the launch; the loop asks before each request."""
    introduce: Callable[[str], str] | None = None
    """Returns the run's first prompt with what must stand before it."""
    request_headers: Callable[[], Mapping[str, str]] | None = None
    """Returns further headers of a request; the loop asks before each one."""
    observe: Callable[[Body], None] | None = None
    """Takes notice of each event of the run. It does little: there are many events."""
    watch: Callable[[Body], Awaitable[None]] | None = None
    """Acts on each event of the run while the loop waits for it."""
    before_end: Callable[[], Awaitable[str | None]] | None = None
    """Returns an instruction to go on, or None; the loop asks when it would end well."""
    before_compact: Callable[[str], Awaitable[str | None]] | None = None
    """Returns an objection, or None; the loop asks before it shortens the conversation."""
    close: Callable[[Run], Awaitable[None]] | None = None
    """Releases what was opened for the run. Called after `finish`, however the run ended, last opened first."""


class Capability:
    """One thing a run can optionally do. Every method does nothing until a capability overrides it."""

    # The project

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

    # The plan: from a request to everything a run needs

    async def restrict(self, plan: LaunchPlan) -> None:
        """Take away what the run must not have, before anything is looked up."""

    async def offer(self, plan: LaunchPlan) -> None:
        """Add candidates to `plan.available`, from which the run's tools are selected."""

    def equip(self, plan: LaunchPlan) -> None:
        """Change the selected tools in `plan.tools`."""

    def brief(self, plan: LaunchPlan) -> None:
        """Add to the system prompt by `plan.tell(...)`."""

    async def admit(self, plan: LaunchPlan) -> None:
        """Object to the run before it is recorded, by raising an error, or change its task."""

    # The run

    async def running(self, node: Run, *, resumed: bool) -> RunPart | None:
        """Return the part that this capability takes in the run, or None. Called when the first events of the run are
        written and nothing has been asked of the model. `RunPart.close` releases what is opened here."""
        return None

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        """Return the outcome with what this capability adds to it. Also called for a run that never began."""
        return outcome


class Capabilities(Struct, frozen=True):
    """All capabilities of a project, and what makes its services. `plan` is the order of everything but wrapping and
    finishing; `wrap` lists what is put around tools from the inside out; `finish` is the order at a run's end."""

    plan: tuple[Capability, ...] = ()
    wrap: tuple[Capability, ...] = ()
    finish: tuple[Capability, ...] = ()
    services: Mapping[type, Callable[[Project], object]] = field(default_factory=dict)


Download = Callable[[str, int, Callable[[str], str | None]], Awaitable["Fetched"]]
"""Fetches a URL, at most so many bytes, from hosts for which the function returns no objection."""


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


class Schedules(Protocol):
    """What starts agents of one supervisor at a time."""

    async def end(self) -> None:
        """Start none any more."""


class Scheduling(Service):
    """The calls by which agents schedule others."""

    async def schedule(self, node: Run, call: SpawnCall) -> Scheduled | Refusal:
        """Carry out such a call of the run `node`."""
        return Refusal(code="UNSUPPORTED", message="Nothing is scheduled here: leave out `schedule`.")
