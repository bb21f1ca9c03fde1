"""The server as a process on stdin and stdout.

When the host disconnects, runs that it has started continue until they end. SIGTERM and SIGINT end the process
immediately. Its runs are then recorded as stopped by the program, and the next server that receives a request for one
of its tasks resumes it.
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
    """Serve until the host disconnects and the runs that were started here have ended. Return the exit code. `names`
    and `tool_each` are those of `Offer`. Unless `attended`, the headless policy answers questions of runs."""
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
        # A thread still waits for a line of the host and cannot be woken.
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
        # The host has disconnected during a message.
        pass


async def _check_names(feed: Feed, offer: Offer) -> None:
    """Report the names of `--agents` that match no agent. The others are still offered."""
    if offer.names:
        for problem in await offer.unknown(feed):
            sys.stderr.write(f"retinue mcp: {problem}\n")


async def _wait_for_runs(feed: Feed) -> None:
    if feed.is_open:
        await (await feed.retinue()).wait_all()
