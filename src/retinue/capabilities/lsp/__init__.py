"""Language servers, over their standard streams, shared by the runs of a process.

A server is a program that reads a project, and some servers run parts of it. So each is started in a sandbox without
write access and network, in which the files that rules hide from the run are empty. Runs with the same hidden files
share a server, and it never outlives the process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.core.lazy import LazyModule
from retinue.core.messages import Text
from retinue.core.programs import Clearance, Confinement, NotConfinedError, prepare
from retinue.core.tool import Tool, ToolContext, ToolOutput, Wrap
from retinue.guard.sandbox.kernel import can_sandbox
from retinue.guard.sandbox.policy import SandboxPolicy
from retinue.runs.capability import Capability, RunPart
from retinue.settings.places import home, own_folders

if TYPE_CHECKING:
    from retinue.capabilities.lsp import actions as _actions
    from retinue.capabilities.lsp import catalog as _catalog
    from retinue.capabilities.lsp import connection as _connection
    from retinue.capabilities.lsp import pool as _pool
    from retinue.capabilities.lsp import tool as _tool
    from retinue.guard.sandbox import box as _box
    from retinue.runs.launch import LaunchPlan
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.tools import processes as _processes
else:
    _actions = LazyModule("retinue.capabilities.lsp.actions")
    _catalog = LazyModule("retinue.capabilities.lsp.catalog")
    _connection = LazyModule("retinue.capabilities.lsp.connection")
    _pool = LazyModule("retinue.capabilities.lsp.pool")
    _tool = LazyModule("retinue.capabilities.lsp.tool")
    _box = LazyModule("retinue.guard.sandbox.box")
    _processes = LazyModule("retinue.tools.processes")

ANSWER_SECONDS, START_SECONDS, IDLE_SECONDS = 30.0, 30.0, 300.0


class LspCapability(Capability):
    """The tool that asks language servers, and their diagnostics after an edit."""

    def tools(self, project: Project) -> Mapping[str, Tool]:
        if "lsp" in project.unavailable or not project.settings.settings.lsp_enabled:
            return {}
        return {"lsp": project.part(Languages).tool()}

    async def offer(self, plan: LaunchPlan) -> None:
        """Give a sub-agent only the actions that the settings allow for it, or no tool."""
        is_child = plan.request.depth > 0 or plan.spec.dialect == "devkit"
        # The embedding program may have replaced the tool.
        if not is_child or "lsp" not in plan.available or type(plan.available["lsp"]) is not _tool.LspTool:
            return
        settings = plan.project.settings.settings
        if settings.allow_lsp_tools and settings.allowed_lsp_actions:
            plan.available["lsp"] = plan.project.part(Languages).tool(settings.allowed_lsp_actions)
        else:
            del plan.available["lsp"]

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        if find_spec("lsprotocol") is not None:
            search = project.environment.get("PATH")
            kinds = _catalog.server_kinds(project.settings.settings.lsp_servers)
            if any(kind.enabled and kind.program(search) is not None for kind in kinds):
                return {}
        return {"lsp": "no language server is installed."}

    async def running(self, node: Run, *, resumed: bool) -> RunPart | None:
        """Add the diagnostics of an edited file to the result of the edit, outside of earlier wrappers. Only for runs
        that have the tool `lsp`."""
        launch, project = node.launch, node.project
        after_edit = project.settings.settings.lsp_diagnostics_after_edit
        if after_edit == "off" or (after_edit == "main" and launch.request.parent_id is not None):
            return None
        if not any(tool.spec.name == "lsp" for tool in launch.tools):
            return None

        def wrap(inner: Wrap) -> Wrap:
            return lambda tools: tuple(
                Diagnosed(tool, project) if tool.spec.name in ("edit", "write") else tool for tool in inner(tools)
            )

        return RunPart(wrap=wrap)


class Languages:
    """The language servers of one project in this process, created at the first question."""

    def __init__(
        self,
        project: Project,
        *,
        seconds: float = ANSWER_SECONDS,
        start_seconds: float = START_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """A server has `seconds` to answer and `start_seconds` to start; it is ended after `idle_seconds` without
        use."""
        self._project = project
        project.closing.push_async_callback(self.close)
        self._times = (seconds, start_seconds, idle_seconds)
        self._tools: dict[tuple[str, ...], Tool] = {}

    def tool(self, actions: tuple[str, ...] | None = None) -> Tool:
        """Return the tool with which agents ask, for `actions` or for all that the settings allow."""
        if actions is None:
            privileged = _tool.PRIVILEGED_ACTIONS if self._project.settings.settings.lsp_allow_mutating_actions else ()
            actions = (*_tool.READ_ACTIONS, *privileged)
        if actions not in self._tools:
            # Its description is long, and each sub-agent is offered one.
            self._tools[actions] = _tool.LspTool(lambda: self.pool, actions)
        return self._tools[actions]

    @cached_property
    def pool(self) -> _pool.LanguageServerPool:
        settings = self._project.settings.settings
        kinds, search = _catalog.server_kinds(settings.lsp_servers), self._project.environment.get("PATH")
        trusting = settings.lsp_sandbox == "off"
        confined = not trusting and can_sandbox(settings)
        return _pool.LanguageServerPool(kinds, self._spawn, search, confined, trusting, *self._times)

    async def close(self) -> None:
        """End every server."""
        # Reading the cached property would create a pool only to close it.
        if "pool" in self.__dict__:
            await self.pool.close()

    async def _spawn(
        self, kind: _catalog.ServerKind, argv: tuple[str, ...], root: Path, hidden: tuple[str, ...]
    ) -> _connection.WatchedServer:
        project = self._project
        log = _processes.ErrorLog(project.state / "logs" / f"lsp-{kind.name}.log", project.redactor)
        environment = {**project.tool_environment, **kind.environment}
        box: Confinement | None = None
        # Without a sandbox: the user has switched it off, or the server runs no code of the project (`pool.py`).
        clearance: Clearance = "person"
        if self.pool.confined:
            clearance, own = "inside", own_folders(project.environment)
            policy = SandboxPolicy(
                hidden=(*own, *map(Path, hidden)), shown=(root,), network="off", home=home(project.environment)
            )
            box = _box.Box(policy, f"lsp-{kind.name}")
        try:
            program = await asyncio.to_thread(
                lambda: prepare(argv, clearance=clearance, environment=environment, cwd=root, confine=lambda _: box)
            )
            process = await _processes.ServerProcess.launch(program, log)
            return _connection.WatchedServer(process, log, box)
        except (_processes.CannotStartError, NotConfinedError) as error:
            if box is not None:
                await asyncio.to_thread(box.close)
            raise _tool.ServerFailedError(str(error)) from None


class Diagnosed:
    """A tool that edits files and adds their diagnostics to its result."""

    def __init__(self, tool: Tool, project: Project) -> None:
        self.inner = tool
        self.spec = tool.spec
        self._project = project

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        output = await self.inner.run(call_id, arguments, context)
        paths = [Path(write.path) for write in output.effect.writes if write.after is not None]
        if output.is_error or not paths:
            return output
        seconds = self._project.settings.settings.lsp_diagnostics_seconds
        report = await _actions.after_edit(self._project.part(Languages).pool, paths, context, seconds)
        return replace(output, content=(*output.content, Text(report))) if report else output
