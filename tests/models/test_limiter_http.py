"""The limiter between real models and a real server on this machine; only time is not real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from retinue.core.messages import AssistantMessage, user
from retinue.http.transport import Transport
from retinue.models.limiter import Limiters
from retinue.models.openai_chat import OpenAIChatModel
from retinue.models.retry import RetryingModel
from retinue.testing import FakeClock, Finished, ModelInfo, ModelRequest

ANSWER = b'data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
REQUEST = ModelRequest(system="s", messages=(user("go"),))


class Server:
    """Answers with the statuses of its script, then always well; notes when it was asked."""

    def __init__(self, clock: FakeClock, *script: tuple[int, str]) -> None:
        self.clock, self.script, self.asked = clock, list(script), []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        self.asked.append(self.clock.monotonic())
        status, retry = self.script.pop(0) if self.script else (200, "")
        body = ANSWER if status == 200 else b'{"error": {"message": "slow down"}}'
        kind = "text/event-stream" if status == 200 else "application/json"
        more = f"retry-after: {retry}\r\n" if retry else ""
        lines = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}\r\n"
        writer.write(f"{lines}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


async def drive(clock: FakeClock, tasks: list[asyncio.Task[AssistantMessage]]) -> None:
    """Lets real sockets work, and time pass only while they have nothing to do."""
    while not all(task.done() for task in tasks):
        await asyncio.wait(tasks, timeout=0.02)
        await clock.advance(0.5)


def models(url: str, clock: FakeClock, transport: Transport, count: int) -> list[RetryingModel]:
    limiters = Limiters(clock=clock, draw=lambda: 0.5)
    info = ModelInfo("openai", "m")
    return [
        RetryingModel(
            OpenAIChatModel(info, url, "key", transport),
            gate=limiters.gate_for("openai", "me"),
            sleep=clock.sleep,
            draw=lambda: 0.5,
            clock=clock.monotonic,
        )
        for _ in range(count)
    ]


async def answer(model: RetryingModel) -> AssistantMessage:
    async for part in model.stream(REQUEST):
        if isinstance(part, Finished):
            return part.message
    raise AssertionError("no end")


async def test_a_429_over_http_holds_every_run_until_its_retry_after() -> None:
    clock, transport = FakeClock(), Transport()
    server = Server(clock, (429, "20"))
    async with server.running() as url:
        first, *others = models(url, clock, transport, 5)
        tasks = [asyncio.create_task(answer(first))]
        while not server.asked:
            await asyncio.sleep(0.01)
        while not clock.pending:  # the run sleeps: it has heard of the 429
            await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(answer(model)) for model in others]
        await drive(clock, tasks)
    await transport.close()
    assert [task.result().text for task in tasks] == ["ok"] * 5
    assert server.asked[0] < 20.0 <= min(server.asked[1:])


async def test_a_provider_that_closes_for_an_hour_fails_the_others_at_once_and_says_so() -> None:
    clock, transport = FakeClock(), Transport()
    server = Server(clock, (429, "3600"))
    async with server.running() as url:
        first, second = models(url, clock, transport, 2)
        refused, closed = await answer(first), await answer(second)
    await transport.close()
    assert refused.failure is not None and refused.failure.status == 429
    assert closed.failure is not None and closed.failure.kind == "rate_limit" and closed.stop == "error"
    assert "another 1h" in closed.failure.message and "another key" in closed.failure.remedy
    assert len(server.asked) == 1, "the second was never sent"
