"""What spans say: the attributes of agents, requests and tool calls, in the names of the conventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from retinue.capabilities.telemetry import conventions as names
from retinue.core import events
from retinue.core.messages import AssistantMessage, StopReason, Text, Thinking, ToolCall, ToolMessage, UserMessage
from retinue.core.outcome import SUCCESS, Outcome
from retinue.core.usage import Usage

_FINISH: Mapping[StopReason, str] = {
    "end": "stop",
    "tool_use": "tool_call",
    "length": "length",
    "refusal": "content_filter",
    "error": "error",
    "aborted": "error",
}
"""Our words for the end of an answer in those of the conventions."""


def describe_agent(run_id: str, attempt: int, created: events.RunCreated, *, content: bool) -> dict[str, Any]:
    """Return what is known of an agent when it starts."""
    found: dict[str, Any] = {
        names.PROVIDER: names.provider_of(created.model),
        names.REQUEST_MODEL: plain_model(created.model),
        names.AGENT_NAME: created.agent,
        names.AGENT_ID: run_id,
        names.AGENT_DESCRIPTION: shorten(str(created.spec.get("description") or "")),
        names.AGENT_VERSION: created.spec_hash,
        names.DEPTH: created.depth,
        names.ATTEMPT: attempt,
        names.SPAN_KIND: "AGENT",
    }
    if content:
        found |= {names.INPUT_MESSAGES: _message("user", created.task), names.INPUT_VALUE: _cut(created.task)}
    return found


def describe_outcome(outcome: Outcome[Any], *, content: bool) -> dict[str, Any]:
    """Return how a run ended and what it used."""
    found: dict[str, Any] = {
        names.ENDED: outcome.ended,
        names.FILES_WRITTEN: len(outcome.evidence.files_written),
        names.DENIALS: len(outcome.evidence.denials),
        **_describe_usage(outcome.usage),
    }
    if outcome.limit is not None:
        found[names.LIMIT] = outcome.limit
    if content:
        found |= {names.OUTPUT_MESSAGES: _message("assistant", outcome.text), names.OUTPUT_VALUE: _cut(outcome.text)}
    return found


def error_of(outcome: Outcome[Any]) -> str | None:
    """Return the error type of a run that did not end well."""
    if outcome.ended in SUCCESS:
        return None
    if outcome.failure is not None:
        return outcome.failure.kind
    return outcome.ended


def describe_request(
    model: str, given: Sequence[UserMessage | ToolMessage], message: AssistantMessage, *, content: bool
) -> dict[str, Any]:
    """Return what is known of one request to a model and its answer. `given` is what the model had not seen before."""
    finish = _FINISH[message.stop]
    found: dict[str, Any] = {
        names.PROVIDER: names.provider_of(model),
        names.REQUEST_MODEL: plain_model(model),
        names.RESPONSE_MODEL: plain_model(message.model or model),
        names.FINISH_REASONS: (finish,),
        names.SPAN_KIND: "LLM",
        **_describe_usage(message.usage),
    }
    if content:
        asked = _encode([_given(part) for part in given])
        parts = [_part(part) for part in message.content]
        answer = _encode([{"role": "assistant", "parts": parts, "finish_reason": finish}])
        found |= {names.INPUT_MESSAGES: asked, names.INPUT_VALUE: _cut(asked)}
        found |= {names.OUTPUT_MESSAGES: answer, names.OUTPUT_VALUE: _cut(message.text or answer)}
    return found


def describe_call(call: ToolCall, result: str | None, *, content: bool) -> dict[str, Any]:
    """Return what is known of a tool call; `result` is None where it never ended."""
    kind = "function"
    if call.name.startswith("mcp__"):
        kind = "extension"
    found: dict[str, Any] = {
        names.TOOL_NAME: call.name,
        names.TOOL_CALL_ID: call.id,
        names.TOOL_TYPE: kind,
        names.SPAN_KIND: "TOOL",
    }
    if content:
        given = _cut(_encode(call.arguments))
        found |= {names.TOOL_ARGUMENTS: given, names.INPUT_VALUE: given}
        if result is not None:
            found |= {names.TOOL_RESULT: _cut(result), names.OUTPUT_VALUE: _cut(result)}
    return found


def describe_retry(body: events.Retrying) -> dict[str, Any]:
    """Return what is known of a request that is made again."""
    return {
        "retinue.retry.attempt": body.attempt,
        "retinue.retry.delay": body.delay,
        names.ERROR_TYPE: body.failure.kind,
    }


def plain_model(model: str) -> str:
    """Return the model of `provider/model` without its provider."""
    return model.partition("/")[2] or model


def shorten(text: str) -> str:
    return text[:200]


def _describe_usage(usage: Usage) -> dict[str, Any]:
    # By the conventions, input includes what came from the cache or went into it.
    found: dict[str, Any] = {
        names.INPUT_TOKENS: usage.input + usage.cache_read + usage.cache_write,
        names.OUTPUT_TOKENS: usage.output,
        names.CACHE_READ: usage.cache_read,
        names.CACHE_CREATION: usage.cache_write,
    }
    if usage.cost_usd is not None:
        found[names.COST] = usage.cost_usd
    return found


def _message(role: str, text: str) -> str:
    return _encode([{"role": role, "parts": [{"type": "text", "content": _cut(text)}]}])


def _given(message: UserMessage | ToolMessage) -> dict[str, Any]:
    """Return a message to a model as the conventions write it."""
    if isinstance(message, UserMessage):
        return {"role": "user", "parts": [{"type": "text", "content": _cut(message.text)}]}
    parts = []
    for result in message.results:
        parts.append({"type": "tool_call_response", "id": result.call_id, "response": _cut(result.text)})
    return {"role": "tool", "parts": parts}


def _part(part: Text | Thinking | ToolCall) -> dict[str, Any]:
    """Return a part of an answer as the conventions write it."""
    if isinstance(part, ToolCall):
        text = _encode(part.arguments)
        arguments = part.arguments if len(text) <= names.MOST_CONTENT else _cut(text)
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": arguments}
    kind = "reasoning" if isinstance(part, Thinking) else "text"
    return {"type": kind, "content": _cut(part.text)}


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _cut(text: str) -> str:
    return text[: names.MOST_CONTENT]
