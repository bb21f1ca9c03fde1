"""The seam between runs and what they can optionally do.

A capability (hooks, MCP servers, memory, …) is a folder under `capabilities/` with everything it needs. Runs know
none of them: they call the methods below at fixed moments, in one of three orders that `capabilities/__init__.py`
lists. A capability overrides what it needs. It keeps its state for one run by type: `plan.put(memory)` while the run
is planned, `node.get(Audit)` while it works. A run that does not use a capability loads no more than its `__init__`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.tool import Wrap as Wrap

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from retinue.core.delegation import Refusal, Scheduled, SpawnCall
    from retinue.core.events import Body
    from retinue.core.outcome import Outcome
    from retinue.core.permission import Permissions
    from retinue.core.spec import PermissionMode
    from retinue.core.tool import Tool, ToolContext
    from retinue.guard.permissions.policy import PermissionPolicy
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.http.fetched import Fetched
    from retinue.runs.admission import Admission
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.node import RunNode
    from retinue.runs.person_prompt import PersonPrompt, PromptCommand
    from retinue.runs.project import Extensions, Project
    from retinue.runs.supervisor import Supervisor

Download = Callable[[str, int, Callable[[str], str | None]], Awaitable["Fetched"]]
"""Fetches a URL, at most so many bytes, from hosts for which the function returns no objection."""


def loaded_module(name: str) -> ModuleType | None:
    """Return a module that the program has imported, whole: wait for a thread that is at it. None when it has not."""
    if name not in sys.modules:
        return None
    return importlib.import_module(name)


class Capability:
    """One thing a run can optionally do. Every method does nothing until a capability overrides it."""

    # One project: what all its runs share

    def tools(self, project: Project) -> Mapping[str, Tool]:
        """Return the tools that every run of the project could have."""
        return {}

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        """Return the tools that cannot work on this machine, each with the reason as a sentence for a model."""
        return {}

    def extensions(self, project: Project) -> Extensions | None:
        """Return what plugins add to the project, or None when this capability has no plugins."""
        return None

    def trust_subjects(self, project: Project) -> Sequence[TrustSubject]:
        """Return the files of the project that would bring something of this capability."""
        return ()

    async def expand_prompt(self, prompt: PersonPrompt, project: Project) -> None:
        """Add what the person's words stand for: the text of a command, a skill or a file that they name."""

    def prompt_commands(self, project: Project) -> Sequence[PromptCommand]:
        """Return what a person can say as `/name`."""
        return ()

    def permissions_before_run(
        self, project: Project, grants: Sequence[str], mode: PermissionMode | None
    ) -> PermissionPolicy | None:
        """Return the permissions of a call outside of any run, such as a command line of a prompt, or None."""
        return None

    def denied_agents(self, project: Project) -> frozenset[str]:
        """Return the agents, in small letters, that no run may start: models are not told of them."""
        return frozenset()

    def open_runs(self, state: Path) -> Sequence[str]:
        """Return the runs whose work is not saved yet: what belongs to them must not be removed."""
        return ()

    def server_names(self, project: Project) -> frozenset[str]:
        """Return the names of the MCP servers that are configured for the project."""
        return frozenset()

    def download(self, project: Project) -> Download | None:
        """Return what fetches a URL for other tools, behind the guard of the web, or None."""
        return None

    async def close_project(self, project: Project) -> None:
        """End what this capability has opened for the project."""

    # The launch: from a request to everything a run needs

    async def restrict(self, plan: LaunchPlan) -> None:
        """Take away what the run must not have, before anything is looked up."""

    async def offer(self, plan: LaunchPlan) -> None:
        """Add candidates to `plan.available`, from which the run's tools are selected."""

    def equip(self, plan: LaunchPlan) -> None:
        """Change the selected tools in `plan.tools`."""

    def brief(self, plan: LaunchPlan) -> None:
        """Add to the system prompt by `plan.tell(...)`."""

    async def admit(self, admission: Admission) -> None:
        """Object to the run before it is recorded, by raising an error."""

    async def discard(self, launch: Launch | LaunchPlan, project: Project) -> None:
        """Clean up after a run that was planned and does not start."""

    def limit_resumed(self, launch: Launch, had: frozenset[str]) -> None:
        """Keep a resumed run whose parent is gone to the tools it had."""

    def later_tool_names(self, launch: Launch) -> frozenset[str]:
        """Return the names of tools that the run may get after its launch."""
        return frozenset()

    # The run

    async def open(self, node: RunNode, *, resumed: bool) -> None:
        """Begin: the first events of the run are written, and nothing has been asked of the model."""

    def context(self, node: RunNode, context: ToolContext) -> ToolContext:
        """Return the context in which the run's tools work."""
        return context

    def permissions(self, node: RunNode, inner: Permissions) -> Permissions:
        """Return the permissions of the run, around those of its rules and mode."""
        return inner

    def wrap(self, node: RunNode, inner: Wrap, *, resumed: bool) -> Wrap:
        """Return what is put around each tool of the run; `inner` has been put around it before."""
        return inner

    def connect(self, node: RunNode, tools: tuple[Tool, ...], wrap: Wrap, *, resumed: bool) -> None:
        """Take notice of the run's wrapped tools, and of how tools that come later are wrapped."""

    def introduce(self, node: RunNode, prompt: str) -> str:
        """Return the run's first prompt with what must stand before it."""
        return prompt

    def request_headers(self, node: RunNode) -> Callable[[], Mapping[str, str]] | None:
        """Return what the loop asks before each request for further headers of it, or None."""
        return None

    def late_tools(self, node: RunNode) -> Callable[[], tuple[Tool, ...]] | None:
        """Return what the loop asks before each request for tools that came since the launch, or None."""
        return None

    def remind(self, node: RunNode) -> str:
        """Return what the model must hear again after its conversation was shortened."""
        return ""

    def observer(self, node: RunNode) -> Callable[[Body], None] | None:
        """Return what takes notice of each event of the run, or None. It does little: there are many events."""
        return None

    def watcher(self, node: RunNode) -> Callable[[Body], Awaitable[None]] | None:
        """Return what acts on each event of the run while the loop waits for it, or None."""
        return None

    def before_end(self, node: RunNode) -> Callable[[], Any] | None:
        """Return what the loop asks when it would end well, or None."""
        return None

    def before_compact(self, node: RunNode) -> Callable[[str], Any] | None:
        """Return what the loop asks before it shortens the conversation, or None."""
        return None

    def hear(self, node: RunNode, text: str) -> bool:
        """Return whether `text`, said to the run by someone above it, is the answer to its question."""
        return False

    def change_rights(self, node: RunNode, context: ToolContext) -> None:
        """Adapt to a run whose rights have changed while it works."""

    async def end_calls(self, node: RunNode, context: ToolContext) -> None:
        """Release what calls of tools needed: no tool of the run works any more."""

    async def finish(self, node: RunNode, outcome: Outcome) -> Outcome:
        """Return the outcome with what this capability adds to it."""
        return outcome

    async def close(self, node: RunNode) -> None:
        """Release what the run holds, however it ended. Called more than once."""

    # Agents that start at a time

    def scheduler(self, supervisor: Supervisor) -> Any:
        """Return what starts agents at a time, or None."""
        return None

    async def schedule(self, supervisor: Supervisor, node: RunNode, call: SpawnCall) -> Scheduled | Refusal | None:
        """Carry out a call that schedules an agent, or return None."""
        return None
