"""One page of the public web, with its redirects: looked up, checked, fetched within bounds.

Only addresses that were checked before are connected to; this holds for every redirect. Time and size are bounded,
and so is the size of packed bodies after unpacking. The request carries no cookie, no credential and nothing about the
user. A host gets few requests at a time, and none before the time that it asked for.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from retinue.capabilities.web.addresses import AllowedHosts, Target, follow, parse_target
from retinue.capabilities.web.connect import Pin, Resolver, check_target, pin, system_resolver
from retinue.http.fetched import Fetched, FetchError, Problem
from retinue.http.transport import TransportError
from retinue.models.retry import retry_after

if TYPE_CHECKING:
    from retinue.capabilities.web.connect import Connect, PageConnection


ACCEPTED = "gzip, deflate"
_MOST_LAYERS = 2
_STEP = 64 * 1024


class Unpacker:
    """Unpacks a body piece by piece. `data` never grows beyond `most` bytes, however tightly it was packed; `full`
    says that there was more."""

    def __init__(self, encodings: str, most: int) -> None:
        names = [name.strip().lower() for name in encodings.split(",")]
        names = [name for name in names if name not in ("", "identity")]
        wrong = next((name for name in names if name not in ("gzip", "x-gzip", "deflate")), None)
        if wrong is not None or len(names) > _MOST_LAYERS:
            how = ""
            # The name comes from the server, so it is repeated only if it looks like one.
            if wrong is not None and re.fullmatch(r"[a-z0-9-]{1,20}", wrong):
                how = f" as {wrong}"
            raise FetchError("ENCODING", f"The server packed its answer{how}, in a way that was not asked for.")
        self.data = bytearray()
        self.full = False
        self._most = most
        # The header lists encodings in the order in which they were applied.
        self._layers = list(map(_Layer, reversed(names)))

    def feed(self, piece: bytes) -> bool:
        """Unpack a piece. Return False when nothing more is wanted."""
        self._push(piece, 0)
        return not self.full

    def _push(self, piece: bytes, depth: int) -> None:
        if depth == len(self._layers):
            room = self._most - len(self.data)
            self.data += piece[:room]
            self.full = self.full or len(piece) > room
            return
        layer = self._layers[depth]
        while piece and not self.full:
            out, piece = layer.unpack(piece)
            self._push(out, depth + 1)


class _Layer:
    def __init__(self, name: str) -> None:
        self._deflate = name == "deflate"
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._fresh = True

    def unpack(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return at most two steps of unpacked bytes, and the unused rest of the piece."""
        if self._engine.eof:
            return b"", b""
        try:
            out = self._engine.decompress(piece, _STEP)
        except zlib.error:
            if not (self._deflate and self._fresh):
                raise FetchError("ENCODING", "The server sent a packed answer that cannot be unpacked.") from None
            # Some servers send bare deflate data, without the zlib header that "deflate" demands.
            self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
            self._fresh = False
            return self.unpack(piece)
        self._fresh = False
        if self._engine.eof:
            return out, self._next_member()
        rest = self._engine.unconsumed_tail
        if not rest and len(out) == _STEP:
            # All input is taken, but more may wait inside: ask for it with nothing new.
            return out + self._engine.decompress(b"", _STEP), b""
        return out, rest

    def _next_member(self) -> bytes:
        """Prepare for a further gzip member and return its bytes. Anything else after the end is ignored."""
        rest = self._engine.unused_data
        if not rest.startswith(b"\x1f\x8b"):
            return b""
        self._engine = zlib.decompressobj(zlib.MAX_WBITS | 32)
        return rest


_LONGEST_WAIT = 3_600.0
_MOST_HOSTS = 1_000


class _Host:
    def __init__(self, at_once: int) -> None:
        self.room = asyncio.Semaphore(at_once)
        self.next_at = 0.0


class Politeness:
    """Limits for each host, shared by all runs of a process: `at_once` requests, `delay` seconds between their
    starts. A host that answered 429 or 503 with a time is left alone until then."""

    def __init__(self, at_once: int = 2, delay: float = 0.2) -> None:
        self.at_once = at_once
        self.delay = delay
        # A semaphore belongs to one event loop, and a process may have several.
        self._hosts: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Host]] = WeakKeyDictionary()
        self._closed_until: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait for a turn with the host. Raise FetchError RATE_LIMITED at once while it wants no requests."""
        wait = self._closed_until.get(host, 0.0) - time.monotonic()
        if wait > 0:
            raise FetchError("RATE_LIMITED", f"{host} asked not to be asked again for {wait:.0f} more seconds.")
        loop = asyncio.get_running_loop()
        hosts = self._hosts.setdefault(loop, {})
        if len(hosts) > _MOST_HOSTS:
            hosts.clear()
        found = hosts.setdefault(host, _Host(self.at_once))
        async with found.room:
            start = max(loop.time(), found.next_at)
            found.next_at = start + self.delay
            if start > loop.time():
                await asyncio.sleep(start - loop.time())
            yield

    def close(self, host: str, seconds: float) -> None:
        """Send the host no request for that long."""
        self._closed_until[host] = time.monotonic() + min(max(seconds, 1.0), _LONGEST_WAIT)


MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONNECT_SECONDS = 8.0

Permit = Callable[[str], str | None]
"""Returns None if a host that only a redirect has named may be asked, else why not."""


class Fetcher:
    """Fetches pages. `resolve` and `connect` replace the system's lookup and connections, `tls` its certificates."""

    def __init__(
        self,
        *,
        allowed: AllowedHosts | None = None,
        politeness: Politeness | None = None,
        seconds: float = 20.0,
        resolve: Resolver = system_resolver,
        connect: Connect | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.allowed = allowed or AllowedHosts(())
        self.seconds = seconds
        self._politeness = politeness or Politeness()
        self._resolve = resolve
        self._connect = connect
        self._tls = tls

    async def fetch(self, url: str, *, most: int, permit: Permit = lambda url: None, accept: str = "") -> Fetched:
        """Return at most `most` bytes of the page at `url`. Raise FetchError, whatever the other side does. Waiting
        for other requests to the same host does not count against its time."""
        hosts: list[str] = []
        try:
            async with asyncio.timeout(self.seconds) as clock:
                return await self._follow(parse_target(url), most, permit, accept, hosts, clock)
        except TimeoutError:
            failure = FetchError("TIMEOUT", f"{url[:200]} did not answer completely in {self.seconds:g} seconds.")
        except FetchError as error:
            failure = error
        failure.hosts = tuple(dict.fromkeys(hosts))
        raise failure

    async def _follow(
        self, target: Target, most: int, permit: Permit, accept: str, hosts: list[str], clock: asyncio.Timeout
    ) -> Fetched:
        first = target.host
        for _ in range(MOST_REDIRECTS + 1):
            found = await self._one(target, most, accept, hosts, clock)
            if isinstance(found, Fetched):
                return found
            target = follow(target, found)
            if target.host != first:
                reason = permit(target.full_url)
                if reason is not None:
                    raise FetchError("NOT_PERMITTED", f"It redirects to {target.full_url}. {reason}")
        raise FetchError("TOO_MANY_REDIRECTS", f"More than {MOST_REDIRECTS} redirects, the last one to {target.url}.")

    async def _one(
        self, target: Target, most: int, accept: str, hosts: list[str], clock: asyncio.Timeout
    ) -> Fetched | str:
        """Make one request. Return the answer, or the location of a redirect."""
        check_target(target, self.allowed)
        loop = asyncio.get_running_loop()
        left = (clock.when() or loop.time()) - loop.time()
        # The clock stands still while other requests to the host have their turn.
        clock.reschedule(None)
        async with self._politeness.turn(target.host):
            clock.reschedule(loop.time() + left)
            place = await pin(target, self.allowed, self._resolve)
            hosts.append(target.host)
            connection = await self._connected(place)
            try:
                return await self._exchange(connection, place, most, accept, hosts)
            except TransportError as error:
                problem: Problem = "ENCODING" if error.problem == "garbage" else "NETWORK_ERROR"
                raise FetchError(problem, error.message) from None
            finally:
                connection.abort()

    async def _connected(self, place: Pin) -> PageConnection:
        if self._connect is None:
            from retinue.capabilities.web.connect import connect

            self._connect = connect
        authority = place.target.authority
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await self._connect(place, self._tls)
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
        self, connection: PageConnection, place: Pin, most: int, accept: str, hosts: list[str]
    ) -> Fetched | str:
        target = place.target
        if not await connection.exchange(_head(target, accept), b"", self.seconds):
            raise FetchError("NETWORK_ERROR", f"{target.authority} closed the connection without an answer.")
        status, headers = connection.status, connection.headers
        if status in _REDIRECTS and headers.get("location"):
            # Headers were decoded as latin-1; servers put UTF-8 into this one.
            return headers["location"].encode("latin-1").decode("utf-8", "replace")
        if not 200 <= status < 300:
            raise self._refusal(target, status, headers)
        unpacked = Unpacker(headers.get("content-encoding", ""), most)
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
            self._politeness.close(target.host, 5.0 if wait is None else wait)
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
        "user-agent": user_agent(),
        "accept": accept or "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, */*;q=0.5",
        "accept-language": "en;q=0.9, *;q=0.5",
        "accept-encoding": ACCEPTED,
        "connection": "close",
    }
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"GET {target.path} HTTP/1.1\r\n{text}\r\n".encode("ascii")


def user_agent() -> str:
    """Return an honest name, by which a site can recognise and refuse us."""
    from retinue.core.version import __version__

    return f"Mozilla/5.0 (compatible; Retinue/{__version__}; fetches pages a user asked about)"
