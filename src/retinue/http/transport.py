"""One thin HTTP transport under every wire format: POST bytes, read a stream of bytes or of server-sent events.

Ready clients were measured (`bench/transport.py`; CPU as a ratio to bare httpx in the same run, byte code present;
lowest and highest median of three runs on a busy machine):

                         cold start    turn         64 in flight   delta, burst   delta, trickle
    httpx 0.28              1             1             1              1               1
    aiohttp 3.14         0.85 - 1.09   0.17 - 0.26   0.08 - 0.10    0.12 - 0.15    0.46 - 0.51
    pyreqwest 0.15       0.34 - 0.44   0.09 - 0.19   0.04 - 0.07    0.10 - 0.19    0.13 - 0.16
    this                 0.34 - 0.38   0.06 - 0.13   0.04 - 0.05    0.03 - 0.04    0.30 - 0.44

aiohttp's import alone costs what all of httpx costs, and the whole product may cost 1.6 times that. pyreqwest aborted
the interpreter at exit (SIGABRT: a Rust thread inside the GIL), closed or not, in 2 of 150 to 5 of 40 runs. The code
here is small, because the parsing is llhttp's (`httptools`): connect, pool, proxy, time out. HTTP/1.1, which every
model server speaks.

Guaranteed: certificates are verified; a cancelled or abandoned stream closes its connection; `close` never breaks a
stream in flight; error texts hold no header, key or URL password.

Server-sent events are read from the bytes without decoding a line. Only the data is kept: every wire format repeats the
event's name inside its JSON. The payloads do not depend on where the network cuts the bytes.

`foreign_listener` tells whether a server of another user listens at a port: on a shared machine anybody can open the
port of a well-known server, and would get every request that is sent there unasked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec.structs import replace

from retinue.http.address import Address, parse_url, proxy_for

if TYPE_CHECKING:
    import ssl

    from retinue.http.connection import Connection


_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"
MIN_PERSON_UID = 1000
"""Lower numbers are accounts that the system's administrator has made for services."""
NOBODY_UID = 65534


def foreign_listener(port: int) -> str | None:
    """Return the name of the user whose program listens at `port`; None if that is this user, root or a service of
    the system. A listener whose user cannot be told counts as foreign."""
    uids = _listening_uids(port)
    if not uids:
        return "a user that this system does not tell"
    return next((_user_name(uid) for uid in uids if uid != os.getuid() and uid >= MIN_PERSON_UID), None)


def _listening_uids(port: int) -> set[int]:
    """Return the users of all sockets that listen at `port`, of any address."""
    uids = set()
    for table in _TABLES:
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            local, state, uid = columns[1], columns[3], columns[7]
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                uids.add(int(uid))
    return uids


def _user_name(uid: int) -> str:
    if uid == NOBODY_UID:
        return "nobody"
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"number {uid}"


TransportProblem = Literal[
    "refused", "unreachable", "proxy", "certificate", "connect_timeout", "idle", "dropped", "garbage", "url"
]

CONNECT_SECONDS = 30.0
IDLE_SECONDS = 600.0
_MAX_CACHED_HEADS = 64
IDLE_CONNECTION_SECONDS = 50.0
"""Idle connections older than this are not reused: common servers drop them after a minute."""


class TransportError(Exception):
    """A failure below HTTP, so that there is no status. `failures.py` turns `problem` into a Failure. With `passing`
    False, trying again cannot help."""

    def __init__(self, problem: TransportProblem, message: str, *, passing: bool = True) -> None:
        super().__init__(message)
        self.problem = problem
        self.message = message
        self.passing = passing


class Response:
    """An answer: status and headers at once, the body as it arrives. Leave it through `async with`, or call `close`:
    an unfinished body then closes its connection, a finished one keeps it alive."""

    __slots__ = ("_closed", "_connection", "_pool", "headers", "status")

    def __init__(self, connection: Connection, pool: ConnectionPool) -> None:
        self._connection = connection
        self._pool = pool
        self._closed = False
        self.status: int = connection.status
        self.headers: Mapping[str, str] = connection.headers

    async def read(self) -> bytes:
        """Return what has arrived since the last call, at least one byte; b"" at the end. Raise TransportError when
        the body cannot be completed."""
        return await self._connection.read()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._connection.read():
            yield piece

    async def body(self, limit: int = 64 * 1024) -> bytes:
        """Return the body, cut at `limit`, for error texts. If the connection breaks, the bytes so far are returned."""
        data = bytearray()
        with contextlib.suppress(TransportError):
            async for piece in self:
                data += piece
                if len(data) >= limit:
                    break
        return bytes(data[:limit])

    async def drain(self, seconds: float) -> None:
        """Wait that long for the end of a body of which nothing more is wanted, so that its
        connection can be used again."""
        if not self._connection.complete:
            with contextlib.suppress(TimeoutError, TransportError):
                async with asyncio.timeout(seconds):
                    while await self._connection.read():
                        pass

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool.give_back(self._connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class ConnectionPool:
    """The idle connections of one event loop, newest first."""

    def __init__(self) -> None:
        self._idle: dict[Address, list[Connection]] = {}
        self._closed = False

    def take(self, address: Address, now: float) -> Connection | None:
        waiting = self._idle.get(address)
        while waiting:
            connection = waiting.pop()
            if connection.open and now - connection.idle_since < IDLE_CONNECTION_SECONDS:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection) -> None:
        if connection.reusable and not self._closed:
            connection.rest()
            self._idle.setdefault(connection.address, []).append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        self._closed = True
        for waiting in self._idle.values():
            for connection in waiting:
                connection.abort()
        self._idle.clear()


class Transport:
    """Pooled connections without a limit on their number. Safe to share between models, runs
    and event loops: each loop has its own pool."""

    def __init__(
        self,
        *,
        connect_timeout: float | None = CONNECT_SECONDS,
        idle_timeout: float | None = IDLE_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`idle_timeout` ends an exchange in which the server has been silent that long; there
        is no total limit, the run has its own. `tls` replaces the system's certificates."""
        self._tls = tls
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ConnectionPool] = weakref.WeakKeyDictionary()

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes | Callable[[], bytes]
    ) -> Coroutine[Any, Any, Response]:
        """Send the request and wait for the head of the answer, whatever its status. A function as `body` is called
        whenever the request is sent, so that its bytes need no memory while the answer is waited for."""
        return self._exchange("POST", url, headers, body)

    def get(self, url: str, headers: Mapping[str, str]) -> Coroutine[Any, Any, Response]:
        return self._exchange("GET", url, headers, b"")

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | Callable[[], bytes]
    ) -> Response:
        try:
            address, target, authorization = parse_url(url)
        except ValueError as error:
            raise TransportError("url", str(error)) from None
        if proxy := proxy_for(address):
            address = replace(address, proxy=proxy)
        start = self._start(method, target, address, authorization, headers)
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = ConnectionPool()
        # The server may have closed an idle connection by now: then the next one is tried.
        while (connection := pool.take(address, loop.time())) is not None:
            response = await self._send(connection, pool, start, body)
            if response is not None:
                return response
        response = await self._send(await self._connect(address), pool, start, body)
        if response is None:
            raise TransportError("dropped", f"{address.origin} closed the connection without an answer.")
        return response

    def _start(
        self, method: str, target: str, address: Address, authorization: str | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return the request head without its last line: it is the same for every turn of an agent."""
        key = (method, target, address, authorization, *headers.items())
        start = self._heads.get(key)
        if start is None:
            if len(self._heads) >= _MAX_CACHED_HEADS:
                self._heads.clear()
            start = self._heads[key] = render_head(method, target, address, authorization, headers)
        return start

    async def _send(
        self, connection: Connection, pool: ConnectionPool, start: bytes, body: bytes | Callable[[], bytes]
    ) -> Response | None:
        """Send a request. Return None when the server hung up before the first byte of an answer, as it may do on a
        connection that was kept alive."""
        try:
            if await connection.exchange(*_complete(start, body), self._idle_timeout):
                return Response(connection, pool)
        except BaseException:
            connection.abort()
            raise
        connection.abort()
        return None

    async def _connect(self, address: Address) -> Connection:
        from retinue.http.connection import open_connection

        return await open_connection(address, self._connect_timeout, self._tls)

    async def close(self) -> None:
        """Close the idle connections of this event loop; the transport stays usable."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.close()
            # asyncio closes the sockets of aborted connections in its next pass.
            await asyncio.sleep(0)


def _complete(start: bytes, body: bytes | Callable[[], bytes]) -> tuple[bytes, bytes]:
    """Return the whole head of a request, and its body."""
    content = body() if callable(body) else body
    if not content and start.startswith(b"GET "):
        return start + b"\r\n", content
    return b"%bcontent-length: %d\r\n\r\n" % (start, len(content)), content


def render_head(
    method: str, target: str, address: Address, authorization: str | None, headers: Mapping[str, str]
) -> bytes:
    """Return the request head without its end. Raise TransportError for a character that would break out of a header
    line; the message does not quote it."""
    if address.proxy is not None and not address.secure:
        target = address.origin + target
        proxy_authorization = parse_url(address.proxy)[2]
        if proxy_authorization:
            headers = {**headers, "proxy-authorization": proxy_authorization}
    # identity: events are small and urgent; decompressing them costs more than it saves.
    lines = [f"{method} {target} HTTP/1.1", f"host: {address.authority}", "accept-encoding: identity"]
    if authorization and not any(name.lower() == "authorization" for name in headers):
        lines.append(f"authorization: {authorization}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    for line in lines:
        if not (line.isascii() and line.isprintable()):
            name = line.partition(":")[0] if ":" in line else "the URL"
            raise TransportError("url", f"The value of {name[:40]!r} holds a character that HTTP cannot carry.")
    return "\r\n".join((*lines, "")).encode("ascii")


_SIMPLE_EVENT = re.compile(rb"(?:event: [^\n]*+\n)?data: ([^\n]*+)\n\n")
"""An event as nearly all are: perhaps its name, one line of data, and nothing else."""

_EVENT_FIELDS = (b"data", b"event", b"id", b"retry")


class Events:
    """Server-sent events from bytes. `feed` returns the payloads of the events that its bytes complete."""

    __slots__ = ("_after_return", "_data", "_first", "_rest", "foreign")

    def __init__(self) -> None:
        # The unfinished last line, in pieces: a long one is joined once.
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._after_return = False
        self._first = True
        self.foreign = False
        """Whether some line was not of this format."""

    def feed(self, data: bytes) -> list[bytes]:
        # The second half of a CRLF that was cut in two.
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
        self._after_return = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            self._rest.append(data)
            return []
        if self._rest:
            data = b"".join((*self._rest, data))
        if self._first:
            self._first = False
            data = data.removeprefix(b"\xef\xbb\xbf")
        payloads: list[bytes] = []
        start = 0
        if not self._data:
            while (plain := _SIMPLE_EVENT.match(data, start)) is not None:
                payloads.append(plain[1])
                start = plain.end()
        lines = (data[start:] if start else data).split(b"\n")
        last = lines.pop()
        self._rest = [last] if last else []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                payloads.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
            # The name of a field may be cut off; a line without a name is a comment.
            elif line and not any(field.startswith(line.partition(b":")[0]) for field in _EVENT_FIELDS):
                self.foreign = True
        return payloads

    def finish(self) -> list[bytes]:
        """Return an event that the end of the stream completes instead of an empty line."""
        return self.feed(b"\n\n")
