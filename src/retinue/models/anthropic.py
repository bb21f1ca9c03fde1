"""Anthropic's Messages format, for Claude and for the servers that speak it.

The prefix is cached: the last tool, the last system block and the newest two user turns have cache marks, and nothing
before the newest turn changes between requests. Thinking goes back unchanged, with its signature, to the provider that
wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.core.messages import (
    AssistantMessage,
    Content,
    Document,
    Message,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from retinue.core.outcome import Failure
from retinue.core.tool import ToolSpec
from retinue.models.draft import CallDraft, MessageDraft, TextDraft, ThinkingDraft, replace_usage
from retinue.models.efforts import (
    anthropic_adaptive,
    anthropic_budget,
    anthropic_style,
    checks_prefix,
    level_of,
    version_of,
)
from retinue.models.failures import Wire, from_error
from retinue.models.protocol import (
    NO_OUTPUT,
    ModelInfo,
    ModelRequest,
    cache_mark,
    is_from_provider,
    join_turns,
    safe_id,
    sent_arguments,
    visible,
    visible_files,
)
from retinue.models.retry import RequestRefusal
from retinue.models.tool_schema import portable_schema
from retinue.models.wire import EncodedTurn, StreamReader, WireModel

_INTERLEAVED = "interleaved-thinking-2025-05-14"
_BINDING = "thinking-binding-controls-2026-08-01"
_DROP = {"prefix_mismatch_behavior": "drop_block"}
_STOPS: dict[str, StopReason] = {"max_tokens": "length", "refusal": "refusal", "tool_use": "tool_use"}


class AnthropicModel(WireModel):
    auth_header = "x-api-key"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ttl = self._quirks.cache_ttl
        self._drops_thoughts: bool | None = None
        """Whether the server is asked to drop thoughts that it would refuse; False if it cannot do that."""

    def _fixed_headers(self, key: str | None) -> dict[str, str]:
        headers = super()._fixed_headers(key)
        headers["anthropic-version"] = "2023-06-01"
        if self._style() == "budget" and self._info.thinking:
            headers["anthropic-beta"] = _INTERLEAVED
        return headers

    def url(self) -> str:
        return self._endpoint("/messages", "v1")

    def reader(self, draft: MessageDraft) -> StreamReader:
        return AnthropicReader(draft, self._wire)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        marked = self._quirks.cache_control is not False
        mark = cache_mark(request.messages, self._ttl)
        body: dict[str, Any] = {
            "model": self._info.id,
            "max_tokens": request.max_output or self._info.max_output,
            "stream": True,
        }
        if request.tools:
            tools = _tools(request.tools)
            body["tools"] = tools
            if marked:
                tools[-1]["cache_control"] = mark
            if request.tool_choice != "auto":
                body["tool_choice"] = {"type": "any" if request.tool_choice == "required" else "none"}
        if request.system:
            body["system"] = [{"type": "text", "text": request.system}]
            if marked:
                body["system"][0]["cache_control"] = mark
        body["messages"] = join_turns(self._encoded.turns(request.messages, self._encode), "content")
        if marked:
            mark_newest(body["messages"], mark)
        self._think(body, request)
        self._bind(body, request)
        return self._finish_body(body, request)

    def _encode(self, message: Message) -> EncodedTurn:
        return encode_message(message, self._info, self._stale)

    def _style(self) -> str:
        return self._quirks.thinking or anthropic_style(self._info.id)

    def _think(self, body: dict[str, Any], request: ModelRequest) -> None:
        """Set the thinking, or else the temperature: a request cannot have both."""
        level = level_of(request.thinking)
        version = version_of(self._info.id, "claude")
        sampling = self._quirks.temperature and (version is None or version < (4, 7))
        if level is not None and self._info.thinking:
            if self._style() == "adaptive":
                body.update(anthropic_adaptive(self._info.id, level))
            elif self._style() == "budget" and request.tool_choice != "required" and _may_think(body["messages"]):
                room = anthropic_budget(level, body["max_tokens"], self._info.max_output)
                if room is not None:
                    budget, body["max_tokens"] = room
                    body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        if request.temperature is not None and sampling and "thinking" not in body:
            body["temperature"] = request.temperature

    def _bind(self, body: dict[str, Any], request: ModelRequest) -> None:
        """Ask the server to drop thoughts that it would refuse. Newer models refuse a thought if anything before it has
        changed, as in a conversation that was shortened, which has a summary (platform.claude.com "Prefix checks on
        thinking blocks")."""
        if self._drops_thoughts is None and self._info.provider == "anthropic" and checks_prefix(self._info.id):
            shortened = any(
                isinstance(message, UserMessage) and message.origin == "summary" for message in request.messages
            )
            self._drops_thoughts = shortened or None
        if not self._drops_thoughts or not _may_bind(body):
            return
        body["thinking"] = {**body.get("thinking", {"type": "adaptive"}), "block_binding": _DROP}
        betas = self._headers.get("anthropic-beta", "")
        if _BINDING not in betas:
            # Added to the header of the user, where it also outlives a renewed key.
            self._own_headers["anthropic-beta"] = f"{betas},{_BINDING}".lstrip(",")
            self._headers["anthropic-beta"] = self._own_headers["anthropic-beta"]

    def adapt(self, request: ModelRequest, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Drop earlier thinking whose signature was refused, for example after a compaction."""
        message = refusal.text
        bound = "bound to a different conversation" in message
        if bound and self._drops_thoughts is None and self._style() == "adaptive" and _may_bind(body):
            self._drops_thoughts = True
            return True
        if self._drops_thoughts and ("block_binding" in message or _BINDING in message):
            # A server between us and the provider does not know the setting.
            self._drops_thoughts = False
            self.forget_signatures(request)
            return True
        if "ttl" in message and self._ttl != "5m":
            # A compatible server that does not know the longer cache.
            self._ttl = "5m"
            return True
        about_blocks = "signature" in message or ("thinking" in message and "block" in message)
        return (about_blocks and self.forget_signatures(request)) or super().adapt(request, body, refusal)


def _tools(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for spec in specs:
        schema = portable_schema(spec.parameters)
        description = schema.described(spec.description)
        tools.append({"name": spec.name, "description": description, "input_schema": schema.parameters})
    return tools


def encode_message(message: Message, info: ModelInfo, stale: frozenset[str]) -> EncodedTurn:
    """Return the role and the blocks of a message."""
    if isinstance(message, AssistantMessage):
        return "assistant", _assistant(message, info, stale)
    if isinstance(message, ToolMessage):
        return "user", _results(message, info)
    return "user", [_encode_block(block) for block in visible(message.content, info)]


def mark_newest(turns: list[dict[str, Any]], mark: dict[str, Any]) -> None:
    """Mark the last block of the newest two user turns. The cache of the previous request ended at the older mark; the
    next request will read up to the newer one."""
    users = [turn for turn in turns if turn["role"] == "user"]
    for turn in users[-2:]:
        # A copy: the block without the mark is sent with later requests.
        turn["content"][-1] = {**turn["content"][-1], "cache_control": mark}


def _encode_block(block: Content) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text if block.text.strip() else NO_OUTPUT}
    source = {"type": "base64", "media_type": block.media_type, "data": block.data}
    if isinstance(block, Document):
        return {"type": "document", "source": source, "title": block.name}
    return {"type": "image", "source": source}


def _results(message: ToolMessage, info: ModelInfo) -> list[dict[str, Any]]:
    """Return the blocks of a turn's results. An error can only hold text ("all content must be type 'text' if
    'is_error' is true"), so its images follow after the last result."""
    blocks = [_result(result, info) for result in message.results]
    for result in message.results:
        files = visible_files(result, info)
        if result.is_error and files:
            blocks.append({"type": "text", "text": f"Images from the failed call of {result.name}:"})
            blocks += map(_encode_block, files)
    return blocks


def _result(result: ToolResult, info: ModelInfo) -> dict[str, Any]:
    content = visible(result.content, info)
    if result.is_error:
        content = [text for text in content if isinstance(text, Text)]
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": safe_id(result.call_id)}
    if len(content) == 1 and isinstance(content[0], Text):
        block["content"] = content[0].text
    else:
        block["content"] = list(map(_encode_block, content)) or NO_OUTPUT
    if result.is_error:
        block["is_error"] = True
    return block


def _assistant(message: AssistantMessage, info: ModelInfo, stale: frozenset[str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, Text):
            if block.text.strip():
                blocks.append({"type": "text", "text": block.text})
        elif isinstance(block, ToolCall):
            call = {"type": "tool_use", "id": safe_id(block.id), "name": block.name, "input": sent_arguments(block)}
            blocks.append(call)
        elif block.provider == info.provider and is_from_provider(message, info):
            if block.redacted is not None and block.redacted not in stale:
                blocks.append({"type": "redacted_thinking", "data": block.redacted})
            elif block.signature and block.signature not in stale:
                blocks.append({"type": "thinking", "thinking": block.text, "signature": block.signature})
    # A turn that was cut off can end in thinking, which the API refuses.
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()
    return blocks


def _may_bind(body: dict[str, Any]) -> bool:
    """Return whether the thinking of a request has this setting: not if it is switched off."""
    return body.get("thinking", {}).get("type", "adaptive") in ("adaptive", "enabled")


def _may_think(turns: list[dict[str, Any]]) -> bool:
    """Return whether a thinking budget is accepted: not in the middle of tool use that began without thinking."""
    if not turns or not any(block["type"] == "tool_result" for block in turns[-1]["content"]):
        return True
    for turn in reversed(turns):
        if turn["role"] == "assistant":
            return turn["content"][0]["type"] in ("thinking", "redacted_thinking")
    return True


class AnthropicReader:
    def __init__(self, draft: MessageDraft, wire: Wire) -> None:
        self.done = False
        self._draft = draft
        self._wire = wire
        self._blocks: dict[int, TextDraft | ThinkingDraft | CallDraft | None] = {}

    def absorb(self, event: Any) -> None:
        kind = event["type"]
        if kind == "content_block_delta":
            self._delta(self._blocks[event["index"]], event["delta"])
        elif kind == "content_block_start":
            self._blocks[event["index"]] = self._begin(event["content_block"])
        elif kind == "message_delta":
            self._count(event.get("usage"))
            self._stop(event["delta"])
        elif kind == "message_start":
            self._count(event["message"].get("usage"))
        elif kind == "message_stop":
            self._draft.stop = self._draft.stop or "end"
            self.done = True
        elif kind == "error":
            self._draft.fail(from_error(self._wire, event.get("error")))

    def absorb_whole(self, answer: Any) -> None:
        if answer["type"] == "error":
            self.absorb(answer)
            return
        for block in answer["content"]:
            self._begin(block)
        self._count(answer.get("usage"))
        self._stop(answer)
        self._draft.stop = self._draft.stop or "end"

    def _begin(self, block: Any) -> TextDraft | ThinkingDraft | CallDraft | None:
        """Begin a block, which may have content or be complete already."""
        draft = self._draft
        match block["type"]:
            case "text":
                text = draft.add_text()
                draft.extend(text, block.get("text") or "")
                return text
            case "thinking":
                thinking = draft.add_thinking()
                thinking.signature = block.get("signature") or None
                draft.extend(thinking, block.get("thinking") or "")
                return thinking
            case "redacted_thinking":
                thinking = draft.add_thinking()
                thinking.redacted = str(block["data"])
                return thinking
            case "tool_use":
                call = draft.add_call(block.get("id"), block.get("name"))
                call.give(block.get("input"))
                return call
        return None

    def _delta(self, block: TextDraft | ThinkingDraft | CallDraft | None, delta: Any) -> None:
        kind = delta["type"]
        if kind == "text_delta" and isinstance(block, TextDraft):
            self._draft.extend(block, delta["text"])
        elif kind == "input_json_delta" and isinstance(block, CallDraft):
            block.take(delta["partial_json"])
        elif kind == "thinking_delta" and isinstance(block, ThinkingDraft):
            self._draft.extend(block, delta["thinking"])
        elif kind == "signature_delta" and isinstance(block, ThinkingDraft):
            block.signature = str(delta["signature"])

    def _count(self, usage: Any) -> None:
        if usage:
            self._draft.usage = replace_usage(
                self._draft.usage,
                input=usage.get("input_tokens"),
                output=usage.get("output_tokens"),
                cache_read=usage.get("cache_read_input_tokens"),
                cache_write=usage.get("cache_creation_input_tokens"),
            )
            written = usage.get("cache_creation")
            if isinstance(written, dict) and isinstance(written.get("ephemeral_1h_input_tokens"), int):
                self._draft.long_writes = written["ephemeral_1h_input_tokens"]

    def _stop(self, delta: Any) -> None:
        reason = delta.get("stop_reason")
        if not reason:
            return
        self._draft.stop = _STOPS.get(reason, "end")
        if reason == "model_context_window_exceeded":
            self._draft.fail_full()
        elif reason == "refusal":
            details = delta.get("stop_details") or {}
            why = self._wire.scrub(str(details.get("explanation") or details.get("category") or ""))
            name = self._draft.info.full_name
            self._draft.fail(Failure("refused", f"{name} declined to answer" + (f": {why}" if why else ".")))
