"""The HTTP transport against real sockets: framing, reuse, time, proxies, TLS, and bad servers."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator

import pytest
from tests.models.servers import Reply, Server, raw_server

from retinue.http.transport import Transport, TransportError

HEADERS = {"content-type": "application/json"}


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    made = Transport(connect_timeout=5, idle_timeout=5)
    yield made
    await made.close()


async def fetch(transport: Transport, url: str, body: bytes = b"{}") -> tuple[int, bytes]:
    async with await transport.post(url, HEADERS, body) as response:
        return response.status, b"".join([piece async for piece in response])


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_every_framing_gives_the_same_body(transport: Transport, framing: str) -> None:
    async with Server(Reply([b"one ", b"two ", b"three"], framing=framing)) as server:  # type: ignore[arg-type]
        assert await fetch(transport, server.url + "/v1?x=1", b'{"a":1}') == (200, b"one two three")
        seen = server.seen[0]
        assert (seen.method, seen.target, seen.body) == ("POST", "/v1?x=1", {"a": 1})
        assert seen.headers["host"] == f"127.0.0.1:{server.port}"


async def test_pieces_arrive_as_they_are_sent(transport: Transport) -> None:
    async with Server(Reply([b"first", "hang"])) as server:
        async with await transport.post(server.url, HEADERS, b"{}") as response:
            assert await response.read() == b"first"
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_connections_are_reused_one_after_another_and_multiply_in_parallel(transport: Transport) -> None:
    async with Server(*[Reply([b"x"])] * 70) as server:
        for _ in range(3):
            await fetch(transport, server.url)
        assert {seen.connection for seen in server.seen} == {1}
        await asyncio.gather(*(fetch(transport, server.url) for _ in range(64)))
        assert len({seen.connection for seen in server.seen}) > 32
        await fetch(transport, server.url)
        assert server.seen[-1].connection <= 64


async def test_a_kept_connection_that_the_server_closed_is_replaced_without_a_word(transport: Transport) -> None:
    async with Server(Reply([b"a"]), Reply(["cut"]), Reply([b"b"])) as server:
        assert await fetch(transport, server.url) == (200, b"a")
        assert await fetch(transport, server.url) == (200, b"b")
        assert [seen.connection for seen in server.seen] == [1, 1, 2]


async def test_connection_close_is_respected(transport: Transport) -> None:
    close = {"connection": "close"}
    async with Server(Reply([b"a"], headers=close), Reply([b"b"])) as server:
        await fetch(transport, server.url)
        await fetch(transport, server.url)
        assert [seen.connection for seen in server.seen] == [1, 2]


async def test_cancelling_closes_the_connection(transport: Transport) -> None:
    begun = asyncio.Event()

    async def read_on(url: str) -> None:
        async with await transport.post(url, HEADERS, b"{}") as response:
            async for _ in response:
                begun.set()

    async with Server(Reply([b"x", "hang"])) as server:
        task = asyncio.create_task(read_on(server.url))
        await asyncio.wait_for(begun.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_cancelling_while_waiting_for_the_head_closes_the_connection(transport: Transport) -> None:
    async with Server(Reply(["hang"])) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), await transport.post(server.url, HEADERS, b"{}") as response:
                await response.read()
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_silence_ends_the_exchange() -> None:
    transport = Transport(idle_timeout=0.1)
    async with Server(Reply([b"x", "hang"])) as server:
        with pytest.raises(TransportError) as caught:
            await fetch(transport, server.url)
        assert caught.value.problem == "idle"
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_slow_but_living_streams_are_not_cut() -> None:
    transport = Transport(idle_timeout=2.0)
    steps = [step for _ in range(10) for step in (b"x", 0.25)]
    async with Server(Reply(steps)) as server:
        assert await fetch(transport, server.url) == (200, b"x" * 10)
    await transport.close()


async def test_a_slow_reader_is_not_mistaken_for_a_silent_server() -> None:
    transport = Transport(idle_timeout=0.3)
    async with Server(Reply([b"x" * 1_000_000] * 4)) as server:
        response = await transport.post(server.url, HEADERS, b"{}")
        await asyncio.sleep(0.8)
        assert sum([len(piece) async for piece in response]) == 4_000_000
        response.close()
    await transport.close()


async def test_refused(transport: Transport) -> None:
    async with Server() as server:
        url = server.url
    with pytest.raises(TransportError) as caught:
        await fetch(transport, url)
    assert caught.value.problem == "refused"
    assert url in caught.value.message


async def test_refused_on_every_address_of_a_name(transport: Transport) -> None:
    async with Server() as server:
        port = server.port
    with pytest.raises(TransportError) as caught:
        await fetch(transport, f"http://localhost:{port}")
    assert caught.value.problem == "refused"


async def test_unknown_host(transport: Transport) -> None:
    with pytest.raises(TransportError) as caught:
        await fetch(transport, "http://no-such-host.invalid/v1")
    assert caught.value.problem == "unreachable"


@pytest.mark.parametrize("steps", [["reset"], ["cut"], [b"half", "cut"], [b"half", "reset"]])
async def test_hanging_up_is_a_dropped_connection(transport: Transport, steps: list[bytes]) -> None:
    async with Server(Reply(steps)) as server:
        with pytest.raises(TransportError) as caught:
            await fetch(transport, server.url)
        assert caught.value.problem == "dropped"


async def test_a_body_shorter_than_promised_is_dropped(transport: Transport) -> None:
    async with Server(Reply([b"abc", "cut"], headers={"content-length": "10"}, framing="close")) as server:
        with pytest.raises(TransportError) as caught:
            await fetch(transport, server.url)
        assert caught.value.problem == "dropped"


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n....",
    ],
)
async def test_garbage_is_not_http(transport: Transport, garbage: bytes) -> None:
    async with raw_server(garbage) as url:
        with pytest.raises(TransportError) as caught:
            await fetch(transport, url)
        assert caught.value.problem in ("garbage", "dropped")


async def test_interim_answers_chunk_extensions_and_trailers(transport: Transport) -> None:
    raw = (
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n"
    )
    async with raw_server(raw) as url:
        assert await fetch(transport, url) == (200, b"abcde")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_bodies_are_understood_though_not_asked_for(transport: Transport, encoding: str) -> None:
    packed = gzip.compress(b"data: hello\n\n") if encoding == "gzip" else zlib.compress(b"data: hello\n\n")
    steps = [packed[:5], packed[5:9], packed[9:]]
    async with Server(Reply(steps, headers={"content-encoding": encoding})) as server:
        assert await fetch(transport, server.url) == (200, b"data: hello\n\n")
        assert server.seen[0].headers["accept-encoding"] == "identity"


async def test_broken_and_unknown_compression(transport: Transport) -> None:
    replies = [
        Reply([b"not gzip"], headers={"content-encoding": "gzip"}),
        Reply([b"x"], headers={"content-encoding": "br"}),
    ]
    async with Server(*replies) as server:
        for _ in range(2):
            with pytest.raises(TransportError) as caught:
                await fetch(transport, server.url)
            assert caught.value.problem == "garbage"


async def test_a_large_request_and_a_large_answer(transport: Transport) -> None:
    async with Server(Reply([b"y" * 1_000_000] * 8)) as server:
        status, body = await fetch(transport, server.url, b"x" * 5_000_000)
        assert (status, len(body)) == (200, 8_000_000)
        assert len(server.seen[0].raw) == 5_000_000


@pytest.mark.parametrize("url", ["", "not a url", "ftp://host/x", "http://", "http://host:port/", "http://[::1", "//x"])
async def test_what_is_not_a_url_is_said_so(transport: Transport, url: str) -> None:
    with pytest.raises(TransportError) as caught:
        await fetch(transport, url)
    assert caught.value.problem == "url"


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "schlüssel", "a\0b"])
async def test_a_value_cannot_break_out_of_its_header(transport: Transport, value: str) -> None:
    async with Server(Reply()) as server:
        with pytest.raises(TransportError) as caught:
            await transport.post(server.url, {"x-api-key": value}, b"")
        assert caught.value.problem == "url"
        assert value not in caught.value.message and "x-api-key" in caught.value.message
        assert not server.seen


async def test_user_and_password_of_the_url_become_a_header_and_stay_out_of_messages(transport: Transport) -> None:
    async with Server(Reply([b"x"])) as server:
        url = f"http://us%40er:se%3Acret@127.0.0.1:{server.port}/v1"
        await fetch(transport, url)
        assert server.seen[0].headers["authorization"] == "Basic dXNAZXI6c2U6Y3JldA=="
    await transport.close()
    with pytest.raises(TransportError) as caught:
        await fetch(transport, url)
    assert "cret" not in caught.value.message


async def test_closing_leaves_streams_in_flight_alone(transport: Transport) -> None:
    async with Server(Reply([b"a", 0.2, b"b"]), Reply([b"c"])) as server:
        async with await transport.post(server.url, HEADERS, b"{}") as response:
            assert await response.read() == b"a"
            await transport.close()
            assert await response.read() == b"b"
        assert await fetch(transport, server.url) == (200, b"c")


def test_one_transport_serves_one_event_loop_after_another() -> None:
    transport = Transport()

    async def once() -> None:
        async with Server(Reply([b"x"]), Reply([b"x"])) as server:
            await fetch(transport, server.url)
            await fetch(transport, server.url)
            await transport.close()

    for _ in range(3):
        asyncio.run(once())
