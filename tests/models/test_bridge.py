"""The bridge to pydantic-ai, with pydantic-ai's own test models."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from retinue.core.events import TextDelta
from retinue.core.install import install_command
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
from retinue.errors import ConfigurationError, MissingExtraError, UnknownModelError
from retinue.models.known import describe_bridged
from retinue.testing import ToolCallStarted
from tests.models.scripts import collect, info, request, thought

pytest.importorskip("pydantic_ai")

from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from retinue.models.bridge import PydanticAIModel

PICTURE = Image("image/png", "iVBORw0KGgo=")


def bridged(model: Any, **changes: Any) -> PydanticAIModel:
    return PydanticAIModel(info("custom", **changes), model)


def answering(*pieces: Any) -> FunctionModel:
    async def stream(messages: list[Any], agent: AgentInfo) -> AsyncIterator[Any]:
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    return FunctionModel(stream_function=stream)


class Unstreamed(FunctionModel):
    """As those of pydantic-ai's models are that cannot stream."""

    @asynccontextmanager
    async def request_stream(self, *args: Any, **keywords: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield


async def test_the_test_model_calls_the_tools_and_then_answers() -> None:
    made = bridged(TestModel(custom_output_text="All done."))
    message, parts = await collect(made, request("go"))
    assert {call.name for call in message.tool_calls} == {"read", "grep"} and message.stop == "tool_use"
    assert all(call.arguments and call.broken is None for call in message.tool_calls)
    assert {part.name for part in parts if isinstance(part, ToolCallStarted)} == {"read", "grep"}
    results = ToolMessage(tuple(ToolResult(c.id, c.name, (Text("r"),)) for c in message.tool_calls))
    last, _ = await collect(made, request(user("go"), message, results))
    assert last.text == "All done." and last.stop == "end" and last.usage.output > 0


async def test_text_thinking_and_calls_are_streamed() -> None:
    pieces = [
        {0: DeltaThinkingPart(content="Let me ")},
        {0: DeltaThinkingPart(content="see.", signature="SIG")},
        "Look",
        "ing.",
        {2: DeltaToolCall(name="read", json_args='{"pa', tool_call_id="c1")},
        {2: DeltaToolCall(json_args='th": "x"}')},
        {3: DeltaToolCall(name="grep", json_args="{broken", tool_call_id="c2")},
    ]
    message, parts = await collect(bridged(answering(*pieces)))
    assert thought(parts) == "Let me see."
    assert [part.text for part in parts if isinstance(part, TextDelta)] == ["Look", "ing."]
    assert message.tool_calls[0] == ToolCall("c1", "read", {"path": "x"})
    assert message.tool_calls[1].broken == "{broken"
    assert isinstance(message.content[0], Thinking) and "SIG" in (message.content[0].signature or "")


async def test_what_a_provider_attached_returns_unchanged() -> None:
    seen: list[Any] = []

    def respond(messages: list[Any], agent: AgentInfo) -> ModelResponse:
        seen.append(messages)
        thinking = ThinkingPart("hm", signature="SIG", id="rs_1", provider_name="p")
        call = ToolCallPart("read", {"path": "x"}, "c1", provider_name="p", provider_details={"thought_signature": "T"})
        return ModelResponse(parts=[thinking, TextPart("ok", id="m1", provider_name="p"), call])

    made = bridged(Unstreamed(respond))
    message, _ = await collect(made, request("go"))
    results = ToolMessage((ToolResult("c1", "read", (Text("r"), PICTURE), is_error=True),))
    await collect(made, request(UserMessage((Text("go"), PICTURE)), message, results, user("hurry", "steer")))
    first, answer, last = seen[1]
    assert [part.part_kind for part in first.parts] == ["system-prompt", "user-prompt"]
    assert [part.part_kind for part in answer.parts] == ["thinking", "text", "tool-call"]
    assert answer.parts[0].signature == "SIG" and answer.parts[0].id == "rs_1" and answer.parts[1].id == "m1"
    assert answer.parts[2].provider_details == {"thought_signature": "T"}
    assert [part.part_kind for part in last.parts] == ["tool-return", "user-prompt", "user-prompt"]
    assert last.parts[0].content == "r" and last.parts[1].content[1].media_type == "image/png"
    assert last.parts[2].content == "hurry"


async def test_a_refused_signature_costs_the_old_thinking_and_not_the_run() -> None:
    """Claude on Bedrock (docs.aws.amazon.com claude-messages-thinking-block-binding) refuses as at its maker."""
    seen: list[str] = []

    def respond(messages: list[Any], agent: AgentInfo) -> ModelResponse:
        seen.append(str(messages))
        if "SIG" in seen[-1]:
            said = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."
            raise ModelHTTPError(400, "m", {"message": said})
        return ModelResponse(parts=[TextPart("ok")])

    made = bridged(Unstreamed(respond))
    kept = ModelMessagesTypeAdapter.dump_json([ModelResponse(parts=[ThinkingPart("hm", signature="SIG")])]).decode()
    name = made.info.full_name
    before = AssistantMessage((Thinking("hm", kept, provider=made.info.provider), Text("a")), model=name)
    for _ in range(2):
        message, _ = await collect(made, request(user("go"), before, user("on")))
        assert message.text == "ok"
    assert ["SIG" in each for each in seen] == [True, False, False]
    assert "hm" not in seen[-1], "thoughts without their signature are not said as text"


async def test_another_models_words_come_without_its_signatures() -> None:
    seen: list[Any] = []

    def respond(messages: list[Any], agent: AgentInfo) -> ModelResponse:
        seen.append((messages, agent))
        return ModelResponse(parts=[TextPart("ok")])

    foreign = AssistantMessage((Thinking("x", "sig", provider="anthropic"), Text("Hm", "phase")), model="anthropic/c")
    asked = request(user("go"), foreign, user("on"), max_output=9, temperature=0.5, tool_choice="none", thinking="high")
    message, _ = await collect(bridged(Unstreamed(respond)), asked)
    assert message.text == "ok"
    messages, agent = seen[0]
    assert [part.part_kind for part in messages[1].parts] == ["text"]
    assert agent.model_settings["max_tokens"] == 9 and agent.model_settings["temperature"] == 0.5
    assert {tool.name for tool in agent.function_tools} <= {"read", "grep"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelHTTPError(429, "m", {"error": {"message": "slow"}}), "rate_limit"),
        (ModelHTTPError(529, "m", "busy"), "overloaded"),
        (ModelHTTPError(400, "m", {"error": {"message": "prompt is too long"}}), "context_overflow"),
        (UnexpectedModelBehavior("garbage"), "malformed"),
        (ConnectionResetError("gone"), "dropped"),
        (TimeoutError(), "timeout"),
        (KeyError("defect"), "internal"),
    ],
)
async def test_exceptions_become_failures_and_the_text_stays(error: Exception, kind: str) -> None:
    message, _ = await collect(bridged(answering("Some ", "words", error)))
    assert message.stop == "error" and message.text == "Some words"
    assert message.failure is not None and message.failure.kind == kind


def test_a_name_that_pydantic_ai_does_not_know() -> None:
    with pytest.raises(UnknownModelError):
        PydanticAIModel(info("no-such-provider", id="m"))


def test_without_the_extra_the_remedy_is_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.direct", None)
    with pytest.raises(MissingExtraError) as caught:
        PydanticAIModel(info("cohere"), "cohere:command-r")
    assert install_command("providers") in caught.value.remedy


def test_a_library_that_pydantic_ai_lacks_is_named_with_its_own_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing `retinue[providers]` again would not bring it."""

    def refuse(name: str) -> Any:
        raise ImportError('Please install `groq` to use the Groq model, `pip install "pydantic-ai-slim[groq]"`')

    monkeypatch.setattr("pydantic_ai.models.infer_model", refuse)
    with pytest.raises(ConfigurationError) as caught:
        PydanticAIModel(info("pydantic-ai", id="groq:m"), "groq:m")
    assert caught.value.remedy == "Install it with: pip install 'pydantic-ai-slim[groq]'"


async def test_claude_is_cached_and_its_sdk_does_not_retry_beside_us() -> None:
    seen: list[Any] = []

    async def stream(messages: list[Any], agent: AgentInfo) -> AsyncIterator[str]:
        seen.append(agent.model_settings)
        yield "ok"

    made = PydanticAIModel(
        info("pydantic-ai", id="bedrock:us.anthropic.claude-x"), FunctionModel(stream_function=stream)
    )
    await collect(made)
    assert seen[0]["max_retries"] == 0
    assert seen[0]["bedrock_cache_instructions"] is True and seen[0]["bedrock_cache_messages"] is True


async def test_the_wait_that_a_provider_asks_for_is_kept() -> None:
    busy = ModelHTTPError(429, "m", {"error": {"message": "slow"}}, headers={"retry-after": "17"})
    message, _ = await collect(bridged(answering(busy)))
    assert message.failure is not None and message.failure.retry_after == 17.0


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("bedrock:us.anthropic.claude-sonnet-5-5-20261001-v1:0", 1_000_000),
        ("anthropic:claude-haiku-4-5", 200_000),
        ("google-cloud:gemini-4-argon", 1_048_576),
        ("cohere:command-unknown", 128_000),
    ],
)
def test_a_bridged_model_has_the_abilities_of_the_same_model_at_its_maker(name: str, window: int) -> None:
    found = describe_bridged("pydantic-ai", name)
    assert (found.window, found.full_name, found.prices) == (window, f"pydantic-ai/{name}", None)
