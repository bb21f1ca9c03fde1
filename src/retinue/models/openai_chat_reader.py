"""The stream of Chat Completions, from OpenAI and from servers that only resemble it.

MiniMax without `reasoning_split`, and vLLM or llama.cpp without a reasoning parser, stream the
model's thoughts as content between `<think>` and `</think>`. Only tags at the very beginning of an
answer count: later ones are text that the model writes about tags.
"""

from __future__ import annotations

from typing import Any

import orjson
from msgspec.structs import replace

from retinue.core.messages import StopReason
from retinue.models.draft import CallDraft, MessageDraft, ThinkingDraft, parse_arguments, replace_usage
from retinue.models.failures import Wire, from_error

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkTags:
    """Splits a stream into thinking and text. `done` is set when all further pieces are text."""

    __slots__ = ("_closed", "_held", "_inside", "done")

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._closed = False
        self.done = False

    def off(self) -> None:
        """Stop looking for tags: the server sends thinking in a field of its own."""
        if not self._held and not self._inside:
            self.done = True

    def split(self, piece: str) -> tuple[str, str]:
        """Return the thinking and the text in `piece`. An end that may belong to a tag is held back."""
        if self._closed:
            return "", self._begin_text(piece)
        text = self._held + piece
        self._held = ""
        if not self._inside:
            start = text.lstrip()
            if start.startswith(_OPEN):
                self._inside = True
                text = start[len(_OPEN) :]
            elif _OPEN.startswith(start):
                self._held = text
                return "", ""
            else:
                self.done = True
                return "", text
        thought, closing, remainder = text.partition(_CLOSE)
        if closing:
            self._inside, self._closed = False, True
            return thought, self._begin_text(remainder)
        incomplete = _partial_end(text)
        self._held = text[len(text) - incomplete :]
        return text[: len(text) - incomplete], ""

    def _begin_text(self, piece: str) -> str:
        """Return a piece without the empty lines after the closing tag."""
        text = piece.lstrip()
        self.done = bool(text)
        return text

    def finish(self) -> str:
        """Return the text that was held back when the stream ends."""
        held, self._held = self._held, ""
        return held


def _partial_end(text: str) -> int:
    """Return how many characters at the end of `text` could begin the closing tag."""
    for length in range(min(len(_CLOSE) - 1, len(text)), 0, -1):
        if _CLOSE.startswith(text[-length:]):
            return length
    return 0


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
_FAILED_STOPS = ("error", "insufficient_system_resource", "network_error")
"""Stop reasons of failures: OpenRouter's, DeepSeek's and z.ai's."""


_MINIMAX_CODES = {1002: "rate_limit", 1004: "authentication", 1008: "insufficient_balance", 2049: "invalid_api_key"}


def _minimax_error(event: Any) -> dict[str, Any] | None:
    """Return an error that MiniMax reports with status 200: `{"base_resp": {"status_code": 2049,
    "status_msg": "invalid api key"}}` (MiniMax-01#37, MiniMax-M2.5#18)."""
    status = event.get("base_resp")
    if not isinstance(status, dict) or not status.get("status_code"):
        return None
    code = _MINIMAX_CODES.get(status["status_code"], str(status["status_code"]))
    return {"message": status.get("status_msg") or "an error without words", "code": code}


class ChatReader:
    """Reads a stream. Pieces of a call are merged by index. Ids and names separate the calls of servers that send no
    index, or the same one for all calls."""

    done = False

    def __init__(self, draft: MessageDraft, wire: Wire) -> None:
        self._draft = draft
        self._wire = wire
        self._by_index: dict[int, CallDraft] = {}
        self._last: CallDraft | None = None
        self._details: list[dict[str, Any]] = []
        self._thinking: ThinkingDraft | None = None
        self._tags = ThinkTags()

    def absorb(self, event: Any) -> None:
        if error := event.get("error") or _minimax_error(event):
            self._draft.fail(from_error(self._wire, error))
            return
        for choice in event.get("choices") or ():
            if choice.get("index") in (0, None):
                delta = choice.get("delta") or choice.get("message")
                if delta:
                    self._merge(delta)
                if choice.get("finish_reason"):
                    self._stop(choice)
                # Kimi (pi openai-completions.ts)
                if choice.get("usage"):
                    self._count(choice["usage"])
        usage = event.get("usage") or (event.get("x_groq") or {}).get("usage")
        if usage:
            self._count(usage)

    def absorb_whole(self, answer: Any) -> None:
        self.absorb(answer)
        if self._draft.failure is None and answer["choices"] and self._draft.stop is None:
            self._draft.stop = "end"

    def _merge(self, delta: Any) -> None:
        for name in _REASONING:
            piece = delta.get(name)
            if piece and isinstance(piece, str):
                self._tags.off()
                self._thinking = self._draft.thinking(piece)
                break
        if details := delta.get("reasoning_details"):
            self._keep_details(details)
        content = delta.get("content")
        if content:
            if isinstance(content, str):
                self._add_text(content)
            else:
                self._merge_list(content)
        if refusal := delta.get("refusal"):
            self._draft.refuse(refusal)
        for call in delta.get("tool_calls") or ():
            self._call(call)
        if legacy := delta.get("function_call"):
            self._call({"index": 0, "function": legacy})

    def _add_text(self, content: str) -> None:
        """Add text; a beginning in `<think>` tags is thinking."""
        if self._tags.done:
            self._draft.text(content)
            return
        thought, text = self._tags.split(content)
        if thought:
            self._thinking = self._draft.thinking(thought)
        if text:
            self._draft.text(text)

    def _merge_list(self, content: Any) -> None:
        """Add a list of blocks, as Mistral sends it."""
        for block in content:
            if block["type"] == "text":
                self._draft.text(block["text"])
            elif block["type"] == "thinking":
                inner = block["thinking"]
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
        """Return whether a piece that could continue `call` begins the next one instead."""
        if id and call.id and id != call.id:
            return bool(name)
        if not name or not call.pieces:
            return False
        complete = call.arguments.strip()
        return bool(arguments) and bool(complete) and parse_arguments(complete)[1] is None

    def _keep_details(self, details: Any) -> None:
        """Merge OpenRouter's reasoning details: pieces with the same index and type belong together."""
        for piece in details:
            last = self._details[-1] if self._details else None
            if last is None or last.get("type") != piece.get("type") or last.get("index") != piece.get("index"):
                self._details.append(dict(piece))
                continue
            for key, value in piece.items():
                if key in ("text", "summary", "data") and isinstance(last.get(key), str) and isinstance(value, str):
                    # MiniMax repeats the earlier text in every piece; the others send only the new text.
                    repeats = len(last[key]) > 8 and value.startswith(last[key])
                    last[key] = value if repeats else last[key] + value
                elif value is not None:
                    last[key] = value
        if self._thinking is None:
            self._thinking = self._draft.add_thinking()
        self._thinking.signature = orjson.dumps(self._details).decode()

    def _stop(self, choice: Any) -> None:
        reason = str(choice["finish_reason"])
        if remainder := self._tags.finish():
            self._draft.text(remainder)
        # Z.ai.
        if reason == "model_context_window_exceeded":
            self._draft.fail_full()
            return
        if reason in _FAILED_STOPS:
            error = choice.get("error") or {"type": reason, "message": f"it stopped with '{reason}'"}
            self._draft.fail(from_error(self._wire, error))
            return
        self._draft.stop = _STOPS.get(reason, "end")
        if self._draft.stop == "refusal" and not self._draft.refusal:
            self._draft.fail_filtered()

    def _count(self, usage: Any) -> None:
        details = usage.get("prompt_tokens_details") or {}
        # The names differ: OpenAI's details, DeepSeek's prompt_cache_hit_tokens, Kimi's cached_tokens at the top.
        read = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens") or 0
        self._draft.usage = replace_usage(
            self._draft.usage,
            prompt=usage.get("prompt_tokens"),
            output=_output(usage),
            cache_read=read,
            cache_write=details.get("cache_write_tokens") or 0,
        )
        # OpenRouter reports the cost.
        cost = usage.get("cost")
        if isinstance(cost, (int, float)):
            self._draft.usage = replace(self._draft.usage, cost_usd=float(cost))


def _output(usage: Any) -> Any:
    """Return the output tokens. xAI reports thinking beside `completion_tokens`, all others include it (litellm
    llms/xai/chat/transformation.py); the total shows which."""
    spoken, total, prompt = usage.get("completion_tokens"), usage.get("total_tokens"), usage.get("prompt_tokens")
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
    numbers = all(isinstance(number, int) for number in (spoken, total, prompt, thought))
    if numbers and thought and total == prompt + spoken + thought:
        return spoken + thought
    return spoken


def _google_signature(piece: Any) -> str | None:
    """Return the thought signature in Gemini's OpenAI-compatible answers."""
    extra = piece.get("extra_content") or {}
    signature = (extra.get("google") or {}).get("thought_signature")
    if isinstance(signature, str):
        return signature
    return None
