"""The interface between runs and their optional capabilities.

A capability (hooks, MCP servers, memory, …) is a folder under `capabilities/`. Runs import none of them: they call the
methods of `Capability` at fixed moments, in one of the three orders of `Capabilities`. A capability overrides the
methods it needs. Its state for one run is stored by type: `plan.put(memory)` while the run is planned,
`node.get(Audit)` while it works. A run that does not use a capability loads only its `__init__`.

A service is something that one capability does for others: a class with a default for projects without the capability.
`project.part(Rules)` returns the capability's implementation or the default. So neither side imports the other.
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
    """The functions of a capability in one attempt of a run. A missing function costs the run nothing."""

    context: Callable[[ToolContext], ToolContext] | None = None
    """Returns the context in which the run's tools work, in the order `plan`."""
    wrap: Callable[[Wrap], Wrap] | None = None
    """Wraps each tool, outside of earlier wrappers, in the order `wrap`."""
    connect: Callable[[tuple[Tool, ...], Wrap], None] | None = None
    """Receives the wrapped tools, and the wrapper of later tools."""
    late_tools: Callable[[], tuple[Tool, ...]] | None = None
    """Returns the tools that were added since the launch. The loop calls it before each request."""
    introduce: Callable[[str], str] | None = None
    """Returns the run's first prompt with a text before it."""
    request_headers: Callable[[], Mapping[str, str]] | None = None
    """Returns additional headers. The loop calls it before each request."""
    observe: Callable[[Body], None] | None = None
    """Receives each event of the run. It must be quick, because there are many events."""
    watch: Callable[[Body], Awaitable[None]] | None = None
    """Acts on each event of the run while the loop waits."""
    before_end: Callable[[], Awaitable[str | None]] | None = None
    """Returns an instruction to continue, or None. The loop calls it before a successful end."""
    before_compact: Callable[[str], Awaitable[str | None]] | None = None
    """Returns an objection, or None. The loop calls it before it shortens the conversation."""
    close: Callable[[Run], Awaitable[None]] | None = None
    """Releases the resources of the run. Called after `finish`, however the run ended, last opened first."""


class Capability:
    """An optional ability of runs. Every method does nothing until a capability overrides it."""

    # The project

    def tools(self, project: Project) -> Mapping[str, Tool]:
        """Return the tools that every run of the project could have."""
        return {}

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        """Return the tools that cannot work on this machine, each with the reason in a sentence for a model."""
        return {}

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        """Return the files of the project that define something for this capability and need consent."""
        return ()

    def prompt_commands(self, project: Project) -> Sequence[PromptCommand]:
        """Return the commands that a person can type as `/name`."""
        return ()

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        """Add the text of the commands, skills or files that the person's prompt names."""

    # The plan: from a request to everything a run needs

    async def restrict(self, plan: LaunchPlan) -> None:
        """Restrict the run's rights before anything else is planned."""

    async def offer(self, plan: LaunchPlan) -> None:
        """Add candidates to `plan.available`, from which the run's tools are selected."""

    def equip(self, plan: LaunchPlan) -> None:
        """Change the selected tools in `plan.tools`."""

    def brief(self, plan: LaunchPlan) -> None:
        """Add to the system prompt by `plan.tell(...)`."""

    async def admit(self, plan: LaunchPlan) -> None:
        """Reject the run by raising an error before it is recorded, or change its task."""

    # The run

    async def running(self, node: Run, *, resumed: bool) -> RunPart | None:
        """Return this capability's functions in the run, or None. Called after the first events of the run are written
        and before the first request. `RunPart.close` releases resources that are opened here."""
        return None

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        """Return the outcome with the additions of this capability. Also called for a run that never began."""
        return outcome


class Capabilities(Struct, frozen=True):
    """All capabilities of a project, and the factories of its services. `wrap` is the order of wrappers from the inside
    out, `finish` the order at a run's end, and `plan` that of all other calls."""

    plan: tuple[Capability, ...] = ()
    wrap: tuple[Capability, ...] = ()
    finish: tuple[Capability, ...] = ()
    services: Mapping[type, Callable[[Project], object]] = field(default_factory=dict)


Download = Callable[[str, int, Callable[[str], str | None]], Awaitable["Fetched"]]
"""Fetches a URL up to a number of bytes. The function returns an objection to a host, or None."""


class Service:
    """A service of a capability to others, one object per project."""

    def __init__(self, project: Project) -> None:
        self.project = project


class Rules(Service):
    """The permission rules of a project outside of runs."""

    def denied_agents(self) -> frozenset[str]:
        """Return the lower-case names of agents that no run may start; models are not told about them."""
        return frozenset()

    def permissions(self, grants: Sequence[str], mode: PermissionMode | None) -> PermissionPolicy | None:
        """Return the permissions of a call outside of any run, such as a command line of a prompt, or None."""
        return None


class Servers(Service):
    """The MCP servers of a project."""

    def names(self) -> frozenset[str]:
        """Return the names of the configured servers."""
        return frozenset()


class Downloads(Service):
    """Downloads for tools."""

    def function(self) -> Download | None:
        """Return the function that fetches a URL with the checks of the web capability, or None."""
        return None


class UnsavedWork(Service):
    """Unsaved work of runs."""

    def runs(self) -> Sequence[str]:
        """Return the ids of runs with unsaved work, whose data must not be removed."""
        return ()


class Extensions(Service):
    """The additions of plugins to a project. The default adds nothing; the capability `plugins` implements it."""

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
        """Whether a plugin has tools, whose names are unknown until it is loaded."""
        return False

    @property
    def has_hooks(self) -> bool:
        return False

    @property
    def has_servers(self) -> bool:
        return False

    def hooks(self) -> Sequence[ExtensionHooks]:
        """Return the tables of hooks with consent."""
        return ()

    def servers(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Return the tables of MCP servers with consent, each with its source."""
        return ()

    def with_servers(self, spec: AgentSpec) -> AgentSpec:
        """Return `spec` with the servers of the plugins that it names as extensions."""
        return spec


class ExtensionHooks(Struct, frozen=True):
    """A table of hooks in a file. `source` names where it comes from, `folder` is its project, and `variables` are set
    in the environment of its programs."""

    table: Any
    source: str
    folder: Path | None
    variables: Mapping[str, str]


class Schedules(Protocol):
    """Starts the scheduled agents of one supervisor."""

    async def end(self) -> None:
        """Start no more agents."""


class Scheduling(Service):
    """Executes the calls with which agents schedule others."""

    async def schedule(self, node: Run, call: SpawnCall) -> Scheduled | Refusal:
        """Execute such a call of the run `node`."""
        return Refusal(code="UNSUPPORTED", message="Nothing is scheduled here: leave out `schedule`.")
