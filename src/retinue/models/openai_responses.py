"""OpenAI's Responses format, used without state: nothing is stored at the provider, and
reasoning comes back encrypted and is returned as it came.
"""

from __future__ import annotations

from typing import Any

import orjson

from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    text_of,
)
from retinue.core.tool import ToolSpec
from retinue.models.draft import CallDraft, MessageDraft, TextDraft, ThinkingDraft, replace_usage
from retinue.models.efforts import effort_for, level_of
from retinue.models.failures import Wire, from_error
from retinue.models.protocol import (
    ModelInfo,
    ModelRequest,
    data_url,
    is_from_provider,
    result_text,
    safe_id,
    sent_arguments,
    visible,
)
from retinue.models.retry import RequestRefusal
from retinue.models.tool_schema import portable_schema
from retinue.models.wire import StreamReader, WireModel


def build_input(messages: tuple[Message, ...], info: ModelInfo, stale: frozenset[str]) -> list[Any]:
    """Return the input of a request. `stale` are the reasoning items that the provider no longer accepts."""
    items: list[Any] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            items += _assistant(message, info, stale)
        elif isinstance(message, ToolMessage):
            items += [_result(result, info) for result in message.results]
        else:
            content = visible(message.content, info)
            if content:
                items.append({"role": "user", "content": [_encode_block(block) for block in content]})
    return items


def _encode_block(block: Content) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text}
    if isinstance(block, Document):
        return {"type": "input_file", "filename": block.name, "file_data": data_url(block)}
    return {"type": "input_image", "image_url": data_url(block), "detail": "auto"}


def _result(result: ToolResult, info: ModelInfo) -> dict[str, Any]:
    content = visible(result.content, info)
    output: Any = [_encode_block(block) for block in content]
    if all(isinstance(block, Text) for block in content):
        output = text_of(content) or result_text(result)
    return {"type": "function_call_output", "call_id": safe_id(result.call_id), "output": output}


def _assistant(message: AssistantMessage, info: ModelInfo, stale: frozenset[str]) -> list[Any]:
    """Return the items of a message, each after the reasoning that led to it. Reasoning at the end of a message that
    was cut off is left out, because the API refuses it."""
    items: list[Any] = []
    reasoning: list[Any] = []
    is_own = is_from_provider(message, info)
    for block in message.content:
        if isinstance(block, Thinking):
            if is_own and block.provider == info.provider and block.signature not in stale:
                reasoning += _reasoning(block)
            continue
        if isinstance(block, ToolCall):
            item = {
                "type": "function_call",
                "call_id": safe_id(block.id),
                "name": block.name,
                "arguments": orjson.dumps(sent_arguments(block)).decode(),
            }
        elif block.text:
            item = {"role": "assistant", "content": block.text}
            if is_own and block.signature in ("commentary", "final_answer"):
                item["phase"] = block.signature
        else:
            continue
        items += [*reasoning, item]
        reasoning = []
    return items


def _reasoning(thinking: Thinking) -> list[Any]:
    """Return the reasoning item in the signature; none if it is of another format, or lacks the encrypted content that
    the provider needs."""
    try:
        item = orjson.loads(thinking.signature or "")
    except orjson.JSONDecodeError:
        return []
    is_complete = isinstance(item, dict) and item.get("type") == "reasoning" and item.get("encrypted_content")
    if is_complete:
        return [item]
    return []


class OpenAIResponsesModel(WireModel):
    def url(self) -> str:
        return self._endpoint("/responses", "v1", always=False)

    def reader(self, draft: MessageDraft) -> StreamReader:
        return ResponsesReader(draft, self._wire)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._info.id,
            "input": build_input(request.messages, self._info, self._stale),
            "stream": True,
            "store": False,
        }
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
            if self._quirks.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = self._quirks.parallel_tool_calls
        if request.max_output is not None:
            # The API accepts no less than 16.
            body["max_output_tokens"] = max(16, request.max_output)
        if self._sends_cache_key:
            body["prompt_cache_key"] = self.cache_key(request)
        self._think(body, request)
        return self._finish_body(body, request)

    def adapt(self, request: ModelRequest, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Drop earlier reasoning that this key, organisation or gateway cannot read (`invalid_encrypted_content`,
        codex#8119; "Item 'rs_…' not found", opencode#7724)."""
        message = refusal.text
        unreadable = "invalid_encrypted_content" in message or (
            "encrypted content" in message and "not supported" not in message
        )
        missing = "item 'rs_" in message or 'item "rs_' in message or "item with id 'rs_" in message
        if (unreadable or missing) and self.forget_signatures(request):
            self._repairs.notes.append("cannot read its earlier reasoning any more: it goes on without it")
            return True
        return super().adapt(request, body, refusal)

    def _think(self, body: dict[str, Any], request: ModelRequest) -> None:
        level = level_of(request.thinking)
        if self._info.thinking:
            body["include"] = ["reasoning.encrypted_content"]
            effort = None if level is None else effort_for(self._info.provider, self._info.id, level)
            if effort is not None and self._quirks.reasoning_effort is not False:
                body["reasoning"] = {"effort": effort, "summary": "auto"}
        elif request.temperature is not None and self._quirks.temperature:
            body["temperature"] = request.temperature


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema = portable_schema(tool.parameters)
    described = schema.described(tool.description)
    return {
        "type": "function",
        "name": tool.name,
        "description": described,
        "parameters": schema.parameters,
        "strict": False,
    }


class ResponsesReader:
    """Reads a stream. Deltas are only shown: the complete items, and then the response, are authoritative."""

    def __init__(self, draft: MessageDraft, wire: Wire) -> None:
        self.done = False
        self._draft = draft
        self._wire = wire
        self._items: dict[int, TextDraft | ThinkingDraft | CallDraft | None] = {}

    def absorb(self, event: Any) -> None:
        kind = event["type"]
        if kind == "response.output_text.delta":
            text = self._items.get(event["output_index"])
            if isinstance(text, TextDraft):
                self._draft.extend(text, event["delta"])
            else:
                self._draft.text(event["delta"])
        elif kind == "response.function_call_arguments.delta":
            call = self._items[event["output_index"]]
            if isinstance(call, CallDraft):
                call.take(event["delta"])
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            thinking = self._items.get(event["output_index"])
            if isinstance(thinking, ThinkingDraft):
                self._draft.extend(thinking, event["delta"])
        elif kind == "response.reasoning_summary_part.added":
            thinking = self._items.get(event["output_index"])
            if isinstance(thinking, ThinkingDraft) and thinking.pieces:
                self._draft.extend(thinking, "\n\n")
        elif kind == "response.refusal.delta":
            self._draft.refuse(event["delta"])
        elif kind == "response.output_item.added":
            self._items[event["output_index"]] = self._begin(event["item"])
        elif kind == "response.output_item.done":
            self._complete(event["output_index"], event["item"])
        else:
            self._end(kind, event)

    def absorb_whole(self, answer: Any) -> None:
        if answer.get("object") == "response":
            self._end(f"response.{answer.get('status', 'completed')}", {"response": answer})
        else:
            self._draft.fail(from_error(self._wire, answer.get("error")))

    def _begin(self, item: Any) -> TextDraft | ThinkingDraft | CallDraft | None:
        match item["type"]:
            case "message":
                return self._draft.add_text()
            case "reasoning":
                return self._draft.add_thinking()
            case "function_call":
                return self._draft.add_call(item.get("call_id"), item.get("name"))
        return None

    def _complete(self, index: int, item: Any) -> None:
        """Fill in what was not streamed of an item."""
        if index not in self._items:
            self._items[index] = self._begin(item)
        block = self._items[index]
        if isinstance(block, CallDraft):
            block.id = block.id or str(item.get("call_id") or "")
            block.name = block.name or str(item.get("name") or "")
            if isinstance(item.get("arguments"), str) and item["arguments"]:
                block.pieces = [item["arguments"]]
        elif isinstance(block, ThinkingDraft):
            self._complete_thinking(block, item)
        elif isinstance(block, TextDraft):
            self._complete_text(block, item)

    def _complete_thinking(self, thinking: ThinkingDraft, item: Any) -> None:
        if not thinking.pieces:
            summary = item.get("summary") or item.get("content") or ()
            self._draft.extend(thinking, "\n\n".join(piece["text"] for piece in summary))
        if item.get("id") and item.get("encrypted_content"):
            # The provider knows an item that was not stored by its encrypted content only.
            fields = {key: value for key, value in item.items() if key != "status" and value is not None}
            thinking.signature = orjson.dumps(fields).decode()

    def _complete_text(self, text: TextDraft, item: Any) -> None:
        if not text.pieces:
            for piece in item.get("content") or ():
                if piece["type"] == "output_text":
                    self._draft.extend(text, piece["text"])
                elif piece["type"] == "refusal" and not self._draft.refusal:
                    self._draft.refuse(piece["refusal"])
        if item.get("phase"):
            text.signature = str(item["phase"])

    def _end(self, kind: str, event: Any) -> None:
        if kind == "error":
            self._draft.fail(from_error(self._wire, event.get("error") or event))
            return
        if kind not in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
            return
        self.done = True
        response = event["response"]
        for index, item in enumerate(response.get("output") or ()):
            if index not in self._items:
                self._complete(index, item)
        self._count(response.get("usage") or {})
        if kind == "response.completed":
            self._draft.stop = "end"
        elif kind == "response.incomplete":
            self._draft.stop = "length"
            if (response.get("incomplete_details") or {}).get("reason") == "content_filter":
                self._draft.fail_filtered()
        else:
            self._draft.fail(from_error(self._wire, response.get("error") or {"message": kind}))

    def _count(self, usage: Any) -> None:
        details = usage.get("input_tokens_details") or {}
        self._draft.usage = replace_usage(
            self._draft.usage,
            prompt=usage.get("input_tokens"),
            output=usage.get("output_tokens"),
            cache_read=details.get("cached_tokens") or 0,
            cache_write=details.get("cache_write_tokens") or 0,
        )
