"""The web as a part of runs: its tools, made with the settings and keys of this process, and which hosts the rules of
a run let it reach."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from retinue.core.permission import ToolUse
from retinue.core.tool import Tool
from retinue.core.toolnames import TOOLS
from retinue.runs.guard import RunGuards

if TYPE_CHECKING:
    from retinue.capabilities.web.service import Web
    from retinue.http.fetched import Fetched
    from retinue.runs.project import Project


class Browsing:
    """The access of this process to the web. The service is not loaded before the first call of a tool."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def tools(self) -> dict[str, Tool]:
        """Return the tools that search and read the web, by name."""
        from retinue.capabilities.web.tools import FetchContentTool, GetSearchContentTool, WebSearchTool

        kinds = (WebSearchTool, FetchContentTool, GetSearchContentTool)
        return {kind.name: kind(lambda: self.web) for kind in kinds}

    async def download(self, url: str, most: int, permit: Callable[[str], str | None]) -> Fetched:
        """Fetch a URL for another tool, behind the same guard."""
        return await self.web.download(url, most=most, permit=permit)

    @cached_property
    def web(self) -> Web:
        from retinue.capabilities.web.service import Web

        project = self._project
        return Web(lambda: project.settings.settings, project.environment, lambda: project.transport)


def reach_of(project: Project, run_id: str) -> Callable[[str], str | None]:
    """Return a check of hosts that a call did not name itself: None if the run may contact them, else why not.

    A host about which a person would have to be asked is refused: the model can name it in a call of its own, and the
    gate asks about that call.
    """

    def why_not(url: str) -> str | None:
        guard = project.part(RunGuards).get(run_id)
        if guard is None:
            return None
        decision = guard.permissions.decide(ToolUse("fetch_content", {"url": url}, TOOLS["fetch_content"]))
        match decision.verdict:
            case "allow":
                return None
            case "deny":
                return decision.reason
            case _:
                return "No rule allows that host. If you need the page, fetch that URL itself."

    return why_not
