"""tool_search: names first, parameters on demand, so that many tools do not fill the window."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, failed, ok
from retinue.core.toolnames import TOOLS
from retinue.tools.tool_search.deferred import LOADED, Deferred

NAME = "tool_search"
_SHOWN = 160
_NAMES = 600
"""Names in the description; beyond, a model has to search."""


class ToolSearchTool:
    """Belongs to one run. Its description never changes: tools that come later can be found, but
    are not named there."""

    def __init__(self, deferred: Deferred) -> None:
        self._deferred = deferred
        prompt = Path(__file__).with_name("prompt.md").read_text(encoding="utf-8").strip()
        names = deferred.names
        listed = ", ".join(names[:_NAMES]) or "none yet"
        more = f", and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        query = {"type": "string", "description": "Words that must all occur, or select:NAME,NAME"}
        self.spec = ToolSpec(
            name=NAME,
            description=f"{prompt}\n{listed}{more}",
            parameters={
                "type": "object",
                "properties": {"query": query},
                "required": ["query"],
                "additionalProperties": False,
            },
            effects=TOOLS[NAME],
        )

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        query = str(arguments.get("query", ""))
        if not query.strip():
            return failed("tool_search needs a query: words of a tool's name or description, or select:NAME.")
        found = self._deferred.load(query)
        if not found.tools:
            return ok(f'No deferred tools matched "{query}".')
        lines = [f"- {tool.spec.name}: {_first_line(tool.spec.description)}" for tool in found.tools]
        more = [f"{found.left} more match; narrow the query to load them."] if found.left else []
        return ok("\n".join([LOADED.format(len(lines)), *lines, *more]))


def _first_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
