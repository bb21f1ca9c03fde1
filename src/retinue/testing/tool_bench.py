"""One tool at a time, called the way a run calls it, for those who write or change tools.

    async with ToolBench(tmp_path) as bench:
        output = await bench.call("read", path="notes.txt")

The call goes through the loop: other spellings of its arguments are understood, wrong ones are refused before the tool
sees them, and what the tool raises becomes a failed result. Permissions and hooks belong to whole runs and are not
asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from retinue.core.events import ToolEnded
from retinue.core.tool import Tool, ToolContext, ToolOutput, ToolSpec
from retinue.loop import Controls, run_loop
from retinue.testing.model import ScriptedModel
from retinue.testing.runs import Recording, job
from retinue.testing.scripts import Call, Turn
from retinue.tools.apply_patch import ApplyPatchTool
from retinue.tools.base import builtin_tools, companion_tools
from retinue.tools.bash import BackgroundCommands

if TYPE_CHECKING:
    from retinue.runs.project import Project


class ToolBench:
    """The tools of one working folder, and the context that their calls share, as in one run.

    `tools` are your own. The built-in ones are there, and those that a project adds (web, language servers, plugins);
    `environment` are variables for that project, whose home is beside the folder unless they say otherwise.
    """

    def __init__(
        self, folder: Path, *, tools: Iterable[Tool] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.root = folder.resolve()
        self.root.mkdir(parents=True, exist_ok=True)
        self._commands = BackgroundCommands()
        self.context = ToolContext(
            "run-1", (self.root,), self.root.parent / "outputs", clearance="person", commands=self._commands
        )
        self._own = {tool.spec.name: tool for tool in tools}
        self._environment = dict(environment or {})
        self._project: Project | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything that the tools have started: commands in the background, language servers."""
        await self._commands.close()
        if self._project is not None:
            await self._project.close()

    def tool(self, name: str) -> Tool:
        """Return the tool of that name. Raise LookupError with the names there are."""
        if name == "apply_patch":
            return self._patches()
        tool = self._own.get(name) or builtin_tools((name,)).get(name) or companion_tools().get(name)
        # Opening a project reads its settings and plugins: most tools need none of it.
        tool = tool or self.project.tools.get(name)
        if tool is None:
            raise LookupError(f"There is no tool {name!r}; there are {', '.join(sorted(self.project.tools))}.")
        return tool

    def spec(self, name: str) -> ToolSpec:
        """Return the description of the tool that a model is shown."""
        return self.tool(name).spec

    async def call(self, name: str, /, **arguments: Any) -> ToolOutput:
        """Return the output of a call as a model gets it. A failed call raises nothing: see `is_error`."""
        tool = _Recorder(self.tool(name))
        model = ScriptedModel(Turn(Call(name, arguments)), "Done.")
        recording = Recording()
        # Not with `drive`: a test may make several calls at the same time, and each would see the others' tasks.
        async with aclosing(run_loop(job(tools=(tool,), context=self.context), model, Controls())) as bodies:
            recording.bodies.extend([body async for body in bodies])
        (ended,) = recording.of(ToolEnded)
        output = tool.output or ToolOutput(())
        return replace(output, content=ended.result.content, is_error=ended.result.is_error, effect=ended.effect)

    def _patches(self) -> Tool:
        """Return the tool for patches, which works through the tools beside it, as in a run."""
        tool = ApplyPatchTool()
        tool.tools = {name: self.tool(name) for name in ("read", "edit", "write")}
        return tool

    @property
    def project(self) -> Project:
        """The project of the folder, opened when it is first needed."""
        if self._project is None:
            from retinue.cluster import open_project

            home = self.root.parent / "home"
            around = {"HOME": str(home), "PATH": os.environ.get("PATH", ""), "RETINUE_HOME": str(home / "retinue")}
            own = tuple(self._own.values())
            self._project = open_project(self.root, environment={**around, **self._environment}, tools=own)
        return self._project


class _Recorder:
    """A tool that keeps its output: the events of a run have no place for its `value`."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.spec = tool.spec
        self.output: ToolOutput | None = None

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.output = await self._tool.run(call_id, arguments, context)
        return self.output
