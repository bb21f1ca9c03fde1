"""What a server is started with, and the streams over which the client of the `mcp` library talks to it.

For programs the streams are ours: the library's own would let noise on standard output fill the
terminal, a line without end fill the memory, and a kill -9 of us leave servers behind.
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

MESSAGE_BYTES = 32 * 1024 * 1024
"""The longest line a server may send. Longer ones end the connection."""
KEPT_VARIABLES = frozenset(
    "HOME LOGNAME PATH SHELL TERM USER LANG LANGUAGE TZ TMPDIR TEMP TMP "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS "
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT USERNAME "
    "USERPROFILE PROGRAMFILES PROGRAMDATA COMSPEC WINDIR".split()
)
"""What a server gets of our environment; everything else it needs is in its configuration."""
_KEPT_PREFIXES = ("LC_", "XDG_")


def server_environment(environment: Mapping[str, str], config: ServerConfig) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in environment.items():
        # A value that starts with `()` is an exported function of bash, which a shell would run.
        if (name in KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)) and not value.startswith("()"):
            kept[name] = value
    return {**kept, **config.env}


def find_program(config: ServerConfig, cwd: Path, environment: Mapping[str, str]) -> tuple[str, Path]:
    """Return the program of a server and the folder it is started in. Raise CannotStartError where
    one of them is not there; nothing is started."""
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
    """Open the streams of a program. The process belongs to the caller, who ends it; `ended` is called when
    nothing more comes from it."""
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
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*pieces, lines[0]))
            pieces, size = [], 0
            for line in lines:
                yield line
        pieces.append(rest)
        size += len(rest)
        if size > MESSAGE_BYTES:
            log.note(f"[retinue] a message of more than {MESSAGE_BYTES} bytes: the connection is closed")
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
    """The incoming stream of a connection. Lists of tools pass through `repair` before the library reads them: it
    refuses a whole list for one tool that does not follow the protocol."""

    def __init__(self, stream: Any, repair: Callable[[list[Any]], list[Any]]) -> None:
        self._stream = stream
        self._repair = repair

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> ListingRepair:
        return self

    async def __anext__(self) -> Any:
        return self._read(await self._stream.__anext__())

    async def __aenter__(self) -> ListingRepair:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    async def receive(self) -> Any:
        return self._read(await self._stream.receive())

    def _read(self, message: Any) -> Any:
        result = getattr(getattr(message, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            result["tools"] = self._repair(result["tools"])
        return message


@asynccontextmanager
async def repaired(transport: Any, repair: Callable[[list[Any]], list[Any]]) -> AsyncGenerator[TransportStreams, None]:
    """Open the streams of `transport` with lists of tools repaired."""
    async with transport as (incoming, outgoing):
        yield ListingRepair(incoming, repair), outgoing


_SIGN_IN = ". Retinue does not sign in to MCP servers (no OAuth): put a token into its `headers`, as Authorization"


@asynccontextmanager
async def http_streams(config: ServerConfig, log: ErrorLog) -> AsyncGenerator[TransportStreams, None]:
    """Open the streams of a server over HTTP, or over the older server-sent events. Refusals go to the log, since
    the library does not report their status."""
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def heard(response: Any) -> None:
        if response.status_code >= 400:
            advice = _SIGN_IN if response.status_code == 401 else ""
            log.note(f"{response.request.method}: {response.status_code} {response.reason_phrase}{advice}", "[http] ")

    if config.transport == "sse":
        from mcp.client.sse import sse_client

        async with sse_client(config.url, headers=dict(config.headers)) as streams:
            yield streams
        return
    from mcp.client.streamable_http import streamable_http_client

    client = create_mcp_http_client(headers=dict(config.headers))
    client.event_hooks = {"response": [heard]}
    async with (
        client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=MESSAGE_BYTES) as streams,
    ):
        yield streams
