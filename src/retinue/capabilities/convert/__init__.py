"""Documents as Markdown, converted in a process of its own with few rights."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability

if TYPE_CHECKING:
    from retinue.core.tool import Tool, ToolContext
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project


class ConvertCapability(Capability):
    """The tool that converts documents, and text for models that take no documents."""

    def tools(self, project: Project) -> Mapping[str, Tool]:
        if not project.settings.settings.convert_enabled or "convert_content" in project.unavailable:
            return {}
        from retinue.capabilities.convert.attach import convert_tools

        return convert_tools(project)

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        if find_spec("markitdown") is not None:
            return {}
        return {"convert_content": "the converter of documents is not installed."}

    def context(self, node: RunNode, context: ToolContext) -> ToolContext:
        async def convert(call_id: str, path: str, context: ToolContext) -> str:
            from retinue.capabilities.convert.attach import convert_to_text

            return await convert_to_text(node.project, call_id, path, context)

        context.convert = convert
        return context
