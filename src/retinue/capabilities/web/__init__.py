"""The web: searching it, reading its pages, and which hosts a run may reach."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from retinue.core.lazy import LazyModule
from retinue.runs.capability import Capability, Download, Downloads, RunPart

if TYPE_CHECKING:
    from retinue.capabilities.web import attach as _attach
    from retinue.capabilities.web import base as _base
    from retinue.capabilities.web import search as _search
    from retinue.core.tool import Tool, ToolContext
    from retinue.runs.project import Project
    from retinue.runs.run import Run
else:
    _attach = LazyModule("retinue.capabilities.web.attach")
    _base = LazyModule("retinue.capabilities.web.base")
    _search = LazyModule("retinue.capabilities.web.search")

_KEY_VARIABLES = ("BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY", "EXA_API_KEY")


class WebCapability(Capability):
    """The tools of the web, and the hosts that a run may reach."""

    def tools(self, project: Project) -> Mapping[str, Tool]:
        if not project.settings.settings.web_enabled:
            return {}
        return project.part(_attach.Browsing).tools()

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        if _can_search(project):
            return {}
        return {"web_search": "no search service is set up."}

    async def running(self, node: Run, *, resumed: bool) -> RunPart:
        def add_reach(context: ToolContext) -> ToolContext:
            context.reach = _attach.reach_of(node.project, node.id)
            return context

        return RunPart(add_reach)


class WebDownloads(Downloads):
    """Downloads by the service that reads pages, unless the web is switched off."""

    def function(self) -> Download | None:
        enabled = self.project.settings.settings.web_enabled
        return self.project.part(_attach.Browsing).download if enabled else None


def _can_search(project: Project) -> bool:
    """Return whether some service can be asked. The usual cases are decided without loading the services."""
    settings = project.settings.settings
    if settings.web_provider == "auto":
        has_key = any(map(project.environment.get, _KEY_VARIABLES))
        if has_key or settings.web_searxng_url or find_spec("ddgs") is not None:
            return True
    try:
        return bool(_search.Search(settings, project.environment, project.transport).order())
    except _base.WebError:
        return False
