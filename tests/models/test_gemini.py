"""Gemini's format: parts, signatures, schemas, and its many ways to stop."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.domain.messages import (
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
from retinue.models.transport import Transport
from tests.models.scripts import READ, answer, collect, gemini_events, model, request, thought
from tests.models.servers import Reply, Server, failing, sse

PICTURE = Image("image/png", "iVBORw0KGgo=")


def call(name: str, args: dict[str, Any], **more: Any) -> dict[str, Any]:
    id = more.pop("id", None)
    return {"functionCall": {"name": name, "args": args, **({"id": id} if id else {})}, **more}


async def read(*parts: dict[str, Any], **more: Any) -> AssistantMessage:
    async with Server(Reply(sse(*gemini_events(*parts, **more)))) as server:
        return await answer("gemini", server.url)


async def test_thinking_text_and_calls_over_two_turns() -> None:
    parts = [
        {"text": "I should ", "thought": True},
        {"text": "look.", "thought": True},
        {"text": "Look"},
        {"text": "ing."},
        call("read", {"path": "é"}, thoughtSignature="SIG1=="),
        call("grep", {"pattern": "x"}),
    ]
    end = [{"text": "Done"}, {"text": "", "thoughtSignature": "SIG2=="}]
    async with Server(
        Reply(sse(*gemini_events(*parts))), Reply(sse(*gemini_events(*end))), Reply(sse(*gemini_events({"text": "k"})))
    ) as server:
        transport = Transport()
        made = model("gemini", server.url, transport=transport)
        message, shown = await collect(made, request("go", thinking="high"))
        results = tuple(ToolResult(c.id, c.name, (Text("r"),)) for c in message.tool_calls)
        last, _ = await collect(made, request(user("go"), message, ToolMessage(results), thinking="high"))
        await collect(made, request(user("go"), message, ToolMessage(results), last, user("more")))
        await transport.close()
    assert thought(shown) == "I should look."
    assert message.text == "Looking." and message.stop == "tool_use"
    assert [(c.name, c.arguments, c.signature) for c in message.tool_calls] == [
        ("read", {"path": "é"}, "SIG1=="),
        ("grep", {"pattern": "x"}, None),
    ]
    usage = message.usage
    assert (usage.input, usage.output, usage.cache_read) == (125, 42, 2000)
    assert server.seen[0].target == "/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse"
    assert server.seen[0].headers["x-goog-api-key"] == "test-key-1234"
    first, then, third = server.bodies
    assert then["contents"][:1] == first["contents"]
    assert then["contents"][1] == {
        "role": "model",
        "parts": [
            {"text": "Looking."},
            {"functionCall": {"name": "read", "args": {"path": "é"}}, "thoughtSignature": "SIG1=="},
            {"functionCall": {"name": "grep", "args": {"pattern": "x"}}},
        ],
    }
    assert then["contents"][2]["parts"] == [
        {"functionResponse": {"name": "read", "response": {"output": "r"}}},
        {"functionResponse": {"name": "grep", "response": {"output": "r"}}},
    ]
    assert third["contents"][3]["parts"] == [{"text": "Done", "thoughtSignature": "SIG2=="}]


async def test_ids_that_gemini_gave_return() -> None:
    message = await read(call("read", {}, id="fc-7"))
    assert message.tool_calls[0].id == "fc-7"
    results = ToolMessage((ToolResult("fc-7", "read", (Text("r"),)),))
    contents = model("gemini", "http://x").body(request(user("go"), message, results))["contents"]
    assert contents[1]["parts"][0]["functionCall"]["id"] == "fc-7"
    assert contents[2]["parts"][0]["functionResponse"]["id"] == "fc-7"


def test_calls_of_another_model_carry_the_mark_that_skips_the_check() -> None:
    foreign = AssistantMessage(
        (
            Thinking("x", "s", provider="anthropic"),
            ToolCall("a", "read", {}, signature="other"),
            ToolCall("b", "read", {}),
        ),
        model="anthropic/c",
    )
    parts = model("gemini", "http://x").body(request(user("go"), foreign))["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["skip_thought_signature_validator", None]
    older = model("gemini", "http://x", id="gemini-2.5-flash").body(request(user("go"), foreign))["contents"][1][
        "parts"
    ]
    assert all("thoughtSignature" not in part for part in older)


async def test_a_refused_signature_is_left_out() -> None:
    said = AssistantMessage((ToolCall("a", "read", {}, signature="old"),), model="gemini/other")
    asked = request(user("go"), said, ToolMessage((ToolResult("a", "read", (Text("r"),)),)))
    refusal = {"error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}}
    async with Server(failing(400, refusal), Reply(sse(*gemini_events({"text": "ok"})))) as server:
        assert (await answer("gemini", server.url, asked)).text == "ok"
    assert ["old" in str(body) for body in server.bodies] == [True, False]


@pytest.mark.parametrize("id", ["gemini-3-pro-preview", "gemini-2.5-flash"])
def test_images(id: str) -> None:
    results = ToolMessage(
        (ToolResult("a", "read", (Text("seen"), PICTURE)), ToolResult("b", "read", (), is_error=True))
    )
    said = AssistantMessage((ToolCall("a", "read", {}), ToolCall("b", "read", {})), model="gemini/g")
    asked = request(UserMessage((Text("Look"), PICTURE)), said, results)
    contents = model("gemini", "http://x", id=id).body(asked)["contents"]
    blob = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    assert contents[0]["parts"] == [{"text": "Look"}, blob]
    answers = contents[2]["parts"]
    assert answers[1]["functionResponse"]["response"] == {"error": "(no output)"}
    if id.startswith("gemini-3"):
        assert answers[0]["functionResponse"]["parts"] == [blob] and len(answers) == 2
    else:
        assert answers[2] == blob and "parts" not in answers[0]["functionResponse"]


@pytest.mark.parametrize(
    ("reason", "stop", "kind"),
    [
        ("STOP", "end", None),
        ("MAX_TOKENS", "length", None),
        ("SAFETY", "refusal", "refused"),
        ("RECITATION", "refusal", "refused"),
        ("PROHIBITED_CONTENT", "refusal", "refused"),
        ("MALFORMED_FUNCTION_CALL", "error", "malformed"),
        ("UNEXPECTED_TOOL_CALL", "error", "malformed"),
        ("OTHER", "end", None),
        ("NEW_REASON", "end", None),
    ],
)
async def test_finish_reasons(reason: str, stop: str, kind: str | None) -> None:
    message = await read({"text": "Some words"}, stop=reason)
    assert (message.stop, message.text) == (stop, "Some words")
    assert (message.failure.kind if message.failure else None) == kind


async def test_a_blocked_prompt() -> None:
    event = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}
    async with Server(Reply(sse(event))) as server:
        message = await answer("gemini", server.url)
    assert message.stop == "refusal" and message.failure is not None and message.failure.kind == "refused"
    assert message.usage.input == 9


async def test_an_error_in_the_stream_with_its_delay() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    error = {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": details}}
    async with Server(failing(429, [error]), Reply(sse(*gemini_events({"text": "ab"}, stop=None), error))) as server:
        for text in ("", "ab"):
            message = await answer("gemini", server.url)
            assert message.failure is not None and message.text == text
            assert (message.failure.kind, message.failure.retry_after) == ("rate_limit", 34.5)


async def test_a_list_of_events_without_sse() -> None:
    events = gemini_events({"text": "Hello "}, call("read", {"path": "p"}))
    async with Server(failing(200, events)) as server:
        message = await answer("gemini", server.url)
    assert message.text == "Hello " and message.tool_calls[0].arguments == {"path": "p"}


@pytest.mark.parametrize(
    ("id", "level", "config"),
    [
        ("gemini-3-pro-preview", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-3-pro-preview", "off", {"thinkingLevel": "LOW", "includeThoughts": False}),
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "off", {"thinkingBudget": 128}),
        ("gemini-2.5-flash", "max", {"thinkingBudget": 24_576, "includeThoughts": True}),
        ("gemini-2.5-flash", None, None),
    ],
)
def test_levels(id: str, level: str | None, config: dict[str, Any] | None) -> None:
    body = model("gemini", "http://x", id=id).body(request(thinking=level))
    assert body.get("generationConfig", {}).get("thinkingConfig") == config


def test_parameters() -> None:
    body = model("gemini", "http://x").body(request(max_output=9, temperature=0.5, tool_choice="required"))
    assert body["generationConfig"] == {"maxOutputTokens": 9, "temperature": 0.5}
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    declared = body["tools"][0]["functionDeclarations"][0]
    assert declared["name"] == READ.name
    assert declared["parametersJsonSchema"] == READ.parameters
    assert "parameters" not in declared, "the two fields exclude each other"
