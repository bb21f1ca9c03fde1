"""Tools of others (MCP servers, plugins, programs) in the hands of a run in a worktree.

They work wherever they want, mostly in the main checkout, where their server was started. So a
run in a worktree must tell them plainly where: a path that leads into the main checkout, or one
that they would take from there, is refused. What only reads is not looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.effects import ToolEffect
from retinue.core.tool import Tool, ToolContext, ToolOutput, failed
from retinue.core.toolnames import TOOLS

if TYPE_CHECKING:
    from retinue.capabilities.worktree.attach import Isolation
    from retinue.core.tool import ToolSpec

_HARMLESS = frozenset({"read", "ask", "spawn"})
_PATH_NAME = re.compile(r"(?i)(?:^|_)(?:path|paths|file|files|filename|filepath|dir|directory|folder|cwd|root)s?$")
_DEEPEST = 6


def kept_home(tools: tuple[Tool, ...], isolation: Isolation | None) -> tuple[Tool, ...]:
    """The same tools; those of others behind a look at where they are sent."""
    if isolation is None:
        return tools
    return tuple(StrangersTool(tool, isolation) if _is_strange(tool) else tool for tool in tools)


def _is_strange(tool: Tool) -> bool:
    return tool.spec.name not in TOOLS and not tool.spec.effects <= _HARMLESS and not tool.spec.ends_run


class StrangersTool:
    def __init__(self, tool: Tool, isolation: Isolation) -> None:
        self._tool = tool
        self._isolation = isolation

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        why = next(objections(arguments, self._isolation), None)
        if why is None:
            return await self._tool.run(call_id, arguments, context)
        said = f"Not run: {why}. You work in {self._isolation.top}: give absolute paths in there."
        return failed(said, ToolEffect(status="failed", denied=why))


def objections(arguments: Mapping[str, Any], isolation: Isolation) -> Iterator[str]:
    """Why the call would reach, or could reach, the main checkout."""
    top, main = os.path.realpath(isolation.top), os.path.realpath(isolation.main)
    for name, text in _texts("", arguments, 0):
        if str(isolation.main) in text or main in text:
            where = os.path.realpath(text) if text.startswith("/") else text
            if not _inside(where, top):
                yield f"{name or 'an argument'} names the main checkout {isolation.main}"
        elif _PATH_NAME.search(name):
            path = text.removeprefix("file://")
            if not path.startswith("/"):
                yield f"{name} is a relative path, which the tool would take from the main checkout"
            elif _inside(os.path.realpath(path), main) and not _inside(os.path.realpath(path), top):
                yield f"{name} leads into the main checkout {isolation.main}"


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _texts(name: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif depth > _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(str(key), inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(name, inner, depth + 1)
