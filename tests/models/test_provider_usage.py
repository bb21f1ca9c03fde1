"""What an answer used and cost, as each provider reports it: never too little, and unknown is not zero."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.testing import Noted, Prices
from tests.models.scripts import (
    anthropic_events,
    chat_events,
    collect,
    gemini_events,
    known_model,
    request,
    responses_events,
    responses_text,
)
from tests.models.servers import Reply, Server, sse
from tests.models.test_provider_quirks import ask, refusal


async def test_the_thinking_of_grok_is_counted() -> None:
    """xAI reports reasoning tokens beside completion tokens (litellm llms/xai/chat/transformation.py)."""
    usage = {
        "prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 113,
        "completion_tokens_details": {"reasoning_tokens": 100},
    }  # fmt: skip
    async with Server(Reply(sse(*chat_events({"content": "ok"}, usage=usage), done=True))) as server:
        (message,) = await ask("xai", "grok-4.7", server, request())
    assert message.usage.output == 103
    usage = {**usage, "completion_tokens": 103}
    async with Server(Reply(sse(*chat_events({"content": "ok"}, usage=usage), done=True))) as server:
        (message,) = await ask("openai", "gpt-4.1", server, request())
    assert message.usage.output == 103, "everyone else counts it already"


async def test_usage_inside_a_choice_is_found() -> None:
    """Kimi (pi openai-completions.ts): choices[0].usage, with cached_tokens at its top."""
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 60}
    chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop", "usage": usage}]}
    async with Server(Reply(sse(chunk, done=True))) as server:
        (message,) = await ask("moonshot", "kimi-k3", server, request())
    counted = message.usage
    assert (counted.input, counted.output, counted.cache_read) == (40, 7, 60)


@pytest.mark.parametrize("format", ["openai", "anthropic", "gemini", "openai-responses"])
async def test_an_answer_without_usage_costs_an_unknown_amount(format: str) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
    silent: dict[str, list[Any]] = {
        "openai": [chunk],
        "anthropic": [_without_usage(event) for event in anthropic_events({"type": "text", "text": "ok"})],
        "gemini": [{k: v for k, v in event.items() if k != "usageMetadata"} for event in gemini_events({"text": "ok"})],
        "openai-responses": responses_events(responses_text("ok"), usage={"none": 0}),
    }
    async with Server(Reply(sse(*silent[format], done=format == "openai"))) as server:
        provider = "openai" if format == "openai" else format
        id = "gpt-4.1" if format == "openai" else "m"
        (message,) = await ask(provider, id, server, request())
        assert message.text == "ok"
    assert message.usage.cost_usd is None, "unknown is not free"


async def test_an_answer_without_usage_is_said_once() -> None:
    silent = Reply(sse({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}, done=True))
    async with Server(silent, silent) as server:
        made = known_model("moonshot", "kimi-k3", server.url)
        notes = [part for _ in range(2) for part in (await collect(made, request()))[1] if isinstance(part, Noted)]
    await made.close()
    assert [note.text for note in notes] == ["moonshot/kimi-k3 sent no usage: tokens and cost are not known."]


async def test_an_answer_without_usage_of_a_free_model_is_free() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
    async with Server(Reply(sse(chunk, done=True))) as server:
        (message,) = await ask("ollama", "m", server, request(), prices=Prices(0, 0, 0, 0))
    assert message.usage.cost_usd == 0.0


def _without_usage(event: dict[str, Any]) -> dict[str, Any]:
    event = {key: value for key, value in event.items() if key != "usage"}
    if "message" in event:
        event["message"] = {key: value for key, value in event["message"].items() if key != "usage"}
    return event


# ------------------------------------------------------------------ how long a cache is kept
WAITING = AssistantMessage((ToolCall("call_0", "Agent", {"prompt": "x"}),), "tool_use", model="anthropic/m")
REPORT = ToolMessage((ToolResult("call_0", "Agent", (Text("done"),)),))


async def test_a_run_that_waits_for_agents_keeps_its_cache_for_an_hour_and_pays_for_that() -> None:
    """platform.claude.com prompt-caching: `ttl: "1h"`; usage.cache_creation splits what was written."""
    usage = {
        "input_tokens": 0, "cache_creation_input_tokens": 1_000_000, "cache_read_input_tokens": 0, "output_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1_000_000},
    }  # fmt: skip
    events = anthropic_events({"type": "text", "text": "ok"}, usage=usage)
    fine = Reply(sse(*events))
    async with Server(fine, fine) as server:
        prices = Prices(4.0, 20.0, 0.2, 5.0)
        asked = (request(user("Go")), request(user("Go"), WAITING, REPORT))
        messages = await ask("anthropic", "claude-sonnet-5-5", server, *asked, prices=prices)
    assert [body["system"][0]["cache_control"] for body in server.bodies] == [
        {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"},
    ]  # fmt: skip
    assert messages[1].usage.cost_usd == pytest.approx(8.0), "twice the input price, not 1.25 times"


async def test_a_server_without_the_long_cache_gets_the_short_one() -> None:
    said = "system.0.cache_control.ephemeral.ttl: Extra inputs are not permitted"
    fine = Reply(sse(*anthropic_events({"type": "text", "text": "ok"})))
    async with Server(refusal(said), fine) as server:
        (message,) = await ask("anthropic", "claude-sonnet-5-5", server, request(user("Go"), WAITING, REPORT))
    assert message.text == "ok" and "ttl" not in str(server.bodies[1])
