"""The web service behind the tools: fetching pages within limits, searches, and the stored answers of a run.

Connections are made only to checked addresses, also after a redirect. Time and size are limited, including the size
after decompression. A request contains no cookie, no credential and nothing about the user. Each host gets few requests
at a time, and none before the time that it has asked for."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.web.addresses import AllowedHosts, Target, follow, parse_target
from retinue.capabilities.web.base import WEB_SECONDS, Result, Store
from retinue.capabilities.web.connect import Connect, PageConnection, Pin, Resolver, check_target, pin, system_resolver
from retinue.capabilities.web.connect import connect as connect_pinned
from retinue.capabilities.web.read import read
from retinue.capabilities.web.search import Search
from retinue.core.tool import ToolContext
from retinue.core.version import __version__
from retinue.http.address import ACCEPTED, Fetched, FetchError, Problem, Unpacker
from retinue.http.transport import TransportError
from retinue.models.retry import retry_after

if TYPE_CHECKING:
    from retinue.capabilities.web.search import Search
    from retinue.http.transport import Transport
    from retinue.settings.table import Settings


MAX_STORED_CHARACTERS = 200_000
"""The limit for the stored text of one page."""
_MAX_PAUSE_SECONDS = 3_600.0
_MAX_KNOWN_HOSTS = 1_000


class _HostState:
    def __init__(self, at_once: int) -> None:
        self.slots = asyncio.Semaphore(at_once)
        self.next_at = 0.0


class Politeness:
    """Limits for each host, shared by all runs of a process: `at_once` requests, `delay` seconds between their starts,
    and no request before the time in an answer of 429 or 503."""

    def __init__(self, at_once: int = 2, delay: float = 0.2) -> None:
        self.at_once = at_once
        self.delay = delay
        # A semaphore belongs to one event loop, and a process may have several.
        self._hosts: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _HostState]] = WeakKeyDictionary()
        self._paused_until: dict[str, float] = {}

    @asynccontextmanager
    async def slot(self, host: str) -> AsyncIterator[None]:
        """Wait for a free slot of the host. Raise FetchError RATE_LIMITED at once if the host has asked for a pause."""
        wait = self._paused_until.get(host, 0.0) - time.monotonic()
        if wait > 0:
            raise FetchError("RATE_LIMITED", f"{host} asked not to be asked again for {wait:.0f} more seconds.")
        loop = asyncio.get_running_loop()
        hosts = self._hosts.setdefault(loop, {})
        if len(hosts) > _MAX_KNOWN_HOSTS:
            hosts.clear()
        state = hosts.setdefault(host, _HostState(self.at_once))
        async with state.slots:
            start = max(loop.time(), state.next_at)
            state.next_at = start + self.delay
            if start > loop.time():
                await asyncio.sleep(start - loop.time())
            yield

    def pause(self, host: str, seconds: float) -> None:
        """Send no request to the host for that time."""
        self._paused_until[host] = time.monotonic() + min(max(seconds, 1.0), _MAX_PAUSE_SECONDS)


MAX_REDIRECTS = 5
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_CONNECT_SECONDS = 8.0

Permit = Callable[[str], str | None]
"""Returns None if the target of a redirect may be contacted, otherwise the reason why not."""


class Fetcher:
    """Fetches pages. `resolve`, `connect` and `tls` replace the system's resolver, connections and certificates."""

    def __init__(
        self,
        *,
        allowed: AllowedHosts | None = None,
        politeness: Politeness | None = None,
        seconds: float = 20.0,
        resolve: Resolver = system_resolver,
        connect: Connect = connect_pinned,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.allowed = allowed or AllowedHosts(())
        self.seconds = seconds
        self._politeness = politeness or Politeness()
        self._resolve = resolve
        self._connect = connect
        self._tls = tls

    async def fetch(self, url: str, *, limit: int, permit: Permit = lambda url: None, accept: str = "") -> Fetched:
        """Return at most `limit` bytes of the page at `url`. Raise FetchError for every failure. The wait for other
        requests to the same host does not count as its time."""
        hosts: list[str] = []
        try:
            async with asyncio.timeout(self.seconds) as clock:
                return await self._follow(parse_target(url), limit, permit, accept, hosts, clock)
        except TimeoutError:
            failure = FetchError("TIMEOUT", f"{url[:200]} did not answer completely in {self.seconds:g} seconds.")
        except FetchError as error:
            failure = error
        failure.hosts = tuple(dict.fromkeys(hosts))
        raise failure

    async def _follow(
        self, target: Target, limit: int, permit: Permit, accept: str, hosts: list[str], clock: asyncio.Timeout
    ) -> Fetched:
        first = target.host
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._request(target, limit, accept, hosts, clock)
            if isinstance(answer, Fetched):
                return answer
            target = follow(target, answer)
            if target.host != first:
                reason = permit(target.full_url)
                if reason is not None:
                    raise FetchError("NOT_PERMITTED", f"It redirects to {target.full_url}. {reason}")
        raise FetchError("TOO_MANY_REDIRECTS", f"More than {MAX_REDIRECTS} redirects, the last one to {target.url}.")

    async def _request(
        self, target: Target, limit: int, accept: str, hosts: list[str], clock: asyncio.Timeout
    ) -> Fetched | str:
        """Make one request. Return the answer, or the location of a redirect."""
        check_target(target, self.allowed)
        loop = asyncio.get_running_loop()
        remaining = (clock.when() or loop.time()) - loop.time()
        # The time limit is paused while other requests to the host are running.
        clock.reschedule(None)
        async with self._politeness.slot(target.host):
            clock.reschedule(loop.time() + remaining)
            pinned = await pin(target, self.allowed, self._resolve)
            hosts.append(target.host)
            connection = await self._open_connection(pinned)
            try:
                return await self._exchange(connection, pinned, limit, accept, hosts)
            except TransportError as error:
                problem: Problem = "ENCODING" if error.problem == "garbage" else "NETWORK_ERROR"
                raise FetchError(problem, error.message) from None
            finally:
                connection.abort()

    async def _open_connection(self, pinned: Pin) -> PageConnection:
        authority = pinned.target.authority
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await self._connect(pinned, self._tls)
        except TimeoutError:
            raise FetchError("TIMEOUT", f"{authority} did not accept a connection.") from None
        except ssl.SSLCertVerificationError as error:
            reason = error.verify_message or "verification failed"
            raise FetchError("NETWORK_ERROR", f"The certificate of {authority} is not trusted: {reason}.") from None
        except ssl.SSLError as error:
            reason = (error.reason or "handshake failed").replace("_", " ").lower()
            raise FetchError("NETWORK_ERROR", f"No TLS with {authority}: {reason}.") from None
        except TransportError as error:
            raise FetchError("NETWORK_ERROR", error.message) from None
        except OSError as error:
            raise FetchError(
                "NETWORK_ERROR", f"{authority} cannot be reached: {error.strerror or 'no connection'}."
            ) from None

    async def _exchange(
        self, connection: PageConnection, pinned: Pin, limit: int, accept: str, hosts: list[str]
    ) -> Fetched | str:
        target = pinned.target
        if not await connection.exchange(_head(target, accept), b"", self.seconds):
            raise FetchError("NETWORK_ERROR", f"{target.authority} closed the connection without an answer.")
        status, headers = connection.status, connection.headers
        if status in _REDIRECT_STATUSES and headers.get("location"):
            # Headers were decoded as latin-1, but servers use UTF-8 in this one.
            return headers["location"].encode("latin-1").decode("utf-8", "replace")
        if not 200 <= status < 300:
            raise self._refusal(target, status, headers)
        unpacked = Unpacker(headers.get("content-encoding", ""), limit)
        while (piece := await connection.read()) and unpacked.feed(piece):
            pass
        contacted = tuple(dict.fromkeys(hosts))
        return Fetched(target.url, status, dict(headers), bytes(unpacked.data), unpacked.full, contacted)

    def _refusal(self, target: Target, status: int, headers: Mapping[str, str]) -> FetchError:
        wait = retry_after(headers)
        if status == 429 or (status == 503 and wait is not None):
            later = ""
            if wait is not None:
                later = f" It asks to be left alone for {wait:.0f} seconds."
            self._politeness.pause(target.host, 5.0 if wait is None else wait)
            return FetchError(
                "RATE_LIMITED", f"{target.host} answered {status}: too many requests.{later}", status=status
            )
        words = {401: "it wants a login", 403: "it refuses", 404: "there is no such page", 410: "the page is gone"}
        reason = words.get(status, "no page came")
        if status >= 500:
            reason = "the server failed"
        return FetchError("HTTP_STATUS", f"{target.url} answered {status}: {reason}.", status=status)


def _head(target: Target, accept: str) -> bytes:
    lines = {
        "host": target.authority,
        # An honest name, so that sites can recognise and refuse these requests.
        "user-agent": f"Mozilla/5.0 (compatible; Retinue/{__version__}; fetches pages a user asked about)",
        "accept": accept or "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, */*;q=0.5",
        "accept-language": "en;q=0.9, *;q=0.5",
        "accept-encoding": ACCEPTED,
        "connection": "close",
    }
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"GET {target.path} HTTP/1.1\r\n{text}\r\n".encode("ascii")


class WebLimits(Struct, frozen=True):
    """The limits for the pages and results of a run, and for the requests to one host."""

    seconds: float = WEB_SECONDS
    """For one page or one search, redirects included."""
    response_bytes: int = 2 * 1024 * 1024
    shown_characters: int = 30_000
    stored_answers: int = 100
    results: int = 5
    host_delay_seconds: float = 0.2


class Web:
    """The web service of one project. `settings` are read at every call, so changes apply at once; `environment`
    contains the keys. `resolve`, `connect` and `tls` replace the system's resolver, connections and certificates."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        environment: Mapping[str, str],
        transport: Callable[[], Transport],
        *,
        limits: WebLimits | None = None,
    ) -> None:
        self._settings = settings
        self.environment = environment
        self.transport = transport
        self.limits = limits or WebLimits()
        self._politeness = Politeness(delay=self.limits.host_delay_seconds)

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
        )

    async def download(self, url: str, *, limit: int, permit: Permit = lambda url: None) -> Fetched:
        """Return the bytes at a URL, for tools that read other formats than text. Raise FetchError."""
        return await self.fetcher().fetch(url, limit=limit, permit=permit, accept="*/*")

    async def page(self, url: str, permit: Permit) -> tuple[Result, tuple[str, ...]]:
        """Return a page as text, and the hosts that were contacted for it. Raise FetchError."""
        fetched = await self.fetcher().fetch(url, limit=self.limits.response_bytes, permit=permit)
        try:
            result = await asyncio.to_thread(_read, fetched, MAX_STORED_CHARACTERS)
        except FetchError as error:
            # The hosts were contacted even though their page could not be read.
            error.hosts = fetched.hosts
            raise
        return result, fetched.hosts

    async def pages(
        self, urls: Sequence[str], permit: Permit
    ) -> list[tuple[str, Result | FetchError, tuple[str, ...]]]:
        """Fetch all URLs at once. Return each with its page or error and the contacted hosts, in order."""

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
        return Search(self.settings, self.environment, self.transport(), self.limits.seconds)

    def store(self, context: ToolContext) -> Store:
        return Store(context.outputs, limit=self.limits.stored_answers)


def _read(fetched: Fetched, limit: int) -> Result:
    page = read(fetched.body, fetched.content_type, fetched.url, truncated=fetched.truncated)
    return replace(page, content=page.content[:limit], truncated=page.truncated or len(page.content) > limit)
