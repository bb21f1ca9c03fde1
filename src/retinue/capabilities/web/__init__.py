"""The web: searching it, reading its pages, and which hosts a run may reach."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from retinue.runs.capability import Capability, Download

if TYPE_CHECKING:
    from retinue.core.tool import Tool, ToolContext
    from retinue.runs.node import RunNode
    from retinue.runs.project import Project

_KEYS = ("BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY", "EXA_API_KEY")


class WebCapability(Capability):
    """The tools of the web, and downloads for other tools."""

    def tools(self, project: Project) -> Mapping[str, Tool]:
        if not project.settings.settings.web_enabled:
            return {}
        from retinue.capabilities.web.attach import Browsing

        return project.part(Browsing).tools()

    def unavailable_tools(self, project: Project) -> Mapping[str, str]:
        if _can_search(project):
            return {}
        return {"web_search": "no search service is set up."}

    def context(self, node: RunNode, context: ToolContext) -> ToolContext:
        from retinue.capabilities.web.attach import reach_of

        context.reach = reach_of(node.project, node.id)
        return context

    def download(self, project: Project) -> Download | None:
        if not project.settings.settings.web_enabled:
            return None
        from retinue.capabilities.web.attach import Browsing

        return project.part(Browsing).download


def _can_search(project: Project) -> bool:
    """Return whether some service can be asked. The usual cases are decided without loading the services."""
    settings = project.settings.settings
    if settings.web_provider == "auto":
        has_key = any(map(project.environment.get, _KEYS))
        if has_key or settings.web_searxng_url or find_spec("ddgs") is not None:
            return True
    from retinue.capabilities.web.base import WebError
    from retinue.capabilities.web.search import Search

    try:
        return bool(Search(settings, project.environment, project.transport).order())
    except WebError:
        return False
