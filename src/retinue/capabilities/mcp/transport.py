"""How a server is started, and the streams between it and the client of the `mcp` library.

For programs these are our own streams. With the library's, other output of a server would fill the terminal, a line
without end would fill the memory, and servers would survive a kill -9 of this process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.capabilities.mcp.config import ServerConfig
from retinue.tools.processes import CannotStartError, ErrorLog, ServerProcess

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""The limit for a line from a server. A longer one closes the connection."""
PASSED_VARIABLES = frozenset(
    "HOME LOGNAME PATH SHELL TERM USER LANG LANGUAGE TZ TMPDIR TEMP TMP "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS "
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT USERNAME "
    "USERPROFILE PROGRAMFILES PROGRAMDATA COMSPEC WINDIR".split()
)
"""The variables of our environment that a server gets; others must be in its configuration."""
_PASSED_PREFIXES = ("LC_", "XDG_")


def server_environment(environment: Mapping[str, str], config: ServerConfig) -> dict[str, str]:
    passed: dict[str, str] = {}
    for name, value in environment.items():
        # A value that begins with `()` is an exported function of bash, which a shell would run.
        if (name in PASSED_VARIABLES or name.startswith(_PASSED_PREFIXES)) and not value.startswith("()"):
            passed[name] = value
    return {**passed, **config.env}


def find_program(config: ServerConfig, cwd: Path, environment: Mapping[str, str]) -> tuple[str, Path]:
    """Return the program of a server and the folder it is started in. Raise CannotStartError if one of them does not
    exist. Nothing is started."""
    env = server_environment(environment, config)
    folder = cwd
    if config.cwd:
        folder = cwd / Path(config.cwd).expanduser()
    program = shutil.which(config.command, path=env.get("PATH"))
    if program is None and os.sep in config.command and (folder / config.command).is_file():
        program = str(folder / config.command)
    if program is None:
        raise CannotStartError(f"the command '{config.command}' was not found")
    if not folder.is_dir():
        raise CannotStartError(f"its working directory {folder} does not exist")
    return program, folder


@asynccontextmanager
async def program_streams(
    process: ServerProcess, log: ErrorLog, ended: Callable[[], None]
) -> AsyncGenerator[TransportStreams, None]:
    """Open the streams of a program. The caller ends the process; `ended` is called at the end of its
    output."""
    import anyio
    from mcp.shared.message import SessionMessage

    inbox_in, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbox, outbox_out = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        with inbox_in, suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for line in _lines(process, log):
                message = _parse(line, log)
                if message is not None:
                    await inbox_in.send(message)
        ended()

    async def send() -> None:
        with outbox_out, suppress(OSError, anyio.ClosedResourceError):
            async for message in outbox_out:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(text.encode() + b"\n")

    tasks = [asyncio.create_task(receive()), asyncio.create_task(send())]
    try:
        yield inbox, outbox
    finally:
        for stream in (inbox, outbox):
            stream.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1.0)


async def _lines(process: ServerProcess, log: ErrorLog) -> AsyncGenerator[bytes, None]:
    pieces: list[bytes] = []
    size = 0
    while data := await process.read():
        *lines, incomplete = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*pieces, lines[0]))
            pieces, size = [], 0
            for line in lines:
                yield line
        pieces.append(incomplete)
        size += len(incomplete)
        if size > MAX_MESSAGE_BYTES:
            log.note(f"[retinue] a message of more than {MAX_MESSAGE_BYTES} bytes: the connection is closed")
            return


def _parse(line: bytes, log: ErrorLog) -> Any:
    """Return the message of a line; None for any other text, which goes to the server's log."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    line = line.strip()
    if line.startswith(b"{"):
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            pass
    log.note(line[:500].decode("utf-8", "replace"), "[stdout] ")
    return None


class ListingRepair:
    """The incoming stream of a connection, with lists of tools repaired by `repair`. The library would refuse a whole
    list because of one tool that does not follow the protocol."""

    def __init__(self, stream: Any, repair: Callable[[list[Any]], list[Any]]) -> None:
        self._stream = stream
        self._repair = repair

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> ListingRepair:
        return self

    async def __anext__(self) -> Any:
        return self._repaired(await self._stream.__anext__())

    async def __aenter__(self) -> ListingRepair:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    async def receive(self) -> Any:
        return self._repaired(await self._stream.receive())

    def _repaired(self, message: Any) -> Any:
        result = getattr(getattr(message, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            result["tools"] = self._repair(result["tools"])
        return message


@asynccontextmanager
async def repaired(transport: Any, repair: Callable[[list[Any]], list[Any]]) -> AsyncGenerator[TransportStreams, None]:
    """Open the streams of `transport` with lists of tools repaired."""
    async with transport as (incoming, outgoing):
        yield ListingRepair(incoming, repair), outgoing


_SIGN_IN_ADVICE = (
    ". Retinue does not sign in to MCP servers (no OAuth): put a token into its `headers`, as Authorization"
)


@asynccontextmanager
async def http_streams(config: ServerConfig, log: ErrorLog) -> AsyncGenerator[TransportStreams, None]:
    """Open the streams of a server over HTTP, or over the older server-sent events. Errors are logged with their
    status, which the library does not report."""
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def log_error(response: Any) -> None:
        if response.status_code >= 400:
            advice = _SIGN_IN_ADVICE if response.status_code == 401 else ""
            log.note(f"{response.request.method}: {response.status_code} {response.reason_phrase}{advice}", "[http] ")

    if config.transport == "sse":
        from mcp.client.sse import sse_client

        async with sse_client(config.url, headers=dict(config.headers)) as streams:
            yield streams
        return
    from mcp.client.streamable_http import streamable_http_client

    client = create_mcp_http_client(headers=dict(config.headers))
    client.event_hooks = {"response": [log_error]}
    async with (
        client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams
