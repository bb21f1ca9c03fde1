"""`/mcp`: agents for hosts that speak the Model Context Protocol over HTTP.

The guard of the server stands before it, so the SDK's own checks of host and origin are off. The SDK is imported with
the first request: a server that no host asks starts without it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from retinue.faces.feed.feed import Feed

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"


class McpRoute:
    """Use from one event loop. Ends with `closing`."""

    def __init__(self, feed: Feed, closing: asyncio.Event) -> None:
        self._feed = feed
        self._closing = closing
        self._started: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._started), name="mcp over http")
            self._serving.add_done_callback(self._pass_on_failure)
        manager = await asyncio.shield(self._started)
        answering = asyncio.ensure_future(manager.handle_request(scope, receive, send))
        closing = asyncio.create_task(self._closing.wait())
        try:
            # A call may wait for hours, and a stream has no end: the server does not wait for them.
            await asyncio.wait({answering, closing}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await answering
        finally:
            answering.cancel()
            closing.cancel()
            await asyncio.wait({answering})

    def _pass_on_failure(self, serving: asyncio.Task[None]) -> None:
        error = None if serving.cancelled() else serving.exception()
        if error is not None and self._started is not None and not self._started.done():
            self._started.set_exception(error)

    async def _serve(self, started: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        from retinue.faces.mcp.offer import Offer
        from retinue.faces.mcp.server import McpServer

        server = McpServer(self._feed, Offer())
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        manager = StreamableHTTPSessionManager(server, security_settings=unchecked)
        async with manager.run():
            started.set_result(manager)
            await self._closing.wait()
