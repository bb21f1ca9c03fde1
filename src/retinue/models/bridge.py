"""Every other provider, through the models of pydantic-ai (extra `providers`).

Slower to load and per token than our own formats, and the way to Bedrock, Cohere, Hugging Face
and whatever pydantic-ai supports next. The data that a provider attaches to its parts (signatures, ids)
is kept with them and goes back unchanged.
"""

from __future__ import annotations

import importlib
import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import fields
from typing import Any

import orjson
from msgspec.structs import replace

from retinue.core.install import install_command
from retinue.core.messages import (
    AssistantMessage,
    Document,
    Image,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from retinue.core.outcome import Failure, FailureKind
from retinue.errors import ConfigurationError, MissingExtraError, UnknownModelError
from retinue.models.draft import CallDraft, MessageDraft, TextDraft, ThinkingDraft, replace_usage
from retinue.models.efforts import level_of
from retinue.models.failures import Wire, from_status
from retinue.models.keys import KeysInEnvironment
from retinue.models.protocol import (
    Alive,
    ModelInfo,
    ModelRequest,
    Part,
    is_from_provider,
    result_text,
    sent_arguments,
    visible,
    visible_files,
)


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
        waiting: list[Any] = []
        if request.system:
            waiting.append(lib.SystemPromptPart(content=request.system))
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
        if waiting:
            return [*history, lib.ModelRequest(parts=waiting)]
        return history

    def extras(self, part: Any) -> str | None:
        """Return what the provider attached to a part, as text that `_restore_parts` understands."""
        signed = getattr(part, "id", None) or getattr(part, "signature", None)
        if not signed and not getattr(part, "provider_details", None):
            return None
        serialized: bytes = self._lib.ModelMessagesTypeAdapter.dump_json([self._lib.ModelResponse(parts=[part])])
        return serialized.decode()

    def _restore_parts(self, serialized: str | None) -> list[Any]:
        if not serialized or not self.signed:
            return []
        try:
            return list(self._lib.ModelMessagesTypeAdapter.validate_json(serialized)[0].parts)
        except ValueError:
            return []

    def _answer(self, message: AssistantMessage) -> list[Any]:
        lib, is_own = self._lib, is_from_provider(message, self._info)
        parts: list[Any] = []
        for block in message.content:
            restored = self._restore_parts(block.signature) if is_own else []
            if restored:
                parts += restored
            elif isinstance(block, ToolCall):
                parts.append(lib.ToolCallPart(tool_name=block.name, args=sent_arguments(block), tool_call_id=block.id))
            elif isinstance(block, Text):
                if block.text:
                    parts.append(lib.TextPart(content=block.text))
            elif isinstance(block, Thinking) and block.text and is_own and self.signed:
                parts.append(lib.ThinkingPart(content=block.text))
        return parts

    def _prompt(self, message: UserMessage) -> list[Any]:
        blocks = visible(message.content, self._info)
        if not blocks:
            return []
        content = [block.text if isinstance(block, Text) else self._file(block) for block in blocks]
        if len(content) == 1:
            return [self._lib.UserPromptPart(content=content[0])]
        return [self._lib.UserPromptPart(content=content)]

    def _results(self, message: ToolMessage) -> list[Any]:
        """Results are text; images and documents follow as the user's."""
        parts = [self._result(result) for result in message.results]
        after: list[Any] = []
        for result in message.results:
            files = visible_files(result, self._info)
            if files:
                kind = "Documents" if isinstance(files[0], Document) else "Images"
                after += [f"{kind} from the tool {result.name}:", *map(self._file, files)]
        if after:
            return [*parts, self._lib.UserPromptPart(content=after)]
        return parts

    def _result(self, result: ToolResult) -> Any:
        outcome = {}
        # Older versions of pydantic-ai have no such field.
        if result.is_error and self._says_failed:
            outcome["outcome"] = "failed"
        return self._lib.ToolReturnPart(
            tool_name=result.name, content=result_text(result), tool_call_id=result.call_id, **outcome
        )

    def _file(self, file: Image | Document) -> Any:
        return self._lib.BinaryContent(data=b64decode(file.data), media_type=file.media_type)


_ALIVE = (Alive(),)
_STOPS: dict[str, StopReason] = {"length": "length", "content_filter": "refusal", "tool_call": "tool_use"}
_FAILURE_KINDS: dict[str, FailureKind] = {
    "ModelRateLimitError": "rate_limit",
    "ModelOverloadedError": "overloaded",
    "ModelUnavailableError": "overloaded",
    "ModelTimeoutError": "timeout",
    "ModelRequestTimeout": "timeout",
    "ModelConnectionError": "dropped",
    "ModelContextWindowExceededError": "context_overflow",
    "ModelAuthenticationError": "authentication",
    "ModelQuotaExceededError": "authentication",
    "ModelNotFoundError": "not_found",
    "ModelRequestRejectedError": "invalid_request",
    "ContentFilterError": "refused",
    "UnexpectedModelBehavior": "malformed",
    "UserError": "invalid_request",
    "ModelAPIError": "server",
    "TimeoutError": "timeout",
    "TransportError": "dropped",
    "OSError": "dropped",
}
"""By class name along an exception's ancestry: the classes differ between versions."""


def _caching(name: str) -> dict[str, Any]:
    """Claude caches only what it is told to, and pydantic-ai tells it nothing by itself."""
    provider = name.partition(":")[0]
    if provider == "anthropic" or (provider == "bedrock" and "claude" in name):
        cache = f"{provider}_cache"
        return {f"{cache}_tool_definitions": True, f"{cache}_instructions": True, f"{cache}_messages": True}
    return {}


class PydanticAIModel:
    """`model` is one of pydantic-ai's models, or its name as pydantic-ai writes it; without it
    the name is `provider:id`. Keys come from where pydantic-ai looks for them."""

    def __init__(self, info: ModelInfo, model: Any = None, *, settings: Mapping[str, Any] | None = None) -> None:
        self._info = info
        self._settings = dict(settings or {})
        name = f"{info.provider}:{info.id}" if model is None else model
        try:
            self._direct = importlib.import_module("pydantic_ai.direct")
            self._models = importlib.import_module("pydantic_ai.models")
        except ImportError:
            provider_name = name.partition(":")[0] if isinstance(name, str) else info.provider
            raise MissingExtraError("providers", f"The provider '{provider_name}'") from None
        self._model = self._infer(name) if isinstance(name, str) else name
        self._codec = Codec(info)
        self._wire = Wire(info.full_name, "", key_variable=_key_variable(name if isinstance(name, str) else info.id))

    def _infer(self, name: str) -> Any:
        try:
            with KeysInEnvironment():
                return self._models.infer_model(name)
        except ImportError as error:
            raise _missing_library(name, str(error)) from None
        except Exception as error:  # pydantic-ai raises its own UserError, or what the SDK behind it raises
            remedy = "See pydantic-ai's documentation for its names and variables."
            raise UnknownModelError(f"pydantic-ai cannot use '{name}': {error}", remedy=remedy) from error

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """pydantic-ai's HTTP clients are its own and are shared in the process."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        draft = MessageDraft(self._info, request.messages)
        async with aclosing(self._parts(request, draft)) as parts:
            async for part in parts:
                yield part
        if self._codec.signed and _refuses_thoughts(draft):
            # As our own Anthropic format does: a refused signature costs the old thinking, not the run.
            self._codec.signed = False
            draft = MessageDraft(self._info, request.messages)
            async with aclosing(self._parts(request, draft)) as parts:
                async for part in parts:
                    yield part
        yield draft.finished()

    async def _parts(self, request: ModelRequest, draft: MessageDraft) -> AsyncGenerator[Part, None]:
        reader = _Reader(draft)
        asked = {
            "messages": self._codec.messages(request),
            "model_settings": self._request_settings(request),
            "model_request_parameters": self._parameters(request),
        }
        try:
            async with self._direct.model_request_stream(self._model, **asked) as response:
                async for event in response:
                    reader.absorb(event)
                    for part in draft.shown() or _ALIVE:
                        yield part
                reader.finish(response.get(), self._codec)
        except NotImplementedError:
            await self._whole(asked, draft)
        except Exception as error:  # noqa: BLE001 - whatever a foreign client raises is a failed request
            draft.fail(self._failure(error))
        for part in draft.shown():
            yield part

    async def _whole(self, asked: Mapping[str, Any], draft: MessageDraft) -> None:
        """Ask a model that cannot stream."""
        try:
            _Reader(draft).finish(await self._direct.model_request(self._model, **asked), self._codec)
        except Exception as error:  # noqa: BLE001 - as above
            draft.fail(self._failure(error))

    def _parameters(self, request: ModelRequest) -> Any:
        define = importlib.import_module("pydantic_ai.tools").ToolDefinition
        tools = []
        for tool in request.tools:
            tools.append(
                define(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters))
            )
        return self._models.ModelRequestParameters(function_tools=tools, allow_text_output=True)

    def _request_settings(self, request: ModelRequest) -> dict[str, Any]:
        settings = {**_caching(self._info.id), **self._settings}
        if "max_retries" not in getattr(self._model, "unsupported_settings", ()):
            # The limiter and the retries are ours: the SDKs' own would multiply them.
            settings.setdefault("max_retries", 0)
        if request.max_output is not None:
            settings["max_tokens"] = request.max_output
        if request.temperature is not None:
            settings["temperature"] = request.temperature
        if request.tools and request.tool_choice != "auto":
            settings["tool_choice"] = request.tool_choice
        level = level_of(request.thinking)
        if level is not None and self._info.thinking:
            settings["thinking"] = False if level == "off" else level
        return {**settings, **request.options}

    def _failure(self, error: Exception) -> Failure:
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            body = _plain_body(getattr(error, "body", None))
            data = body.encode() if isinstance(body, str) else orjson.dumps(body, default=str)
            headers = getattr(error, "headers", None) or {}
            failure = from_status(self._wire, status, headers, data)
            wait = getattr(error, "retry_after", None)
            if failure.transient and failure.retry_after is None and isinstance(wait, (int, float)):
                failure = replace(failure, retry_after=float(wait))
            return failure
        kind: FailureKind = "internal"
        for parent in type(error).__mro__:
            if parent.__name__ in _FAILURE_KINDS:
                kind = _FAILURE_KINDS[parent.__name__]
                break
        text = self._wire.scrub(str(error)) or type(error).__name__
        return Failure(kind, f"{self._info.full_name} failed in pydantic-ai: {text}")


_KEY_VARIABLES = {
    "bedrock": "AWS_PROFILE, AWS_ACCESS_KEY_ID or AWS_BEARER_TOKEN_BEDROCK",
    "cohere": "CO_API_KEY",
    "huggingface": "HF_TOKEN",
    "google": "GOOGLE_API_KEY",
    "google-cloud": "GOOGLE_APPLICATION_CREDENTIALS",
    "azure": "AZURE_OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
}


def _key_variable(name: str) -> str:
    """Return where pydantic-ai's model of that name has its key from."""
    provider = name.partition(":")[0]
    return _KEY_VARIABLES.get(provider, f"{provider.upper().replace('-', '_')}_API_KEY")


def _plain_body(body: Any) -> Any:
    """Return an error of botocore's, `{"Error": {"Message": …, "Code": …}}`, in the words of the others."""
    error = None
    if isinstance(body, dict):
        error = body.get("Error")
    if not isinstance(error, dict):
        return body
    return {"error": {"message": error.get("Message", ""), "code": error.get("Code", "")}}


def _refuses_thoughts(draft: MessageDraft) -> bool:
    """Claude on Bedrock and Vertex: "Invalid `signature` in `thinking` block" and its kin."""
    failure = draft.failure
    if failure is None or failure.kind != "invalid_request" or draft.blocks:
        return False
    message = failure.message.lower()
    return "signature" in message and "thinking" in message


def _missing_library(name: str, reason: str) -> ConfigurationError:
    """Return the failure when pydantic-ai is installed without what one provider needs. It names its own extra."""
    extra = re.search(r"pydantic-ai-slim\[([\w-]+)\]", reason)
    command = install_command("providers")
    if extra:
        command = f"pip install 'pydantic-ai-slim[{extra[1]}]'"
    message = f"pydantic-ai lacks a library for '{name}': {' '.join(reason.split())[:300]}"
    return ConfigurationError(message, remedy=f"Install it with: {command}")


class _Reader:
    """Stream events for showing; the finished response for keeping."""

    def __init__(self, draft: MessageDraft) -> None:
        self._draft = draft
        self._parts: dict[int, TextDraft | ThinkingDraft | CallDraft] = {}

    def absorb(self, event: Any) -> None:
        if event.event_kind == "part_start":
            self._begin(event.index, event.part)
        elif event.event_kind == "part_delta":
            part, delta = self._parts.get(event.index), event.delta
            if isinstance(part, TextDraft) and delta.part_delta_kind == "text":
                self._draft.extend(part, delta.content_delta)
            elif isinstance(part, ThinkingDraft) and delta.part_delta_kind == "thinking":
                self._draft.extend(part, delta.content_delta or "")

    def _begin(self, index: int, part: Any) -> None:
        draft = self._draft
        if part.part_kind == "text":
            text = self._parts[index] = draft.add_text()
            draft.extend(text, part.content)
        elif part.part_kind == "thinking":
            thinking = self._parts[index] = draft.add_thinking()
            draft.extend(thinking, part.content)
        elif part.part_kind == "tool-call":
            self._parts[index] = draft.add_call(part.tool_call_id, part.tool_name)

    def finish(self, response: Any, codec: Codec) -> None:
        for index, part in enumerate(response.parts):
            if index not in self._parts:
                self._begin(index, part)
            draft = self._parts.get(index)
            if draft is None:
                continue
            draft.signature = codec.extras(part)
            if isinstance(draft, CallDraft):
                draft.id, draft.name = part.tool_call_id, part.tool_name
                draft.give(part.args)
        usage = response.usage
        self._draft.usage = replace_usage(
            self._draft.usage,
            prompt=usage.input_tokens,
            output=usage.output_tokens,
            cache_read=usage.cache_read_tokens,
            cache_write=usage.cache_write_tokens,
        )
        reason = response.finish_reason
        if reason == "error":
            self._draft.fail(Failure("server", f"{self._draft.info.full_name} ended with an error."))
        self._draft.stop = _STOPS.get(reason or "", "end")
