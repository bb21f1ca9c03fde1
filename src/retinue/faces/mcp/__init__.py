"""The MCP face: agents as tools of another program, over stdio (`retinue mcp`) or HTTP (`/mcp` of `retinue serve`).

host         what the program at the other end can do, and the forms that its user fills in
offer        which agents are offered, and the tool of each
params       what the tools take
tools        the tools: what each says of itself and does
wait         a call that waits for a run, whichever kind of host made it
tasks        the Tasks extension: a run as a task
result       a run as the result of a call
server       all of it as one server of the SDK; agents and runs as resources; news of changed agent files
stdio        the server as a process that talks over stdin and stdout
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.app.feed import Feed
    from retinue.faces.mcp.server import McpServer


def serve_host(cwd: Path, names: tuple[str, ...], *, tool_each: bool, attended: bool) -> int:
    """Serve the program that has started this one until it goes away, over stdin and stdout; the options are those of
    `Offer` and `serve_stdio`. Return the exit code."""
    from retinue.faces.mcp.stdio import claim_streams

    # Before anything is imported that might print.
    streams = claim_streams()
    import asyncio
    import gc

    # The SDK makes a hundred thousand objects when it is imported, and none of them is garbage.
    gc.disable()
    import retinue.faces.mcp.server  # noqa: F401
    from retinue.faces.mcp.offer import Offer
    from retinue.faces.mcp.stdio import serve_stdio

    gc.freeze()
    gc.enable()
    return asyncio.run(serve_stdio(streams, cwd, Offer(names, tool_each), attended=attended))


def make_server(feed: Feed) -> McpServer:
    """Return a server of the SDK that offers every agent of a project."""
    from retinue.faces.mcp.offer import Offer
    from retinue.faces.mcp.server import McpServer

    return McpServer(feed, Offer())
