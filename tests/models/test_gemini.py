"""Gemini's format: parts, signatures, schemas, and its many ways to stop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from retinue.models.gemini_schema import gemini_schema
from retinue.models.transport import Transport
from tests.models.scripts import READ, RELAXED, answer, collect, gemini_events, model, request, thought
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
    assert declared["parameters"] == {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }


# ------------------------------------------------------------------ schemas
def test_a_schema_keeps_its_meaning_in_geminis_words() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "$defs": {
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "v": {"type": "integer"}}}
        },
        "properties": {
            "mode": {"const": "fast"},
            "level": {"enum": [1, 2], "type": "integer"},
            "maybe": {"type": ["string", "null"], "format": "email"},
            "either": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "several": {"type": ["string", "number", "null"]},
            "option": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "description": "On?"},
            "node": {"$ref": "#/$defs/Node"},
            "when": {"type": "string", "format": "date-time"},
            "list": {"type": "array"},
            "pair": {"type": "array", "prefixItems": [{"type": "number"}]},
            "both": {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]},
        },
        "required": ["mode", "missing"],
    }
    out = gemini_schema(schema)
    assert out is not None
    properties = out["properties"]
    assert out["required"] == ["mode"] and "additionalProperties" not in out
    assert properties["mode"] == {"enum": ["fast"], "type": "string"}
    assert properties["level"] == {"type": "integer", "description": "One of: 1, 2."}
    assert properties["maybe"] == {"type": "string", "nullable": True}
    assert properties["either"] == {"anyOf": [{"type": "string"}, {"type": "number"}]}
    assert properties["several"] == {**properties["either"], "nullable": True}
    assert properties["option"] == {"type": "boolean", "description": "On?", "nullable": True}
    assert properties["node"]["properties"]["v"] == {"type": "integer"}
    assert properties["when"]["format"] == "date-time"
    assert properties["list"] == {"type": "array", "items": {"type": "string"}}
    assert properties["pair"]["items"] == {"type": "number"}
    assert properties["both"]["properties"].keys() == {"a", "b"}
    assert gemini_schema({"type": "object", "properties": {}}) is None


def test_references_that_multiply_come_to_an_end() -> None:
    inner = {name: {"$ref": "#"} for name in "abcdef"}
    out = gemini_schema({"type": "object", "properties": inner})
    assert out is not None and len(str(out)) < 500_000
    again = {"type": "object", "properties": {"a": {"type": "string"}}, "allOf": [{"$ref": "#"}] * 6}
    gemini_schema(again)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = [
    "type",
    "properties",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "enum",
    "const",
    "required",
    "format",
    "$defs",
]
schemas = st.recursive(
    st.dictionaries(st.sampled_from(KEYWORDS), json_values, max_size=4),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array", "string"])},
        optional={
            "properties": st.dictionaries(st.text(max_size=4), inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=3),
            "$ref": st.sampled_from(["#", "#/properties/a", "#/$defs/x", "http://x", ""]),
        },
    ),
    max_leaves=10,
)


@RELAXED
@given(schemas)
def test_any_schema_becomes_one_that_gemini_knows(schema: dict[str, Any]) -> None:
    known = {"title", "description", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"}
    known |= {"minProperties", "maxProperties", "pattern", "default", "enum", "format", "type", "nullable"}
    known |= {"anyOf", "properties", "required", "items"}

    def check(node: dict[str, Any]) -> None:
        assert node.keys() <= known
        for child in [
            *node.get("properties", {}).values(),
            *node.get("anyOf", []),
            *([node["items"]] if "items" in node else []),
        ]:
            check(child)

    out = gemini_schema(schema)
    if out is not None:
        check(out)
