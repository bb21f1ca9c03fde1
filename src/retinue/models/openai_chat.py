"""OpenAI's Chat Completions format, and the many servers that speak something close to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import deepcopy
from typing import Any

from retinue.core.tool import ToolSpec
from retinue.models.chat_body import ChatShape, build_messages, mark_for_cache
from retinue.models.chat_reader import ChatReader
from retinue.models.content import cache_mark
from retinue.models.draft import Draft
from retinue.models.efforts import effort_for, efforts_of
from retinue.models.protocol import Finished, ModelRequest, Noted, Part
from retinue.models.repair import Refusal
from retinue.models.thinking import level_of, version_of
from retinue.models.tool_schema import portable_schema
from retinue.models.wire import Reader, WireModel

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
        self._wants_responses = False
        self._responses: WireModel | None = None

    def url(self) -> str:
        return self._endpoint("/chat/completions", "v1", always=False)

    def reader(self, draft: Draft) -> Reader:
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
        from retinue.models.openai_responses import OpenAIResponsesModel

        given, named = self._given
        return OpenAIResponsesModel(*given, **named)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        quirks = self._quirks
        shape = ChatShape(
            self._system_role(),
            self._field,
            self._field_required,
            quirks.assistant_after_tools,
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
        return routed if self._quirks.cache_control is None else self._quirks.cache_control

    def adapt(self, request: ModelRequest, body: dict[str, Any], refusal: Refusal) -> bool:
        """Servers of reasoning models either want the reasoning back or do not want it, and say
        so by refusing: the other way is tried once."""
        said = refusal.said
        if "v1/responses" in said or "responses api" in said:
            # "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions.
            # Please use /v1/responses instead." (pipecat#4043, litellm#34569)
            self._wants_responses = True
            return False
        if "reasoning_content" in said and not self._field_learned:
            self._field_learned = True
            wanted = any(word in said for word in ("must be passed", "missing", "required"))
            if wanted or self._field is None:
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
