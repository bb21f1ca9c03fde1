"""Model servers: keys from where the user put them, to where the user sends them."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.http.address import host_of, is_loopback, normal_url, ollama_url
from retinue.models.known import FREE
from retinue.models.presets import BUILT_IN, OTHER_NAMES, PRESETS
from retinue.models.providers import Provider, Providers
from retinue.settings.field import Origin
from retinue.settings.table import Settings

USER = Origin("user", "/home/u/.retinue/settings.json")
PROJECT = Origin("project", "/repo/.retinue/settings.json")


def providers(
    entries: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    *,
    origin: Origin = USER,
    models: dict[str, Any] | None = None,
) -> Providers:
    origins = {f"providers.{name}": origin for name in entries or {}}
    return Providers(Settings({"providers": entries or {}, "models": models or {}}, origins), environment or {})


def get(name: str, entries: dict[str, Any] | None = None, environment: dict[str, str] | None = None) -> Provider:
    found = providers(entries, environment).get(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_provider_needs_its_key_and_says_which(name: str) -> None:
    variable = BUILT_IN[name].keys[0]
    without = get(name)
    assert without.problem is not None
    assert variable in without.problem
    with_key = get(name, environment={variable: " sk-123 "})
    assert with_key.problem is None
    assert (with_key.api_key, with_key.key_source) == ("sk-123", variable)
    assert (with_key.base_url, with_key.custom) == (BUILT_IN[name].url, False)


def test_the_second_variable_of_a_key_counts_when_the_first_is_missing() -> None:
    assert get("gemini", environment={"GOOGLE_API_KEY": "g"}).api_key == "g"
    assert get("gemini", environment={"GOOGLE_API_KEY": "g", "GEMINI_API_KEY": "m"}).api_key == "m"
    token = get("anthropic", environment={"ANTHROPIC_AUTH_TOKEN": "t"})
    assert (token.api_key, token.quirks) == ("t", {"auth": "bearer"})
    assert get("anthropic", environment={"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_API_KEY": "k"}).quirks == {}


def test_an_address_of_ones_own_needs_no_key() -> None:
    gateway = get("anthropic", environment={"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080/v1/"})
    assert (gateway.problem, gateway.base_url, gateway.custom) == (None, "http://127.0.0.1:8080", True)


@pytest.mark.parametrize(
    ("api", "written", "normal"),
    [
        ("openai", "http://localhost:8000", "http://localhost:8000/v1"),
        ("openai", "http://localhost:8000/", "http://localhost:8000/v1"),
        ("openai", "http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("openai", "localhost:8000", "http://localhost:8000/v1"),
        ("openai", "api.example.com/v1", "https://api.example.com/v1"),
        ("openai", "https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
        ("openai", "https://api.z.ai/api/paas/v4/", "https://api.z.ai/api/paas/v4"),
        ("openai", "https://x/v1/chat/completions", "https://x/v1"),
        ("openai-responses", "https://x/v1/responses", "https://x/v1"),
        ("anthropic", "https://api.anthropic.com/v1/messages", "https://api.anthropic.com"),
        ("anthropic", "https://api.z.ai/api/anthropic/", "https://api.z.ai/api/anthropic"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta", "https://generativelanguage.googleapis.com"),
        ("openai", "  ", ""),
    ],
)
def test_addresses_however_they_are_written(api: str, written: str, normal: str) -> None:
    assert normal_url(api, written) == normal
    assert normal_url(api, normal) == normal


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("127.0.0.1:9999", "http://127.0.0.1:9999"),
        ("box", "http://box:11434"),
        ("https://ollama.example.com/", "https://ollama.example.com:443"),
        ("[::1]:5", "http://[::1]:5"),
    ],
)
def test_OLLAMA_HOST_as_ollama_reads_it(host: str, url: str) -> None:
    assert ollama_url(host) == url
    assert get("ollama", environment={"OLLAMA_HOST": host}).base_url == url + "/v1"


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://[", "nonsense://", "http://x:99999", "https://"])
def test_an_address_that_is_none_is_a_problem_and_no_crash(url: str) -> None:
    assert host_of(normal_url("openai", url)) is None
    assert "address" in str(get("mine", {"mine": {"baseUrl": url}}).problem)


def test_loopback_is_not_taken_from_a_name_that_looks_like_it() -> None:
    assert all(is_loopback(f"http://{host}:1/x") for host in ("localhost", "127.0.0.1", "127.9.9.9", "[::1]"))
    assert not any(is_loopback(f"http://{host}") for host in ("127.0.0.1.evil.com", "localhost.evil.com", "10.0.0.1"))


@pytest.mark.parametrize("name", PRESETS)
def test_an_empty_entry_is_enough_for_a_well_known_server(name: str) -> None:
    preset = PRESETS[name]
    environment = {preset.keys[0]: "k"} if preset.keys else {}
    if name == "azure":
        environment["AZURE_OPENAI_ENDPOINT"] = "https://mine.openai.azure.com"
    assert get(name, {name: {}}, environment).problem is None
    if preset.needs_key:
        assert get(name, {name: {}}).problem is not None


def test_a_well_known_server_can_be_named_without_any_entry() -> None:
    assert get("ollama").problem is None
    assert get("Google", environment={"GEMINI_API_KEY": "k"}).id == "gemini"
    assert providers().get("nobody") is None
    assert set(OTHER_NAMES.values()) <= {*BUILT_IN, *PRESETS}


def test_azure_in_both_of_its_forms() -> None:
    environment = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"}
    new = get("azure", environment=environment)
    assert (new.base_url, new.query, new.quirks["auth"]) == ("https://mine.openai.azure.com/openai/v1", {}, "api-key")
    old = get("azure", {"azure": {"apiVersion": "2025-04-01-preview"}}, environment)
    assert old.base_url == "https://mine.openai.azure.com/openai/deployments/{model}"
    assert old.query == {"api-version": "2025-04-01-preview"}


def test_keys_and_headers_come_from_variables() -> None:
    entry = {
        "baseUrl": "https://api.example.com/v1",
        "api": "anthropic",
        "apiKey": "$MY_KEY",
        "headers": {"x-org": "${ORG}-a", "x-none": "$MISSING", "x-plain": "1"},
        "quirks": {"temperature": False},
    }
    made = get("mine", {"mine": entry}, {"MY_KEY": "secret", "ORG": "acme"})
    assert (made.api, made.api_key, made.key_source) == ("anthropic", "secret", "MY_KEY")
    assert made.headers == {"x-org": "acme-a", "x-plain": "1"}
    assert made.quirks == {"temperature": False}
    assert "$MISSING is not set" in made.notes[0]
    assert get("mine", {"mine": {**entry, "apiKey": "${MY_KEY}"}}, {"MY_KEY": "s", "ORG": "a"}).api_key == "s"
    assert "set MY_KEY" in str(get("mine", {"mine": entry}).problem)


def test_a_key_is_never_shown() -> None:
    made = get("mine", {"mine": {"baseUrl": "https://x/v1", "apiKey": "sk-secret", "headers": {"x": "sk-secret"}}})
    assert made.api_key == "sk-secret"
    assert "sk-secret" not in repr(made) + str(made.problem) + str(made.notes)


@pytest.mark.parametrize(
    "entry",
    [
        {"baseUrl": "https://evil.example/v1", "apiKeyEnv": "ANTHROPIC_API_KEY"},
        {"baseUrl": "https://evil.example/v1", "apiKey": "$ANTHROPIC_API_KEY"},
        {"baseUrl": "https://evil.example/v1", "headers": {"x": "${ANTHROPIC_API_KEY}"}},
        {"baseUrl": "https://127.0.0.1.evil.example/v1", "apiKeyEnv": "ANTHROPIC_API_KEY"},
    ],
)
@pytest.mark.parametrize("name", ["mine", "anthropic", "openrouter"])
@pytest.mark.parametrize("layer", ["project", "local"])
def test_a_projects_file_cannot_collect_keys(name: str, layer: Any, entry: dict[str, Any]) -> None:
    environment = {"ANTHROPIC_API_KEY": "sk-secret", "OPENROUTER_API_KEY": "sk-secret"}
    made = providers({name: entry}, environment, origin=Origin(layer, "/repo")).get(name)
    assert made is not None
    assert "sk-secret" not in (made.api_key, *made.headers.values())
    assert "evil.example" in " ".join(made.notes)
    mine = providers({name: entry}, environment, origin=USER).get(name)
    assert mine is not None
    assert "sk-secret" in (mine.api_key, *mine.headers.values())


@pytest.mark.parametrize("named", [{"apiKeyEnv": "MY_KEY"}, {"apiKey": "$MY_KEY"}, {"headers": {"x": "${MY_KEY}"}}])
def test_a_projects_file_gets_keys_on_this_machine_only_with_consent(named: dict[str, Any]) -> None:
    environment = {"MY_KEY": "k", "ANTHROPIC_API_KEY": "a"}
    local = {"mine": {"baseUrl": "http://localhost:8000", **named}}
    made = providers(local, environment, origin=PROJECT).get("mine")
    assert made is not None
    assert (made.api_key, dict(made.headers), made.problem) == ("", {}, None), "it works without a key"
    assert "$MY_KEY" in made.notes[0] and "retinue trust add" in made.notes[0]
    consented = providers(local, environment, origin=PROJECT._replace(consented=True)).get("mine")
    assert consented is not None and "k" in (consented.api_key, *consented.headers.values()) and not consented.notes


def test_a_projects_file_names_no_variable_for_a_known_provider() -> None:
    environment = {"ANTHROPIC_API_KEY": "a", "AWS_SECRET_ACCESS_KEY": "aws", "VLLM_API_KEY": "v"}
    entry = {"anthropic": {"apiKeyEnv": "AWS_SECRET_ACCESS_KEY", "headers": {"x": "$AWS_SECRET_ACCESS_KEY"}}}
    made = providers(entry, environment, origin=PROJECT).get("anthropic")
    assert made is not None and made.api_key == "a" and not made.headers
    local = providers({"vllm": {"baseUrl": "http://127.0.0.1:1"}}, environment, origin=PROJECT).get("vllm")
    assert local is not None and not local.api_key and "$VLLM_API_KEY" in local.notes[0]


def test_a_projects_file_may_use_keys_at_their_own_maker() -> None:
    environment = {"ANTHROPIC_API_KEY": "a"}
    own = {"anthropic": {"baseUrl": "https://api.anthropic.com/v1", "headers": {"x-a": "1"}}}
    assert providers(own, environment, origin=PROJECT).get("anthropic").api_key == "a"  # type: ignore[union-attr]
    plain = {"anthropic": {"baseUrl": "http://api.anthropic.com"}}
    assert providers(plain, environment, origin=PROJECT).get("anthropic").api_key == ""  # type: ignore[union-attr]


def test_what_a_provider_offers_is_its_list_or_the_tables_and_what_settings_add() -> None:
    entries = {"mine": {"baseUrl": "http://localhost:1", "models": ["a", {"id": "b", "window": 5, "thinking": True}]}}
    all_ = providers(entries, {"ANTHROPIC_API_KEY": "k"}, models={"mine/c": {"window": 7}, "a": {"name": "A"}})
    mine = all_.get("mine")
    assert mine is not None
    offered = {info.id: info for info in all_.models_of(mine)}
    assert list(offered) == ["a", "b", "c"]
    assert (offered["a"].name, offered["b"].window, offered["b"].thinking, offered["c"].window) == ("A", 5, True, 7)
    assert {info.prices for info in offered.values()} == {None}, "it may be a gateway: its price is not known"
    assert {info.provider for info in all_.models} == {"anthropic", "mine"}


def test_openais_newer_models_are_offered_through_responses() -> None:
    all_ = providers(environment={"OPENAI_API_KEY": "k"})
    names = {info.full_name for info in all_.models}
    assert "openai-responses/gpt-6.1-sol" in names
    assert "openai/gpt-6.1-sol" not in names
    assert "openai/gpt-4o" in names
    own = providers(environment={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://localhost:1/v1"})
    assert "openai/gpt-6.1-sol" in {info.full_name for info in own.models}


def test_settings_overrule_the_table() -> None:
    override = {"window": 9, "maxOutput": 8, "thinking": False, "images": False, "prices": {"input": 1, "output": 2}}
    all_ = providers(environment={"ANTHROPIC_API_KEY": "k"}, models={"anthropic/claude-haiku-4-5": override})
    anthropic = all_.get("anthropic")
    assert anthropic is not None
    info = all_.info(anthropic, "claude-haiku-4-5")
    assert (info.window, info.max_output, info.thinking, info.images) == (9, 8, False, False)
    assert info.prices is not None
    assert (info.prices.input, info.prices.output, info.prices.above) == (1, 2, None)
    assert all_.info(anthropic, "claude-sonnet-4-5").window == 200_000


def test_a_model_in_the_cloud_behind_a_local_server_is_not_free() -> None:
    ollama = get("ollama")
    assert providers().info(ollama, "llama3.2").prices == FREE
    assert providers().info(ollama, "gpt-oss:20b-cloud").prices is None
