"""The tools of a cassette: nothing is executed, each call gets the result that was recorded for it.

They stand inside the permission gate, so that a replay asks the same questions and is refused the same calls. What
starts agents, and what only writes into the log, is done for real.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.core.events import ToolEnded
from retinue.core.tool import Tool, ToolContext, ToolOutput, failed
from retinue.evidence.portable import MachineFolders, localize
from retinue.evidence.recorded_model import RecordedModels
from retinue.log.encode import dump
from retinue.runs.capability import Capability, Wrap

if TYPE_CHECKING:
    from retinue.runs.node import RunNode

_DONE_FOR_REAL = frozenset(
    {"todo", "ask_user", "ask_parent", "exit_plan", "get_subagent_result", "list_subagents", "clear_subagents"}
)


class RecordedToolsCapability(Capability):
    """Puts recorded results in the place of tools, for all runs of a project that plays `models`."""

    def __init__(self, models: RecordedModels, folders: MachineFolders) -> None:
        self._models = models
        self._folders = folders

    def wrap(self, node: RunNode, inner: Wrap, *, resumed: bool) -> Wrap:
        return lambda tools: tuple(self._recorded(tool, node.id) for tool in inner(tools))

    def _recorded(self, tool: Tool, run_id: str) -> Tool:
        if "spawn" in tool.spec.effects or tool.spec.name in _DONE_FOR_REAL:
            return tool
        return _RecordedTool(tool, run_id, self)

    def find(self, run_id: str, call_id: str) -> ToolEnded | None:
        """Return how a call ended in the recording, with the folders of here."""
        run = self._models.recorded(run_id)
        for body in run.bodies if run is not None else ():
            if isinstance(body, ToolEnded) and body.call_id == call_id:
                return msgspec.json.decode(localize(dump(body), self._folders, self._models.run_id), type=ToolEnded)
        return None


class _RecordedTool:
    def __init__(self, tool: Tool, run_id: str, source: RecordedToolsCapability) -> None:
        self.spec = tool.spec
        self._run_id = run_id
        self._source = source

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        ended = self._source.find(self._run_id, call_id)
        if ended is None:
            return failed("The recording has no result of this call.")
        return ToolOutput(ended.result.content, is_error=ended.result.is_error, effect=ended.effect)
