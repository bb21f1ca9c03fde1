"""Chat Completions, from OpenAI and from servers that only resemble it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    user,
)
from retinue.errors import ConfigurationError
from retinue.http.transport import Transport
from tests.models.scripts import answer, chat_call, chat_events, collect, model, request, shared_model, thought
from tests.models.servers import Reply, Server, failing, sse

PICTURE = Image("image/png", "iVBORw0KGgo=")


def streamed(*deltas: dict[str, Any], done: bool = True, **more: Any) -> Reply:
    return Reply(sse(*chat_events(*deltas, **more), done=done))


async def read(*deltas: dict[str, Any], done: bool = True, **more: Any) -> AssistantMessage:
    async with Server(streamed(*deltas, done=done, **more)) as server:
        return await answer("openai", server.url)


async def test_text_and_parallel_calls() -> None:
    calls = [*chat_call(0, "call_a", "read", {"path": "x"}), *chat_call(1, "call_b", "grep", {"pattern": "é"})]
    message = await read({"content": "I will "}, {"content": "look."}, *calls, stop="tool_calls")
    assert message.content == (
        Text("I will look."),
        ToolCall("call_a", "read", {"path": "x"}),
        ToolCall("call_b", "grep", {"pattern": "é"}),
    )
    assert message.stop == "tool_use"
    usage = message.usage
    assert (usage.input, usage.output, usage.cache_read) == (125, 42, 2000)


@pytest.mark.parametrize(
    "pieces",
    [
        # whole arguments at once, no index
        [{"id": "a", "function": {"name": "read", "arguments": '{"path":"1"}'}},
         {"id": "b", "function": {"name": "read", "arguments": '{"path":"2"}'}}],
        # the same index for every call
        [{"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path":"1"}'}},
         {"index": 0, "id": "b", "function": {"name": "read", "arguments": '{"path":"2"}'}}],
        # neither index nor id
        [{"function": {"name": "read", "arguments": '{"path":"1"}'}},
         {"function": {"name": "read", "arguments": '{"path":"2"}'}}],
        # the same id twice
        [{"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path":"1"}'}},
         {"index": 1, "id": "a", "function": {"name": "read", "arguments": '{"path":"2"}'}}],
        # arguments as objects
        [{"index": 0, "id": "a", "function": {"name": "read", "arguments": {"path": "1"}}},
         {"index": 1, "id": "b", "function": {"name": "read", "arguments": {"path": "2"}}}],
        # id and name repeated with every fragment
        [{"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path"'}},
         {"index": 0, "id": "a", "function": {"name": "read", "arguments": ':"1"}'}},
         {"index": 1, "id": "b", "function": {"name": "read", "arguments": '{"path"'}},
         {"index": 1, "id": "b", "function": {"name": "read", "arguments": ':"2"}'}}],
        # interleaved fragments
        [{"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"pa'}},
         {"index": 1, "id": "b", "function": {"name": "read", "arguments": '{"path":'}},
         {"index": 0, "function": {"arguments": 'th":"1"}'}},
         {"index": 1, "function": {"arguments": '"2"}'}}],
        # a null index, empty ids
        [{"index": None, "id": "", "function": {"name": "read", "arguments": '{"path":"1"}'}},
         {"index": None, "id": "", "function": {"name": "read", "arguments": '{"path":"2"}'}}],
    ],
    ids=["no index", "same index", "no index no id", "same id", "objects", "repeated", "interleaved", "null"],
)  # fmt: skip
@pytest.mark.parametrize("together", [False, True])
async def test_calls_of_compatible_servers(pieces: list[dict[str, Any]], together: bool) -> None:
    deltas = [{"tool_calls": pieces}] if together else [{"tool_calls": [piece]} for piece in pieces]
    message = await read(*deltas, stop="stop")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [
        ("read", {"path": "1"}),
        ("read", {"path": "2"}),
    ]
    assert len({call.id for call in message.tool_calls}) == 2 and all(call.id for call in message.tool_calls)
    assert message.stop == "tool_use"


async def test_an_id_used_earlier_in_the_conversation_is_replaced() -> None:
    before = AssistantMessage((ToolCall("call_0", "read", {}),), model="openai/gpt-5")
    results = ToolMessage((ToolResult("call_0", "read", (Text("r"),)),))
    async with Server(streamed(*chat_call(0, "call_0", "read", {}), stop="tool_calls")) as server:
        message = await answer("openai", server.url, request(user("go"), before, results))
    assert message.tool_calls[0].id not in ("", "call_0")


async def test_the_legacy_function_call() -> None:
    message = await read(
        {"function_call": {"name": "read", "arguments": ""}},
        {"function_call": {"arguments": '{"path":"x"}'}},
        stop="function_call",
    )
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("read", {"path": "x"})]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
async def test_reasoning_in_any_of_its_fields(field: str) -> None:
    async with Server(streamed({field: "Let me "}, {field: "see."}, {"content": "Yes."})) as server:
        made = model("openai", server.url)
        message, parts = await collect(made)
        await made.close()
    assert message.content == (Thinking("Let me see.", provider="openai"), Text("Yes."))
    assert thought(parts) == "Let me see."


async def test_reasoning_twice_in_one_chunk_counts_once() -> None:
    message = await read({"reasoning_content": "a", "reasoning": "a"}, {"content": "b"})
    assert message.content[0] == Thinking("a", provider="openai")


async def test_content_as_a_list_of_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    message = await read({"content": [thinking]}, {"content": [{"type": "text", "text": "yes"}]})
    assert message.content == (Thinking("hm", provider="openai"), Text("yes"))


async def test_reasoning_details_return_as_they_came() -> None:
    details = [
        {"type": "reasoning.text", "text": "a", "index": 0, "format": "x"},
        {"type": "reasoning.text", "text": "b", "signature": "SIG", "index": 0, "format": "x"},
    ]
    deltas = [{"reasoning": detail["text"], "reasoning_details": [detail]} for detail in details]
    first = streamed(*deltas, *chat_call(0, "c", "read", {}), stop="tool_calls")
    async with Server(first, streamed({"content": "ok"})) as server:
        quirks = {"reasoningField": "reasoning_details"}
        made = model("openrouter", server.url, format="openai", quirks=quirks)
        message, _ = await collect(made, request("go", thinking="low"))
        results = ToolMessage((ToolResult("c", "read", (Text("r"),)),))
        await collect(made, request(user("go"), message, results))
        await made.close()
    merged = [{"type": "reasoning.text", "text": "ab", "index": 0, "format": "x", "signature": "SIG"}]
    assert server.bodies[1]["messages"][2]["reasoning_details"] == merged
    assert server.bodies[0]["reasoning"] == {"effort": "low"}


async def test_reasoning_content_returns_where_the_server_wants_it() -> None:
    said = AssistantMessage(
        (Thinking("because", provider="deepseek"), ToolCall("c", "read", {})), model="deepseek/deepseek-chat"
    )
    asked = request(user("go"), said, ToolMessage((ToolResult("c", "read", (Text("r"),)),)))
    refusal = {
        "error": {
            "message": "Missing `reasoning_content` field in the assistant message",
            "type": "invalid_request_error",
        }
    }
    async with Server(failing(400, refusal), streamed({"content": "ok"}), streamed({"content": "ok"})) as server:
        made = model("deepseek", server.url, format="openai", id="deepseek-chat")
        assert (await collect(made, asked))[0].text == "ok"
        assert (await collect(made, asked))[0].text == "ok"
        await made.close()
    assert [body["messages"][2].get("reasoning_content") for body in server.bodies] == [None, "because", "because"]


@pytest.mark.parametrize(
    ("reason", "stop", "kind"),
    [
        ("stop", "end", None),
        ("eos", "end", None),
        ("length", "length", None),
        ("content_filter", "refusal", "refused"),
        ("insufficient_system_resource", "error", "overloaded"),
        ("error", "error", "server"),
    ],
)
async def test_finish_reasons(reason: str, stop: str, kind: str | None) -> None:
    message = await read({"content": "words"}, stop=reason)
    assert (message.stop, message.text) == (stop, "words")
    assert (message.failure.kind if message.failure else None) == kind


async def test_a_refusal_is_shown_and_named() -> None:
    message = await read({"refusal": "I cannot "}, {"refusal": "do that."})
    assert message.stop == "refusal" and message.text == "I cannot do that."
    assert message.failure is not None and message.failure.message == "I cannot do that."


@pytest.mark.parametrize("done", [True, False])
async def test_either_mark_ends_an_answer(done: bool) -> None:
    """[DONE] without a finish reason, or a finish reason without [DONE]: both are complete."""
    message = await read({"content": "x"}, done=done, stop=None if done else "stop")
    assert (message.stop, message.failure) == ("end", None)


async def test_usage_in_every_chunk_and_in_other_places() -> None:
    events = chat_events({"content": "x"})
    for number, event in enumerate(events):
        event["usage"] = {"prompt_tokens": 10, "completion_tokens": number, "prompt_cache_hit_tokens": 4}
    async with Server(Reply(sse(*events, done=True))) as server:
        usage = (await answer("openai", server.url)).usage
    assert (usage.input, usage.output, usage.cache_read) == (6, len(events) - 1, 4)


async def test_what_the_server_charged_stands_in_for_unknown_prices() -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.0125}
    async with Server(streamed({"content": "x"}, usage=counts), streamed({"content": "x"}, usage=counts)) as server:
        assert (await answer("openai", server.url, prices=None)).usage.cost_usd == 0.0125
        priced = (await answer("openai", server.url)).usage.cost_usd
    assert priced == pytest.approx((10 * 3 + 5 * 15) / 1e6)


async def test_an_answer_that_is_not_streamed() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path":"p"}'}}
    whole = {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi", "tool_calls": [call]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    async with Server(failing(200, whole)) as server:
        message = await answer("openai", server.url)
    assert message.content == (Text("Hi"), ToolCall("c", "read", {"path": "p"}))
    assert (message.stop, message.usage.output) == ("tool_use", 4)


# ------------------------------------------------------------------ requests
def test_the_conversation_as_messages() -> None:
    conversation = (
        UserMessage((Text("Look"), PICTURE)),
        AssistantMessage(
            (
                Thinking("hm", provider="openai"),
                Text("On it."),
                ToolCall("a", "read", {"path": "x"}),
                ToolCall("b", "grep", {}),
            ),
            model="openai/gpt-5",
        ),
        ToolMessage((ToolResult("a", "read", (PICTURE,)), ToolResult("b", "grep", (), is_error=True))),
        AssistantMessage((), model="openai/gpt-5"),
        user("Go on", "steer"),
    )
    messages = model("openai", "http://x").body(request(*conversation))["messages"]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert messages == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, image]},
        {
            "role": "assistant",
            "content": "On it.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path":"x"}'}},
                {"id": "b", "type": "function", "function": {"name": "grep", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "(see the images below)"},
        {"role": "tool", "tool_call_id": "b", "content": "(no output)"},
        {"role": "user", "content": [{"type": "text", "text": "Images from the tool read:"}, image]},
        {"role": "user", "content": "Go on"},
    ]


def test_a_broken_call_goes_back_as_valid_json() -> None:
    said = AssistantMessage((ToolCall("a", "read", {}, broken='{"path": "'),), model="openai/gpt-5")
    sent = model("openai", "http://x").body(request(user("x"), said))["messages"][2]
    assert json.loads(sent["tool_calls"][0]["function"]["arguments"]) == {"INVALID_JSON": '{"path": "'}


def test_quirks_change_what_is_sent() -> None:
    asked = request(max_output=100, thinking="xhigh", temperature=0.3, tool_choice="required")
    openai = model("openai", "http://x").body(asked)
    assert openai["max_completion_tokens"] == 100 and openai["stream_options"] == {"include_usage": True}
    assert openai["reasoning_effort"] == "high" and "temperature" not in openai
    assert openai["tool_choice"] == "required" and "parallel_tool_calls" not in openai
    quirks = {
        "streamUsage": False,
        "maxTokensKey": "max_completion_tokens",
        "systemRole": "user",
        "reasoningEffort": False,
        "parallelToolCalls": False,
        "extraBody": {"seed": 7},
    }
    other = model("vllm", "http://x", format="openai", quirks=quirks).body(asked)
    assert "stream_options" not in other and "reasoning_effort" not in other
    assert other["max_completion_tokens"] == 100 and other["seed"] == 7 and other["temperature"] == 0.3
    assert other["messages"][0]["role"] == "user" and other["parallel_tool_calls"] is False
    plain = model("vllm", "http://x", format="openai").body(asked)
    assert plain["max_tokens"] == 100 and plain["messages"][0]["role"] == "system"


@pytest.mark.parametrize("quirks", [{"nonsense": True}, {"streamUsage": "yes"}, {"query": "a=b"}, {"auth": 5}])
def test_a_quirk_that_means_nothing_is_refused_with_the_known_ones(quirks: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        model("vllm", "http://x", format="openai", quirks=quirks)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("base", "target"),
    [
        ("", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/api/paas/v4", "/api/paas/v4/chat/completions"),
        ("/v1beta/openai", "/v1beta/openai/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
    ],
)
async def test_base_urls(base: str, target: str) -> None:
    async with Server(streamed({"content": "x"})) as server:
        await answer("openai", server.url + base)
    assert server.seen[0].target == target
    assert server.seen[0].headers["authorization"] == "Bearer test-key-1234"


async def test_azure_needs_only_quirks() -> None:
    quirks = {"auth": "api-key", "query": {"api-version": "2026-01-01"}}
    async with Server(streamed({"content": "x"})) as server:
        base = server.url + "/openai/deployments/gpt"
        await answer("azure", base, format="openai", quirks=quirks)
    seen = server.seen[0]
    assert seen.target == "/openai/deployments/gpt/chat/completions?api-version=2026-01-01"
    assert seen.headers["api-key"] == "test-key-1234" and "authorization" not in seen.headers


async def test_no_key_no_header() -> None:
    async with Server(streamed({"content": "x"})) as server:
        await answer("ollama", server.url, format="openai", key=None)
    assert "authorization" not in server.seen[0].headers


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("Unrecognized request argument supplied: stream_options", "stream_options"),
        ("tool_choice: only auto is supported", "tool_choice"),
        ("reasoning_effort is not supported by this model", "reasoning_effort"),
        ("`temperature` does not support 0.5 with this model", "temperature"),
    ],
)
async def test_what_a_server_refuses_is_learned(message: str, gone: str) -> None:
    refusal = {"error": {"message": message, "type": "invalid_request_error"}}
    async with Server(failing(400, refusal), streamed({"content": "ok"})) as server:
        asked = request(max_output=50, thinking="low", temperature=0.5, tool_choice="required")
        result = await answer("vllm", server.url, asked, format="openai")
    assert result.text == "ok"
    first, second = server.bodies
    assert gone in first and gone not in second
    assert gone != "max_tokens" or second["max_completion_tokens"] == 50


async def test_one_run_learns_for_the_others() -> None:
    refusal = {"error": {"message": "max_completion_tokens is unknown", "type": "invalid_request_error"}}
    async with Server(failing(400, refusal), streamed({"content": "ok"}), streamed({"content": "ok"})) as server:
        transport = Transport()
        for _ in range(2):
            made = shared_model("openai", server.url, transport)
            assert (await collect(made, request(max_output=50)))[0].text == "ok"
        await transport.close()
    assert ["max_tokens" in body for body in server.bodies] == [False, True, True]


async def test_a_refusal_that_names_nothing_optional_stays_a_failure() -> None:
    refusal = {"error": {"message": "messages: roles must alternate", "type": "invalid_request_error"}}
    async with Server(failing(400, refusal)) as server:
        message = await answer("openai", server.url)
    assert message.failure is not None and message.failure.kind == "invalid_request"
    assert len(server.seen) == 1
