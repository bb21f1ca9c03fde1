"""Every fault, for every wire format, over real HTTP: the right kind, and nothing shown is lost."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import aclosing
from email.utils import formatdate
from typing import Any

import pytest

from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.testing import Part
from tests.models.scripts import (
    FORMATS,
    answer,
    anthropic_events,
    chat_call,
    chat_events,
    gemini_events,
    model,
    request,
    responses_call,
    responses_events,
    responses_text,
    said,
)
from tests.models.servers import Reply, Server, failing, raw_server, sse

pytestmark = pytest.mark.parametrize("provider", FORMATS)


def begun(provider: str, text: str) -> list[bytes]:
    """An answer with all of its text and nothing of its end."""
    if provider == "gemini":
        return sse(*gemini_events({"text": text}, stop=None))
    return said(provider, text)[: {"anthropic": -3, "openai": -3, "openai-responses": -1}[provider]]


def kind(message: AssistantMessage) -> str | None:
    assert message.failure is None or message.stop in ("error", "refusal")
    return message.failure.kind if message.failure else None


async def test_an_empty_answer_is_an_empty_message(provider: str) -> None:
    async with Server(Reply(said(provider))) as server:
        message = await answer(provider, server.url)
    assert (message.content, message.stop, message.failure) == ((), "end", None)


async def test_an_empty_body_is_a_dropped_stream(provider: str) -> None:
    async with Server(Reply([])) as server:
        assert kind(await answer(provider, server.url)) == "dropped"


async def test_a_stream_cut_in_its_text_keeps_the_text(provider: str) -> None:
    whole = said(provider, "A text that is long enough to be cut somewhere in its middle.")
    for framing in ("chunked", "close"):
        if provider == "gemini":
            steps: list[Any] = [*sse(*gemini_events({"text": "A text"}, stop=None)), "cut"]
        else:
            steps = [*whole[: len(whole) // 2], "cut"]
        async with Server(Reply(steps, framing=framing)) as server:  # type: ignore[arg-type]
            message = await answer(provider, server.url)
        assert kind(message) == "dropped" and message.text.startswith("A text")


async def test_a_stream_cut_in_a_tool_call_has_no_call(provider: str) -> None:
    whole = said(provider, "Reading.", {"path": "some/long/path/to/a/file.py"})
    end = next(i for i, event in enumerate(whole) if b"path" in event or b"file" in event)
    cut_event = whole[end][: len(whole[end]) // 2]
    async with Server(Reply([*whole[:end], cut_event, "cut"], framing="close")) as server:
        message = await answer(provider, server.url)
    assert kind(message) == "dropped" and message.text == "Reading." and not message.tool_calls


async def test_broken_arguments_are_kept_raw(provider: str) -> None:
    if provider == "gemini":
        pytest.skip("Gemini sends arguments as objects")
    raw = '{"path": "/us'
    async with Server(Reply(said(provider, "", raw)), Reply(said(provider, "ok"))) as server:
        message = await answer(provider, server.url)
        assert message.tool_calls == (ToolCall("c1", "read", {}, broken=raw),)
        assert (message.stop, message.failure) == ("tool_use", None)
        result = ToolMessage((ToolResult("c1", "read", (Text("not JSON"),), is_error=True),))
        assert (await answer(provider, server.url, request(user("go"), message, result))).text == "ok"


async def test_no_arguments_at_all(provider: str) -> None:
    async with Server(Reply(said(provider, "", "" if provider != "gemini" else {}))) as server:
        message = await answer(provider, server.url)
    assert message.tool_calls == (ToolCall("c1", "read", {}),)


async def test_five_megabytes(provider: str) -> None:
    text = "0123456789" * 500_000
    if provider == "gemini":
        steps = sse(*gemini_events(*({"text": text[i : i + 50_000]} for i in range(0, len(text), 50_000))))
    elif provider == "openai":
        steps = sse(*chat_events(*({"content": text[i : i + 5000]} for i in range(0, len(text), 5000))), done=True)
    elif provider == "anthropic":
        deltas = [{"type": "text_delta", "text": text[i : i + 5000]} for i in range(0, len(text), 5000)]
        events = anthropic_events({"type": "text", "text": "x"})
        body = [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
        steps = sse(*events[:3], *body, *events[4:])
    else:
        events = responses_events(responses_text("x"))
        at = next(i for i, event in enumerate(events) if event["type"] == "response.output_text.delta")
        body = [{**events[at], "delta": text[i : i + 5000]} for i in range(0, len(text), 5000)]
        steps = sse(*events[:at], *body, *events[at + 1 :])
    async with Server(Reply([b"".join(steps)])) as server:
        message = await answer(provider, server.url)
    assert message.text == text and message.failure is None


async def test_compressed_crlf_comments_and_one_byte_at_a_time(provider: str) -> None:
    plain = b"".join(said(provider, "Grüße ☃", {"path": "é"}))
    odd = b": ping\r\n\r\n" + plain.replace(b"\n", b"\r\n").replace(b"data: {", b"data:{")
    packed = gzip.compress(odd)
    replies = [
        Reply([odd]),
        Reply([odd[i : i + 1] for i in range(len(odd))]),
        Reply([packed[i : i + 7] for i in range(0, len(packed), 7)], headers={"content-encoding": "gzip"}),
    ]
    async with Server(*replies) as server:
        for _ in replies:
            message = await answer(provider, server.url)
            assert message.text == "Grüße ☃" and message.tool_calls[0].arguments == {"path": "é"}


async def test_garbage_instead_of_an_answer(provider: str) -> None:
    page = {"content-type": "text/html"}
    replies = [
        Reply([b"data: this is not JSON\n\n"]),
        Reply([b'data: {"type": 5}\n\ndata: [1,2]\n\n']),
        Reply([b"data: null\n\n"]),
        Reply([b"<html>Welcome to the hotel network</html>"], headers=page),
        failing(200, b"not json"),
        failing(200, {"unexpected": True}),
    ]
    async with Server(*replies) as server:
        for _ in replies:
            message = await answer(provider, server.url)
            assert kind(message) in ("malformed", "dropped", "server"), message
    async with raw_server(b"\x00\xff garbage \r\n\r\n") as url:
        assert kind(await answer(provider, url)) in ("malformed", "dropped")


async def test_garbage_after_some_text_keeps_the_text(provider: str) -> None:
    async with Server(Reply([*begun(provider, "Some words."), b"data: {{{\n\n"])) as server:
        message = await answer(provider, server.url)
    assert kind(message) == "malformed" and message.text.startswith("Some")


async def test_fields_of_the_wrong_type_never_raise(provider: str) -> None:
    """Each event of a good answer, with one value replaced by something else."""
    whole = [e for e in said(provider, "Hello", {"path": "x"}) if b"[DONE]" not in e]
    for replacement in (b"null", b"5", b'"x"', b"[]", b"{}"):
        spoiled = [event.replace(b'{"path": "x"}', replacement).replace(b'"Hello"', replacement) for event in whole]
        async with Server(Reply(spoiled)) as server:
            await answer(provider, server.url)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "rate_limit_error", "message": "Slow down"}, "rate_limit"),
        ({"type": "api_error", "message": "Internal server error"}, "server"),
        ({"type": "invalid_request_error", "message": "prompt is too long"}, "context_overflow"),
    ],
)
async def test_an_error_in_the_middle_of_a_stream(provider: str, error: dict[str, str], expected: str) -> None:
    event = {"type": "error", "error": error} if provider in ("anthropic", "openai-responses") else {"error": error}
    async with Server(Reply([*begun(provider, "Some words"), *sse(event), "hang"]), failing(200, event)) as server:
        message = await answer(provider, server.url)
        assert kind(message) == expected and message.text == "Some words"
        assert kind(await answer(provider, server.url)) == expected


async def test_a_wrong_content_type_does_not_matter(provider: str) -> None:
    for label in ("application/json", "text/plain", "application/octet-stream"):
        async with Server(Reply(said(provider, "Hello"), headers={"content-type": label})) as server:
            assert (await answer(provider, server.url)).text == "Hello"


async def test_a_whole_answer_that_is_cut_is_dropped(provider: str) -> None:
    async with Server(
        Reply([b'{"choices": [{"message": ', "cut"], headers={"content-type": "application/json"})
    ) as server:
        assert kind(await answer(provider, server.url)) == "dropped"


@pytest.mark.parametrize("retry_after", ["7", "7.0", None])
async def test_rate_limits_say_how_long_to_wait(provider: str, retry_after: str | None) -> None:
    body = {"error": {"type": "rate_limit_error", "message": "too many tokens: context window of 10000 exceeded"}}
    headers = {"retry_after": retry_after} if retry_after else {}
    async with Server(failing(429, body, **headers)) as server:
        message = await answer(provider, server.url)
    assert kind(message) == "rate_limit" and message.failure is not None
    assert message.failure.status == 429 and message.failure.transient
    assert message.failure.retry_after == (7.0 if retry_after else None)


async def test_retry_after_as_a_date(provider: str) -> None:
    async with Server(
        failing(429, {"error": {"message": "slow"}}, retry_after=formatdate(4102444800, usegmt=True))
    ) as server:
        message = await answer(provider, server.url)
    assert message.failure is not None and (message.failure.retry_after or 0) > 1e8


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "invalid_request"),
        (401, "authentication"),
        (403, "authentication"),
        (404, "not_found"),
        (408, "timeout"),
        (413, "context_overflow"),
        (422, "invalid_request"),
        (500, "server"),
        (502, "server"),
        (503, "overloaded"),
        (504, "timeout"),
        (529, "overloaded"),
        (307, "invalid_request"),
        (204, "invalid_request"),
    ],
)
@pytest.mark.parametrize(
    "body", [{"error": {"message": "Nope"}}, {"error": "Nope"}, b"Nope", b"", [{"error": {"message": "Nope"}}]]
)
async def test_statuses(provider: str, status: int, expected: str, body: Any) -> None:
    async with Server(failing(status, b"" if status == 204 else body)) as server:
        message = await answer(provider, server.url)
    assert kind(message) == expected and message.failure is not None
    assert message.failure.status == status and message.content == ()
    assert body == b"" or status in (204, 307) or "Nope" in message.failure.message


async def test_nothing_listens(provider: str) -> None:
    async with Server() as server:
        url = server.url
    message = await answer(provider, url)
    assert kind(message) == "dropped" and message.failure is not None
    assert url in message.failure.message and url in message.failure.remedy


async def test_a_connection_that_is_reset(provider: str) -> None:
    async with Server(Reply(["reset"])) as server:
        assert kind(await answer(provider, server.url)) == "dropped"


async def test_a_hang_is_a_timeout_and_keeps_what_came(provider: str) -> None:
    steps = begun(provider, "Some words")
    async with Server(Reply([*steps, "hang"]), Reply(["hang"])) as server:
        message = await answer(provider, server.url, idle_seconds=0.2)
        assert kind(message) == "timeout" and message.text.startswith("Some")
        message = await answer(provider, server.url, idle_seconds=0.2)
        assert kind(message) == "timeout" and not message.content


async def test_a_server_that_never_closes_after_its_end_mark_does_not_hold_the_answer(provider: str) -> None:
    if provider == "gemini":
        pytest.skip("Gemini's end mark is the end of the stream")
    async with Server(Reply([*said(provider, "Whole."), "hang"])) as server:
        message = await asyncio.wait_for(answer(provider, server.url), 10)
    assert (message.text, message.failure) == ("Whole.", None)


async def test_leaving_a_stream_closes_its_connection(provider: str) -> None:
    steps = begun(provider, "Some words")
    async with Server(Reply([*steps, "hang"]), Reply([*steps, "hang"])) as server:
        made = model(provider, server.url)
        async with aclosing(made.stream(request())) as stream:
            async for part in stream:
                if isinstance(part, TextDelta):
                    break
        await asyncio.wait_for(server.gone.wait(), 5)
        server.gone.clear()
        seen = asyncio.Event()
        task = asyncio.create_task(consume(made.stream(request()), seen))
        await asyncio.wait_for(seen.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 5)


async def consume(stream: AsyncGenerator[Part, None], seen: asyncio.Event) -> None:
    async for _ in stream:
        seen.set()


async def test_the_key_never_reaches_a_message(provider: str) -> None:
    key = "sk-live-0123456789abcdef"
    echo = {"error": {"message": f"Incorrect API key provided: {key}. Authorization: Bearer {key}"}}
    async with Server(failing(401, echo), failing(500, f"x-api-key: {key}".encode())) as server:
        for _ in range(2):
            message = await answer(provider, server.url, key=key, key_variable="MY_KEY")
            assert message.failure is not None
            assert key not in repr(message) and "0123456789" not in repr(message)
            assert message.failure.kind != "authentication" or "MY_KEY" in message.failure.remedy


async def test_a_key_with_a_line_break_is_explained_and_not_shown(provider: str) -> None:
    message = await answer(provider, "http://127.0.0.1:1", key="abc\ndefghi")
    assert kind(message) == "invalid_request" and "defghi" not in repr(message)


async def test_text_that_utf8_cannot_carry_does_not_break_the_request(provider: str) -> None:
    odd = user("from a file: \udcff")
    async with Server(Reply(said(provider, "ok"))) as server:
        assert (await answer(provider, server.url, request(odd))).text == "ok"
    assert "from a file: ?" in server.seen[0].raw.decode()


async def test_a_call_that_was_cut_off_before_its_first_argument_is_never_run(provider: str) -> None:
    """It would count as whole with `{}`, and run if its tool requires nothing (M35)."""
    ends = {
        "anthropic": sse(
            *anthropic_events({"type": "tool_use", "id": "c", "name": "now", "input": {}}, stop="max_tokens")
        ),
        "openai": sse(*chat_events(*chat_call(0, "c", "now", ""), stop="length"), done=True),
        "openai-responses": sse(
            *responses_events(
                {**responses_call("c", "now", ""), "status": "incomplete"},
                status="incomplete",
                incomplete_details={"reason": "max_output_tokens"},
            )
        ),
        "gemini": sse(*gemini_events({"functionCall": {"name": "now", "args": {}}}, stop="MAX_TOKENS")),
    }
    async with Server(Reply(ends[provider])) as server:
        message = await answer(provider, server.url)
    assert message.stop == "length"
    assert [call.broken is not None for call in message.tool_calls] == [True]
