"""Language servers as a part of runs: how they are started and confined, and diagnostics after an edit.

A server is a program that reads a project, and some servers run parts of it. So it is started in a sandbox of its own,
where it can change nothing, reach nobody, and read no file that rules hide from the run. The runs of a process from
which the same files are hidden share it, and it never outlives the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.capabilities.lsp.catalog import server_kinds
from retinue.capabilities.lsp.protocol import ServerFailedError
from retinue.capabilities.lsp.tool import PRIVILEGED, READING, LspTool
from retinue.core.messages import Text
from retinue.core.programs import NotConfinedError, prepare
from retinue.core.tool import Tool, ToolContext, ToolOutput
from retinue.guard.sandbox.kernel import can_sandbox
from retinue.guard.sandbox.policy import SandboxPolicy
from retinue.settings.places import home, own_folders
from retinue.tools.processes import CannotStartError, ErrorLog, ServerProcess

if TYPE_CHECKING:
    from retinue.capabilities.lsp.catalog import ServerKind
    from retinue.capabilities.lsp.pool import LanguageServerPool
    from retinue.core.programs import Clearance, Confinement
    from retinue.runs.launch import Launch, LaunchPlan
    from retinue.runs.project import Project
    from retinue.tools.processes import ErrorLog, ServerProcess

ANSWER_SECONDS, START_SECONDS, IDLE_SECONDS = 30.0, 30.0, 300.0
Wrap = Callable[[tuple[Tool, ...]], tuple[Tool, ...]]
_EDITING = frozenset({"edit", "write"})


class Languages:
    """The language servers of one project in this process. Nothing is made before the first question."""

    def __init__(
        self,
        project: Project,
        *,
        seconds: float = ANSWER_SECONDS,
        start_seconds: float = START_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """A server may take `seconds` to answer and `start_seconds` to start; it ends after `idle_seconds` unused."""
        self._project = project
        project.closing.push_async_callback(self.close)
        self._seconds, self._start_seconds, self._idle_seconds = seconds, start_seconds, idle_seconds

    def tool(self, actions: tuple[str, ...] | None = None) -> Tool:
        """Return the tool with which agents ask, for `actions` or for all that the settings allow."""
        if actions is None:
            more = PRIVILEGED if self._project.settings.settings.lsp_allow_mutating_actions else ()
            actions = (*READING, *more)
        return LspTool(lambda: self.pool, actions)

    @cached_property
    def pool(self) -> LanguageServerPool:
        from retinue.capabilities.lsp.pool import LanguagePoolOptions, LanguageServerPool

        settings = self._project.settings.settings
        return LanguageServerPool(
            LanguagePoolOptions(
                kinds=server_kinds(settings.lsp_servers),
                spawn=self._spawn,
                search=self._project.environment.get("PATH"),
                confined=self._confines,
                trusting=self._trusting,
                seconds=self._seconds,
                start_seconds=self._start_seconds,
                idle_seconds=self._idle_seconds,
            )
        )

    async def close(self) -> None:
        """End every server."""
        # Reading the cached property would make a pool only to close it.
        if "pool" in self.__dict__:
            await self.pool.close()

    @property
    def _trusting(self) -> bool:
        return self._project.settings.settings.lsp_sandbox == "off"

    @property
    def _confines(self) -> bool:
        return not self._trusting and can_sandbox(self._project.settings.settings)

    async def _spawn(
        self, kind: ServerKind, argv: tuple[str, ...], root: Path, hidden: tuple[str, ...]
    ) -> WatchedServer:
        project = self._project
        log = ErrorLog(project.state / "logs" / f"lsp-{kind.name}.log", project.redactor)
        environment = {**project.tool_environment, **kind.environment}
        box = self._box(kind, root, hidden) if self._confines else None
        # Without a sandbox the user has switched it off, or the server runs nothing of the project (`pool.py`).
        clearance: Clearance = "inside" if box is not None else "person"
        try:
            program = await asyncio.to_thread(
                lambda: prepare(argv, clearance=clearance, environment=environment, cwd=root, confine=lambda _: box)
            )
            process = await ServerProcess.launch(program, log)
        except (CannotStartError, NotConfinedError) as error:
            if box is not None:
                await asyncio.to_thread(box.close)
            raise ServerFailedError(str(error)) from None
        return WatchedServer(process, log, box)

    def _box(self, kind: ServerKind, root: Path, hidden: tuple[str, ...]) -> Confinement:
        from retinue.guard.sandbox.box import Box

        environment = self._project.environment
        policy = SandboxPolicy(
            hidden=(*own_folders(environment), *map(Path, hidden)),
            shown=(root,),
            network="off",
            home=home(environment),
        )
        return Box(policy, f"lsp-{kind.name}")


class WatchedServer:
    """A server's process with its sandbox, which is removed at its end."""

    def __init__(self, process: ServerProcess, log: ErrorLog, box: Confinement | None) -> None:
        self._process = process
        self._log = log
        self._box = box
        self.read, self.write, self.cut = process.read, process.write, process.cut

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        return self._process.code

    @property
    def said(self) -> str:
        return self._log.tail

    async def end(self) -> None:
        await self._process.end()
        if self._box is not None:
            await asyncio.to_thread(self._box.close)


def limit_tool(plan: LaunchPlan) -> None:
    """Leave a sub-agent the actions that the settings allow for it, never a privileged one, or no tool at all."""
    # A program may have put another tool in its place.
    if type(plan.available["lsp"]) is not LspTool:
        return
    settings = plan.project.settings.settings
    if settings.allow_lsp_tools and settings.allowed_lsp_actions:
        plan.available["lsp"] = plan.project.part(Languages).tool(settings.allowed_lsp_actions)
    else:
        del plan.available["lsp"]


def add_diagnostics(launch: Launch, project: Project, inner: Wrap) -> Wrap:
    """Add the diagnostics of an edited file to the result of the edit, outside of what `inner` puts around tools. Only
    for runs that may ask language servers themselves."""
    wanted = project.settings.settings.lsp_diagnostics_after_edit
    if wanted == "off" or (wanted == "main" and launch.request.parent_id is not None):
        return inner

    def wrap(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        wrapped = list(inner(tools))
        for at, tool in enumerate(wrapped):
            if tool.spec.name in _EDITING:
                wrapped[at] = Diagnosed(tool, project)
        return tuple(wrapped)

    return wrap


class Diagnosed:
    """A tool that edits files, with their diagnostics added to its result."""

    def __init__(self, tool: Tool, project: Project) -> None:
        self.inner = tool
        self.spec = tool.spec
        self._project = project

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        output = await self.inner.run(call_id, arguments, context)
        paths = [Path(write.path) for write in output.effect.writes if write.after is not None]
        if output.is_error or not paths:
            return output
        from retinue.capabilities.lsp.diagnostics import after_edit

        seconds = self._project.settings.settings.lsp_diagnostics_seconds
        said = await after_edit(self._project.part(Languages).pool, paths, context, seconds)
        if not said:
            return output
        return replace(output, content=(*output.content, Text(said)))
