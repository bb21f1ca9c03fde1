"""apply_patch: changes of several files in the format that OpenAI's coding models were trained on.

It has no rights of its own. Each file goes through the run's own edit and write tools, with their
gate, hooks and checks; so whatever holds for those holds for a patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from retinue.domain.effects import ToolEffect
from retinue.domain.tool import Tool, ToolContext, ToolOutput, failed, ok
from retinue.tools.apply_patch.patch import FileChange, read_patch
from retinue.tools.arguments import Arguments
from retinue.tools.base import Aliases, BuiltinTool, Properties
from retinue.tools.errors import ToolError


class ApplyPatchTool(BuiltinTool):
    """Made for one run. `tools` are its guarded tools, set before its first call."""

    name = "apply_patch"
    required = ("input",)
    exclusive = True
    properties: ClassVar[Properties] = {"input": {"type": "string", "description": "The whole patch"}}
    aliases: ClassVar[Aliases] = {"input": ("patch", "patch_text", "diff", "content")}

    def __init__(self) -> None:
        super().__init__()
        self.tools: Mapping[str, Tool] = {}

    async def call(self, call_id: str, given: Arguments, context: ToolContext) -> ToolOutput:
        changes = read_patch(given.text("input"))
        done: list[str] = []
        effect = ToolEffect()
        for change in changes:
            output = await self._apply(change, call_id, context)
            effect = _joined(effect, output.effect)
            if output.is_error:
                before = "\n".join(done) or "Nothing was changed."
                return failed(f"{change.path}: {output.text}\nBefore that:\n{before}", effect)
            done.append(output.text)
        return ok("\n".join(done), effect)

    async def _apply(self, change: FileChange, call_id: str, context: ToolContext) -> ToolOutput:
        if change.kind == "delete":
            raise ToolError(f"apply_patch cannot delete {change.path}. Delete it with the shell.")
        if change.kind == "add":
            content = "\n".join(change.lines) + "\n" if change.lines else ""
            return await self._tool("write").run(call_id, {"path": change.path, "content": content}, context)
        edits = [{"old_string": old, "new_string": new} for old, new in change.hunks]
        return await self._tool("edit").run(call_id, {"path": change.path, "edits": edits}, context)

    def _tool(self, name: str) -> Tool:
        if name not in self.tools:
            raise ToolError(f"apply_patch needs {name}, which is not among your tools.")
        return self.tools[name]


def _joined(one: ToolEffect, other: ToolEffect) -> ToolEffect:
    made: dict[str, Any] = {"reads": (*one.reads, *other.reads), "writes": (*one.writes, *other.writes)}
    return ToolEffect(other.status, **made, denied=other.denied, allowed=other.allowed)
