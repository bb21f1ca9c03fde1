"""Another model takes over while a run works: when, how it is said, and what reaches its server."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.events import Retrying
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import TRANSIENT
from retinue.http.transport import Transport
from retinue.models.build import Fallback
from retinue.models.retry import RetryingModel as RetryingModel
from retinue.models.retry import RetryPolicy
from retinue.models.select import ModelSelection, select_model
from retinue.settings.table import Settings
from retinue.testing import Model, Noted, Part
from tests.models.scripts import anthropic_events, collect, request, said, shared_model
from tests.models.servers import Reply, Server, failing, sse

BUSY = failing(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
KEYS = {"ANTHROPIC_API_KEY": "a-key", "OPENAI_API_KEY": "o-key", "GEMINI_API_KEY": "g-key"}


async def chain(server: Server, *providers: str, asked: Any = None) -> tuple[AssistantMessage, list[Part], Model]:
    transport = Transport()
    models = [shared_model(provider, server.url, transport) for provider in providers]
    made = Fallback(models[0], [lambda each=each: each for each in models[1:]])  # type: ignore[misc]
    message, parts = await collect(made, asked)
    await transport.close()
    return message, parts, made


@pytest.mark.parametrize(
    ("reply", "taken"),
    [
        (BUSY, True),
        (failing(500, {"error": {"message": "x"}}), True),
        (Reply(sse(*anthropic_events(stop="refusal"))), True),
        (failing(400, {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}), True),
        (failing(404, {"error": {"type": "not_found_error", "message": "model: claude-x"}}), True),
        (failing(401, {"error": {"type": "authentication_error", "message": "invalid x-api-key"}}), False),
        (failing(400, {"error": {"type": "invalid_request_error", "message": "messages: wrong"}}), False),
        (failing(400, {"error": {"message": "prompt is too long"}}), False),
    ],
    ids=["overloaded", "server", "refusal", "no credit", "not found", "wrong key", "invalid", "overflow"],
)
async def test_when_another_model_takes_over(reply: Reply, taken: bool) -> None:
    async with Server(reply, Reply(said("openai", "I can."))) as server:
        message, parts, made = await chain(server, "anthropic", "openai")
    notes = [part.text for part in parts if isinstance(part, Noted)]
    if taken:
        assert (message.text, message.model) == ("I can.", "openai/gpt-5")
        assert notes[0].startswith("openai/gpt-5 took over from anthropic/claude-sonnet-4-5: ")
        assert made.info.full_name == "openai/gpt-5", "it stays"
    else:
        assert message.failure is not None and not notes and len(server.seen) == 1


async def test_the_last_of_the_chain_that_fails_is_the_failure() -> None:
    async with Server(BUSY, failing(404, {"error": {"message": "no such model"}})) as server:
        message, parts, _ = await chain(server, "anthropic", "openai")
    assert message.failure is not None and message.failure.kind == "not_found"
    assert len([part for part in parts if isinstance(part, Noted)]) == 1


async def test_text_that_was_shown_before_is_declared_void() -> None:
    cut = Reply([*said("anthropic", "Only half of it")[:-3], "cut"])
    transport = Transport()
    async with Server(cut, Reply(said("gemini", "All of it."))) as server:
        first = shared_model("anthropic", server.url, transport)
        made = Fallback(first, [lambda: shared_model("gemini", server.url, transport)])
        parts = [part async for part in made.stream(request())]
        await transport.close()
    (void,) = [part for part in parts if isinstance(part, Retrying)]
    assert void.partial == "Only half of it" and void.failure.kind in TRANSIENT
    assert void.attempt == 0, "the message says that another model is asked, not that this one is tried again"


async def test_retries_come_before_the_fallback() -> None:
    async def sleep(_: float) -> None: ...

    transport = Transport()
    async with Server(BUSY, BUSY, Reply(said("openai", "ok"))) as server:
        first = RetryingModel(shared_model("anthropic", server.url, transport), RetryPolicy(attempts=2), sleep=sleep)
        made = Fallback(first, [lambda: shared_model("openai", server.url, transport)])
        assert (await collect(made))[0].text == "ok"
        await transport.close()
    assert [seen.target for seen in server.seen] == ["/v1/messages", "/v1/messages", "/v1/chat/completions"]


@pytest.mark.parametrize("other", ["openai", "openai-responses", "gemini"])
async def test_thinking_and_call_ids_of_the_first_model_are_translated(other: str) -> None:
    turn = AssistantMessage(
        (Thinking("Secret thought.", "sig==", provider="anthropic"), ToolCall("toolu:☃ 1", "read", {"path": "a"})),
        "tool_use",
        model="anthropic/claude-sonnet-4-5",
    )
    results = ToolMessage((ToolResult("toolu:☃ 1", "read", (Text("content"),)),))
    async with Server(BUSY, Reply(said(other, "ok"))) as server:
        message, _, _ = await chain(server, "anthropic", other, asked=request(user("Go"), turn, results))
    sent = str(server.bodies[1])
    assert message.text == "ok" and "content" in sent
    assert "sig==" not in sent and "☃ 1" not in sent.replace("'id': 'toolu:☃ 1'", "")


async def test_a_request_keeps_within_the_output_limit_of_the_model_that_takes_over() -> None:
    transport = Transport()
    async with Server(BUSY, Reply(said("openai", "ok"))) as server:
        first = shared_model("anthropic", server.url, transport)
        made = Fallback(first, [lambda: shared_model("openai", server.url, transport, max_output=1_000)])
        await collect(made, request(max_output=50_000))
        await transport.close()
    assert server.bodies[0]["max_tokens"] == 50_000 and server.bodies[1]["max_completion_tokens"] == 1_000


# ------------------------------------------------------------------ which models
async def select(settings: dict[str, Any] | None = None, **more: Any) -> ModelSelection:
    return await select_model(settings=Settings(settings or {}), environment=KEYS, **more)


async def test_the_rest_of_the_files_list_and_then_the_setting_take_over() -> None:
    chosen = await select(
        {"fallback_models": ("gemini/gemini-4-argon", "anthropic/claude-haiku-5-5")},
        file_model="missing/model",
        fallbacks=("anthropic/claude-sonnet-5-5", "anthropic/claude-haiku-5-5"),
    )
    assert chosen.info.id == "claude-sonnet-5-5"
    assert [each.info.id for each in chosen.fallbacks] == ["claude-haiku-5-5", "gemini-4-argon"]


async def test_a_fallback_that_cannot_be_used_is_left_out_and_named() -> None:
    names = ("nonexistent-model", "groq/llama", "mine/brand-new")
    settings = {"fallback_models": names, "providers": {"mine": {"baseUrl": "https://models.example/v1"}}}
    chosen = await select(settings, query="anthropic/claude-sonnet-5-5")
    assert chosen.fallbacks == ()
    said = " ".join(chosen.notes)
    assert '"nonexistent-model" is not available' in said and "GROQ_API_KEY" in said
    assert "mine/brand-new has no known price" in said, "a fallback must not make the cost unknown"
