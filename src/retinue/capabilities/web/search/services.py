"""The search services with an API of their own: Brave, Tavily, Exa, SearXNG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.capabilities.web.search.protocol import HttpSearcher, results
from retinue.capabilities.web.store import Result


class Brave(HttpSearcher):
    name = "brave"

    def missing(self) -> str | None:
        return None if self._key else "set BRAVE_SEARCH_API_KEY"

    async def search(self, query: str, count: int) -> list[Result]:
        asked = {"q": query[:400], "count": str(count)}
        data = await self.get("/res/v1/web/search", asked, {"x-subscription-token": self._key})
        rows = _at(data, "web", "results")
        return results(rows, self.name, url="url", title="title", snippet="description")


class Tavily(HttpSearcher):
    name = "tavily"

    def missing(self) -> str | None:
        return None if self._key else "set TAVILY_API_KEY"

    async def search(self, query: str, count: int) -> list[Result]:
        data = await self.post(
            "/search", {"query": query[:400], "max_results": count}, {"authorization": f"Bearer {self._key}"}
        )
        return results(_at(data, "results"), self.name, url="url", title="title", snippet="content")


class Exa(HttpSearcher):
    name = "exa"

    def missing(self) -> str | None:
        return None if self._key else "set EXA_API_KEY"

    async def search(self, query: str, count: int) -> list[Result]:
        asked = {"query": query, "numResults": count, "contents": {"text": {"maxCharacters": 600}}}
        data = await self.post("/search", asked, {"x-api-key": self._key})
        return results(_at(data, "results"), self.name, url="url", title="title", snippet="text")


class SearXNG(HttpSearcher):
    name = "searxng"
    tier = 1

    def missing(self) -> str | None:
        return None if self._base else "set web.searxngUrl to the address of your server"

    async def search(self, query: str, count: int) -> list[Result]:
        data = await self.get("/search", {"q": query, "format": "json"}, {})
        return results(_at(data, "results"), self.name, url="url", title="title", snippet="content")


def _at(data: Any, *names: str) -> Any:
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data
