"""Answers in each wire format, as their makers send them, and the models that read them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from hypothesis import HealthCheck, settings

from retinue.core.events import TextDelta, ThinkingDelta
from retinue.core.messages import AssistantMessage, Message, user
from retinue.core.tool import ToolSpec
from retinue.http.transport import Transport
from retinue.models.anthropic import AnthropicModel
from retinue.models.gemini import GeminiModel
from retinue.models.openai_chat import OpenAIChatModel
from retinue.models.openai_responses import OpenAIResponsesModel
from retinue.models.wire import WireModel
from retinue.testing import Finished, Model, ModelInfo, ModelRequest, Part, Prices, ProviderModel
from tests.models.servers import sse

FORMATS = ("anthropic", "openai", "openai-responses", "gemini")
CLASSES: dict[str, type[WireModel]] = {
    "anthropic": AnthropicModel,
    "openai": OpenAIChatModel,
    "openai-responses": OpenAIResponsesModel,
    "gemini": GeminiModel,
}
OF_THE_SERVER = ("headers", "quirks", "key_variable", "idle_seconds")
IDS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-3-pro-preview",
}

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests on machines that are busy with other things."""

READ = ToolSpec(
    "read",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False},
)
GREP = ToolSpec(
    "grep", "Search.", {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]}
)


def about(provider: str, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": IDS.get(provider, "m"),
        "window": 200_000,
        "max_output": 64_000,
        "thinking": True,
        "prices": Prices(3.0, 15.0, 0.3, 3.75),
    }
    return values | changes


def info(provider: str, **changes: Any) -> ModelInfo:
    return ModelInfo(provider, **about(provider, **changes))


def model(provider: str, url: str, *, key: str | None = "test-key-1234", **changes: Any) -> ProviderModel:
    """A model of this provider at a server of the test's own."""
    own = {name: changes.pop(name) for name in OF_THE_SERVER if name in changes}
    api: Any = changes.pop("format", provider)
    return ProviderModel(api, url, provider=provider, key=key, **own, **about(provider, **changes))


def known_model(provider: str, id: str, url: str, **changes: Any) -> ProviderModel:
    """A model as `retinue` builds it for a provider that it knows, but for its address."""
    by_model = changes.pop("api_by_model", False)
    return ProviderModel.known(provider, f"{url}/v1", api_by_model=by_model, **about(provider, id=id, **changes))


def shared_model(provider: str, url: str, transport: Transport, **changes: Any) -> WireModel:
    """The same over connections that several models share."""
    return CLASSES[provider](info(provider, **changes), url, "test-key-1234", transport)


def request(*messages: Message | str, **changes: Any) -> ModelRequest:
    said = tuple(user(m) if isinstance(m, str) else m for m in messages or ("Hello",))
    values: dict[str, Any] = {"system": "Be brief.", "messages": said, "tools": (READ, GREP)}
    return ModelRequest(**(values | changes))


async def collect(made: Model, asked: ModelRequest | None = None) -> tuple[AssistantMessage, list[Part]]:
    """The message and all parts before it. Checks what every stream promises."""
    parts: list[Part] = []
    async with aclosing(made.stream(asked or request())) as stream:
        async for part in stream:
            assert not parts or not isinstance(parts[-1], Finished), "nothing follows Finished"
            parts.append(part)
    last = parts.pop()
    assert isinstance(last, Finished)
    message = last.message
    assert (message.stop == "error") == (message.failure is not None and message.failure.kind != "refused")
    shown = "".join(part.text for part in parts if isinstance(part, TextDelta))
    kept = "".join(part.text for part in message.content if part.type == "text")
    assert shown == kept, "what was shown is what is kept"
    return message, parts


async def answer(provider: str, url: str, asked: ModelRequest | None = None, **changes: Any) -> AssistantMessage:
    async with model(provider, url, **changes) as made:
        return (await collect(made, asked))[0]


def thought(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ThinkingDelta))


# ------------------------------------------------------------------ Anthropic
def anthropic_events(
    *blocks: dict[str, Any], stop: str = "end_turn", usage: dict[str, Any] | None = None, **delta: Any
) -> list[dict[str, Any]]:
    """Blocks as whole content; text and arguments are streamed in small pieces."""
    start_usage = {
        "input_tokens": 25,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 2000,
        "output_tokens": 1,
    }
    message = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": IDS["anthropic"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": start_usage,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        begun, deltas = _anthropic_block(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None, **delta}
    events.append({"type": "message_delta", "delta": end, "usage": usage or {"output_tokens": 42}})
    events.append({"type": "message_stop"})
    return events


def _anthropic_block(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(block["text"])]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "tool_use":
            raw = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *pieces(raw)]]
            return {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}, deltas
        case _:
            return block, []


def pieces(text: str, size: int = 5) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


# ------------------------------------------------------------------ Chat Completions
def chat_events(*deltas: dict[str, Any], stop: str | None = "stop", usage: dict[str, Any] | None = None) -> list[Any]:
    def chunk(choices: list[Any], **more: Any) -> dict[str, Any]:
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt-5",
            "choices": choices,
            **more,
        }

    def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}

    events = [chunk([choice({"role": "assistant", "content": ""})])]
    events += [chunk([choice(delta)]) for delta in deltas]
    if stop is not None:
        events.append(chunk([choice({}, stop)]))
    counts = usage or {
        "prompt_tokens": 2125,
        "completion_tokens": 42,
        "total_tokens": 2167,
        "prompt_tokens_details": {"cached_tokens": 2000},
    }
    return [*events, chunk([], usage=counts)]


def chat_call(index: int, id: str, name: str, arguments: Any) -> list[dict[str, Any]]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    first = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces(raw)]
    return [{"tool_calls": [piece]} for piece in [first, *rest]]


# ------------------------------------------------------------------ Responses
def responses_events(
    *items: dict[str, Any], status: str = "completed", usage: dict[str, Any] | None = None, **more: Any
) -> list[dict[str, Any]]:
    counts = usage or {
        "input_tokens": 2125,
        "input_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 0},
        "output_tokens": 42,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 2167,
    }
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "status": "in_progress",
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
    ]
    for index, item in enumerate(items):
        events += _responses_item(index, item)
    final = {**response, "status": status, "output": list(items), "usage": counts, **more}
    events.append({"type": f"response.{status}", "response": final})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _responses_item(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    begun: dict[str, Any] = {**item, "status": "in_progress"}
    events: list[dict[str, Any]] = []
    match item["type"]:
        case "message":
            begun["content"] = []
            for number, part in enumerate(item["content"]):
                here = {**place, "content_index": number}
                kind, key = ("output_text", "text") if part["type"] == "output_text" else ("refusal", "refusal")
                empty = {**part, key: ""}
                events.append({"type": "response.content_part.added", **here, "part": empty})
                for piece in pieces(part[key]):
                    extra = {"logprobs": []} if kind == "output_text" else {}
                    events.append({"type": f"response.{kind}.delta", **here, "delta": piece, **extra})
                extra = {"logprobs": []} if kind == "output_text" else {}
                events.append({"type": f"response.{kind}.done", **here, key: part[key], **extra})
                events.append({"type": "response.content_part.done", **here, "part": part})
        case "reasoning":
            begun = {**item, "summary": [], "encrypted_content": "incomplete"}
            for number, part in enumerate(item["summary"]):
                here = {**place, "summary_index": number}
                events.append({"type": "response.reasoning_summary_part.added", **here, "part": {**part, "text": ""}})
                for piece in pieces(part["text"]):
                    events.append({"type": "response.reasoning_summary_text.delta", **here, "delta": piece})
                events.append({"type": "response.reasoning_summary_text.done", **here, "text": part["text"]})
                events.append({"type": "response.reasoning_summary_part.done", **here, "part": part})
        case "function_call":
            begun["arguments"] = ""
            for piece in pieces(item["arguments"]):
                events.append({"type": "response.function_call_arguments.delta", **place, "delta": piece})
            done = {"arguments": item["arguments"], "name": item["name"]}
            events.append({"type": "response.function_call_arguments.done", **place, **done})
    added = {"type": "response.output_item.added", "output_index": index, "item": begun}
    return [added, *events, {"type": "response.output_item.done", "output_index": index, "item": item}]


def responses_text(text: str, id: str = "msg_1", **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": id, "status": "completed", "role": "assistant", "content": content, **more}


def responses_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": raw,
        "status": "completed",
    }


def responses_reasoning(text: str, secret: str, id: str = "rs_1") -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": secret, "status": "completed"}


# ------------------------------------------------------------------ Gemini
def gemini_events(
    *parts: dict[str, Any], stop: str | None = "STOP", usage: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    counts = usage or {
        "promptTokenCount": 2125,
        "cachedContentTokenCount": 2000,
        "candidatesTokenCount": 30,
        "thoughtsTokenCount": 12,
        "totalTokenCount": 2167,
    }
    events = []
    for number, part in enumerate(parts or ({"text": ""},)):
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if number == max(len(parts), 1) - 1 and stop:
            candidate["finishReason"] = stop
        events.append({"candidates": [candidate], "usageMetadata": counts, "modelVersion": "g", "responseId": "r1"})
    return events


def said(provider: str, text: str = "", call: Any = None) -> list[bytes]:
    """A whole answer with a text and, if arguments are given, one tool call."""
    if provider == "anthropic":
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        if call is not None:
            blocks.append({"type": "tool_use", "id": "c1", "name": "read", "input": call})
        return sse(*anthropic_events(*blocks, stop="end_turn" if call is None else "tool_use"))
    if provider == "openai":
        deltas = [{"content": text}] if text else []
        if call is not None:
            deltas += chat_call(0, "c1", "read", call)
        return sse(*chat_events(*deltas, stop="stop" if call is None else "tool_calls"), done=True)
    if provider == "openai-responses":
        items = [responses_text(text)] if text else []
        if call is not None:
            items.append(responses_call("c1", "read", call))
        return sse(*responses_events(*items))
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    if call is not None:
        parts.append({"functionCall": {"name": "read", "args": call, "id": "c1"}})
    return sse(*gemini_events(*parts))


async def chunks(data: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece
