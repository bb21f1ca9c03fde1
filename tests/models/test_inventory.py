"""One list of models for every front end, and one resolver over it. Servers are real ones on loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retinue.errors import UnknownModelError
from retinue.models.inventory import ModelInventory, list_models
from retinue.models.presets import BUILT_IN, PRESETS
from retinue.models.select import ModelSelection, select_model
from retinue.settings.table import Settings
from tests.models.servers import Reply, Server

PLAIN = {name: preset for name, preset in {**BUILT_IN, **PRESETS}.items() if preset.needs_key and preset.url}


def answer(*models: str) -> Reply:
    """Return a list of models in OpenAI's format."""
    body = json.dumps({"data": [{"id": model} for model in models]}).encode()
    return Reply([body], 200, {"content-type": "application/json"}, "length")


async def select(
    query: str | None = None, environment: dict[str, str] | None = None, settings: Any = None, **more: Any
) -> ModelSelection:
    return await select_model(query, settings=Settings(settings), environment=environment or {}, **more)


async def inventory(environment: dict[str, str], settings: Any = None) -> ModelInventory:
    return await list_models(Settings(settings), environment)


@pytest.mark.parametrize("name", PLAIN)
async def test_the_key_of_every_well_known_provider_is_seen_and_brings_a_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = BUILT_IN if name in BUILT_IN else PRESETS
    if name in ("together", "fireworks", "cerebras"):
        # They are asked what they serve; here nobody answers.
        monkeypatch.setitem(table, name, table[name]._replace(url="http://127.0.0.1:9/v1"))
    for variable in PLAIN[name].keys:
        chosen = await select(None, {variable: "k"})
        assert (chosen.source, variable in chosen.why) == ("key", True)
        wanted = {"openai": "openai-responses"}.get(name, name)
        assert chosen.info.provider == wanted
        assert chosen.provider.api_key == "k"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("sonnet", "openrouter/anthropic/claude-sonnet-5.5"),
        ("haiku", "openrouter/anthropic/claude-haiku-5.5"),
        ("claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5"),
        ("anthropic/claude-sonnet-4-5", "openrouter/anthropic/claude-sonnet-4.5"),
        ("gpt-5.5", "openrouter/openai/gpt-5.5"),
        (None, "openrouter/anthropic/claude-sonnet-5.5"),
    ],
)
async def test_a_key_of_openrouter_alone_gives_every_makers_models(name: str | None, model: str) -> None:
    assert (await select(name, {"OPENROUTER_API_KEY": "k"})).info.full_name == model
    if name is not None:
        assert (await select(None, {"OPENROUTER_API_KEY": "k"}, file_model=name)).info.full_name == model


async def test_the_makers_own_key_comes_before_openrouter() -> None:
    keys = {"OPENROUTER_API_KEY": "k", "ANTHROPIC_API_KEY": "a"}
    for name in (None, "sonnet", "claude-sonnet-5-5"):
        assert (await select(name, keys)).info.full_name == "anthropic/claude-sonnet-5-5"


async def test_part_of_a_name_that_ollama_lists_is_accepted_everywhere() -> None:
    async with Server(*[answer("nomic-embed-text:latest", "qwen3:8b", "llama3.2:latest")] * 5) as server:
        environment = {"OLLAMA_HOST": f"127.0.0.1:{server.port}"}
        found = await inventory(environment)
        listed = [info.full_name for info in found.models if info.provider == "ollama"]
        assert listed == ["ollama/nomic-embed-text:latest", "ollama/qwen3:8b", "ollama/llama3.2:latest"]
        assert found.active is not None
        # The first is no model to talk to.
        assert found.active.info.full_name == "ollama/qwen3:8b"
        assert (await select("qwen3", environment)).info.full_name == "ollama/qwen3:8b"
        assert (await select(None, environment, file_model="llama3.2")).info.full_name == "ollama/llama3.2:latest"
        assert (await select(None, environment, {"model": "qwen3:8b"})).info.full_name == "ollama/qwen3:8b"
        assert (await select(None, environment)).info.full_name == "ollama/qwen3:8b"
        # Parts of names use the list that the first question brought.
        assert len(server.seen) == 2


async def test_a_model_that_a_server_lists_later_is_found_at_once() -> None:
    async with Server(answer("qwen3:8b"), answer("qwen3:8b", "gemma4:4b")) as server:
        environment = {"OLLAMA_HOST": f"127.0.0.1:{server.port}"}
        assert (await select("qwen3", environment)).info.full_name == "ollama/qwen3:8b"
        assert (await select("gemma4", environment)).info.full_name == "ollama/gemma4:4b"


async def test_everything_that_is_listed_is_accepted_by_its_name_and_by_its_id() -> None:
    async with Server(*[answer("qwen3:8b", "openai/gpt-oss-20b", "Mistral-Nemo-12B")] * 9) as server:
        environment = {"VLLM_BASE_URL": server.url, "ANTHROPIC_API_KEY": "a"}
        found = await inventory(environment)
        assert {"vllm", "anthropic", "offline"} == {info.provider for info in found.models} - {"local"}
        for info in found.models:
            if info.provider in ("vllm", "offline"):
                assert (await select(info.full_name, environment)).info.full_name == info.full_name
            if info.provider == "vllm":
                assert (await select(info.id, environment)).info.full_name == info.full_name


async def test_a_server_on_this_machine_that_nobody_named_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(*[answer("qwen3:8b")] * 3) as server:
        monkeypatch.setitem(PRESETS, "lmstudio", PRESETS["lmstudio"]._replace(url=f"{server.url}/v1"))
        chosen = await select(None)
        assert (chosen.source, chosen.info.full_name) == ("server", "lmstudio/qwen3:8b")
        assert str(server.port) in chosen.why
        assert (await select("qwen3")).info.full_name == "lmstudio/qwen3:8b"
        assert "lmstudio/qwen3:8b" in [info.full_name for info in (await inventory({})).models]


async def test_something_else_that_listens_at_the_usual_port_is_no_model_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = Reply([b"<html>my project</html>"], 200, {"content-type": "text/html"}, "length")
    empty = Reply([b"{}"], 200, {"content-type": "application/json"}, "length")
    async with Server(page, empty, page) as server:
        monkeypatch.setitem(PRESETS, "vllm", PRESETS["vllm"]._replace(url=f"{server.url}/v1"))
        assert (await select(None)).source == "offline"
        assert (await select(None)).source == "offline"
        assert {info.provider for info in (await inventory({})).models} - {"local"} == {"offline"}


@pytest.mark.parametrize("name", [None, "sonnet", "anthropic/claude-new-model-9", "ollama/any"])
async def test_no_server_is_asked_where_a_key_or_the_whole_name_decides(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Server() as server:
        for each in ("lmstudio", "vllm", "llama.cpp", "ollama"):
            monkeypatch.setitem(PRESETS, each, PRESETS[each]._replace(url=f"{server.url}/v1"))
        await select(name, {"ANTHROPIC_API_KEY": "a"})
        assert server.seen == []


async def test_servers_that_never_answer_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(*[Reply(["hang"])] * 4) as server:
        for each in ("lmstudio", "vllm", "llama.cpp", "ollama"):
            monkeypatch.setitem(PRESETS, each, PRESETS[each]._replace(url=f"{server.url}/v1"))
        async with asyncio.timeout(60):
            assert (await select(None)).source == "offline"
        assert len(server.seen) == 4


@pytest.mark.parametrize(
    ("query", "near"),
    [("claude-sonet", "claude-sonnet"), ("gemini-3.8-flahs", "gemini-3.8-flash"), ("grok4.7", "xai/grok-4.7")],
)
async def test_a_name_that_means_nothing_is_answered_with_the_nearest(query: str, near: str) -> None:
    keys = {"ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": "g", "XAI_API_KEY": "x"}
    with pytest.raises(UnknownModelError) as error:
        await select(query, keys)
    first = error.value.remedy.partition("\n")[0]
    assert first.startswith("Did you mean ")
    assert near in first


async def test_a_name_that_means_nothing_is_answered_with_what_the_server_lists() -> None:
    async with Server(answer("qwen3:8b")) as server:
        with pytest.raises(UnknownModelError) as error:
            await select("qewn3", {"OLLAMA_HOST": f"127.0.0.1:{server.port}"})
        assert "Did you mean ollama/qwen3:8b?" in error.value.remedy


@pytest.mark.parametrize("name", ["haiku", "anthropic/haiku", "Haiku"])
async def test_a_family_means_a_model_that_the_server_lists(name: str) -> None:
    async with Server(*[answer("claude-haiku-4-5", "claude-sonnet-4-5")] * 4) as server:
        environment = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        listed = [info.full_name for info in (await inventory(environment)).models]
        assert "anthropic/claude-haiku-4-5" in listed
        for chosen in (await select(name, environment), await select(None, environment, file_model=name)):
            assert chosen.info.full_name == "anthropic/claude-haiku-4-5"


async def test_a_whole_name_asks_no_server_even_behind_another_address() -> None:
    async with Server() as server:
        environment = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        for name in ("claude-haiku-4-5", "anthropic/claude-haiku-4-5", "anthropic/claude-new-9"):
            await select(name, environment)
        assert server.seen == []


async def test_the_default_of_a_server_is_a_model_that_it_lists() -> None:
    async with Server(*[answer("my-model-7b")] * 3) as server:
        environment = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        assert (await select(None, environment)).info.full_name == "anthropic/my-model-7b"
        with pytest.raises(UnknownModelError) as error:
            await select("claude-sonet", environment)
        assert "anthropic/my-model-7b" in error.value.remedy


async def test_a_name_that_fits_several_families_is_refused_with_them() -> None:
    with pytest.raises(UnknownModelError) as error:
        await select("claude", {"ANTHROPIC_API_KEY": "k"})
    assert "several families" in error.value.remedy
    assert "anthropic/claude-sonnet-5-5" in error.value.remedy
    chosen = await select(None, {"ANTHROPIC_API_KEY": "k"}, file_model="claude")
    assert "several families" in " ".join(chosen.warnings)


async def test_a_gateway_on_this_machine_is_not_free() -> None:
    providers = {"gw": {"baseUrl": "http://127.0.0.1:9/v1"}}
    known = await select("gw/claude-sonnet-4-5", {}, {"providers": providers})
    maker = await select("anthropic/claude-sonnet-4-5", {"ANTHROPIC_API_KEY": "k"})
    assert known.info.prices == maker.info.prices
    assert known.info.window == maker.info.window
    assert (await select("gw/any-model", {}, {"providers": providers})).info.prices is None
    own = await select("ollama/any-model", {})
    assert own.info.prices is not None
    assert own.info.prices.output == 0


async def test_a_server_of_another_user_at_a_usual_port_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(*[answer("qwen3:8b")] * 3) as server:
        monkeypatch.setitem(PRESETS, "lmstudio", PRESETS["lmstudio"]._replace(url=f"{server.url}/v1"))
        monkeypatch.setattr("retinue.models.inventory.foreign_listener", lambda port: "mallory")
        chosen = await select(None)
        assert chosen.source == "offline"
        assert "mallory" in " ".join(chosen.warnings)
        assert "retinue models add lmstudio" in " ".join(chosen.warnings)
        with pytest.raises(UnknownModelError, match="mallory"):
            await select("qwen3")
        assert server.seen == []
        named = {"providers": {"lmstudio": {"baseUrl": f"{server.url}/v1"}}}
        assert (await select(None, None, named)).info.full_name == "lmstudio/qwen3:8b"
