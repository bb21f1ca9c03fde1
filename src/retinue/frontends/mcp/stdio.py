"""The server as a process that talks over stdin and stdout.

When the host goes away, runs that it has started go on until they end; nothing is read or written any more. SIGTERM and
SIGINT end the process at once. Its runs are recorded as stopped by the program then, and the next server that the host
asks for one of its tasks goes on with it.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from pathlib import Path

import anyio
from mcp.server.stdio import stdio_server

from retinue.app.feed import Feed
from retinue.app.process import on_end
from retinue.frontends.mcp import WireStreams
from retinue.frontends.mcp.offer import Offer
from retinue.frontends.mcp.server import McpServer


async def serve_stdio(
    streams: WireStreams, cwd: Path, names: tuple[str, ...], *, tool_each: bool, attended: bool
) -> int:
    """Serve until the host goes away and the runs that were started here have ended. Return the exit code.
    `names` and `tool_each` are those of `Offer`. Not `attended`: runs that ask a person are answered by the headless
    policy."""
    feed, offer = Feed(cwd, attended=attended), Offer(names, tool_each)
    ending = asyncio.Event()
    serving = asyncio.create_task(_serve(streams, feed, offer))
    checking = asyncio.create_task(_check_names(feed, offer))
    asked_to_end = asyncio.create_task(ending.wait())
    with on_end(ending.set):
        await asyncio.wait({serving, asked_to_end}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            going_on = asyncio.create_task(_wait_for_runs(feed))
            await asyncio.wait({going_on, asked_to_end}, return_when=asyncio.FIRST_COMPLETED)
        checking.cancel()
        await feed.close()
    sys.stderr.flush()
    if not serving.done():
        # A thread still waits for a line of the host, and nothing can wake it.
        os._exit(0)
    return 0


async def _serve(streams: WireStreams, feed: Feed, offer: Offer) -> None:
    server = McpServer(feed, offer)
    source = anyio.wrap_file(io.TextIOWrapper(streams.source, encoding="utf-8", errors="replace"))
    sink = anyio.wrap_file(io.TextIOWrapper(streams.sink, encoding="utf-8", newline="\n"))
    try:
        async with stdio_server(source, sink) as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())
    except* (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        # The host is gone in the middle of a message.
        pass


async def _check_names(feed: Feed, offer: Offer) -> None:
    """Say which of the names of `--agents` mean nothing. The others are offered all the same."""
    if offer.names:
        for problem in await offer.unknown(feed):
            sys.stderr.write(f"retinue mcp: {problem}\n")


async def _wait_for_runs(feed: Feed) -> None:
    if feed.is_open:
        await (await feed.retinue()).wait_all()
