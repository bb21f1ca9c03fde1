"""Documents as Markdown, converted in a separate process with few rights."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.convert import attach as _attach
    from retinue.core.tool import Tool, ToolContext
    from retinue.runs.project import Project
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.convert.attach")


class ConvertCapability(Capability):
    """The tool that converts documents, and text for models that take no documents."""

    def tools(self, project: Project) -> Mapping[str, Tool]:
        if not project.settings.settings.convert_enabled or "convert_content" in project.unavailable:
            return {}
        return _attach.convert_tools(project)

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        if find_spec("markitdown") is not None:
            return {}
        return {"convert_content": "the converter of documents is not installed."}

    async def running(self, node: Run, *, resumed: bool) -> RunPart:
        async def convert(call_id: str, path: str, context: ToolContext) -> str:
            return await _attach.convert_to_text(node.project, call_id, path, context)

        def add_converter(context: ToolContext) -> ToolContext:
            context.convert = convert
            return context

        return RunPart(add_converter)
