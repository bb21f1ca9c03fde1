"""GGUF files that are on the machine already are found; a small model that goes round in circles is stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retinue.errors import UnknownModelError
from retinue.models.inventory import list_models
from retinue.models.offline.local import Repetition
from retinue.models.offline.weights import find_weights
from retinue.models.select import select_model
from retinue.settings.table import Settings

installed = pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    """Return a home in which several programs have downloaded models, and some files are none."""
    for name in (
        ".cache/llama.cpp/gemma-3-4b-q4.gguf",
        ".cache/huggingface/hub/models--Qwen--Qwen3/snapshots/abc/qwen3-1.7b-q8.gguf",
        ".cache/huggingface/hub/models--Qwen--Qwen3/snapshots/abc/big-00002-of-00003.gguf",
        ".lmstudio/models/maker/repo/phi-4-mini.gguf",
        ".lmstudio/models/maker/repo/mmproj-phi.gguf",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF" + bytes(16))
    (tmp_path / ".cache/llama.cpp/notes.gguf").write_bytes(b"not a model")
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa11"},
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:bb22"},
    ]
    manifest = tmp_path / ".ollama/models/manifests/registry.ollama.ai/library/llama3.2/3b"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": layers}))
    (manifest.parent / "broken").write_text("{")
    blobs = tmp_path / ".ollama/models/blobs"
    blobs.mkdir()
    (blobs / "sha256-aa11").write_bytes(b"GGUF" + bytes(16))
    return tmp_path


def test_files_that_other_programs_downloaded_are_found_and_nothing_else(downloads: Path) -> None:
    found = find_weights({"HOME": str(downloads)})
    found.pop("smollm2", None)
    assert list(found) == ["gemma-3-4b-q4", "qwen3-1.7b-q8", "phi-4-mini", "llama3.2-3b"]
    assert found["llama3.2-3b"] == downloads / ".ollama/models/blobs/sha256-aa11"


@pytest.mark.parametrize("name", ["phi-4", "local/phi-4-mini", "phi-4-mini"])
async def test_a_file_that_was_found_is_listed_and_can_be_named(downloads: Path, name: str) -> None:
    environment = {"HOME": str(downloads)}
    chosen = await select_model(name, settings=Settings(), environment=environment)
    assert chosen.info.full_name == "local/phi-4-mini"
    assert chosen.path == downloads / ".lmstudio/models/maker/repo/phi-4-mini.gguf"
    listed = await list_models(Settings(), environment)
    assert "local/phi-4-mini" in [info.full_name for info in listed.models]


async def test_a_file_that_was_found_is_no_default_until_it_is_chosen(downloads: Path) -> None:
    environment = {"HOME": str(downloads)}
    assert (await select_model(settings=Settings(), environment=environment)).source == "offline"
    chosen = await select_model(settings=Settings({"model": "local/phi-4-mini"}), environment=environment)
    assert (chosen.source, chosen.info.full_name) == ("settings", "local/phi-4-mini")


async def test_a_name_near_to_a_file_is_suggested(downloads: Path) -> None:
    with pytest.raises(UnknownModelError) as error:
        await select_model("phi4-mini", settings=Settings(), environment={"HOME": str(downloads)})
    assert "Did you mean local/phi-4-mini?" in error.value.remedy


@pytest.mark.parametrize("piece", ["I'm a new agent, ready to help with your task. ", "Theanswer is 4.\n", "ha ", "0"])
def test_an_answer_that_goes_round_in_circles_is_noticed(piece: str) -> None:
    repetition = Repetition()
    heard = 0
    while not repetition.found and heard < 5_000:
        for character in piece:
            repetition.hear(character)
        heard += len(piece)
    assert repetition.found
    assert heard < 1_000, "before it has filled the screen"


def test_an_answer_that_only_resembles_itself_is_not_stopped() -> None:
    repetition = Repetition()
    for number in range(200):
        repetition.hear(f"| row {number} | value {number * 7} | ok |\n")
        repetition.hear(f"- [ ] Check that file number {number} is there.\n")
    repetition.hear("def f():\n    return None\n" * 3)
    repetition.hear("-" * 200 + "\nThe end.")
    assert repetition.found == ""
