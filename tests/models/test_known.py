"""The table of known models: sane facts, and modest guesses about the rest."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Literal, get_args, get_origin

import pytest

from retinue.models.known import (
    _table,
    describe_model,
    known_model,
    known_models,
    table_date,
    wants_responses,
    with_overrides,
)
from retinue.models.resolve import find_model
from retinue.models.select import default_model
from retinue.testing import Prices

PROVIDERS = sorted(_table()["providers"])


def test_the_table_is_dated_and_broad() -> None:
    assert date.fromisoformat(table_date()) >= date(2026, 11, 1)
    assert sum(1 for provider in PROVIDERS for _ in known_models(provider)) >= 80
    assert {"anthropic", "openai", "gemini", "deepseek", "mistral", "qwen", "moonshot", "xai"} <= set(PROVIDERS)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_row_is_plausible(provider: str) -> None:
    for info in known_models(provider):
        assert 0 < info.max_output <= info.window <= 4_000_000, info
        assert info.name
        if info.prices is not None:
            assert 0 <= (info.prices.cache_read or 0) <= info.prices.input <= info.prices.output, info
            if info.prices.above is not None:
                start, above = info.prices.above
                assert start >= 32_000
                assert above.input >= info.prices.input


def test_spellings_of_a_known_model() -> None:
    plain = known_model("anthropic", "claude-haiku-4-5")
    assert plain is not None
    assert known_model("anthropic", "Claude-Haiku-4.5") == plain
    dated = known_model("anthropic", "claude-haiku-4-5-20251001")
    assert dated is not None
    assert (dated.id, dated.window, dated.prices) == ("claude-haiku-4-5-20251001", plain.window, plain.prices)
    assert known_model("openai", "gpt-4o-2024-08-06") is not None
    assert known_model("openai-responses", "gpt-5.5") is not None
    assert known_model("anthropic", "claude-haiku-4") is None
    assert known_model("nobody", "gpt-4o") is None


def test_a_new_model_has_what_all_its_siblings_have_and_no_price() -> None:
    new = describe_model("anthropic", "claude-sonnet-9")
    sonnets = [info for info in known_models("anthropic") if "sonnet" in info.id]
    assert new.window == min(info.window for info in sonnets)
    assert new.max_output == min(info.max_output for info in sonnets)
    assert new.thinking
    assert new.prices is None


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "azure"])
def test_a_gpt_that_is_newer_than_the_table_thinks(provider: str) -> None:
    assert describe_model(provider, "gpt-7-pro").thinking
    assert not describe_model(provider, "gpt-4.2").thinking


def test_a_model_elsewhere_has_its_makers_abilities_but_not_its_price() -> None:
    there = describe_model("openrouter", "anthropic/claude-sonnet-4.5")
    assert (there.full_name, there.window) == ("openrouter/anthropic/claude-sonnet-4.5", 200_000)
    assert there.prices is None


def test_nobodys_model_is_taken_for_little() -> None:
    unknown = describe_model("ollama", "my-own:7b")
    assert (unknown.window, unknown.max_output, unknown.thinking, unknown.images) == (32_768, 8_192, False, False)
    assert describe_model("anthropic", "fake-model").window == 128_000


def test_half_a_price_is_no_price() -> None:
    info = describe_model("ollama", "x")
    assert with_overrides(info, {"prices": {"input": 1.0}}).prices is None
    assert with_overrides(info, {"prices": {"input": 1.0, "output": 2.0}}).prices == Prices(1.0, 2.0)
    assert with_overrides(info, None) is info


def test_the_defaults_are_the_newest_of_their_family() -> None:
    assert default_model("anthropic") == "claude-sonnet-5-5"
    assert default_model("openai-responses") == default_model("openai") == "gpt-6.1-sol"
    assert default_model("gemini") == "gemini-4-argon"
    assert default_model("deepseek") == "deepseek-v4-pro"
    assert default_model("ollama") is None
    assert wants_responses("gpt-6.1-sol")
    assert not wants_responses("gpt-4o")


def _words(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for part in get_args(kind) for word in _words(part)]


def sdk_ids() -> list[tuple[str, str]]:
    """The undated ids that the installed SDKs of the makers know, of models that agents can use."""
    from anthropic.types.model import Model
    from openai.types.shared.chat_model import ChatModel

    found = [("anthropic", id) for id in _words(Model)]
    found += [("openai", id) for id in _words(ChatModel) if re.match(r"gpt-[5-9]|gpt-\d\d|o\d", id)]
    return [(provider, id) for provider, id in found if not re.search(r"20\d{6}|20\d\d-\d\d", id)]


def test_no_id_of_the_makers_sdks_is_newer_than_the_table() -> None:
    """When this fails: add the id to tools/update_known_models.py, or to its LEFT_OUT with the reason."""
    from tools.update_known_models import LEFT_OUT

    missing = [f"{who}/{id}" for who, id in sdk_ids() if known_model(who, id) is None and id not in LEFT_OUT]
    assert not missing
    assert len(sdk_ids()) > 30


def test_prices_that_depend_on_the_hour_are_those_of_the_dearest() -> None:
    """DeepSeek doubles its price at 01-04 and 06-10 UTC (api-docs.deepseek.com pricing)."""
    found = known_model("deepseek", "deepseek-v4-pro")
    assert found is not None and found.prices is not None
    assert (found.prices.input, found.prices.output) == (1.32, 3.96)


def test_a_retired_name_costs_what_the_model_behind_it_costs() -> None:
    """grok-code-fast-1 is served by grok-build-0.1 (pydantic-ai profiles/grok.py)."""
    old, new = known_model("xai", "grok-code-fast-1"), known_model("xai", "grok-build-0.1")
    assert old is not None and new is not None and old.prices == new.prices


def test_the_newest_fable_is_known_with_its_price() -> None:
    found = known_model("anthropic", "claude-fable-5-2")
    assert found is not None and found.prices == Prices(8, 40, 0.2, 10)
    assert find_model("fable", list(known_models("anthropic"))) == found
