"""Names of attributes, spans and metrics, from OpenTelemetry's conventions for generative AI.

They follow the repository open-telemetry/semantic-conventions-genai at commit 67dff024, where all `gen_ai.*` names are
still in development. The constants are defined here because the published package of constants is older than that
repository, and its modules move. `session.id` and `openinference.span.kind` are aliases for Langfuse and Phoenix.

The functions return the attributes of agents, requests and tool calls under these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from retinue.core import events
from retinue.core.messages import AssistantMessage, StopReason, Text, Thinking, ToolCall, ToolMessage, UserMessage
from retinue.core.outcome import SUCCESS, Outcome
from retinue.core.usage import Usage

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
SCOPE = "retinue"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
REQUEST_MODEL = "gen_ai.request.model"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
ERROR_TYPE = "error.type"

# Content: only with the setting `telemetry: content`.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
INPUT_VALUE = "input.value"
OUTPUT_VALUE = "output.value"
MAX_CONTENT_LENGTH = 60_000
"""Characters of one attribute."""

SPAN_KIND = "openinference.span.kind"

ENDED = "retinue.ended"
LIMIT_NAME = "retinue.limit"
COST = "retinue.cost.usd"
WAIT_FOR = "retinue.wait.for"

_PROVIDERS = {
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}


def provider_of(model: str) -> str:
    """Return the conventions' name of the provider of `provider/model`."""
    name = model.partition("/")[0]
    return _PROVIDERS.get(name, name)


_FINISH_REASONS: Mapping[StopReason, str] = {
    "end": "stop",
    "tool_use": "tool_call",
    "length": "length",
    "refusal": "content_filter",
    "error": "error",
    "aborted": "error",
}
"""The conventions' finish reason for each of our stop reasons."""


def describe_agent(run_id: str, attempt: int, created: events.RunCreated, *, content: bool) -> dict[str, Any]:
    """Return the attributes of an agent that starts."""
    attributes: dict[str, Any] = {
        PROVIDER: provider_of(created.model),
        REQUEST_MODEL: plain_model(created.model),
        AGENT_NAME: created.agent,
        "gen_ai.agent.id": run_id,
        "gen_ai.agent.description": shorten(str(created.spec.get("description") or "")),
        "gen_ai.agent.version": created.spec_hash,
        "retinue.depth": created.depth,
        "retinue.attempt": attempt,
        SPAN_KIND: "AGENT",
    }
    if content:
        attributes |= {INPUT_MESSAGES: _message("user", created.task), INPUT_VALUE: _cut(created.task)}
    return attributes


def describe_outcome(outcome: Outcome[Any], *, content: bool) -> dict[str, Any]:
    """Return the attributes of the end and the usage of a run."""
    attributes: dict[str, Any] = {
        ENDED: outcome.ended,
        "retinue.recordings.files_written": len(outcome.evidence.files_written),
        "retinue.denials": len(outcome.evidence.denials),
        **_describe_usage(outcome.usage),
    }
    if outcome.limit is not None:
        attributes[LIMIT_NAME] = outcome.limit
    if content:
        attributes |= {OUTPUT_MESSAGES: _message("assistant", outcome.text), OUTPUT_VALUE: _cut(outcome.text)}
    return attributes


def error_of(outcome: Outcome[Any]) -> str | None:
    """Return the error type of a run that failed; None for success."""
    if outcome.ended in SUCCESS:
        return None
    if outcome.failure is not None:
        return outcome.failure.kind
    return outcome.ended


def describe_request(
    model: str, messages: Sequence[UserMessage | ToolMessage], message: AssistantMessage, *, content: bool
) -> dict[str, Any]:
    """Return the attributes of one request to a model and its answer. `messages` are new to the model."""
    finish = _FINISH_REASONS[message.stop]
    attributes: dict[str, Any] = {
        PROVIDER: provider_of(model),
        REQUEST_MODEL: plain_model(model),
        "gen_ai.response.model": plain_model(message.model or model),
        "gen_ai.response.finish_reasons": (finish,),
        SPAN_KIND: "LLM",
        **_describe_usage(message.usage),
    }
    if content:
        request = _encode(list(map(_encode_message, messages)))
        parts = list(map(_encode_part, message.content))
        answer = _encode([{"role": "assistant", "parts": parts, "finish_reason": finish}])
        attributes |= {INPUT_MESSAGES: request, INPUT_VALUE: _cut(request)}
        attributes |= {OUTPUT_MESSAGES: answer, OUTPUT_VALUE: _cut(message.text or answer)}
    return attributes


def describe_call(call: ToolCall, *, content: bool) -> dict[str, Any]:
    """Return the attributes of a tool call that starts."""
    attributes: dict[str, Any] = {
        TOOL_NAME: call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "extension" if call.name.startswith("mcp__") else "function",
        SPAN_KIND: "TOOL",
    }
    if content:
        arguments = _cut(_encode(call.arguments))
        attributes |= {"gen_ai.tool.call.arguments": arguments, INPUT_VALUE: arguments}
    return attributes


def describe_result(text: str, *, content: bool) -> dict[str, Any]:
    """Return the attributes that a tool call gets when it ends."""
    return {"gen_ai.tool.call.result": _cut(text), OUTPUT_VALUE: _cut(text)} if content else {}


def describe_retry(body: events.Retrying) -> dict[str, Any]:
    """Return the attributes of a request that is repeated."""
    return {
        "retinue.retry.attempt": body.attempt,
        "retinue.retry.delay": body.delay,
        ERROR_TYPE: body.failure.kind,
    }


def plain_model(model: str) -> str:
    """Return the model of `provider/model` without its provider."""
    return model.partition("/")[2] or model


def shorten(text: str) -> str:
    return text[:200]


def _describe_usage(usage: Usage) -> dict[str, Any]:
    # By the conventions, input includes what came from the cache or went into it.
    attributes: dict[str, Any] = {
        INPUT_TOKENS: usage.input + usage.cache_read + usage.cache_write,
        OUTPUT_TOKENS: usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }
    if usage.cost_usd is not None:
        attributes[COST] = usage.cost_usd
    return attributes


def _message(role: str, text: str) -> str:
    return _encode([{"role": role, "parts": [{"type": "text", "content": _cut(text)}]}])


def _encode_message(message: UserMessage | ToolMessage) -> dict[str, Any]:
    """Return a message to a model in the form of the conventions."""
    if isinstance(message, UserMessage):
        return {"role": "user", "parts": [{"type": "text", "content": _cut(message.text)}]}
    parts = []
    for result in message.results:
        parts.append({"type": "tool_call_response", "id": result.call_id, "response": _cut(result.text)})
    return {"role": "tool", "parts": parts}


def _encode_part(piece: Text | Thinking | ToolCall) -> dict[str, Any]:
    """Return a part of an answer in the form of the conventions."""
    if isinstance(piece, ToolCall):
        text = _encode(piece.arguments)
        arguments = piece.arguments if len(text) <= MAX_CONTENT_LENGTH else _cut(text)
        return {"type": "tool_call", "id": piece.id, "name": piece.name, "arguments": arguments}
    kind = "reasoning" if isinstance(piece, Thinking) else "text"
    return {"type": kind, "content": _cut(piece.text)}


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _cut(text: str) -> str:
    return text[:MAX_CONTENT_LENGTH]
