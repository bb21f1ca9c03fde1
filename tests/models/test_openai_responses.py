"""The Responses format: stateless, with reasoning items that return as they came."""

from __future__ import annotations

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
from tests.models.scripts import (
    answer,
    collect,
    model,
    request,
    responses_call,
    responses_events,
    responses_reasoning,
    responses_text,
    thought,
)
from tests.models.servers import Reply, Server, failing, sse

PICTURE = Image("image/png", "iVBORw0KGgo=")
PROVIDER = "openai-responses"


async def read(*items: dict[str, Any], **more: Any) -> AssistantMessage:
    async with Server(Reply(sse(*responses_events(*items, **more)))) as server:
        return await answer(PROVIDER, server.url)


async def test_reasoning_text_and_calls_over_two_turns() -> None:
    reasoning = responses_reasoning("I should look.", "gAAAA+/=", "rs_42")
    items = [reasoning, responses_text("Looking.", phase="commentary"), responses_call("call_1", "read", {"path": "é"})]
    items.append(responses_call("call_2", "grep", {"pattern": "x"}))
    second = [responses_text("Done.", phase="final_answer")]
    async with Server(Reply(sse(*responses_events(*items))), Reply(sse(*responses_events(*second)))) as server:
        made = model(PROVIDER, server.url)
        message, parts = await collect(made, request("go", thinking="high"))
        results = ToolMessage(
            (ToolResult("call_1", "read", (Text("r"),)), ToolResult("call_2", "grep", (Text("found"), PICTURE)))
        )
        last, _ = await collect(made, request(user("go"), message, results, thinking="high"))
        await made.close()
    assert message.text == "Looking." and message.stop == "tool_use"
    assert [(call.id, call.arguments) for call in message.tool_calls] == [
        ("call_1", {"path": "é"}),
        ("call_2", {"pattern": "x"}),
    ]
    assert thought(parts) == "I should look."
    usage = message.usage
    assert (usage.input, usage.output, usage.cache_read) == (125, 42, 2000)
    first, then = server.bodies
    assert first["store"] is False and first["include"] == ["reasoning.encrypted_content"]
    assert first["reasoning"] == {"effort": "high", "summary": "auto"}
    assert first["instructions"] == "Be brief."
    sent = then["input"]
    assert sent[:1] == first["input"]
    assert sent[1] == {key: value for key, value in reasoning.items() if key != "status"}
    assert sent[2] == {"role": "assistant", "content": "Looking.", "phase": "commentary"}
    assert sent[3] == {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path":"é"}'}
    assert sent[5] == {"type": "function_call_output", "call_id": "call_1", "output": "r"}
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    assert sent[6]["output"] == [{"type": "input_text", "text": "found"}, image]
    assert last.text == "Done."


async def test_summaries_in_several_parts_are_paragraphs() -> None:
    item = responses_reasoning("One.", "E")
    item["summary"].append({"type": "summary_text", "text": "Two."})
    message = await read(item, responses_text("x"))
    assert isinstance(message.content[0], Thinking) and message.content[0].text == "One.\n\nTwo."


@pytest.mark.parametrize(
    ("status", "more", "stop", "kind"),
    [
        ("completed", {}, "end", None),
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "length", None),
        ("incomplete", {"incomplete_details": {"reason": "content_filter"}}, "refusal", "refused"),
        ("failed", {"error": {"code": "server_error", "message": "Oops"}}, "error", "server"),
        ("failed", {"error": {"code": "rate_limit_exceeded", "message": "Slow down"}}, "error", "rate_limit"),
        ("failed", {"error": {"code": "context_length_exceeded", "message": "Too long"}}, "error", "context_overflow"),
        ("failed", {"error": {"code": "invalid_prompt", "message": "No"}}, "error", "invalid_request"),
        ("cancelled", {}, "error", "server"),
    ],
)
async def test_how_responses_end(status: str, more: dict[str, Any], stop: str, kind: str | None) -> None:
    message = await read(responses_text("Some words"), status=status, **more)
    assert (message.stop, message.text) == (stop, "Some words")
    assert (message.failure.kind if message.failure else None) == kind


async def test_a_refusal_is_shown_and_named() -> None:
    item = responses_text("")
    item["content"] = [{"type": "refusal", "refusal": "I cannot do that."}]
    message = await read(item)
    assert message.stop == "refusal" and message.text == "I cannot do that."
    assert message.failure is not None and message.failure.message == "I cannot do that."


async def test_an_error_event() -> None:
    error = {
        "type": "error",
        "code": "rate_limit_exceeded",
        "message": "Slow down",
        "param": None,
        "sequence_number": 1,
    }
    async with Server(Reply(sse(error))) as server:
        message = await answer(PROVIDER, server.url)
    assert message.failure is not None and message.failure.kind == "rate_limit"


async def test_items_that_were_never_streamed_are_taken_from_the_response() -> None:
    events = responses_events(
        responses_reasoning("hm", "E"), responses_text("Hello"), responses_call("c", "read", {"path": "p"})
    )
    async with Server(Reply(sse(events[0], events[-1])), failing(200, events[-1]["response"])) as server:
        for _ in range(2):
            message = await answer(PROVIDER, server.url)
            assert message.text == "Hello" and message.tool_calls[0].arguments == {"path": "p"}
            assert isinstance(message.content[0], Thinking) and message.content[0].text == "hm"


def test_the_conversation_as_items() -> None:
    cut = AssistantMessage(
        (Thinking("x", '{"type":"reasoning","id":"r"}', provider=PROVIDER),), model=f"{PROVIDER}/gpt-5"
    )
    foreign = AssistantMessage(
        (Thinking("x", "claude-signature", provider="anthropic"), Text("Hm"), ToolCall("a b", "read", {})),
        model="anthropic/c",
    )
    odd = AssistantMessage((Thinking("x", "not json", provider=PROVIDER), Text("Yes")), model=f"{PROVIDER}/gpt-5")
    conversation = (
        UserMessage((Text("Look"), PICTURE)),
        cut,
        foreign,
        ToolMessage((ToolResult("a b", "read", ()),)),
        odd,
    )
    items = model(PROVIDER, "http://x").body(request(*conversation))["input"]
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "assistant",
        "function_call",
        "function_call_output",
        "assistant",
    ]
    assert items[2]["call_id"] == items[3]["call_id"] != "a b"
    assert items[3]["output"] == "(no output)"


def test_parameters() -> None:
    body = model(PROVIDER, "http://x").body(request(max_output=5, tool_choice="required", temperature=0.1))
    assert body["max_output_tokens"] == 16 and body["tool_choice"] == "required" and "temperature" not in body
    assert body["tools"][0]["strict"] is False and body["tools"][0]["name"] == "read"
    plain = model(PROVIDER, "http://x", thinking=False).body(request(temperature=0.1, thinking="high"))
    assert plain["temperature"] == 0.1 and not {"include", "reasoning"} & plain.keys()


async def test_encrypted_reasoning_that_a_model_does_not_have_is_left_out() -> None:
    refusal = {
        "error": {"message": "Encrypted content is not supported with this model.", "type": "invalid_request_error"}
    }
    async with Server(failing(400, refusal), Reply(sse(*responses_events(responses_text("ok"))))) as server:
        assert (await answer(PROVIDER, server.url)).text == "ok"
    assert ["include" in body for body in server.bodies] == [True, False]
