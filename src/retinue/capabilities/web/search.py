"""The choice of a search service, the order of services, and the error if none answers.

The services with an HTTP API (Brave, Tavily, Exa, SearXNG) are here; the others are in `searchers.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.capabilities.web.base import WEB_SECONDS, Result, StoredQuery, WebError
from retinue.capabilities.web.connect import has_network
from retinue.capabilities.web.searchers import DuckDuckGo, HttpSearcher, Native, Searcher, in_time, results
from retinue.core.install import install_command
from retinue.http.address import is_loopback
from retinue.models.providers import Providers
from retinue.settings.table_capabilities import SEARCHERS

if TYPE_CHECKING:
    from retinue.http.transport import Transport
    from retinue.settings.table import Settings


class Brave(HttpSearcher):
    name = "brave"
    setup = "set BRAVE_SEARCH_API_KEY"

    async def search(self, query: str, count: int) -> list[Result]:
        asked = {"q": query[:400], "count": str(count)}
        data = await self.get("/res/v1/web/search", asked, {"x-subscription-token": self._key})
        rows = _at(data, "web", "results")
        return results(rows, self.name, url="url", title="title", snippet="description")


class Tavily(HttpSearcher):
    name = "tavily"
    setup = "set TAVILY_API_KEY"

    async def search(self, query: str, count: int) -> list[Result]:
        data = await self.post(
            "/search", {"query": query[:400], "max_results": count}, {"authorization": f"Bearer {self._key}"}
        )
        return results(_at(data, "results"), self.name, url="url", title="title", snippet="content")


class Exa(HttpSearcher):
    name = "exa"
    setup = "set EXA_API_KEY"

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
        if not isinstance(data, Mapping):
            return None
        data = data.get(name)
    return data


_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_SETUP_ADVICE = (
    f"No search service is set up. Install DuckDuckGo's with: {install_command('web')}; or set "
    "BRAVE_SEARCH_API_KEY, TAVILY_API_KEY, EXA_API_KEY or web.searxngUrl."
)


class SearchOutcome(Struct, frozen=True):
    """The result of a search. `notes` name the services that failed before."""

    queries: tuple[StoredQuery, ...]
    provider: str
    hosts: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Search:
    """The search services that settings and environment configure."""

    def __init__(
        self, settings: Settings, environment: Mapping[str, str], transport: Transport, seconds: float = WEB_SECONDS
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._transport = transport
        self._seconds = seconds

    def order(self) -> list[Searcher]:
        """Return the available services, in order. If the settings name one, only that one. Raise WebError if there is
        none."""
        named = self._settings.web_provider
        if named != "auto":
            searcher = self._make(named)
            why = searcher.missing()
            if why is not None:
                raise WebError("PROVIDER_UNAVAILABLE", f"{named} cannot be asked: {why}.", provider=named)
            return [searcher]
        ready = [searcher for searcher in map(self._make, SEARCHERS) if searcher.missing() is None]
        if not ready:
            raise WebError("PROVIDER_UNAVAILABLE", _SETUP_ADVICE)
        return sorted(ready, key=lambda searcher: searcher.tier)

    def setup(self) -> dict[str, str | None]:
        """Return every service with the missing setup step, or None if it is available."""
        return {name: self._make(name).missing() for name in SEARCHERS}

    async def run(self, queries: Sequence[str], count: int) -> SearchOutcome:
        """Return the results of the first service that answers all queries. Raise WebError if none does."""
        problems: list[WebError] = []
        contacted: list[str] = []
        for searcher in self.order():
            try:
                outcome = await self._ask(searcher, queries, count)
            except WebError as error:
                problems.append(error)
                contacted += error.hosts
                continue
            hosts = tuple(dict.fromkeys([*contacted, searcher.host]))
            return SearchOutcome(outcome, searcher.name, hosts, tuple(map(str, problems)))
        first = problems[0]
        raise WebError(
            first.code,
            " ".join(error.message for error in problems),
            hosts=tuple(dict.fromkeys(contacted)),
            provider=first.provider,
            limited=first.limited,
        )

    async def _ask(self, searcher: Searcher, queries: Sequence[str], count: int) -> tuple[StoredQuery, ...]:
        if not (is_loopback(f"http://{searcher.host}") or has_network() or any(map(os.environ.get, _PROXY_VARIABLES))):
            raise WebError(
                "NETWORK_ERROR",
                "There is no network: this machine has no route to the internet.",
                provider=searcher.name,
            )

        async def one(query: str) -> list[Result]:
            work = searcher.search(query, count)
            results: list[Result] = await in_time(searcher.name, searcher.host, self._seconds, work)
            return results[:count]

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(query)) for query in queries]
        except ExceptionGroup as several:
            # One error is enough, because queries usually fail for the same reason.
            for error in several.exceptions:
                if isinstance(error, WebError):
                    raise error from None
            raise
        return tuple(StoredQuery(query, tuple(task.result())) for query, task in zip(queries, tasks, strict=True))

    def _make(self, name: str) -> Searcher:
        get = self._environment.get
        match name:
            case "brave":
                base = get("BRAVE_SEARCH_BASE_URL") or "https://api.search.brave.com"
                return Brave(self._transport, base, get("BRAVE_SEARCH_API_KEY", ""))
            case "tavily":
                base = get("TAVILY_BASE_URL") or "https://api.tavily.com"
                return Tavily(self._transport, base, get("TAVILY_API_KEY", ""))
            case "exa":
                return Exa(self._transport, get("EXA_BASE_URL") or "https://api.exa.ai", get("EXA_API_KEY", ""))
            case "searxng":
                return SearXNG(self._transport, self._settings.web_searxng_url or "")
            case "ddgs":
                return DuckDuckGo(self._seconds)
            case _:
                return self._native()

    def _native(self) -> Searcher:
        return Native(self._transport, Providers(self._settings, self._environment), self._settings.web_native_model)
