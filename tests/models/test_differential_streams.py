"""The same bytes, read by us and by the makers' SDKs: the same answer.

A server on loopback sends one recorded stream twice; the SDK accumulates it in its own way, and
text, calls, thinking with signatures, usage and stop reason are compared.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, Thinking
from tests.models.scripts import (
    answer,
    anthropic_events,
    chat_call,
    chat_events,
    gemini_events,
    responses_call,
    responses_events,
    responses_reasoning,
    responses_text,
)
from tests.models.servers import Reply, Server, sse

WORDS = 'Grüße 🎉 — 日本語.\nA second line with "quotes" and \\ backslashes.'
ARGUMENTS = {"path": "ä/☃.py", "options": {"deep": [1, 2.5, None, True, {"x": "\n"}]}, "n": -3}
OLD = {"role": "user", "content": "Hello"}


def thoughts(message: AssistantMessage) -> list[tuple[str, str | None, str | None]]:
    return [(p.text, p.signature, p.redacted) for p in message.content if isinstance(p, Thinking)]


def calls(message: AssistantMessage) -> list[tuple[str, str, Any]]:
    assert all(call.broken is None for call in message.tool_calls)
    return [(call.id, call.name, dict(call.arguments)) for call in message.tool_calls]


def text(message: AssistantMessage) -> str:
    return "".join(part.text for part in message.content if part.type == "text")


# ------------------------------------------------------------------ Anthropic
ANTHROPIC: dict[str, list[dict[str, Any]]] = {
    "text": anthropic_events({"type": "text", "text": WORDS}),
    "empty": anthropic_events(),
    "thinking and parallel tools": anthropic_events(
        {"type": "thinking", "thinking": WORDS, "signature": "EqQBCkYI+/=="},
        {"type": "text", "text": WORDS},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": ARGUMENTS},
        {"type": "tool_use", "id": "toolu_2", "name": "grep", "input": {}},
        stop="tool_use",
    ),
    "redacted thinking": anthropic_events(
        {"type": "redacted_thinking", "data": "OPAQUE=="},
        {"type": "thinking", "thinking": "", "signature": "SIG"},
        {"type": "text", "text": "x"},
    ),
    "interleaved": anthropic_events(
        {"type": "thinking", "thinking": "one", "signature": "A"},
        {"type": "text", "text": "first"},
        {"type": "thinking", "thinking": "two", "signature": "B"},
        {"type": "text", "text": "second"},
    ),
    "length": anthropic_events({"type": "text", "text": "cut"}, stop="max_tokens"),
    "refusal": anthropic_events({"type": "text", "text": "I"}, stop="refusal"),
    "usage at the end": anthropic_events(
        {"type": "text", "text": "x"},
        usage={"input_tokens": 11, "output_tokens": 77, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 6},
    ),
}
ANTHROPIC_STOPS = {"end_turn": "end", "tool_use": "tool_use", "max_tokens": "length", "refusal": "refusal"}


@pytest.mark.parametrize("name", ANTHROPIC)
async def test_anthropic(name: str) -> None:
    anthropic = pytest.importorskip("anthropic")
    reply = Reply(sse(*ANTHROPIC[name]))
    async with Server(reply, reply) as server:
        ours = await answer("anthropic", server.url)
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
        async with client, client.messages.stream(model="m", max_tokens=9, messages=[OLD]) as stream:
            theirs = await stream.get_final_message()
    assert text(ours) == "".join(block.text for block in theirs.content if block.type == "text")
    tools = [(block.id, block.name, block.input) for block in theirs.content if block.type == "tool_use"]
    assert calls(ours) == tools
    kept: list[Any] = []
    for block in theirs.content:
        if block.type == "thinking":
            kept.append((block.thinking, block.signature, None))
        elif block.type == "redacted_thinking":
            kept.append(("", None, block.data))
    assert thoughts(ours) == kept
    usage = theirs.usage
    assert (ours.usage.input, ours.usage.output) == (usage.input_tokens, usage.output_tokens)
    assert ours.usage.cache_read == usage.cache_read_input_tokens
    assert ours.usage.cache_write == usage.cache_creation_input_tokens
    assert ours.stop == ANTHROPIC_STOPS[theirs.stop_reason]


# ------------------------------------------------------------------ Chat Completions
CHAT: dict[str, list[Any]] = {
    "text": chat_events(*({"content": piece} for piece in WORDS)),
    "empty": chat_events(),
    "parallel tools": chat_events(
        {"content": WORDS},
        *chat_call(0, "call_1", "read", ARGUMENTS),
        *chat_call(1, "call_2", "grep", {}),
        stop="tool_calls",
    ),
    "whole arguments": chat_events(
        {"tool_calls": [
            {"index": 0, "id": "a", "type": "function",
             "function": {"name": "read", "arguments": json.dumps(ARGUMENTS)}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "grep", "arguments": "{}"}},
        ]},
        stop="tool_calls",
    ),
    "refusal": chat_events({"refusal": "I cannot "}, {"refusal": "help."}),
    "length": chat_events({"content": "cut"}, stop="length"),
    "usage": chat_events(
        {"content": "x"},
        usage={
            "prompt_tokens": 100,
            "completion_tokens": 9,
            "total_tokens": 109,
            "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 16},
            "completion_tokens_details": {"reasoning_tokens": 4},
        },
    ),
}  # fmt: skip
CHAT_STOPS = {"stop": "end", "tool_calls": "tool_use", "length": "length"}


@pytest.mark.parametrize("name", CHAT)
async def test_openai_chat(name: str) -> None:
    openai = pytest.importorskip("openai")
    reply = Reply(sse(*CHAT[name], done=True))
    async with Server(reply, reply) as server:
        ours = await answer("openai", server.url)
        client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="k", max_retries=0)
        async with client, client.chat.completions.stream(model="m", messages=[OLD]) as stream:
            try:
                theirs = await stream.get_final_completion()
            except openai.LengthFinishReasonError as error:
                theirs = error.completion
    choice = theirs.choices[0]
    assert text(ours) == (choice.message.content or "") + (choice.message.refusal or "")
    tools = choice.message.tool_calls or []
    assert calls(ours) == [(c.id, c.function.name, json.loads(c.function.arguments)) for c in tools]
    details = theirs.usage.prompt_tokens_details
    assert ours.usage.cache_read == details.cached_tokens
    assert ours.usage.cache_write == (details.cache_write_tokens or 0)
    assert ours.usage.input + ours.usage.cache_read + ours.usage.cache_write == theirs.usage.prompt_tokens
    assert ours.usage.output == theirs.usage.completion_tokens
    assert ours.stop == ("refusal" if choice.message.refusal else CHAT_STOPS[choice.finish_reason])


# ------------------------------------------------------------------ Responses
REFUSAL = {**responses_text(""), "content": [{"type": "refusal", "refusal": "I cannot help."}]}
LONG = {"incomplete_details": {"reason": "max_output_tokens"}}
RESPONSES: dict[str, list[dict[str, Any]]] = {
    "text": responses_events(responses_text(WORDS)),
    "empty": responses_events(),
    "reasoning and parallel tools": responses_events(
        responses_reasoning(WORDS, "gAAAA+/==", "rs_1"),
        responses_text(WORDS, phase="commentary"),
        responses_call("call_1", "read", ARGUMENTS),
        responses_call("call_2", "grep", {}),
    ),
    "silent reasoning": responses_events(responses_reasoning("", "gAAAA", "rs_2"), responses_text("x")),
    "refusal": responses_events(REFUSAL),
    "length": responses_events(responses_text("cut"), status="incomplete", **LONG),
}


@pytest.mark.parametrize("name", RESPONSES)
async def test_openai_responses(name: str) -> None:
    openai = pytest.importorskip("openai")
    reply = Reply(sse(*RESPONSES[name]))
    async with Server(reply, reply) as server:
        ours = await answer("openai-responses", server.url)
        client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="k", max_retries=0)
        theirs = None
        async with client:
            async for event in await client.responses.create(model="m", input="Hello", stream=True):
                if event.type in ("response.completed", "response.incomplete"):
                    theirs = event.response
    assert theirs is not None
    refusals = [p.refusal for i in theirs.output if i.type == "message" for p in i.content if p.type == "refusal"]
    assert text(ours) == theirs.output_text + "".join(refusals)
    tools = [item for item in theirs.output if item.type == "function_call"]
    assert calls(ours) == [(item.call_id, item.name, json.loads(item.arguments)) for item in tools]
    reasoning = [item for item in theirs.output if item.type == "reasoning"]
    assert len(thoughts(ours)) == len(reasoning)
    for (shown, signature, _), item in zip(thoughts(ours), reasoning, strict=True):
        kept = json.loads(signature or "")
        assert shown == "\n\n".join(part.text for part in item.summary)
        assert (kept["id"], kept["encrypted_content"]) == (item.id, item.encrypted_content)
        assert kept["summary"] == [part.to_dict() for part in item.summary]
    usage = theirs.usage
    assert ours.usage.cache_read == usage.input_tokens_details.cached_tokens
    assert ours.usage.input + ours.usage.cache_read == usage.input_tokens
    assert ours.usage.output == usage.output_tokens
    expected = "length" if theirs.status == "incomplete" else "tool_use" if tools else "end"
    assert ours.stop == ("refusal" if refusals else expected)


# ------------------------------------------------------------------ Gemini
GEMINI: dict[str, list[dict[str, Any]]] = {
    "text": gemini_events(*({"text": piece} for piece in WORDS.split(" "))),
    "empty": gemini_events(),
    "thinking and parallel tools": gemini_events(
        {"text": "First ", "thought": True},
        {"text": "thoughts.", "thought": True},
        {"text": WORDS},
        {"functionCall": {"name": "read", "args": ARGUMENTS, "id": "f1"}, "thoughtSignature": "U0lHMQ=="},
        {"functionCall": {"name": "grep", "args": {}, "id": "f2"}},
    ),
    "signed text": gemini_events({"text": "An "}, {"text": "answer"}, {"text": "", "thoughtSignature": "U0lHMg=="}),
    "length": gemini_events({"text": "cut"}, stop="MAX_TOKENS"),
    "safety": gemini_events({"text": "I"}, stop="SAFETY"),
}
GEMINI_STOPS = {"STOP": "end", "MAX_TOKENS": "length", "SAFETY": "refusal"}


@pytest.mark.parametrize("name", GEMINI)
async def test_gemini(name: str) -> None:
    genai = pytest.importorskip("google.genai")
    from base64 import b64encode

    reply = Reply(sse(*GEMINI[name]))
    async with Server(reply, reply) as server:
        ours = await answer("gemini", server.url)
        client = genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=server.url))
        stream = await client.aio.models.generate_content_stream(model="m", contents="Hello")
        events = [event async for event in stream]
        await client.aio.aclose()
    parts = [part for event in events for part in (event.candidates[0].content.parts or [])]
    assert text(ours) == "".join(part.text for part in parts if part.text and not part.thought)
    shown = "".join(part.text for part in parts if part.thought)
    assert "".join(thought for thought, _, _ in thoughts(ours)) == shown
    found = [part for part in parts if part.function_call]
    assert calls(ours) == [(p.function_call.id, p.function_call.name, p.function_call.args) for p in found]
    signed = [b64encode(part.thought_signature).decode() for part in parts if part.thought_signature]
    assert [part.signature for part in ours.content if part.type != "thinking" and part.signature] == signed
    usage = events[-1].usage_metadata
    assert ours.usage.cache_read == usage.cached_content_token_count
    assert ours.usage.input + ours.usage.cache_read == usage.prompt_token_count
    assert ours.usage.output == usage.candidates_token_count + usage.thoughts_token_count
    stop = GEMINI_STOPS[events[-1].candidates[0].finish_reason.name]
    assert ours.stop == ("tool_use" if found else stop)


# ------------------------------------------------------------------ errors
@pytest.mark.parametrize(
    ("status", "kind", "exception"),
    [
        (400, "invalid_request", "BadRequestError"),
        (401, "authentication", "AuthenticationError"),
        (403, "authentication", "PermissionDeniedError"),
        (404, "not_found", "NotFoundError"),
        (422, "invalid_request", "UnprocessableEntityError"),
        (429, "rate_limit", "RateLimitError"),
        (500, "server", "InternalServerError"),
        (503, "overloaded", "InternalServerError"),
        (529, "overloaded", "InternalServerError"),
    ],
)
async def test_errors(status: int, kind: str, exception: str) -> None:
    anthropic, openai = pytest.importorskip("anthropic"), pytest.importorskip("openai")
    error = {"type": "error", "error": {"type": "some_error", "message": "The reason."}}
    reply = Reply([json.dumps(error).encode()], status, {"content-type": "application/json"}, "length")
    async with Server(reply, reply, reply, reply) as server:
        for provider in ("anthropic", "openai"):
            ours = await answer(provider, server.url)
            assert ours.failure is not None and ours.failure.kind == kind and "The reason." in ours.failure.message
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0) as client:
            with pytest.raises(getattr(anthropic, exception)):
                await client.messages.create(model="m", max_tokens=9, messages=[OLD])
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
            with pytest.raises(getattr(openai, exception)):
                await client.chat.completions.create(model="m", messages=[OLD])
