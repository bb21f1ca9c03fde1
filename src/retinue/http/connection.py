"""One HTTP/1.1 connection as an asyncio protocol: one exchange at a time, parsed by llhttp."""

from __future__ import annotations

import asyncio
import socket
import zlib
from typing import TYPE_CHECKING

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from retinue.http.transport import TransportError, TransportProblem

if TYPE_CHECKING:
    import ssl

    from retinue.http.address import Address

_BUFFER = 256 * 1024
_ONE_WRITE = 64 * 1024


class Connection(asyncio.Protocol):
    """`exchange` sends a request and waits for the head of the answer, `read` returns its body.
    After the body `reusable` says whether the connection can carry another exchange."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.open = False
        self.idle_since = 0.0
        self.status = 0
        self.headers: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._busy = False
        self._waiter: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._patience: float | None = None
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers = {}
        self._heard = 0.0
        self._touched = False
        self.complete = False
        self._keep = False
        self._paused = False
        self._pieces: list[bytes] = []
        self._held = 0
        self._failure: TransportError | None = None
        self._decoder: zlib._Decompress | None = None

    # ---------------------------------------------------------------- used by the transport
    def attach(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.open = True

    def keep_alive(self) -> None:
        """Ask the kernel to notice a peer that vanished silently."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def upgraded(self, tls: ssl.SSLContext) -> Connection:
        """This connection with TLS inside, after a CONNECT request was accepted."""
        self._end_watch()
        inner = Connection(self.address)
        self._transport.set_protocol(inner)
        host = self.address.host
        secured = await self._loop.start_tls(self._transport, inner, tls, server_hostname=host)
        if secured is None:
            raise ConnectionResetError("closed while TLS was starting")
        inner.attach(secured)
        return inner

    async def exchange(self, head: bytes, body: bytes, idle_timeout: float | None) -> bool:
        """True with `status` and `headers` set; False if the server hung up before it said
        anything, so that nothing of an answer can be lost by sending again."""
        if not self.open:
            return False
        self._reset()
        self._busy = True
        self._heard = self._loop.time()
        self._patience = idle_timeout
        if idle_timeout is not None and self._watch is None:
            self._watch = self._loop.call_later(idle_timeout, self._check_silence)
        if len(body) <= _ONE_WRITE:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
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

    # ---------------------------------------------------------------- called by asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.attach(transport)

    def data_received(self, data: bytes) -> None:
        if not self._busy or self.complete or self._parser is None:
            self._keep = False
            self.abort()
            return
        self._heard = self._loop.time()
        self._touched = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._fail("garbage", f"{self.address.origin} did not answer in HTTP/1.1.")
            self.abort()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if not self.complete and self._failure is None:
            if self.status and error is None and not self._framed():
                self.complete = True  # HTTP/1.0 style: the body ends where the connection does
            else:
                self._fail("dropped", f"{self.address.origin} closed the connection before the answer was complete.")
        self._end_watch()
        self._wake()
        self._parser = None  # it refers to this connection: both would wait for the garbage collector

    # ---------------------------------------------------------------- called by the parser
    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._status_code()
        if status < 200:  # an interim answer, such as 100 Continue
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
        if self._held > _BUFFER and not self._paused and self.open:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.status and self._parser is not None:
            self.complete = True
            self._keep = self._parser.should_keep_alive()

    # ---------------------------------------------------------------- inside
    def _status_code(self) -> int:
        assert self._parser is not None  # it is the parser that calls
        return self._parser.get_status_code()

    def _framed(self) -> bool:
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
        if self._paused:
            self._heard = now
        left = self._heard + limit - now
        if left > 0:
            self._watch = self._loop.call_later(left, self._check_silence)
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
