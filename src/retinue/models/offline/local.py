"""The beginning of a GGUF file: enough to say what it is without loading it.

A real language model on this machine's processor, through llama.cpp and any GGUF file.

A model whose chat template knows tools gets them its own way, which leaves it free to talk
before it calls; every other one, and every call that is required, goes by a grammar of ours
(`grammar.py`). Either way tokens stream as they are made, and counts are the engine's own.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import AsyncGenerator
from io import BufferedReader
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import TextDelta
from retinue.core.outcome import Failure
from retinue.errors import ConfigurationError, RetinueError
from retinue.models.draft import MessageDraft
from retinue.models.failures import Wire
from retinue.models.offline.engine import (
    CallReader,
    Chunk,
    Engine,
    acquire,
    conversation,
    describe,
    grammar,
    release,
    require_library,
    shipped_weights,
)
from retinue.models.openai_chat import ChatShape, build_messages
from retinue.models.openai_chat_reader import ChatReader
from retinue.models.protocol import ModelInfo, ModelRequest, Part, Prices

MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST, _MOST = 1 << 24, 1 << 24
"""Bytes of a text and entries of a list beyond which a header is taken for garbage."""


class Header(Struct, frozen=True):
    """`window` is what the model was trained for. `template` writes a conversation as text; one
    that knows `tools` writes them in the words the model was trained on."""

    name: str = ""
    window: int | None = None
    template: str = ""

    @property
    def knows_tools(self) -> bool:
        return "tools" in self.template


def read_header(path: Path) -> Header:
    """Raises ConfigurationError unless `path` is a GGUF file that can be read."""
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise ConfigurationError(
                    f"{path} is not a GGUF file.",
                    remedy="Name the weights of a model in llama.cpp's format, which end in .gguf.",
                )
            return _read(file)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror or error}.",
            remedy="Give the path of a GGUF file that this user may read.",
        ) from error
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path} begins like a GGUF file but is damaged: {error}.", remedy="Download or copy it again."
        ) from error


def _read(file: BufferedReader) -> Header:
    version = _number(file, "I")
    if version not in (2, 3):
        raise ValueError(f"version {version} is not known")
    # How many tensors.
    _number(file, "Q")
    values: dict[str, Any] = {}
    for _ in range(min(_number(file, "Q"), _MOST)):
        key = _text(file)
        value = _value(file, _number(file, "I"))
        if value is not None:
            values[key] = value
    window = values.get(f"{values.get('general.architecture')}.context_length")
    return Header(
        name=str(values.get("general.name") or ""),
        window=window if isinstance(window, int) and window > 0 else None,
        template=str(values.get("tokenizer.chat_template") or ""),
    )


def _value(file: BufferedReader, kind: int) -> Any:
    """Lists are passed over: they are vocabularies."""
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        if kind not in _NUMBERS:
            raise ValueError(f"a value of unknown type {kind}")
        return _number(file, _NUMBERS[kind])
    inner, count = _number(file, "I"), _number(file, "Q")
    if count > _MOST:
        raise ValueError(f"a list of {count} entries")
    if inner in _NUMBERS:
        file.seek(struct.calcsize(_NUMBERS[inner]) * count, 1)
        return None
    for _ in range(count):
        if inner == _STRING:
            file.seek(_length(file), 1)
        else:
            _value(file, inner)
    return None


def _text(file: BufferedReader) -> str:
    length = _length(file)
    data = file.read(length)
    if len(data) < length:
        raise ValueError("it ends in the middle of its header")
    return data.decode("utf-8", "replace")


def _length(file: BufferedReader) -> int:
    length: int = _number(file, "Q")
    if length > _LONGEST:
        raise ValueError(f"a text of {length} bytes")
    return length


def _number(file: BufferedReader, form: str) -> Any:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]


_REMEMBERED, _SHORTEST, _TIMES = 800, 12, 4
"""Characters that are looked at for repetition, those of a sentence that counts, and how often it may be said."""
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
        draft = MessageDraft(self._info, request.messages)
        native = self._native and request.tool_choice != "required"
        answer = _Answer(draft, Wire(self._info.full_name, str(self._path)), _names(request, native))
        generation: _Generation | None = None
        repetition = Repetition()
        try:
            generation = _Generation(self._opened(), self._body(request, native))
            while (chunk := await generation.next()) is not None:
                answer.take(chunk)
                for part in draft.shown():
                    if isinstance(part, TextDelta):
                        repetition.hear(part.text)
                    yield part
                if repetition.found:
                    # The same weights would say the same again.
                    draft.fail(Failure("malformed", f"{self._info.full_name} {repetition.found}", again=False))
                    break
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
            # Small models repeat themselves until the limit otherwise.
            "repeat_penalty": 1.1,
            "repeat_last_n": 256,
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


class Repetition:
    """Notices a text that goes round in circles: the same sentence again and again, or the same few characters.
    `found` says so in words; empty as long as it does not."""

    def __init__(self) -> None:
        self.found = ""
        self._tail = ""

    def hear(self, text: str) -> None:
        self._tail = (self._tail + text)[-_REMEMBERED:]
        if not self.found and any(end in text for end in ".!?\n"):
            self._count_sentences()
        if not self.found and len(self._tail) >= _REMEMBERED:
            self._look_for_circle()

    def _count_sentences(self) -> None:
        sentences = [" ".join(each.split()).lower() for each in re.split(r"[.!?\n]+", self._tail)]
        long = [each for each in sentences[:-1] if len(each) >= _SHORTEST]
        if long and long.count(long[-1]) >= _TIMES:
            self.found = f"said the same sentence {_TIMES} times and was stopped there; a larger model does so less."

    def _look_for_circle(self) -> None:
        for length in range(1, _REMEMBERED // _TIMES):
            piece = self._tail[-length:]
            if self._tail.endswith(piece * (_REMEMBERED // length)):
                self.found = "repeated itself and was stopped there; a larger model does so less."
                return


class _Generation:
    """One answer being made on the engine's threads, chunk by chunk on ours."""

    def __init__(self, engine: Engine, body: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[Chunk | BaseException | None] = asyncio.Queue()
        self._stopped = threading.Event()
        self._work = engine.threads.submit(self._run, engine, body)

    async def next(self) -> Chunk | None:
        """Return the next chunk, or None after the last."""
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

    def __init__(self, draft: MessageDraft, wire: Wire, names: tuple[str, ...]) -> None:
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
    if native or request.tool_choice == "none":
        return ()
    return tuple(tool.name for tool in request.tools)


def _function(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _clean(value: Any) -> Any:
    """Text that is no valid Unicode, such as half of a surrogate pair, cannot cross over."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value
