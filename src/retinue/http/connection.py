"""Connections: opened directly, or in a tunnel through a proxy, and used for exchanges.

A connection is an asyncio protocol that carries one exchange at a time, parsed by llhttp.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import zlib
from functools import cache
from typing import Self

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from retinue.http.address import Address, display_url, parse_url
from retinue.http.transport import TransportError, TransportProblem

_MAX_UNREAD_BYTES = 256 * 1024
_JOINED_WRITE_BYTES = 64 * 1024


class Connection(asyncio.Protocol):
    """One connection. `exchange` sends a request and waits for the head of the answer, `read` returns its body. After
    the body `reusable` says whether the connection can carry another exchange."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.open = False
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._parser: HttpResponseParser | None = None
        self._busy = False
        self._waiter: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._patience: float | None = None
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._heard = 0.0
        self._touched = False
        self.complete = False
        self._keep = False
        self._paused = False
        self._pieces: list[bytes] = []
        self._held = 0
        self._failure: TransportError | None = None
        self._decoder: zlib._Decompress | None = None

    def attach(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.open = True

    def keep_alive(self) -> None:
        """Ask the kernel to notice a peer that vanished silently."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def ask_for_tunnel(self, host: str, authorization: str | None) -> str:
        """Ask a proxy for a connection to `host`. Return the reason of a refusal, or an empty text."""
        head = f"CONNECT {host}:{self.address.port} HTTP/1.1\r\nhost: {host}:{self.address.port}\r\n"
        if authorization:
            head += f"proxy-authorization: {authorization}\r\n"
        if not await self.exchange(f"{head}\r\n".encode("ascii"), b"", None):
            return "hung up"
        return "" if self.status == 200 else f"answered {self.status}"

    async def enter_tunnel(self, tls: ssl.SSLContext | None) -> Self:
        """Return the connection inside this one, after a proxy has agreed; with `tls`, TLS is started in it."""
        self._end_watch()
        inner = type(self)(self.address)
        transport = self._transport
        transport.set_protocol(inner)
        if tls is not None:
            secured = await self._loop.start_tls(transport, inner, tls, server_hostname=self.address.host)
            if secured is None:
                raise ConnectionResetError("closed while TLS was starting")
            transport = secured
        inner.attach(transport)
        return inner

    async def exchange(self, head: bytes, body: bytes, idle_timeout: float | None) -> bool:
        """Send a request. Return True with `status` and `headers` set, or False if the server closed the connection
        before it sent anything. Then the request can be sent again without losing a part of an answer."""
        if not self.open:
            return False
        self._reset()
        self._busy = True
        self._heard = self._loop.time()
        self._patience = idle_timeout
        if idle_timeout is not None and self._watch is None:
            self._watch = self._loop.call_later(idle_timeout, self._check_silence)
        if len(body) <= _JOINED_WRITE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        # An answer can take minutes: thousands of waiting runs must not keep what they have sent.
        del head, body
        while not self.status:
            if self._failure is not None:
                if self._failure.problem == "dropped" and not self._touched:
                    return False
                raise self._failure
            await self._wait()
        return True

    async def read(self) -> bytes:
        while True:
            if self._pieces:
                data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
                self._pieces = []
                self._held = 0
                if self._paused:
                    self._paused = False
                    self._heard = self._loop.time()
                    self._transport.resume_reading()
                if self._decoder is not None:
                    data = self._decode(data)
                if data:
                    return data
            elif self._failure is not None:
                raise self._failure
            elif self.complete:
                return b""
            else:
                await self._wait()

    @property
    def reusable(self) -> bool:
        return self.complete and self._keep and self.open and self._failure is None and not self._pieces

    def rest(self) -> None:
        self._busy = False
        self.idle_since = self._loop.time()

    def abort(self) -> None:
        self._end_watch()
        if self.open:
            self.open = False
            if not self._loop.is_closed():
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.attach(transport)

    def data_received(self, data: bytes) -> None:
        # Nobody has asked for this: the next answer on this connection could be taken for another one.
        if not self._busy or self.complete:
            self._keep = False
            self.abort()
            return
        self._heard = self._loop.time()
        self._touched = True
        if self._parser is None:
            # Not before: thousands of runs wait for a first answer, and a parser is 1 kB.
            self._parser = HttpResponseParser(self)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._fail("garbage", f"{self.address.origin} did not answer in HTTP/1.1.")
            self.abort()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if not self.complete and self._failure is None:
            # As in HTTP/1.0: a body without a length ends where the connection does.
            if self.status and error is None and not self._has_length():
                self.complete = True
            else:
                self._fail("dropped", f"{self.address.origin} closed the connection before the answer was complete.")
        self._end_watch()
        self._wake()
        # The parser refers to this connection: both would wait for the garbage collector.
        self._parser = None

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._status_code()
        # An interim answer, such as 100 Continue: the final one has headers of its own.
        if status < 200:
            self.headers = {}
            return
        self.status = status
        encoding = self.headers.get("content-encoding", "").strip().lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif encoding not in ("", "identity"):
            self._fail("garbage", f"{self.address.origin} answered in the encoding '{encoding[:40]}', unasked.")

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._held += len(body)
        # A server that is faster than the reader must not fill the memory.
        if self._held > _MAX_UNREAD_BYTES and not self._paused and self.open:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.status and self._parser is not None:
            self.complete = True
            self._keep = self._parser.should_keep_alive()

    def _status_code(self) -> int:
        assert self._parser is not None  # it is the parser that calls
        return self._parser.get_status_code()

    def _has_length(self) -> bool:
        return "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower()

    def _decode(self, data: bytes) -> bytes:
        assert self._decoder is not None
        try:
            return self._decoder.decompress(data)
        except zlib.error:
            self._fail("garbage", f"{self.address.origin} sent a body that cannot be decompressed.")
            return b""

    def _fail(self, problem: TransportProblem, message: str) -> None:
        if self._failure is None:
            self._failure = TransportError(problem, message)

    def _check_silence(self) -> None:
        """Check the time limit. One timer serves all exchanges of a connection."""
        self._watch = None
        limit, now = self._patience, self._loop.time()
        if limit is None or not self._busy or self.complete:
            return
        # While reading is paused the silence is ours.
        if self._paused:
            self._heard = now
        remaining = self._heard + limit - now
        if remaining > 0:
            self._watch = self._loop.call_later(remaining, self._check_silence)
            return
        self._fail("idle", f"{self.address.origin} sent nothing for {limit:g} seconds.")
        self.abort()
        self._wake()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@cache
def default_tls() -> ssl.SSLContext:
    """Return a context with the system's certificates, which SSL_CERT_FILE and SSL_CERT_DIR may move. On a Python that
    was built without any, certifi's are used if it is installed."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None and not context.cert_store_stats()["x509_ca"]:
        try:
            import certifi
        except ImportError:
            return context
        context.load_verify_locations(certifi.where())
    return context


async def open_connection(address: Address, seconds: float | None, tls: ssl.SSLContext | None = None) -> Connection:
    """Return a connection that is ready for an exchange. Raise TransportError, never an OSError."""
    goal = address.origin if address.proxy is None else f"the proxy {display_url(address.proxy)}"
    try:
        async with asyncio.timeout(seconds):
            if address.proxy is None:
                return await _dial(address, address, tls)
            return await _through_proxy(address, address.proxy, tls)
    except TransportError:
        raise
    except TimeoutError:
        raise TransportError("connect_timeout", f"{goal} did not accept a connection in {seconds:g} seconds.") from None
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message or "verification failed"
        raise TransportError("certificate", f"The certificate of {address.origin} is not trusted: {reason}.") from None
    except ssl.SSLError as error:
        reason = (error.reason or "handshake failed").replace("_", " ").lower()
        raise TransportError("unreachable", f"No TLS with {goal}: {reason}.") from None
    except socket.gaierror:
        problem: TransportProblem = "unreachable" if address.proxy is None else "proxy"
        raise TransportError(problem, f"The host name of {goal} cannot be resolved.") from None
    except OSError as error:
        refused = error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error)
        if address.proxy is not None:
            reason = "connection refused" if refused else error.strerror or "no connection"
            raise TransportError("proxy", f"{goal[0].upper()}{goal[1:]} does not answer: {reason}.") from None
        if refused:
            raise TransportError("refused", f"Nothing answers at {goal}: connection refused.") from None
        raise TransportError("unreachable", f"{goal} cannot be reached: {error.strerror or 'no connection'}.") from None


async def _dial(server: Address, address: Address, tls: ssl.SSLContext | None) -> Connection:
    """Connect to `server` for exchanges with `address`, which is the same unless `server` is a proxy."""
    loop = asyncio.get_running_loop()
    # A numeric address leads to one place: there is no other to try meanwhile.
    numeric = ":" in server.host or server.host.replace(".", "").isdigit()
    _, connection = await loop.create_connection(
        lambda: Connection(address),
        server.host,
        server.port,
        ssl=(tls or default_tls()) if server.secure else None,
        server_hostname=server.host if server.secure else None,
        happy_eyeballs_delay=None if numeric else 0.25,
    )
    connection.keep_alive()
    return connection


async def _through_proxy(address: Address, proxy: str, tls: ssl.SSLContext | None) -> Connection:
    scheme = proxy.partition("://")[0].lower()
    if scheme not in ("http", "https"):
        reason = f"The proxy {display_url(proxy)} speaks {scheme}; only http and https proxies can be used."
        raise TransportError("proxy", reason, passing=False)
    try:
        relay, _, authorization = parse_url(proxy)
    except ValueError:
        raise TransportError("proxy", f"The proxy {display_url(proxy)} is not a URL.", passing=False) from None
    connection = await _dial(relay, address, tls)
    if not address.secure:
        return connection
    host = f"[{address.host}]" if ":" in address.host else address.host
    try:
        reason = await connection.ask_for_tunnel(host, authorization)
        if reason:
            if connection.status == 407:
                reason += " (it wants a user and a password in its URL)"
            message = f"The proxy {display_url(proxy)} {reason} when asked for {address.origin}."
            raise TransportError("proxy", message, passing=connection.status not in (401, 403, 407))
        return await connection.enter_tunnel(tls or default_tls())
    except BaseException:
        connection.abort()
        raise
