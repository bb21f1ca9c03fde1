"""Claude models that bind thoughts to their conversation (platform.claude.com "Preserved thinking"): what is sent after
something before a thought has changed."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, Text, Thinking, user
from retinue.testing import ModelRequest
from tests.models.scripts import anthropic_events, collect, model, request
from tests.models.servers import Reply, Server, failing, sse
from tests.models.test_anthropic import text

BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
THOUGHT = AssistantMessage((Thinking("x", "sig-1", provider="anthropic"), Text("a")), model="anthropic/c")
DROPS = {"prefix_mismatch_behavior": "drop_block"}
BINDING = "thinking-binding-controls-2026-08-01"


async def asked_in_turn(server: Server, *requests: ModelRequest, **changes: Any) -> list[AssistantMessage]:
    made = model("anthropic", server.url, **changes)
    messages = [(await collect(made, each))[0] for each in requests]
    await made.close()
    return messages


async def test_thoughts_bound_to_another_conversation_are_dropped_by_the_server_and_newer_ones_stay() -> None:
    """The page "Fix a thinking block bound to a different conversation": set `drop_block` with the beta
    header on every later request; thoughts that came after the change stay valid."""
    newer = AssistantMessage((Thinking("y", "sig-2", provider="anthropic"), Text("b")), model="anthropic/c")
    refused = failing(400, {"type": "error", "error": {"type": "invalid_request_error", "message": BOUND}})
    fine = Reply(sse(*anthropic_events(text("on"))))
    first = request(user("go"), THOUGHT, user("more"))
    second = request(user("go"), THOUGHT, user("more"), newer, user("again"))
    async with Server(refused, fine, fine) as server:
        messages = await asked_in_turn(server, first, second, id="claude-fable-5-2", headers={"Anthropic-Beta": "mine"})
    assert [message.failure for message in messages] == [None, None]
    assert [body.get("thinking", {}).get("block_binding") for body in server.bodies] == [None, DROPS, DROPS]
    assert [seen.headers["anthropic-beta"] for seen in server.seen] == ["mine", f"mine,{BINDING}", f"mine,{BINDING}"]
    assert all("sig-1" in str(body) for body in server.bodies)
    assert "sig-2" in str(server.bodies[-1])


@pytest.mark.parametrize(
    ("id", "level", "asks"),
    [
        ("claude-fable-5-2", None, True),
        ("claude-sonnet-5-5", "high", True),
        ("claude-sonnet-5-5", "off", False),
        ("claude-sonnet-5", "high", False),
        ("claude-opus-4-6", None, False),
    ],
)
async def test_a_shortened_conversation_asks_for_it_before_any_refusal(id: str, level: str | None, asks: bool) -> None:
    """Also after a resume, when nothing but the conversation is known. The models are those of "Prefix
    checks on thinking blocks"; thinking that is off has no place for it."""
    shortened = request(user("go"), user("What happened.", "summary"), THOUGHT, user("more"), thinking=level)
    async with Server(Reply(sse(*anthropic_events(text("on"))))) as server:
        await asked_in_turn(server, shortened, id=id)
    assert (server.bodies[0].get("thinking", {}).get("block_binding") == DROPS) is asks
    assert (BINDING in server.seen[0].headers.get("anthropic-beta", "")) is asks


async def test_a_gateway_that_does_not_know_the_setting_costs_the_old_thinking_and_not_the_run() -> None:
    unknown = "thinking.adaptive.block_binding: Extra inputs are not permitted"
    refused = failing(400, {"type": "error", "error": {"type": "invalid_request_error", "message": unknown}})
    fine = Reply(sse(*anthropic_events(text("on"))))
    shortened = request(user("go"), user("What happened.", "summary"), THOUGHT, user("more"))
    async with Server(refused, fine, fine) as server:
        messages = await asked_in_turn(server, shortened, shortened, id="claude-fable-5-2")
    assert [message.failure for message in messages] == [None, None]
    assert ["block_binding" in str(body) for body in server.bodies] == [True, False, False]
    assert ["sig-1" in str(body) for body in server.bodies] == [True, False, False]
