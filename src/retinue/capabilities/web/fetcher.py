"""One page of the public web: looked up, checked, connected to, bounded, redirects included.

Every address that is connected to was judged before and is the one that was judged; this holds for every redirect.
Time and size are bounded, also the size of packed bodies after unpacking. The request carries no cookie, no credential
and nothing about the user. A host gets few requests at a time, and none before the time that it asked for.
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
    """Takes a body in pieces; `data` never grows beyond `most` bytes, however small the pieces
    were that it came from. `full` says that there was more."""

    def __init__(self, encodings: str, most: int) -> None:
        names = [name.strip().lower() for name in encodings.split(",") if name.strip()]
        names = [name for name in names if name != "identity"]
        wrong = next((name for name in names if name not in ("gzip", "x-gzip", "deflate")), None)
        if wrong is not None or len(names) > _MOST_LAYERS:
            how = f" as {wrong}" if wrong is not None and re.fullmatch(r"[a-z0-9-]{1,20}", wrong) else ""
            raise FetchError("ENCODING", f"The server packed its answer{how}, in a way that was not asked for.")
        self.data = bytearray()
        self.full = False
        self._most = most
        self._layers = [_Layer(name) for name in reversed(names)]

    def feed(self, piece: bytes) -> bool:
        """False when nothing more is wanted."""
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
        """At most a step of what comes out, and what is left of the piece."""
        if self._engine.eof:
            return b"", b""
        try:
            out = self._engine.decompress(piece, _STEP)
        except zlib.error:
            if not (self._deflate and self._fresh):
                raise FetchError("ENCODING", "The server sent a packed answer that cannot be unpacked.") from None
            self._engine = zlib.decompressobj(-zlib.MAX_WBITS)  # as some servers understand "deflate"
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
        """A gzip file may be followed by another; anything else behind it is of no account."""
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
    """Shared by all runs of a process. `at_once` requests to a host, `delay` seconds between
    their starts. A host that answered 429 or 503 with a time is left alone until then."""

    def __init__(self, at_once: int = 2, delay: float = 0.2) -> None:
        self.at_once = at_once
        self.delay = delay
        self._hosts: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Host]] = WeakKeyDictionary()
        self._closed_until: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Raises FetchError RATE_LIMITED at once while the host does not want to be asked."""
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
        """The host wants to be left alone that long."""
        self._closed_until[host] = time.monotonic() + min(max(seconds, 1.0), _LONGEST_WAIT)


MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONNECT_SECONDS = 8.0

Permit = Callable[[str], str | None]
"""Whether a host that only a redirect has named may be asked: None, or why not."""


class Fetcher:
    """`resolve` and `connect` are where names and connections come from. `tls` replaces the
    system's certificates."""

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
        """At most `most` bytes of what is at `url`. Raises FetchError, whatever the other side does.
        Waiting for other requests to the same host is not counted as the host's time."""
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
        """One exchange: an answer, or where it is."""
        check_target(target, self.allowed)
        loop = asyncio.get_running_loop()
        left = (clock.when() or loop.time()) - loop.time()
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
            self._politeness.close(target.host, 5.0 if wait is None else wait)
            later = "" if wait is None else f" It asks to be left alone for {wait:.0f} seconds."
            return FetchError(
                "RATE_LIMITED", f"{target.host} answered {status}: too many requests.{later}", status=status
            )
        words = {401: "it wants a login", 403: "it refuses", 404: "there is no such page", 410: "the page is gone"}
        reason = words.get(status, "the server failed" if status >= 500 else "no page came")
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
    """Who is asking, honestly, so that a site can tell and say no."""
    from retinue.core.version import __version__

    return f"Mozilla/5.0 (compatible; Retinue/{__version__}; fetches pages a user asked about)"
