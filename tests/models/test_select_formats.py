"""Which wire format and which maker's model a name means: OpenAI's two formats, Azure, names of clouds."""

from __future__ import annotations

import pytest

from tests.models.test_select import KEYS, select


@pytest.mark.parametrize(
    ("name", "api"),
    [
        ("openai/gpt-6.1-sol", "openai-responses"),
        ("openai/gpt-5.4", "openai-responses"),
        ("openai/o3", "openai-responses"),
        ("openai/gpt-4.1", "openai"),
        ("openai/gpt-5-chat-latest", "openai"),
        ("openai-responses/gpt-4.1", "openai-responses"),
    ],
)
async def test_openais_thinking_models_are_asked_in_the_format_that_takes_their_tools(name: str, api: str) -> None:
    chosen = await select(name, KEYS)
    assert (chosen.info.full_name == name and chosen.notes == ()) or "chat-latest" in name
    assert chosen.provider.api_for(chosen.info.id) == api


async def test_a_chosen_format_and_a_server_of_ones_own_keep_it() -> None:
    chosen = await select("openai/gpt-6.1-sol", KEYS, {"providers": {"openai": {"api": "openai"}}})
    assert chosen.provider.api_for(chosen.info.id) == "openai"
    chosen = await select("openai/gpt-6.1-sol", {**KEYS, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    assert chosen.provider.api_for(chosen.info.id) == "openai"


@pytest.mark.parametrize(
    ("version", "url"),
    [
        ("", "https://mine.openai.azure.com/openai/v1"),
        ("2026-01-01", "https://mine.openai.azure.com/openai"),
        ("2024-10-21", "https://mine.openai.azure.com/openai/deployments/gpt-5.6-sol"),
    ],
)
async def test_azure_is_asked_where_its_version_has_the_format(version: str, url: str) -> None:
    environment = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com"}
    chosen = await select("azure/gpt-5.6-sol", {**environment, "OPENAI_API_VERSION": version})
    assert chosen.provider.url_for(chosen.info.id) == url
    assert chosen.provider.api_for(chosen.info.id) == ("openai" if version == "2024-10-21" else "openai-responses")


@pytest.mark.parametrize(
    ("name", "id"),
    [
        # code.claude.com model-config
        ("sonnet[1m]", "claude-sonnet-5-5"),
        ("opusplan", "claude-opus-5-5"),
        ("best", "claude-opus-5-5"),
        # ids of Bedrock and Vertex
        ("us.anthropic.claude-sonnet-5-5-20261001-v1:0", "claude-sonnet-5-5"),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("claude-opus-4-6@20260205", "claude-opus-4-6"),
    ],
)
async def test_names_of_claude_code_and_of_clouds_mean_the_makers_model(name: str, id: str) -> None:
    chosen = await select(file_model=name, environment=KEYS)
    assert chosen.info.id.startswith(id)
    assert not chosen.warnings


async def test_default_leaves_the_choice_to_others() -> None:
    chosen = await select(None, KEYS, file_model="default")
    assert chosen.source == "key" and not chosen.warnings


async def test_another_provider_than_the_named_one_is_a_warning() -> None:
    chosen = await select("vertex/gemini-4-argon", KEYS)
    assert chosen.info.full_name == "gemini/gemini-4-argon"
    assert "another provider" in chosen.warnings[0]
