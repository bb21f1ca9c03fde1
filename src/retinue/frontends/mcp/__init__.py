"""The MCP front end: agents as tools of another program, over stdio (`retinue mcp`) or HTTP (`retinue serve`, `/mcp`).

host     the capabilities of the other program, and the forms that its user fills in
offer    which agents are offered, and the tool of each
params   the parameters of the tools
tools    the tools: their descriptions and implementations
tasks    the Tasks extension: a run as a task
result   a run as the result of a call
server   a server of the SDK; agents and runs as resources; notifications about changed agent files
stdio    the server as a process on stdin and stdout
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from retinue.app.process import claim_standard_streams
from retinue.errors import UsageError

if TYPE_CHECKING:
    from retinue.app.feed import Feed
    from retinue.frontends.mcp.server import McpServer


class WireStreams(Struct, frozen=True):
    """The streams to and from the host."""

    source: BinaryIO
    sink: BinaryIO


def claim_streams() -> WireStreams:
    """Reserve stdin and stdout for the protocol, permanently. They are moved to other descriptors before any other
    import. Raise UsageError if one of them is closed."""
    try:
        reading, writing = claim_standard_streams()
    except OSError:
        raise UsageError(
            "Stdin or stdout is closed.", remedy="A host starts this program: retinue mcp install"
        ) from None
    if os.isatty(reading):
        sys.stderr.write("Waiting for a host on stdin. Its configuration: retinue mcp install\n")
    return WireStreams(os.fdopen(reading, "rb"), os.fdopen(writing, "wb"))


def serve_host(cwd: Path, names: tuple[str, ...], *, tool_each: bool, attended: bool) -> int:
    """Serve the program that started this one, over stdin and stdout, until it disconnects. The options are those of
    `Offer` and `serve_stdio`. Return the exit code."""
    # Before anything is imported that might print.
    streams = claim_streams()
    # Importing the SDK creates a hundred thousand objects, none of which is garbage.
    gc.disable()
    from retinue.frontends.mcp.stdio import serve_stdio

    gc.freeze()
    gc.enable()
    return asyncio.run(serve_stdio(streams, cwd, names, tool_each=tool_each, attended=attended))


def make_server(feed: Feed) -> McpServer:
    """Return a server of the SDK that offers every agent of a project."""
    from retinue.frontends.mcp.server import McpServer

    return McpServer(feed)
