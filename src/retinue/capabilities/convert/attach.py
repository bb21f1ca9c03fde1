"""Converting documents as a part of runs: the settings, the sandbox and the way to the web for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.capabilities.sandbox.attach import can_sandbox
from retinue.core.tool import Confinement, Tool, ToolContext
from retinue.settings.places import home

if TYPE_CHECKING:
    from retinue.capabilities.convert.document import Download
    from retinue.capabilities.convert.tool import Bounds
    from retinue.capabilities.web.fetch.fetcher import Fetched
    from retinue.runs.world import World

_MEBI = 1024 * 1024


def convert_tools(world: World) -> dict[str, Tool]:
    """The tool, unless the settings take it away."""
    if not world.settings.settings.convert_enabled:
        return {}
    from retinue.capabilities.convert.tool import ConvertContentTool

    tool = ConvertContentTool(lambda: _bounds(world), lambda: _confinement(world), lambda: _download(world))
    return {tool.name: tool}


async def convert_to_text(world: World, call_id: str, path: str, context: ToolContext) -> str:
    """Return a document as text, for a model that does not take it as it is. Raise ToolError."""
    from retinue.capabilities.convert.tool import ConvertContentTool
    from retinue.capabilities.convert.worker import check_installed
    from retinue.tools.arguments import ToolError

    tool = world.tools.get("convert_content")
    if tool is None and world.settings.settings.convert_enabled:
        check_installed()
    if not isinstance(tool, ConvertContentTool):
        raise ToolError(f"{path} is a PDF, and converting is switched off here (convert.enabled).")
    return await tool.text_of(call_id, path, context)


def _bounds(world: World) -> Bounds:
    from retinue.capabilities.convert.tool import Bounds

    settings = world.settings.settings
    return Bounds(
        seconds=settings.convert_timeout_seconds,
        file_bytes=settings.convert_max_file_bytes,
        characters=settings.convert_max_content_chars,
        memory=settings.convert_memory_mb * _MEBI,
    )


def _confinement(world: World) -> Confinement | None:
    """A sandbox in which nothing can be changed and nobody reached; None where there is none, and
    the converter has only its limits of memory and time."""
    if not can_sandbox(world.settings.settings):
        return None
    from retinue.guard.sandbox.box import Box
    from retinue.guard.sandbox.policy import Policy

    hidden: tuple[Path, ...] = (world.home,)
    return Box(Policy(hidden=hidden, network="off", home=home(world.environment)), "convert")


def _download(world: World) -> Download | None:
    if not world.settings.settings.web_enabled:
        return None

    async def download(url: str, most: int, permit: Callable[[str], str | None]) -> Fetched:
        return await world.browsing.web.download(url, most=most, permit=permit)

    return download
