"""Gemini's format: parts, signatures, schemas, and its many ways to stop."""

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
        made = model("gemini", server.url)
        message, shown = await collect(made, request("go", thinking="high"))
        results = tuple(ToolResult(c.id, c.name, (Text("r"),)) for c in message.tool_calls)
        last, _ = await collect(made, request(user("go"), message, ToolMessage(results), thinking="high"))
        await collect(made, request(user("go"), message, ToolMessage(results), last, user("more")))
        await made.close()
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


# ------------------------------------------------------------------ ai.google.dev "Long decode"
def hop(text: str, token: str | None, reason: str, output: int) -> Reply:
    """One response of a long answer; the prompt of each holds what came before."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    candidate["finishReason"] = reason
    if token is not None:
        candidate["continuationToken"] = token
    usage = {"promptTokenCount": 100, "candidatesTokenCount": output}
    return Reply(sse({"candidates": [candidate], "usageMetadata": usage}))


async def test_an_answer_longer_than_one_response_goes_on_with_its_token() -> None:
    """google-genai 3.1.0 _extra_utils.StreamContinuation: the same request with `continuationToken` at the
    top, never the partial text; usage is summed."""
    replies = (
        hop("One ", "T1", "CONTINUATION", 5),
        hop("two ", "T2", "CONTINUATION", 6),
        hop("three.", None, "STOP", 7),
    )
    async with Server(*replies) as server:
        message = await answer("gemini", server.url, id="gemini-4-argon", max_output=262_144)
    assert (message.text, message.stop, message.failure) == ("One two three.", "end", None)
    assert [body.get("continuationToken") for body in server.bodies] == [None, "T1", "T2"]
    assert len({str(body["contents"]) for body in server.bodies}) == 1
    assert {body["generationConfig"]["maxOutputTokens"] for body in server.bodies} == {262_144}, "one limit for all"
    assert (message.usage.input, message.usage.output) == (300, 18)


@pytest.mark.parametrize("tokens", [(None, None), ("T1", "T1")])
async def test_an_answer_that_cannot_go_on_is_cut_off(tokens: tuple[str | None, str | None]) -> None:
    """No token, or the same one again: the server would only repeat itself."""
    replies = [hop("a", token, "CONTINUATION", 1) for token in tokens]
    async with Server(*replies) as server:
        message = await answer("gemini", server.url)
    assert message.stop == "length"
    assert len(server.seen) == (1 if tokens[0] is None else 2)


async def test_a_connection_lost_in_the_second_response_is_a_failure_and_not_an_end() -> None:
    async with Server(hop("One ", "T1", "CONTINUATION", 5), Reply([b"data: {", "cut"])) as server:
        message = await answer("gemini", server.url)
    assert message.failure is not None and message.failure.kind == "dropped"
    assert message.text == "One "


@pytest.mark.parametrize(
    ("changes", "choice", "mode"),
    [
        ({"id": "gemini-4-argon"}, "auto", "VALIDATED"),
        ({"id": "gemini-2.5-flash"}, "auto", "VALIDATED"),
        ({"id": "gemini-2.0-flash", "thinking": False}, "auto", None),
        ({"id": "gemini-4-argon"}, "required", "ANY"),
        ({"id": "gemini-4-argon"}, "none", "NONE"),
    ],
)
def test_calls_are_validated_by_the_server_where_it_can(changes: dict[str, Any], choice: str, mode: str | None) -> None:
    """pydantic-ai 2.66.0 models/google.py:1063 and profiles/google.py:264 (pydantic-ai#5366)."""
    body = model("gemini", "http://x", **changes).body(request(tool_choice=choice))
    assert body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode") == mode


async def test_a_server_without_validated_calls_gets_the_plain_mode() -> None:
    said = "Invalid value at 'tool_config.function_calling_config.mode' (VALIDATED) is not supported for this model."
    refusal = failing(400, {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}})
    async with Server(refusal, Reply(sse(*gemini_events({"text": "ok"})))) as server:
        message = await answer("gemini", server.url)
    assert message.text == "ok"
    assert ["toolConfig" in body for body in server.bodies] == [True, False]


async def test_a_part_that_is_only_a_signature_goes_back_as_it_came() -> None:
    """pydantic-ai 2.66.0 models/google.py:2419."""
    async with Server(
        Reply(sse(*gemini_events({"text": "Hm."}, {"thoughtSignature": "SIG=="}))),
        Reply(sse(*gemini_events({"text": "ok"}))),
    ) as server:
        made = model("gemini", server.url)
        message, _ = await collect(made, request("go"))
        await collect(made, request(user("go"), message, user("more")))
        await made.close()
    assert server.bodies[1]["contents"][1]["parts"][-1] == {"text": "", "thoughtSignature": "SIG=="}
