"""Which HTTP client carries the models? Measured, not believed.

    python bench/transport.py [--reps 5] [--clients httpx,aiohttp,pyreqwest,raw]

One scripted server in its own process streams server-sent events; every figure is the CPU
(user + system, all threads) of a fresh client process, median of the repetitions, and its
ratio to bare httpx in the same run. Times of a noisy machine do not compare, ratios do.

    cold       start the interpreter, import the client, make one small exchange, exit
    turn       one small streamed exchange, one after another on a warm connection
    fanout     the same with 64 exchanges in flight
    burst      one delta of a long answer that arrives in large pieces
    trickle    one delta of a long answer that arrives event by event

`raw` is asyncio streams with the least HTTP that can work: the floor, not a candidate.
`retinue` is the whole of our model layer (request body, transport, events, message); `httpx+json`
is the least a client can do to get the same words: lines, one json.loads each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any, Protocol

SMALL, LONG = 12, 4000
TURNS, FANOUT, ROUNDS = 200, 64, 6


# ------------------------------------------------------------------ the server
def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def answer(deltas: int) -> list[bytes]:
    """An Anthropic answer of that many text deltas."""
    usage = {"input_tokens": 9, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage}
    text = {"type": "text_delta", "text": "token "}
    return [
        event("message_start", message=start),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *[event("content_block_delta", index=0, delta=text)] * deltas,
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": deltas}),
        event("message_stop"),
    ]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    small = HEAD + b"".join(chunk(e) for e in answer(SMALL)) + b"0\r\n\r\n"
    events = answer(LONG)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length"))
            await reader.readexactly(length)
            path = head.split(b" ", 2)[1]
            if path.startswith(b"/small"):
                writer.write(small)
            else:
                writer.write(HEAD)
                size = 1 if path.startswith(b"/trickle") else 100
                for i in range(0, len(events), size):
                    writer.write(b"".join(chunk(e) for e in events[i : i + size]))
                    await writer.drain()
                    await asyncio.sleep(0.0002 if size == 1 else 0)
                writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve() -> None:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# ------------------------------------------------------------------ the clients
class Client(Protocol):
    def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


class Httpx:
    def __init__(self) -> None:
        import httpx

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.client = httpx.AsyncClient(timeout=300, limits=limits)

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self.client.stream("POST", url, content=body) as response:
            async for piece in response.aiter_bytes():
                yield piece

    async def close(self) -> None:
        await self.client.aclose()


class HttpxJson(Httpx):
    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self.client.stream("POST", url, content=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    json.loads(line[5:])
                    yield b""


class Aiohttp:
    def __init__(self) -> None:
        import aiohttp

        self.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self.client.post(url, data=body) as response:
            async for piece in response.content.iter_any():
                yield piece

    async def close(self) -> None:
        await self.client.close()


class Pyreqwest:
    def __init__(self) -> None:
        from pyreqwest.client import ClientBuilder

        self.client = ClientBuilder().build()

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self.client.post(url).body_bytes(body).build_streamed() as response:
            reader = response.body_reader
            while (piece := await reader.read_chunk()) is not None:
                yield piece

    async def close(self) -> None:
        await self.client.close()


class Raw:
    def __init__(self) -> None:
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        host, _, path = url.removeprefix("http://").partition("/")
        name, _, port = host.partition(":")
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(name, int(port))
        writer.write(b"POST /%s HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
        await reader.readuntil(b"\r\n\r\n")
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        self.idle.append((reader, writer))

    async def close(self) -> None:
        for _, writer in self.idle:
            writer.close()


class Ours:
    def __init__(self) -> None:
        from retinue.http.transport import Transport

        self.client = Transport()

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with await self.client.post(url, {"content-type": "application/json"}, body) as response:
            while piece := await response.read():
                yield piece

    async def close(self) -> None:
        await self.client.close()


class Retinue:
    def __init__(self) -> None:
        from retinue.core.messages import user
        from retinue.http.transport import Transport
        from retinue.models.protocol import ModelRequest

        self.request = ModelRequest(system="You are a worker.", messages=(user("x" * 2000),))
        self.transport = Transport()

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        from retinue.models.anthropic import AnthropicModel
        from retinue.models.protocol import ModelInfo

        async for _ in AnthropicModel(ModelInfo("anthropic", "m"), url, "key", self.transport).stream(self.request):
            yield b""

    async def close(self) -> None:
        await self.transport.close()


CLIENTS: dict[str, type[Client]] = {
    "httpx": Httpx,
    "aiohttp": Aiohttp,
    "pyreqwest": Pyreqwest,
    "raw": Raw,
    "transport": Ours,
    "httpx+json": HttpxJson,
    "retinue": Retinue,
}


def cpu(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


async def drive(client: str, work: str, base: str) -> None:
    """Runs in the child: prints the CPU seconds of one unit of `work`."""
    body = json.dumps({"model": "m", "stream": True, "text": "x" * 2000}).encode()
    made = CLIENTS[client]()

    async def exchange(path: str, count: int = 1) -> None:
        for _ in range(count):
            async for _piece in made.stream(base + path, body):
                pass

    await exchange("/small")
    if work == "cold":
        await made.close()
        os._exit(0)
    started, units = cpu(resource.RUSAGE_SELF), 0
    if work == "turn":
        await exchange("/small", TURNS)
        units = TURNS
    elif work == "fanout":
        await asyncio.gather(*(exchange("/small", ROUNDS) for _ in range(FANOUT)))
        units = FANOUT * ROUNDS
    else:
        await exchange("/" + work, 1 if work == "trickle" else 4)
        units = LONG * (1 if work == "trickle" else 4)
    print((cpu(resource.RUSAGE_SELF) - started) / units, flush=True)
    os._exit(0)


def measure(client: str, work: str, base: str) -> float:
    command = [sys.executable, __file__, "--drive", client, "--work", work, "--base", base]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = cpu(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    if work == "cold":
        return cpu(resource.RUSAGE_CHILDREN) - before
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--works", default="cold,turn,fanout,burst,trickle")
    parser.add_argument("--drive")
    parser.add_argument("--work")
    parser.add_argument("--base")
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve())
    if args.drive:
        asyncio.run(drive(args.drive, args.work, args.base))
        return
    report([name for name in args.clients.split(",") if is_installed(name)], args.works.split(","), args.reps)


def is_installed(client: str) -> bool:
    """Return whether the library of a client is installed; print it if not."""
    there = client not in ("httpx", "aiohttp", "pyreqwest") or find_spec(client) is not None
    if not there:
        print(f"{client} is not installed here: it is left out.")
    return there


def report(clients: list[str], works: list[str], reps: int) -> None:
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base = f"http://127.0.0.1:{int(server.stdout.readline())}"
        try:
            figures: dict[tuple[str, str], list[float]] = {}
            for _ in range(reps + 1):
                for work in works:
                    for client in clients:
                        figures.setdefault((client, work), []).append(measure(client, work, base))
        finally:
            server.kill()
    # The first round compiles byte code and warms the disk: it is not counted.
    median = {key: statistics.median(values[1:]) for key, values in figures.items()}
    print(f"{'CPU, ratio to httpx':<20}" + "".join(f"{work:>22}" for work in works))
    for client in clients:
        cells = []
        for work in works:
            value, base_value = median[client, work], median[clients[0], work]
            unit = f"{value * 1e3:.1f} ms" if work in ("cold", "turn", "fanout") else f"{value * 1e6:.1f} µs"
            cells.append(f"{unit:>13} {value / base_value:6.2f} ×")
        print(f"{client:<20}" + "".join(f"{cell:>22}" for cell in cells))


if __name__ == "__main__":
    main()
