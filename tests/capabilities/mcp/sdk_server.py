"""A real MCP server for tests, made with the official library: over stdio, or HTTP on loopback.

    python sdk_server.py stdio
    python sdk_server.py http PORT

Its tools do what servers do, and what they should not.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ImageContent, ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("sdk", instructions="A server for tests.")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def whoami() -> str:
    """The number of this process."""
    return str(os.getpid())


@server.tool()
def environment(name: str) -> str:
    """A variable of the server's environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def trace(context: Context) -> str:
    """The place in a trace that the call belongs to."""
    meta = context.request_context.meta or {}
    return str(meta.get("traceparent", "(none)"))


@server.tool()
def flood(size: int) -> str:
    """A text of that many characters."""
    return "x" * size


@server.tool()
def noise(lines: int) -> str:
    """Prints to where the protocol is spoken, and to standard error."""
    for number in range(lines):
        os.write(1, f"this is not JSON {number}\n".encode())
        os.write(2, f"complaint {number}\n".encode())
    os.write(1, b'{"jsonrpc": "2.0", "nonsense": true}\n')
    return "said a lot"


@server.tool()
def crash() -> str:
    """Ends the server in the middle of the call."""
    os.write(2, b"about to crash\n")
    os._exit(3)


@server.tool()
async def hang() -> str:
    """Never answers."""
    await asyncio.sleep(3600)
    return "never"


@server.tool()
def freeze(seconds: float) -> str:
    """Stops the whole server: it answers nobody."""
    import time

    time.sleep(seconds)
    return "thawed"


@server.tool()
async def slow(ctx: Context, path: str, steps: int = 3) -> str:
    """Reports progress; writes how it ended to a file."""
    try:
        for number in range(steps):
            await ctx.report_progress(number + 1, steps, f"step {number + 1}")
            await asyncio.sleep(0.02)
        if steps > 1000:
            await asyncio.sleep(3600)
    except asyncio.CancelledError:
        Path(path).write_text("cancelled")
        raise
    Path(path).write_text("done")
    return "went all the way"


@server.tool()
def daemon(path: str) -> str:
    """Leaves a process behind that has left the server's session."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdin=subprocess.DEVNULL)
    Path(path).write_text(str(child.pid))
    return str(child.pid)


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool."""

    def grown(word: str) -> str:
        """A tool that was not there before."""
        return f"grown says {word}"

    server.add_tool(grown, name="grown")
    await ctx.session.send_tool_list_changed()
    return "grew"


@server.tool()
def picture() -> list[ImageContent]:
    """An image."""
    return [ImageContent(type="image", data=PIXEL, mime_type="image/png")]


@server.tool()
def fails() -> str:
    """Fails."""
    raise ValueError("it does not work")


class Wish(BaseModel):
    color: Annotated[str, Field(description="Any color")]
    count: int
    sure: bool = True


@server.tool()
async def wish(ctx: Context) -> str:
    """Asks the person."""
    result = await ctx.elicit("What would you like?", Wish)
    data = getattr(result, "data", None)
    return f"{result.action} {data.model_dump() if data else ''}".strip()


class Order(BaseModel):
    size: Annotated[
        str, Field(json_schema_extra={"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]})
    ]
    extras: Annotated[list[str], Field(json_schema_extra={"items": {"anyOf": [{"const": "m", "title": "Milk"}]}})]
    note: str | None = None
    cups: int = 2


@server.tool()
async def order(ctx: Context) -> str:
    """Asks the person with choices that have titles, and fields that can be skipped."""
    result = await ctx.elicit("What would you like?", Order)
    data = getattr(result, "data", None)
    return f"{result.action} {data.model_dump() if data else ''}".strip()


@server.tool()
async def folders(ctx: Context) -> str:
    """The folders it may touch."""
    found = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in found.roots)


if __name__ == "__main__":
    with open(os.environ.get("STARTS", os.devnull), "a") as starts:
        starts.write(f"{os.getpid()}\n")
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http" if sys.argv[1] == "http" else "sse", port=int(sys.argv[2]))
