"""The seam between runs and what they can optionally do.

A capability (hooks, MCP servers, memory, …) is a folder under `capabilities/` with everything it needs. Runs know
none of them: they call the methods of `Capability` at fixed moments, in one of the three orders of `Capabilities`. A
capability overrides what it needs. It keeps its state for one run by type: `plan.put(memory)` while the run is
planned, `node.get(Audit)` while it works. A run that does not use a capability loads no more than its `__init__`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.runs.services import ProjectCapabilities, ProjectCapability

if TYPE_CHECKING:
    from retinue.core.events import Body
    from retinue.core.outcome import Outcome
    from retinue.core.tool import Tool, ToolContext, Wrap
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


Running = AbstractAsyncContextManager[RunPart]
"""Entering opens what a capability needs for a run, leaving releases it, however the run ended."""


class Capability(ProjectCapability):
    """One thing a run can optionally do, beside what it adds to the project (`services.py`). Every method does nothing
    until a capability overrides it."""

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

    def running(self, node: Run, *, resumed: bool) -> Running | None:
        """Return what opens and releases the part that this capability takes in the run, or None. It is entered when
        the first events of the run are written and nothing has been asked of the model, and left after `finish`."""
        return None

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        """Return the outcome with what this capability adds to it. Also called for a run that never began."""
        return outcome


class Capabilities(ProjectCapabilities, frozen=True):
    """All capabilities of a project. `plan` is the order of everything but wrapping and finishing; `wrap` lists what
    is put around tools from the inside out; `finish` is the order at a run's end."""

    plan: tuple[Capability, ...] = ()
    wrap: tuple[Capability, ...] = ()
    finish: tuple[Capability, ...] = ()


def capabilities_of(project: Project) -> Capabilities:
    """Return the capabilities of a project in the orders in which runs call them."""
    capabilities = project.capabilities
    return capabilities if isinstance(capabilities, Capabilities) else Capabilities()
