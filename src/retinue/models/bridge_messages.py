"""Conversations translated between our messages and pydantic-ai's."""

from __future__ import annotations

import importlib
from base64 import b64decode
from dataclasses import fields
from typing import Any

from retinue.core.messages import (
    AssistantMessage,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from retinue.models.protocol import ModelInfo, ModelRequest, own, result_text, sent_arguments, visible


class Codec:
    """Knows pydantic-ai's classes by their names only: nothing of it is imported before use."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._lib: Any = importlib.import_module("pydantic_ai.messages")
        self.signed = True
        """Whether what a provider attached goes back; False after it has refused that."""
        self._says_failed = any(f.name == "outcome" for f in fields(self._lib.ToolReturnPart))

    def messages(self, request: ModelRequest) -> list[Any]:
        """Alternating requests and responses, the system prompt first."""
        lib = self._lib
        history: list[Any] = []
        waiting: list[Any] = [lib.SystemPromptPart(content=request.system)] if request.system else []
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                parts = self._answer(message)
                if not parts:
                    continue
                if waiting:
                    history.append(lib.ModelRequest(parts=waiting))
                    waiting = []
                history.append(lib.ModelResponse(parts=parts))
            elif isinstance(message, ToolMessage):
                waiting += self._results(message)
            else:
                waiting += self._prompt(message)
        return [*history, lib.ModelRequest(parts=waiting)] if waiting else history

    def extras(self, part: Any) -> str | None:
        """What the provider attached to a part, as text that `_restored` understands."""
        attached = any(getattr(part, name, None) for name in ("id", "signature", "provider_details"))
        if not attached:
            return None
        whole: bytes = self._lib.ModelMessagesTypeAdapter.dump_json([self._lib.ModelResponse(parts=[part])])
        return whole.decode()

    def _restored(self, kept: str | None) -> list[Any]:
        if not kept or not self.signed:
            return []
        try:
            return list(self._lib.ModelMessagesTypeAdapter.validate_json(kept)[0].parts)
        except ValueError:
            return []

    def _answer(self, message: AssistantMessage) -> list[Any]:
        lib, same = self._lib, own(message, self._info)
        parts: list[Any] = []
        for part in message.content:
            restored = self._restored(part.signature) if same else []
            if restored:
                parts += restored
            elif isinstance(part, ToolCall):
                parts.append(lib.ToolCallPart(tool_name=part.name, args=sent_arguments(part), tool_call_id=part.id))
            elif isinstance(part, Text):
                if part.text:
                    parts.append(lib.TextPart(content=part.text))
            elif isinstance(part, Thinking) and part.text and same and self.signed:
                parts.append(lib.ThinkingPart(content=part.text))
        return parts

    def _prompt(self, message: UserMessage) -> list[Any]:
        parts = visible(message.content, self._info)
        if not parts:
            return []
        content = [part.text if isinstance(part, Text) else self._file(part) for part in parts]
        return [self._lib.UserPromptPart(content=content[0] if len(content) == 1 else content)]

    def _results(self, message: ToolMessage) -> list[Any]:
        """Results are text; images and documents follow as the user's."""
        parts = [self._result(result) for result in message.results]
        after: list[Any] = []
        for result in message.results:
            files = [p for p in visible(result.content, self._info) if isinstance(p, (Image, Document))]
            if files:
                kind = "Documents" if isinstance(files[0], Document) else "Images"
                after += [f"{kind} from the tool {result.name}:", *map(self._file, files)]
        return [*parts, self._lib.UserPromptPart(content=after)] if after else parts

    def _result(self, result: ToolResult) -> Any:
        outcome = {"outcome": "failed"} if result.is_error and self._says_failed else {}
        return self._lib.ToolReturnPart(
            tool_name=result.name, content=result_text(result), tool_call_id=result.call_id, **outcome
        )

    def _file(self, part: Image | Document) -> Any:
        return self._lib.BinaryContent(data=b64decode(part.data), media_type=part.media_type)
