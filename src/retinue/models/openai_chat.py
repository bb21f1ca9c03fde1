"""OpenAI's Chat Completions format, and the many servers that speak something close to it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import deepcopy
from typing import Any, NamedTuple

import orjson

from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.tool import ToolSpec
from retinue.models.draft import MessageDraft
from retinue.models.efforts import effort_for, efforts_of, level_of, version_of
from retinue.models.openai_chat_reader import ChatReader
from retinue.models.openai_responses import OpenAIResponsesModel
from retinue.models.protocol import (
    Finished,
    ModelInfo,
    ModelRequest,
    Noted,
    Part,
    cache_mark,
    data_url,
    joined_text,
    own,
    result_text,
    safe_id,
    sent_arguments,
    short_id,
    visible,
    visible_files,
)
from retinue.models.retry import RequestRefusal
from retinue.models.tool_schema import portable_schema
from retinue.models.wire import StreamReader, WireModel


class ChatShape(NamedTuple):
    """How one server wants a conversation. `role` is what the system prompt is called, `field`
    where thinking is sent back; the rest is described in `Quirks`."""

    role: str = "system"
    field: str | None = None
    field_required: bool = False
    assistant_after_tools: bool = False
    call_id_length: int = 0
    documents: str | None = None

    def call_id(self, id: str) -> str:
        if self.call_id_length:
            return short_id(id, self.call_id_length)
        return safe_id(id)


def build_messages(request: ModelRequest, info: ModelInfo, shape: ChatShape) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": shape.role, "content": request.system})
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            messages += _assistant(message, info, shape)
        elif isinstance(message, ToolMessage):
            messages += _results(message, info, shape)
        else:
            messages += _user(message, info, shape)
    if shape.assistant_after_tools:
        return _with_turns_between(messages)
    return messages


def _with_turns_between(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mistral refuses a user's words right after a tool's result: "Unexpected role 'user' after
    role 'tool'" (code 3230). A short turn of the assistant between them is what its own SDK's
    users put there (pydantic-ai models/mistral.py)."""
    separated: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user" and separated and separated[-1]["role"] == "tool":
            separated.append({"role": "assistant", "content": "OK"})
        separated.append(message)
    return separated


def mark_for_cache(body: dict[str, Any], mark: dict[str, Any], *, all_turns: bool) -> None:
    """Put cache marks where Anthropic's own format has them: on the last tool, the system prompt
    and, with `all_turns`, the newest two turns of the user or the tools."""
    if body.get("tools"):
        body["tools"][-1]["cache_control"] = mark
    messages = body["messages"]
    if messages and messages[0]["role"] in ("system", "developer"):
        _mark(messages[0], mark)
    if all_turns:
        for message in [message for message in messages if message["role"] in ("user", "tool")][-2:]:
            _mark(message, mark)


def _mark(message: dict[str, Any], mark: dict[str, Any]) -> None:
    if isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    message["content"][-1]["cache_control"] = mark


def _user(message: UserMessage, info: ModelInfo, shape: ChatShape) -> list[dict[str, Any]]:
    parts = visible(message.content, info)
    if not parts:
        return []
    if all(isinstance(part, Text) for part in parts):
        return [{"role": "user", "content": joined_text(parts)}]
    return [{"role": "user", "content": [_part(part, shape) for part in parts]}]


def _part(part: Content, shape: ChatShape) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Document):
        if shape.documents == "document_url":
            return {"type": "document_url", "document_url": data_url(part), "document_name": part.name}
        return {"type": "file", "file": {"filename": part.name, "file_data": data_url(part)}}
    return {"type": "image_url", "image_url": {"url": data_url(part)}}


def _results(message: ToolMessage, info: ModelInfo, shape: ChatShape) -> list[dict[str, Any]]:
    """One message per result. A result may hold text only: images and documents follow as the
    user's, after the last result, because nothing may stand between the results of one turn."""
    messages: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for result in message.results:
        parts = visible(result.content, info)
        text = joined_text(parts)
        files = visible_files(result, info)
        if files:
            kind = "Documents" if isinstance(files[0], Document) else "Images"
            after.append({"type": "text", "text": f"{kind} from the tool {result.name}:"})
            after += [_part(file, shape) for file in files]
            text = text or f"(see the {kind.lower()} below)"
        messages.append(
            {"role": "tool", "tool_call_id": shape.call_id(result.call_id), "content": text or result_text(result)}
        )
    if after:
        messages.append({"role": "user", "content": after})
    return messages


def _assistant(message: AssistantMessage, info: ModelInfo, shape: ChatShape) -> list[dict[str, Any]]:
    text = "\n".join(part.text for part in message.content if isinstance(part, Text) and part.text)
    turn: dict[str, Any] = {"role": "assistant", "content": text or None}
    same = own(message, info)
    if message.tool_calls:
        turn["tool_calls"] = [_call(call, same, shape) for call in message.tool_calls]
    elif not text:
        return []
    if shape.field and same:
        _return_thinking(turn, message, shape.field)
    if shape.field and shape.field_required and message.tool_calls:
        # DeepSeek and Kimi refuse a turn with calls that lacks the field, even one of another model.
        turn.setdefault(shape.field, "")
    return [turn]


def _call(call: ToolCall, same: bool, shape: ChatShape) -> dict[str, Any]:
    arguments = orjson.dumps(sent_arguments(call)).decode()
    sent = {"id": shape.call_id(call.id), "type": "function", "function": {"name": call.name, "arguments": arguments}}
    if call.signature and same:
        sent["extra_content"] = {"google": {"thought_signature": call.signature}}
    return sent


def _return_thinking(turn: dict[str, Any], message: AssistantMessage, field: str) -> None:
    thoughts = [part for part in message.content if isinstance(part, Thinking)]
    if field == "reasoning_details":
        if details := _details(thoughts):
            turn[field] = details
    elif text := "".join(part.text for part in thoughts):
        turn[field] = text


def _details(thoughts: list[Thinking]) -> list[Any]:
    """Return what the last thinking part kept (it grew with the stream and holds all); nothing if its
    signature is of another format."""
    try:
        details = orjson.loads(next(part.signature for part in reversed(thoughts) if part.signature))
    except (StopIteration, orjson.JSONDecodeError):
        return []
    if isinstance(details, list):
        return details
    return []


_ROLE_ORDER = re.compile(r"role '?user'? after role '?tool")
"""Mistral, code 3230: "Unexpected role 'user' after role 'tool'" (avante.nvim#2695)."""
_MARKED_ROUTES = ("anthropic/", "google/")
"""Models that OpenRouter caches only where a mark stands (its guide "prompt caching")."""


class OpenAIChatModel(WireModel):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._given = (given, named)
        quirks = self._quirks
        self._field = quirks.reasoning_field
        self._field_required = quirks.reasoning_required
        self._field_learned = False
        self._assistant_after_tools = quirks.assistant_after_tools
        self._wants_responses = False
        self._responses: WireModel | None = None

    def url(self) -> str:
        return self._endpoint("/chat/completions", "v1", always=False)

    def reader(self, draft: MessageDraft) -> StreamReader:
        return ChatReader(draft, self._wire)

    @property
    def _openai(self) -> bool:
        return self._info.provider == "openai"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        if self._responses is None:
            async with aclosing(super().stream(request)) as parts:
                async for part in parts:
                    if isinstance(part, Finished) and self._wants_responses:
                        break
                    yield part
            if not self._wants_responses:
                return
            self._responses = self._as_responses()
            yield Noted("model-api", f"{self._info.full_name} is asked through the Responses API from here on.")
        async with aclosing(self._responses.stream(request)) as parts:
            async for part in parts:
                yield part

    def _as_responses(self) -> WireModel:
        arguments, named = self._given
        return OpenAIResponsesModel(*arguments, **named)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        quirks = self._quirks
        shape = ChatShape(
            self._system_role(),
            self._field,
            self._field_required,
            self._assistant_after_tools,
            quirks.call_id_length,
            quirks.documents,
        )
        body: dict[str, Any] = {
            "model": self._info.id,
            "messages": build_messages(request, self._info, shape),
            "stream": True,
        }
        if quirks.stream_usage:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
            if quirks.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = quirks.parallel_tool_calls
        if request.max_output is not None:
            key = quirks.max_tokens_key or ("max_completion_tokens" if self._openai else "max_tokens")
            body[key] = request.max_output
        if self._sends_cache_key:
            body["prompt_cache_key"] = self.cache_key(request)
        if self._marks_cache:
            mark = cache_mark(request.messages, quirks.cache_ttl)
            mark_for_cache(body, mark, all_turns=not self._info.id.startswith("google/"))
        self._think(body, request)
        return self._finish_body(body, request)

    @property
    def _marks_cache(self) -> bool:
        routed = self._info.provider == "openrouter" and self._info.id.startswith(_MARKED_ROUTES)
        if self._quirks.cache_control is None:
            return routed
        return self._quirks.cache_control

    def adapt(self, request: ModelRequest, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Servers of reasoning models either want the reasoning back or do not want it, and say
        so by refusing: the other way is tried once. Mistral's order of roles is learned in the same
        way, since its models also stand behind gateways."""
        message = refusal.said
        if _ROLE_ORDER.search(message) and not self._assistant_after_tools:
            self._assistant_after_tools = True
            return True
        if "v1/responses" in message or "responses api" in message:
            # "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions.
            # Please use /v1/responses instead." (pipecat#4043, litellm#34569)
            self._wants_responses = True
            return False
        if "reasoning_content" in message and not self._field_learned:
            self._field_learned = True
            is_required = any(word in message for word in ("must be passed", "missing", "required"))
            if is_required or self._field is None:
                self._field, self._field_required = "reasoning_content", True
            else:
                self._field, self._field_required = None, False
            return True
        return super().adapt(request, body, refusal)

    def _system_role(self) -> str:
        if self._quirks.system_role:
            return self._quirks.system_role
        return "developer" if self._openai and self._info.thinking else "system"

    def _think(self, body: dict[str, Any], request: ModelRequest) -> None:
        level = level_of(request.thinking)
        takes_effort = self._info.thinking if self._quirks.reasoning_effort is None else self._quirks.reasoning_effort
        efforts = efforts_of(self._info.provider, self._info.id)
        if takes_effort and efforts.always:
            body.update(deepcopy(dict(efforts.always)))
        if level is not None and takes_effort:
            effort = effort_for(self._info.provider, self._info.id, level)
            chosen = (efforts.off if level == "off" and effort is None else efforts.on) or {}
            for name, value in chosen.items():
                body[name] = {**body[name], **value} if isinstance(body.get(name), dict) else value
            if effort is not None and self._quirks.reasoning_field == "reasoning_details":
                body["reasoning"] = {"effort": effort}
            elif effort is not None:
                body["reasoning_effort"] = effort
        reasons = self._openai and self._info.thinking and (version_of(self._info.id, "gpt-") or (5, 0)) >= (5, 0)
        if request.temperature is not None and self._quirks.temperature and not reasons:
            body["temperature"] = request.temperature


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema = portable_schema(tool.parameters)
    described = schema.described(tool.description)
    return {
        "type": "function",
        "function": {"name": tool.name, "description": described, "parameters": schema.parameters},
    }
