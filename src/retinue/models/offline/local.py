"""A real language model on this machine's processor, through llama.cpp and any GGUF file.

A model whose chat template knows tools gets them its own way, which leaves it free to talk
before it calls; every other one, and every call that is required, goes by a grammar of ours
(`grammar.py`). Either way tokens stream as they are made, and counts are the engine's own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

from retinue.core.failure import Failure
from retinue.errors import RetinueError
from retinue.models.chat_body import ChatShape, build_messages
from retinue.models.chat_reader import ChatReader
from retinue.models.draft import Draft
from retinue.models.failures import Wire
from retinue.models.offline.engine import Chunk, Engine, acquire, release, require_library, shipped_weights
from retinue.models.offline.gguf import read_header
from retinue.models.offline.grammar import CallReader, conversation, describe, grammar
from retinue.models.protocol import ModelInfo, ModelRequest, Part, Prices

WIDEST = 16_384
"""A window takes memory whether it is used or not; larger training windows are cut to this."""

INFO = ModelInfo("local", "smollm2", window=8_192, max_output=2_048, images=False, prices=Prices(0.0, 0.0, 0.0, 0.0))


class LocalModel:
    """Raises ConfigurationError for a file that is no GGUF file and MissingExtraError without
    the extra, both at once; weights are loaded with the first request. `template` replaces the
    file's own chat template (Jinja)."""

    def __init__(self, path: Path | None = None, info: ModelInfo | None = None, *, template: str = "") -> None:
        require_library()
        self._path = (path.expanduser() if path else shipped_weights()).resolve()
        header = read_header(self._path)
        known = info or replace(INFO, id=self._path.stem, name=header.name)
        self._info = replace(known, window=min(header.window or known.window, WIDEST), images=False)
        self._native = "tools" in template if template else header.knows_tools
        self._engine: Engine | None = acquire(self._path, self._info.window, template)

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        draft = Draft(self._info, request.messages)
        native = self._native and request.tool_choice != "required"
        answer = _Answer(draft, Wire(self._info.full_name, str(self._path)), _names(request, native))
        generation: _Generation | None = None
        try:
            generation = _Generation(self._opened(), self._body(request, native))
            while (chunk := await generation.next()) is not None:
                answer.take(chunk)
                for part in draft.shown():
                    yield part
        except RetinueError as error:
            draft.fail(Failure("invalid_request", error.message, error.remedy))
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            draft.fail(Failure("invalid_request", f"llama.cpp refused the request: {error}"))
        finally:
            if generation is not None:
                generation.stop()
        answer.end()
        for part in draft.shown():
            yield part
        yield draft.finished()

    async def close(self) -> None:
        """The weights stay loaded for the next run of the same file."""
        if self._engine is not None:
            release(self._engine)
            self._engine = None

    def _opened(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the model was closed")
        return self._engine

    def _body(self, request: ModelRequest, native: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": request.max_output or self._info.max_output,
            "temperature": 0.2 if request.temperature is None else request.temperature,
            "cache_prompt": True,
            **request.options,
        }
        choice = request.tool_choice if request.tools else "none"
        if native:
            body["messages"] = build_messages(request, self._info, ChatShape())
            if choice != "none":
                body |= {"tools": [_function(tool) for tool in request.tools], "tool_choice": choice}
        elif choice == "none":
            body["messages"] = conversation(request.system, request.messages)
        else:
            system = f"{request.system}\n\n{describe(request.tools)}".strip()
            body["messages"] = conversation(system, request.messages)
            body["grammar"] = grammar(request.tools, choice, require_library().json_schema_to_grammar)
        cleaned: dict[str, Any] = _clean(body)
        return cleaned


class _Generation:
    """One answer being made on the engine's threads, chunk by chunk on ours."""

    def __init__(self, engine: Engine, body: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[Chunk | BaseException | None] = asyncio.Queue()
        self._stopped = threading.Event()
        self._work = engine.threads.submit(self._run, engine, body)

    async def next(self) -> Chunk | None:
        """The next chunk, or None after the last."""
        chunk = await self._chunks.get()
        if isinstance(chunk, BaseException):
            raise chunk
        return chunk

    def stop(self) -> None:
        """No further token is made; a request that still waits is never begun."""
        self._stopped.set()
        self._work.cancel()

    def _run(self, engine: Engine, body: dict[str, Any]) -> None:
        ended: BaseException | None = None
        try:
            engine.complete(body, self._receive)
        except Exception as error:  # noqa: BLE001 - handed to the waiting side, which sorts it out
            ended = error
        self._hand(ended)

    def _receive(self, chunk: Chunk) -> bool:
        return self._stopped.is_set() or not self._hand(chunk)

    def _hand(self, item: Chunk | BaseException | None) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, item)
        except RuntimeError:  # the loop was closed: nobody is waiting any more
            return False
        return True


class _Answer:
    """Chunks into the draft. Without native tools, calls are read out of the text."""

    def __init__(self, draft: Draft, wire: Wire, names: tuple[str, ...]) -> None:
        self._draft = draft
        self._reader = ChatReader(draft, wire)
        self._names = names
        self._calls = CallReader() if names else None

    def take(self, chunk: Chunk) -> None:
        if self._calls is not None:
            for choice in chunk.get("choices") or ():
                delta = choice.get("delta") or {}
                if delta.get("content"):
                    delta["content"] = self._calls.feed(delta["content"])
        self._reader.absorb(chunk)

    def end(self) -> None:
        if self._calls is None:
            return
        rest = self._calls.end(self._names)
        if isinstance(rest, tuple):
            name, arguments = rest
            self._draft.add_call("", name).take(arguments)
        else:
            self._draft.text(rest)


def _names(request: ModelRequest, native: bool) -> tuple[str, ...]:
    """The tools whose calls have to be read out of text."""
    return () if native or request.tool_choice == "none" else tuple(tool.name for tool in request.tools)


def _function(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _clean(value: Any) -> Any:
    """Text that is no valid Unicode, such as half of a surrogate pair, cannot cross over."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, (list, tuple)) else value
