"""OpenAI's Chat Completions format, and the many servers that speak something close to it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import deepcopy
from typing import Any

import orjson
from msgspec.structs import replace

from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
    text_of,
)
from retinue.core.tool import ToolSpec
from retinue.models.draft import MessageDraft
from retinue.models.efforts import effort_for, efforts_of, level_of, version_of
from retinue.models.known import Quirks
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
    is_from_provider,
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


def build_messages(request: ModelRequest, info: ModelInfo, quirks: Quirks) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.system:
        role = "developer" if info.provider == "openai" and info.thinking else "system"
        messages.append({"role": quirks.system_role or role, "content": request.system})
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            messages += _assistant(message, info, quirks)
        elif isinstance(message, ToolMessage):
            messages += _results(message, info, quirks)
        else:
            messages += _user(message, info, quirks)
    if quirks.assistant_after_tools:
        return _with_turns_between(messages)
    return messages


def _call_id(id: str, quirks: Quirks) -> str:
    return short_id(id, quirks.call_id_length) if quirks.call_id_length else safe_id(id)


def _with_turns_between(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with a short turn of the assistant between a tool's result and the user's message, as users
    of Mistral's SDK do (pydantic-ai models/mistral.py). Mistral refuses them side by side: "Unexpected role 'user'
    after role 'tool'" (code 3230)."""
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


def _user(message: UserMessage, info: ModelInfo, quirks: Quirks) -> list[dict[str, Any]]:
    content = visible(message.content, info)
    if not content:
        return []
    if all(isinstance(block, Text) for block in content):
        return [{"role": "user", "content": text_of(content)}]
    return [{"role": "user", "content": [_encode_block(block, quirks) for block in content]}]


def _encode_block(block: Content, quirks: Quirks) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Document):
        if quirks.documents == "document_url":
            return {"type": "document_url", "document_url": data_url(block), "document_name": block.name}
        return {"type": "file", "file": {"filename": block.name, "file_data": data_url(block)}}
    return {"type": "image_url", "image_url": {"url": data_url(block)}}


def _results(message: ToolMessage, info: ModelInfo, quirks: Quirks) -> list[dict[str, Any]]:
    """Return one message per result. A result can only hold text, and nothing may come between the results of one turn.
    Therefore images and documents follow after the last result, in a message of the user."""
    messages: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for result in message.results:
        text = text_of(visible(result.content, info))
        files = visible_files(result, info)
        if files:
            kind = "Documents" if isinstance(files[0], Document) else "Images"
            after.append({"type": "text", "text": f"{kind} from the tool {result.name}:"})
            after += [_encode_block(file, quirks) for file in files]
            text = text or f"(see the {kind.lower()} below)"
        messages.append(
            {"role": "tool", "tool_call_id": _call_id(result.call_id, quirks), "content": text or result_text(result)}
        )
    if after:
        messages.append({"role": "user", "content": after})
    return messages


def _assistant(message: AssistantMessage, info: ModelInfo, quirks: Quirks) -> list[dict[str, Any]]:
    text = "\n".join(block.text for block in message.content if isinstance(block, Text) and block.text)
    turn: dict[str, Any] = {"role": "assistant", "content": text or None}
    field, is_own = quirks.reasoning_field, is_from_provider(message, info)
    if message.tool_calls:
        turn["tool_calls"] = [_call(call, is_own, quirks) for call in message.tool_calls]
    elif not text:
        return []
    if field and is_own:
        _return_thinking(turn, message, field)
    if field and quirks.reasoning_required and message.tool_calls:
        # DeepSeek and Kimi refuse a turn with calls that lacks the field, even one of another model.
        turn.setdefault(field, "")
    return [turn]


def _call(call: ToolCall, is_own: bool, quirks: Quirks) -> dict[str, Any]:
    function = {"name": call.name, "arguments": orjson.dumps(sent_arguments(call)).decode()}
    sent = {"id": _call_id(call.id, quirks), "type": "function", "function": function}
    if call.signature and is_own:
        sent["extra_content"] = {"google": {"thought_signature": call.signature}}
    return sent


def _return_thinking(turn: dict[str, Any], message: AssistantMessage, field: str) -> None:
    thoughts = [block for block in message.content if isinstance(block, Thinking)]
    if field == "reasoning_details":
        if details := _details(thoughts):
            turn[field] = details
    elif text := "".join(thought.text for thought in thoughts):
        turn[field] = text


def _details(thoughts: list[Thinking]) -> list[Any]:
    """Return the details in the last signature, which has those of the whole message; none if it is of another
    format."""
    try:
        details = orjson.loads(next(thought.signature for thought in reversed(thoughts) if thought.signature))
    except (StopIteration, orjson.JSONDecodeError):
        return []
    if isinstance(details, list):
        return details
    return []


_ROLE_ORDER = re.compile(r"role '?user'? after role '?tool")
"""Mistral, code 3230: "Unexpected role 'user' after role 'tool'" (avante.nvim#2695)."""
_MARKED_ROUTES = ("anthropic/", "google/")
"""Models that OpenRouter caches only up to a mark (its guide "prompt caching")."""


class OpenAIChatModel(WireModel):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._arguments = (arguments, options)
        self._nests_effort = self._quirks.reasoning_field == "reasoning_details"
        self._reasoning_learned = False
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
            arguments, options = self._arguments
            self._responses = OpenAIResponsesModel(*arguments, **options)
            yield Noted("model-api", f"{self._info.full_name} is asked through the Responses API from here on.")
        async with aclosing(self._responses.stream(request)) as parts:
            async for part in parts:
                yield part

    def body(self, request: ModelRequest) -> dict[str, Any]:
        quirks = self._quirks
        body: dict[str, Any] = {
            "model": self._info.id,
            "messages": build_messages(request, self._info, quirks),
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
        """Learn from a refusal whether the server wants the reasoning back; the other way is tried once. Mistral's
        order of roles is learned in the same way, because gateways serve its models as well."""
        message, quirks = refusal.text, self._quirks
        if _ROLE_ORDER.search(message) and not quirks.assistant_after_tools:
            self._quirks = replace(quirks, assistant_after_tools=True)
            return True
        if "v1/responses" in message or "responses api" in message:
            # "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions.
            # Please use /v1/responses instead." (pipecat#4043, litellm#34569)
            self._wants_responses = True
            return False
        if "reasoning_content" in message and not self._reasoning_learned:
            self._reasoning_learned = True
            is_required = any(word in message for word in ("must be passed", "missing", "required"))
            required = is_required or quirks.reasoning_field is None
            field = "reasoning_content" if required else None
            self._quirks = replace(quirks, reasoning_field=field, reasoning_required=required)
            return True
        return super().adapt(request, body, refusal)

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
            if effort is not None and self._nests_effort:
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
