"""OpenAI's Chat Completions format, and the many servers that speak something close to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from retinue.domain.failure import Failure
from retinue.domain.messages import StopReason
from retinue.domain.tool import ToolSpec
from retinue.models.chat_body import build_messages
from retinue.models.draft import CallDraft, Draft, ThinkingDraft, replace_usage
from retinue.models.failures import Wire, from_error
from retinue.models.partial_json import parse_arguments
from retinue.models.protocol import ModelRequest
from retinue.models.thinking import level_of, openai_effort, version_of
from retinue.models.tool_schema import portable_schema
from retinue.models.wire import Reader, WireModel

_STOPS: dict[str, StopReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "tool_use": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
    "sensitive": "refusal",
}
_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")


class OpenAIChatModel(WireModel):
    _field: str | None = None
    _field_learned = False

    def url(self) -> str:
        return self._endpoint("/chat/completions", "v1", always=False)

    def reader(self, draft: Draft) -> Reader:
        return ChatReader(draft, self._wire)

    @property
    def _openai(self) -> bool:
        return self._info.provider == "openai"

    def body(self, request: ModelRequest) -> dict[str, Any]:
        quirks = self._quirks
        field = self._field if self._field_learned else quirks.reasoning_field
        body: dict[str, Any] = {
            "model": self._info.id,
            "messages": build_messages(request, self._info, self._system_role(), field),
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
        self._think(body, request)
        return self._finish_body(body, request)

    def adapt(self, request: ModelRequest, body: dict[str, Any], refusal: str) -> bool:
        """Servers of reasoning models either want the reasoning back or do not want it, and say
        so by refusing: the other way is tried once."""
        if "reasoning_content" in refusal and not self._field_learned:
            self._field = None if self._quirks.reasoning_field == "reasoning_content" else "reasoning_content"
            self._field_learned = True
            return True
        return super().adapt(request, body, refusal)

    def _system_role(self) -> str:
        if self._quirks.system_role:
            return self._quirks.system_role
        return "developer" if self._openai and self._info.thinking else "system"

    def _think(self, body: dict[str, Any], request: ModelRequest) -> None:
        level = level_of(request.thinking)
        takes_effort = self._info.thinking if self._quirks.reasoning_effort is None else self._quirks.reasoning_effort
        if level is not None and takes_effort:
            if self._quirks.reasoning_field == "reasoning_details":
                body["reasoning"] = {"effort": openai_effort(self._info.id, level)}
            else:
                body["reasoning_effort"] = openai_effort(self._info.id, level)
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


class ChatReader:
    """Chunks merge by index where there is one; servers without it, or with the same index for
    every call, are told apart by id and name."""

    done = False

    def __init__(self, draft: Draft, wire: Wire) -> None:
        self._draft = draft
        self._wire = wire
        self._by_index: dict[int, CallDraft] = {}
        self._last: CallDraft | None = None
        self._details: list[dict[str, Any]] = []
        self._thinking: ThinkingDraft | None = None

    def absorb(self, event: Any) -> None:
        if error := event.get("error"):
            self._draft.fail(from_error(self._wire, error))
            return
        for choice in event.get("choices") or ():
            if choice.get("index") in (0, None):
                delta = choice.get("delta") or choice.get("message")
                if delta:
                    self._merge(delta)
                if choice.get("finish_reason"):
                    self._stop(choice)
        usage = event.get("usage") or (event.get("x_groq") or {}).get("usage")
        if usage:
            self._count(usage)

    def absorb_whole(self, answer: Any) -> None:
        self.absorb(answer)
        if answer["choices"] and self._draft.stop is None:
            self._draft.stop = "end"

    def _merge(self, delta: Any) -> None:
        for name in _REASONING:
            piece = delta.get(name)
            if piece and isinstance(piece, str):
                self._thinking = self._draft.thinking(piece)
                break
        if details := delta.get("reasoning_details"):
            self._keep_details(details)
        content = delta.get("content")
        if content:
            if isinstance(content, str):
                self._draft.text(content)
            else:
                self._merge_list(content)
        if refusal := delta.get("refusal"):
            self._draft.refuse(refusal)
        for call in delta.get("tool_calls") or ():
            self._call(call)
        if legacy := delta.get("function_call"):
            self._call({"index": 0, "function": legacy})

    def _merge_list(self, content: Any) -> None:
        """Content as a list of typed parts, as Mistral sends it."""
        for part in content:
            if part["type"] == "text":
                self._draft.text(part["text"])
            elif part["type"] == "thinking":
                inner = part["thinking"]
                pieces = [inner] if isinstance(inner, str) else [str(piece.get("text") or "") for piece in inner]
                for piece in pieces:
                    self._draft.thinking(piece)

    def _call(self, piece: Any) -> None:
        function = piece.get("function") or {}
        id, name, arguments = piece.get("id") or "", function.get("name") or "", function.get("arguments")
        index = piece.get("index")
        call = self._by_index.get(index) if isinstance(index, int) else self._last
        if call is None or self._is_another(call, id, name, arguments):
            call = self._draft.add_call(id, name)
        else:
            call.id = call.id or id
            if name and name != call.name:
                call.name += name
        if isinstance(index, int):
            self._by_index[index] = call
        self._last = call
        if signature := _google_signature(piece):
            call.signature = signature
        if isinstance(arguments, str):
            call.take(arguments)
        elif arguments is not None:
            call.take(orjson.dumps(arguments).decode())

    @staticmethod
    def _is_another(call: CallDraft, id: str, name: str, arguments: Any) -> bool:
        """Whether a piece that could continue `call` begins the next one instead."""
        if id and call.id and id != call.id:
            return bool(name)
        if not name or not call.pieces:
            return False
        whole = call.arguments.strip()
        return bool(arguments) and bool(whole) and parse_arguments(whole)[1] is None

    def _keep_details(self, details: Any) -> None:
        """OpenRouter's reasoning details: pieces with the same index and type are one."""
        for piece in details:
            last = self._details[-1] if self._details else None
            same = last is not None and all(last.get(key) == piece.get(key) for key in ("type", "index"))
            if last is None or not same:
                self._details.append(dict(piece))
                continue
            for key, value in piece.items():
                if key in ("text", "summary", "data") and isinstance(last.get(key), str) and isinstance(value, str):
                    last[key] += value
                elif value is not None:
                    last[key] = value
        if self._thinking is None:
            self._thinking = self._draft.add_thinking()
        self._thinking.signature = orjson.dumps(self._details).decode()

    def _stop(self, choice: Any) -> None:
        reason = str(choice["finish_reason"])
        if reason in ("error", "insufficient_system_resource"):
            said = choice.get("error") or {"type": reason, "message": f"it stopped with '{reason}'"}
            self._draft.fail(from_error(self._wire, said))
            return
        self._draft.stop = _STOPS.get(reason, "end")
        if self._draft.stop == "refusal" and not self._draft.refusal:
            why = Failure("refused", f"{self._draft.info.full_name} stopped: its content filter stepped in.")
            self._draft.fail(why)

    def _count(self, usage: Any) -> None:
        prompt, details = usage.get("prompt_tokens"), usage.get("prompt_tokens_details") or {}
        read = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
        written = details.get("cache_write_tokens") or 0
        self._draft.usage = replace_usage(
            self._draft.usage,
            input=max(0, prompt - read - written) if isinstance(prompt, int) else None,
            output=usage.get("completion_tokens"),
            cache_read=read,
            cache_write=written,
        )
        cost = usage.get("cost")  # OpenRouter says what it charges
        if isinstance(cost, (int, float)):
            self._draft.usage = replace(self._draft.usage, cost_usd=float(cost))


def _google_signature(piece: Any) -> str | None:
    """The thought signature in Gemini's OpenAI-compatible answers."""
    extra = piece.get("extra_content") or {}
    signature = (extra.get("google") or {}).get("thought_signature")
    return signature if isinstance(signature, str) else None
