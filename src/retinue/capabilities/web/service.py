"""The web as tools use it: readable pages, searches, and the answers that a run stores."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.capabilities.web.addresses import AllowedHosts
from retinue.capabilities.web.base import SECONDS, Result, Store
from retinue.capabilities.web.connect import Resolver, system_resolver
from retinue.capabilities.web.fetcher import Fetcher, Permit, Politeness
from retinue.core.tool import ToolContext
from retinue.http.fetched import Fetched, FetchError

if TYPE_CHECKING:
    from retinue.capabilities.web.connect import Connect
    from retinue.capabilities.web.search import Search
    from retinue.http.transport import Transport
    from retinue.settings.table import Settings

MOST_URLS = 10


class WebLimits(Struct, frozen=True):
    """How much of the web a run reads and keeps, and how often one host is asked."""

    seconds: float = SECONDS
    """For one page or one search, redirects included."""
    response_bytes: int = 2 * 1024 * 1024
    shown_characters: int = 30_000
    stored_characters: int = 200_000
    stored_answers: int = 100
    results: int = 5
    host_requests: int = 2
    host_delay_seconds: float = 0.2


class Web:
    """The web of one process and project. `settings` are read at every call, so changes apply at once; `environment`
    holds the keys. `resolve`, `connect` and `tls` replace the system's lookup, connections and certificates."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        environment: Mapping[str, str],
        transport: Callable[[], Transport],
        *,
        resolve: Resolver = system_resolver,
        connect: Connect | None = None,
        tls: ssl.SSLContext | None = None,
        limits: WebLimits | None = None,
    ) -> None:
        self._settings = settings
        self.environment = environment
        self.transport = transport
        self._resolve = resolve
        self._connect = connect
        self._tls = tls
        self.limits = limits or WebLimits()
        self._politeness = Politeness(self.limits.host_requests, self.limits.host_delay_seconds)

    @property
    def settings(self) -> Settings:
        return self._settings()

    def fetcher(self) -> Fetcher:
        """Return a fetcher with the current settings."""
        settings = self.settings
        return Fetcher(
            allowed=AllowedHosts(settings.web_allow_hosts),
            politeness=self._politeness,
            seconds=self.limits.seconds,
            resolve=self._resolve,
            connect=self._connect,
            tls=self._tls,
        )

    async def download(self, url: str, *, most: int, permit: Permit = lambda url: None) -> Fetched:
        """Return the bytes at a URL, for tools that read more than text. Raise FetchError."""
        return await self.fetcher().fetch(url, most=most, permit=permit, accept="*/*")

    async def page(self, url: str, permit: Permit) -> tuple[Result, tuple[str, ...]]:
        """Return a page as text, and the hosts that were contacted for it. Raise FetchError."""
        fetched = await self.fetcher().fetch(url, most=self.limits.response_bytes, permit=permit)
        try:
            result = await asyncio.to_thread(_read, fetched, self.limits.stored_characters)
        except FetchError as error:
            # The hosts were contacted even though their page could not be read.
            error.hosts = fetched.hosts
            raise
        return result, fetched.hosts

    async def pages(
        self, urls: Sequence[str], permit: Permit
    ) -> list[tuple[str, Result | FetchError, tuple[str, ...]]]:
        """Fetch all URLs at once. Return each with its page or error and the hosts contacted, in order."""

        async def one(url: str) -> tuple[str, Result | FetchError, tuple[str, ...]]:
            try:
                result, hosts = await self.page(url, permit)
            except FetchError as error:
                return url, error, error.hosts
            return url, result, hosts

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(url)) for url in urls]
        return [task.result() for task in tasks]

    def search(self) -> Search:
        from retinue.capabilities.web.search import Search

        return Search(self.settings, self.environment, self.transport(), self.limits.seconds)

    def store(self, context: ToolContext) -> Store:
        return Store(context.outputs, most=self.limits.stored_answers)


def _read(fetched: Fetched, most: int) -> Result:
    from retinue.capabilities.web.read import read

    found = read(fetched.body, fetched.content_type, fetched.url, truncated=fetched.truncated)
    return Result(
        url=fetched.url,
        title=found.title[:300],
        content=found.text[:most],
        truncated=fetched.truncated or len(found.text) > most,
        content_type=found.kind,
        warning=found.warning or "",
    )
