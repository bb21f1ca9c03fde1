"""Tools that cannot work on this machine, and why.

Offering one costs tokens in every request and a turn to find out that it does nothing. So they are
left out, a call of one says why, and `retinue doctor` says what to install.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.runs.world import World

_KEYS = ("BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY", "EXA_API_KEY")


def unavailable_tools(world: World) -> dict[str, str]:
    """Each tool that cannot work here, with the reason as a sentence for a model."""
    found = {}
    if not _has_language_server(world):
        found["lsp"] = "no language server is installed."
    if find_spec("markitdown") is None:
        found["convert_content"] = "the converter of documents is not installed."
    if not _can_search(world):
        found["web_search"] = "no search service is set up."
    return found


def _has_language_server(world: World) -> bool:
    if find_spec("lsprotocol") is None:
        return False
    from retinue.capabilities.lsp.catalog import server_kinds

    search = world.environment.get("PATH")
    kinds = server_kinds(world.settings.settings.lsp_servers)
    return any(kind.enabled and kind.program(search) is not None for kind in kinds)


def _can_search(world: World) -> bool:
    """Whether some service can be asked. The usual cases are told without loading the services."""
    settings = world.settings.settings
    if settings.web_provider == "auto" and (
        find_spec("ddgs") is not None or settings.web_searxng_url or any(map(world.environment.get, _KEYS))
    ):
        return True
    from retinue.capabilities.web.base import WebError
    from retinue.capabilities.web.search.choose import Search

    try:
        return bool(Search(settings, world.environment, world.transport).order())
    except WebError:
        return False
