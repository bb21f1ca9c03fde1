"""Limits on connections: neither opening many, nor sending or reading slowly, can block the server.

On one machine every peer has the same address, so a limit by address cannot distinguish the owner from another user.
The server distinguishes them by their requests: a connection that sent a request with the token is *proven* and is
kept. The number of all others is limited, and a new one replaces the oldest.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 5.0
MAX_HEADER_BYTES = 64 * 2**10
STALLED_SECONDS = 30.0
MAX_UNPROVEN = 512
ACCEPT_BACKLOG = 100
"""Far below MAX_UNPROVEN: a connection must be read before new ones could replace it."""
PROVE_EXTENSION = "retinue.prove"
"""The extension of the ASGI scope with which the guard reports a request with the token."""


class UnprovenConnections:
    """The connections without a request that had the token, oldest first."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit or _affordable_connections()
        self._waiting: dict[GuardedConnection, asyncio.BaseTransport] = {}

    def add(self, connection: GuardedConnection, transport: asyncio.BaseTransport) -> None:
        if len(self._waiting) >= self._limit:
            oldest = next(iter(self._waiting))
            # `abort` discards unsent data, so a peer that does not read cannot keep the connection.
            self._waiting.pop(oldest).abort()  # type: ignore[attr-defined]
        self._waiting[connection] = transport

    def remove(self, connection: GuardedConnection) -> None:
        self._waiting.pop(connection, None)


def _affordable_connections() -> int:
    """Return a limit for unproven connections that leaves enough file descriptors for other uses."""
    try:
        import resource
    except ImportError:
        return MAX_UNPROVEN
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_UNPROVEN if soft == resource.RLIM_INFINITY else max(16, min(MAX_UNPROVEN, soft // 2))


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's protocol with limits: headers must be small and arrive in time, and responses must be read."""

    def __init__(self, unproven: UnprovenConnections, tls: ssl.SSLContext | None, **options: Any) -> None:
        super().__init__(**options)
        self._unproven = unproven
        self._tls = tls
        self._tls_start: asyncio.Task[None] | None = None
        self._early_data = b""
        self._header_timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._unproven.add(self, transport)
        if self._tls is None:
            super().connection_made(transport)
            self._expect_headers()
        else:
            # `create_server(ssl=…)` would exclude unfinished handshakes from our limits.
            self._tls_start = self.loop.create_task(self._start_tls(transport, self._tls))

    async def _start_tls(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        secure = None
        with contextlib.suppress(OSError):
            secure = await self.loop.start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=HEADER_SECONDS
            )
        if secure is None:
            self._unproven.remove(self)
            transport.abort()
            return
        super().connection_made(secure)
        self._expect_headers()
        if self._early_data:
            self.data_received(self._early_data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unproven.remove(self)
        self._headers_arrived()
        self.resume_writing()
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            # The last handshake message also contained the first request.
            self._early_data += data
            return
        unfinished = self._header_timer is not None
        super().data_received(data)
        if unfinished and self._header_timer is not None:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {PROVE_EXTENSION: {"prove": partial(self._unproven.remove, self)}}
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._headers_arrived()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        if self.flow is not None:
            super().resume_writing()

    def _expect_headers(self) -> None:
        if self._header_timer is None:
            self._header_bytes = 0
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _headers_arrived(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _watch_reader(self, unread: int) -> None:
        self._stall_timer = self.loop.call_later(STALLED_SECONDS, self._check_reader, unread)

    def _check_reader(self, unread_before: int) -> None:
        """Close the connection if its peer has read nothing since the last check."""
        unread = self.transport.get_write_buffer_size()
        if unread < unread_before:
            self._watch_reader(unread)
        else:
            self.transport.abort()
