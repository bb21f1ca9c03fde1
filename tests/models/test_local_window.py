"""A server on this machine is asked for its window, each in its own way; the maker's is never assumed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from retinue.http.transport import Transport
from retinue.models import inventory as local_window
from retinue.models.inventory import with_local_window
from retinue.models.providers import Providers
from retinue.settings.table import Settings
from retinue.testing import ModelInfo
from tests.models.scripts import said
from tests.models.servers import Reply, Server, failing


class Paths(Server):
    """Answers by path, as often as it is asked. A list is used up answer by answer."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__()
        self.answers = {path: list(answer) if isinstance(answer, list) else answer for path, answer in answers.items()}

    async def _answer(self, reply: Reply, reader: Any, writer: Any) -> bool:
        path = self.seen[-1].target
        answer = self.answers.get(path)
        if isinstance(answer, list):
            answer = answer.pop(0)
        found = failing(404, {}) if answer is None else failing(200, answer)
        return await super()._answer(found, reader, writer)


async def asked(
    provider: str, model: str, answers: Mapping[str, Any], **settings: Any
) -> tuple[ModelInfo, str | None, list[str]]:
    async with Paths(answers) as server:
        entry = {"baseUrl": f"{server.url}/v1", **settings.pop("entry", {})}
        providers = Providers(Settings({"providers": {provider: entry}, **settings}), {})
        found = providers.get(provider)
        assert found is not None
        transport = Transport()
        info = providers.info(found, model)
        made = await with_local_window(found, info, transport, providers.has_window(found, model))
        await transport.close()
        return *made, [seen.target for seen in server.seen]


async def test_ollama_says_what_the_loaded_model_has() -> None:
    """ollama docs/api.md, list running models: context_length."""
    ps = {"models": [{"name": "qwen3:latest", "context_length": 65536}]}
    info, note, paths = await asked("ollama", "qwen3", {"/api/ps": ps})
    assert (info.window, note, paths) == (65536, None, ["/api/ps"])


class Loading(Paths):
    """Loads the model only when someone was told that it is waited for."""

    def __init__(self, model: str) -> None:
        loaded = {"models": [{"name": model, "context_length": 65536}]}
        super().__init__({"/api/ps": [{"models": []}, loaded], "/api/generate": {"done": True}})
        self.told = asyncio.Event()

    async def _answer(self, reply: Reply, reader: Any, writer: Any) -> bool:
        if self.seen[-1].target == "/api/generate":
            await self.told.wait()
        if self.seen[-1].target == "/v1/chat/completions":
            return await Server._answer(self, Reply(said("openai", "ok")), reader, writer)
        return await super()._answer(reply, reader, writer)


async def test_whoever_waits_for_a_model_to_load_is_told_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_window, "UNREPORTED_SECONDS", 0.01)
    words: list[tuple[str, float]] = []
    async with Loading("qwen3-loading") as server:

        def tell(what: str, seconds: float) -> None:
            words.append((what, seconds))
            server.told.set()

        providers = Providers(Settings({"providers": {"ollama": {"baseUrl": f"{server.url}/v1"}}}), {})
        found = providers.get("ollama")
        assert found is not None
        transport = Transport()
        info, note = await with_local_window(found, providers.info(found, "qwen3-loading"), transport, False, tell)
        await transport.close()
    assert (info.window, note) == (65536, None)
    assert words[0][0] == "waiting for the server 'ollama' to load qwen3-loading" and words[0][1] > 0


async def test_the_program_says_that_ollama_loads_the_model(tmp_path: Path) -> None:
    async with Loading("qwen3") as server:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "RETINUE_HOME": str(tmp_path / "home"),
            "OLLAMA_HOST": server.url,
        }
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "retinue", "-p", "hello", "--model", "ollama/qwen3"),
            cwd=tmp_path,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert program.stderr is not None and program.stdout is not None
        while line := (await program.stderr.readline()).decode():
            if "waiting for the server 'ollama' to load qwen3, 3 s" in line:
                server.told.set()
        out = (await program.stdout.read()).decode()
        assert (await program.wait(), out.strip()) == (0, "ok")
    assert server.told.is_set()


async def test_ollama_loads_a_model_that_is_not_loaded_and_a_small_window_is_said() -> None:
    """Below 24 GiB of video memory the default is 4,096 (ollama docs/context-length.mdx)."""
    loaded = {"models": [{"name": "deepseek-v4-flash:latest", "context_length": 4096}]}
    answers = {"/api/ps": [{"models": []}, loaded], "/api/generate": {"done": True}}
    info, note, paths = await asked("ollama", "deepseek-v4-flash", answers)
    assert info.window == 4096, "not the maker's 1,000,000"
    assert info.max_output <= 2048
    assert note is not None and "OLLAMA_CONTEXT_LENGTH" in note
    assert paths == ["/api/ps", "/api/generate", "/api/ps"]


@pytest.mark.parametrize(
    ("shown", "window"),
    [
        ('temperature 0.7\nnum_ctx    8192\nstop "<|im_end|>"', 8192),
        ("temperature 0.7", 32768),
        ("num_ctx many", 32768),
    ],
)
async def test_an_ollama_that_does_not_say_it_of_a_loaded_model_is_asked_for_the_models_parameters(
    shown: str, window: int
) -> None:
    """docs.ollama.com show-model-details: `parameters` is a text of lines; older versions have no context_length."""
    answers = {"/api/ps": {"models": [{"name": "qwen3:latest"}]}, "/api/show": {"parameters": shown}}
    info, note, paths = await asked("ollama", "qwen3", answers)
    assert info.window == window
    assert note is not None and ("only 8192 tokens" in note or "32768 tokens are assumed" in note)
    assert paths[-1] == "/api/show"


@pytest.mark.parametrize(
    ("provider", "answers"),
    [
        # docs.vllm.ai OpenAI-compatible server, /v1/models
        ("vllm", {"/v1/models": {"data": [{"id": "m", "max_model_len": 40960}]}}),
        # llama.cpp tools/server/README.md, GET /props
        ("llama.cpp", {"/props": {"default_generation_settings": {"n_ctx": 40960}}}),
        # lmstudio.ai/docs REST API v0
        ("lmstudio", {"/api/v0/models": {"data": [{"id": "m", "loaded_context_length": 40960}]}}),
        ("mine", {"/v1/models": {"data": [{"id": "m", "max_model_len": 40960}]}}),
    ],
)
async def test_other_servers_are_asked_in_their_own_way(provider: str, answers: Mapping[str, Any]) -> None:
    info, note, _ = await asked(provider, "m", answers)
    assert (info.window, note) == (40960, None)


async def test_a_server_that_does_not_say_gets_a_modest_window_and_that_is_said() -> None:
    info, note, _ = await asked("ollama", "qwen3.8-max", {})
    assert info.window == 32768, "not the maker's 991,808"
    assert note is not None and "32768 tokens are assumed" in note


@pytest.mark.parametrize(
    "settings",
    [{"models": {"ollama/qwen3": {"window": 50000}}}, {"entry": {"models": [{"id": "qwen3", "window": 50000}]}}],
)
async def test_a_window_in_the_settings_is_believed_and_nobody_is_asked(settings: dict[str, Any]) -> None:
    info, note, paths = await asked("ollama", "qwen3", {}, **settings)
    assert (info.window, note, paths) == (50000, None, [])


async def test_a_relay_to_a_maker_is_not_asked() -> None:
    _, note, paths = await asked("openai", "gpt-4.1", {}, entry={"apiKey": "k"})
    assert (note, paths) == (None, [])
