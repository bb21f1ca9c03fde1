"""Anthropic's Messages format: what is sent, what is read, and what comes back on the next turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from retinue.core.spec import THINKING_LEVELS
from retinue.testing import ToolCallStarted
from tests.models.scripts import GREP, READ, RELAXED, answer, anthropic_events, collect, info, model, request, thought
from tests.models.servers import Reply, Server, failing, sse

PICTURE = Image("image/png", "iVBORw0KGgo=")


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


async def body_of(*messages: Any, answer_text: str = "ok", **changes: Any) -> Any:
    """The body of one request with these messages."""
    names = ("thinking", "temperature", "max_output", "tool_choice", "options", "tools", "system")
    asked = {name: changes.pop(name) for name in names if name in changes}
    async with Server(Reply(sse(*anthropic_events(text(answer_text))))) as server:
        await answer("anthropic", server.url, request(*messages, **asked), **changes)
        return server.bodies[0]


async def test_text_thinking_and_parallel_calls() -> None:
    blocks = [
        {"type": "thinking", "thinking": "First look, then search.", "signature": "EqQBCg=="},
        text("I will look at both."),
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "äöü/☃.py"}},
        {"type": "tool_use", "id": "toolu_2", "name": "grep", "input": {"pattern": 'say "hi"\n'}},
    ]
    async with Server(Reply(sse(*anthropic_events(*blocks, stop="tool_use")))) as server:
        made = model("anthropic", server.url)
        message, parts = await collect(made)
        await made.close()
    assert message.content == (
        Thinking("First look, then search.", "EqQBCg==", provider="anthropic"),
        Text("I will look at both."),
        ToolCall("toolu_1", "read", {"path": "äöü/☃.py"}),
        ToolCall("toolu_2", "grep", {"pattern": 'say "hi"\n'}),
    )
    assert message.stop == "tool_use" and message.model == "anthropic/claude-sonnet-4-5"
    assert thought(parts) == "First look, then search."
    assert [part.name for part in parts if isinstance(part, ToolCallStarted)] == ["read", "grep"]
    usage = message.usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (25, 42, 2000, 100)
    assert usage.cost_usd == pytest.approx((25 * 3 + 42 * 15 + 2000 * 0.3 + 100 * 3.75) / 1e6)


async def test_thinking_goes_back_intact_on_the_next_turn_and_the_prefix_stays() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "SIG+/="},
        {"type": "redacted_thinking", "data": "OPAQUE"},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
    ]
    replies = [Reply(sse(*anthropic_events(*blocks, stop="tool_use"))), Reply(sse(*anthropic_events(text("Done."))))]
    async with Server(*replies) as server:
        made = model("anthropic", server.url)
        first, _ = await collect(made, request("Go", thinking="high"))
        results = ToolMessage((ToolResult("toolu_1", "read", (Text("content"),)),))
        await collect(made, request(user("Go"), first, results, thinking="high"))
        await made.close()
    before, after = server.bodies
    assert after["messages"][1] == {"role": "assistant", "content": blocks}
    assert unmarked(after["messages"][: len(before["messages"])]) == unmarked(before["messages"])
    assert [after[key] for key in ("system", "tools", "thinking")] == [
        before[k] for k in ("system", "tools", "thinking")
    ]


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


async def test_cache_marks_stand_on_tools_system_and_the_newest_two_user_turns() -> None:
    said = AssistantMessage((Text("yes"),), model="anthropic/x")
    body = await body_of("one", said, user("two"), said, user("three"))
    mark = {"type": "ephemeral"}
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, mark]
    marked = [turn["content"][-1].get("cache_control") for turn in body["messages"] if turn["role"] == "user"]
    assert marked == [None, mark, mark]
    plain = await body_of("one", quirks={"cacheControl": False})
    assert "cache_control" not in str(plain)


async def test_results_images_and_steering_share_one_user_turn() -> None:
    calls = AssistantMessage(
        (ToolCall("a", "read", {"path": "x"}), ToolCall("b", "read", {}, broken='{"path": "y')), model="anthropic/x"
    )
    results = ToolMessage(
        (
            ToolResult("a", "read", (Text("seen"), PICTURE)),
            ToolResult("b", "read", (), is_error=True),
        )
    )
    body = await body_of(UserMessage((Text("Look"), PICTURE)), calls, results, user("Hurry", "steer"))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    first, second, third = unmarked(body["messages"])
    assert first == {"role": "user", "content": [text("Look"), image]}
    assert second["content"][0] == {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}
    assert second["content"][1]["input"] == {"INVALID_JSON": '{"path": "y'}
    assert third["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": [text("seen"), image]},
        {"type": "tool_result", "tool_use_id": "b", "content": "(no output)", "is_error": True},
        text("Hurry"),
    ]


async def test_a_model_without_eyes_is_told_of_images() -> None:
    body = await body_of(UserMessage((Text("Look"), PICTURE)), images=False)
    assert unmarked(body["messages"][0]["content"])[1] == text("[an image that this model cannot see]")


async def test_thinking_of_another_provider_and_without_signature_stays_home() -> None:
    foreign = AssistantMessage((Thinking("x", "sig", provider="gemini"), Text("a")), model="gemini/g")
    cut = AssistantMessage((Thinking("x", None, provider="anthropic"), Text("b")), model="anthropic/c")
    only = AssistantMessage((Thinking("x", "sig", provider="anthropic"),), model="anthropic/c")
    body = await body_of("one", foreign, user("two"), cut, user("three"), only, user("four"))
    assert "thinking" not in str(body["messages"])
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]


async def test_ids_of_other_makers_are_made_acceptable_on_both_sides() -> None:
    odd = "functions.read:0 ☃" + "x" * 80
    call = AssistantMessage((ToolCall(odd, "read", {}),), model="openai/x")
    body = await body_of("go", call, ToolMessage((ToolResult(odd, "read", (Text("r"),)),)))
    sent = body["messages"][1]["content"][0]["id"]
    assert sent == body["messages"][2]["content"][0]["tool_use_id"]
    assert sent.replace("_", "").isalnum() and len(sent) <= 64


@pytest.mark.parametrize(
    ("reason", "stop", "kind"),
    [
        ("end_turn", "end", None),
        ("stop_sequence", "end", None),
        ("pause_turn", "end", None),
        ("max_tokens", "length", None),
        ("refusal", "refusal", "refused"),
        ("model_context_window_exceeded", "error", "context_overflow"),
        ("something_new", "end", None),
    ],
)
async def test_stop_reasons(reason: str, stop: str, kind: str | None) -> None:
    async with Server(Reply(sse(*anthropic_events(text("Some words"), stop=reason)))) as server:
        message = await answer("anthropic", server.url)
    assert message.stop == stop and message.text == "Some words"
    assert (message.failure.kind if message.failure else None) == kind


async def test_a_refusal_says_why() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "This could enable harm."}
    async with Server(Reply(sse(*anthropic_events(stop="refusal", stop_details=details)))) as server:
        message = await answer("anthropic", server.url)
    assert message.failure is not None and "This could enable harm." in message.failure.message


async def test_usage_of_the_end_replaces_that_of_the_start() -> None:
    counts = {"input_tokens": 7, "output_tokens": 9, "cache_read_input_tokens": None}
    async with Server(Reply(sse(*anthropic_events(text("x"), usage=counts)))) as server:
        usage = (await answer("anthropic", server.url, prices=None)).usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (7, 9, 2000, 100)
    assert usage.cost_usd is None


async def test_an_answer_that_is_not_streamed() -> None:
    whole = {
        "type": "message",
        "content": [text("Hi"), {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "p"}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    async with Server(failing(200, whole)) as server:
        message = await answer("anthropic", server.url)
    assert message.content == (Text("Hi"), ToolCall("t", "read", {"path": "p"}))
    assert (message.stop, message.usage.output) == ("tool_use", 4)


# ------------------------------------------------------------------ thinking and limits
@RELAXED
@given(st.sampled_from(THINKING_LEVELS), st.integers(1, 200_000), st.none() | st.integers(1, 200_000))
def test_the_output_limit_always_exceeds_the_thinking_budget(level: str, most: int, asked: int | None) -> None:
    body = model("anthropic", "http://x", max_output=most).body(request(thinking=level, max_output=asked))
    budget = body.get("thinking", {}).get("budget_tokens", 0)
    assert budget < body["max_tokens"] <= max(most, asked or 0)
    assert not budget or budget >= 1024


@pytest.mark.parametrize(
    ("id", "level", "expected"),
    [
        ("claude-sonnet-4-5", "off", {}),
        ("claude-sonnet-4-5", None, {}),
        ("claude-sonnet-4-5", "whatever", {}),
        ("claude-haiku-4-5-20251001", "low", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("claude-3-7-sonnet-20250219", "low", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("claude-opus-4-6", "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("claude-opus-4-6", "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
        ("claude-sonnet-4-6", "off", {}),
        (
            "claude-opus-4-7",
            "xhigh",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "xhigh"}},
        ),
        ("claude-sonnet-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        (
            "claude-fable-5",
            "off",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
        ),
    ],
)
def test_levels_by_generation(id: str, level: str | None, expected: dict[str, Any]) -> None:
    body = model("anthropic", "http://x", id=id).body(request(thinking=level))
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == expected


def test_thinking_gives_way_where_the_format_forbids_it() -> None:
    made = model("anthropic", "http://x")
    assert "thinking" not in made.body(request(thinking="high", tool_choice="required"))
    assert "thinking" not in model("anthropic", "http://x", thinking=False).body(request(thinking="high"))
    begun = AssistantMessage((ToolCall("a", "read", {}),), model="anthropic/x")
    results = ToolMessage((ToolResult("a", "read", (Text("r"),)),))
    assert "thinking" not in made.body(request(user("go"), begun, results, thinking="high"))
    assert "temperature" not in made.body(request(thinking="high", temperature=0.2))
    assert made.body(request(temperature=0.2))["temperature"] == 0.2
    assert "temperature" not in model("anthropic", "http://x", id="claude-opus-4-7").body(request(temperature=0.2))


def test_tool_choice_options_and_extra_body() -> None:
    made = model("anthropic", "http://x", quirks={"extraBody": {"service_tier": "auto"}})
    body = made.body(request(tool_choice="required", options={"top_k": 5}))
    assert (body["tool_choice"], body["service_tier"], body["top_k"]) == ({"type": "any"}, "auto", 5)
    assert made.body(request(tool_choice="none"))["tool_choice"] == {"type": "none"}
    bare = made.body(request(tools=(), tool_choice="required", system=""))
    assert not {"tools", "tool_choice", "system"} & bare.keys()
    assert body["tools"][0]["input_schema"] == READ.parameters
    assert body["max_tokens"] == info("anthropic").max_output
    assert [tool["name"] for tool in body["tools"]] == [READ.name, GREP.name]


# ------------------------------------------------------------------ headers and addresses
@pytest.mark.parametrize(
    ("base", "target"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/a/anthropic", "/a/anthropic/v1/messages"),
    ],
)
async def test_base_urls(base: str, target: str) -> None:
    async with Server(Reply(sse(*anthropic_events()))) as server:
        await answer("anthropic", server.url + base, headers={"X-Team": "blue"})
        seen = server.seen[0]
    assert seen.target == target
    assert seen.headers["x-api-key"] == "test-key-1234" and seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.headers["x-team"] == "blue"


async def test_a_bearer_token_in_place_of_a_key() -> None:
    async with Server(Reply(sse(*anthropic_events()))) as server:
        await answer("anthropic", server.url, quirks={"auth": "bearer"})
    assert server.seen[0].headers["authorization"] == "Bearer test-key-1234"
    assert "x-api-key" not in server.seen[0].headers


async def test_a_refused_signature_costs_the_old_thinking_and_not_the_run() -> None:
    refusal = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "Invalid `signature` in `thinking` block"},
    }
    said = AssistantMessage((Thinking("x", "old", provider="anthropic"), Text("a")), model="anthropic/c")
    replies = [
        failing(400, refusal),
        Reply(sse(*anthropic_events(text("on")))),
        Reply(sse(*anthropic_events(text("on")))),
    ]
    async with Server(*replies) as server:
        made = model("anthropic", server.url)
        message, _ = await collect(made, request(user("go"), said, user("more")))
        assert message.text == "on"
        await collect(made, request(user("go"), said, user("more")))
        await made.close()
    assert ["old" in str(body) for body in server.bodies] == [True, False, False]


async def test_a_parameter_that_the_server_refuses_is_left_out_from_then_on() -> None:
    refusal = {"error": {"type": "invalid_request_error", "message": "temperature: not supported by this model"}}
    fine = Reply(sse(*anthropic_events(text("ok"))))
    async with Server(failing(400, refusal), fine, fine) as server:
        made = model("anthropic", server.url)
        for _ in range(2):
            message, _ = await collect(made, request(temperature=0.5))
            assert message.text == "ok"
        await made.close()
    assert ["temperature" in body for body in server.bodies] == [True, False, False]


# ------------------------------------------------------------------ smaller things
async def test_a_call_cut_off_before_its_first_argument_is_not_taken_for_a_whole_one() -> None:
    """Found on the wire: `{}` stood for the missing arguments, and a tool that requires none was run."""
    block = {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
    events = anthropic_events(block, stop="max_tokens")
    begun = [event for event in events if event.get("delta", {}).get("type") != "input_json_delta"]
    async with Server(Reply(sse(*begun))) as server:
        message = await answer("anthropic", server.url)
    (call,) = message.tool_calls
    assert message.stop == "length" and call.broken is not None
    whole = [event for event in anthropic_events(block, stop="tool_use") if event in begun or "delta" in event]
    async with Server(Reply(sse(*whole))) as server:
        message = await answer("anthropic", server.url)
    assert message.tool_calls[0].broken is None, "one that ended well has no arguments"


async def test_the_version_of_the_api_is_a_header_that_settings_replace() -> None:
    """docs versioning: 2026-10-21 is current; 2023-06-01 is what compatible servers know."""
    async with Server(Reply(sse(*anthropic_events()))) as server:
        await answer("anthropic", server.url, headers={"Anthropic-Version": "2026-10-21"})
    assert server.seen[0].headers["anthropic-version"] == "2026-10-21"
