"""Which model a name means: the cases D of the conformance list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.errors import UnknownModelError
from retinue.models.resolve import (
    find_exact,
    find_model,
    match_models,
    not_found,
    same_model,
    split_thinking,
    variants,
    version,
)
from retinue.testing import ModelInfo

OPUS = ModelInfo("anthropic", "claude-opus-4-6", "Claude Opus 4.6")
SONNET = ModelInfo("anthropic", "claude-sonnet-4-6", "Claude Sonnet 4.6")
HAIKU = ModelInfo("anthropic", "claude-haiku-4-5-20251001", "Claude Haiku 4.5")
GPT = ModelInfo("openai", "gpt-4o", "GPT-4o")
GEMINI = ModelInfo("google", "gemini-2.5-pro", "Gemini 2.5 Pro")
REGISTRY = (OPUS, SONNET, HAIKU, GPT, GEMINI)


def info(full: str, name: str = "") -> ModelInfo:
    provider, _, model = full.partition("/")
    return ModelInfo(provider, model, name)


@pytest.mark.parametrize("model", REGISTRY)
def test_provider_and_id_are_found_whatever_the_capitals(model: ModelInfo) -> None:
    assert find_model(model.full_name, REGISTRY) is model
    assert find_model(model.full_name.upper(), REGISTRY) is model
    assert find_exact(model.full_name.title(), REGISTRY) is model


def test_provider_with_a_family_falls_through_to_the_loose_match() -> None:
    assert find_model("anthropic/haiku", REGISTRY) is HAIKU


@pytest.mark.parametrize(
    ("query", "model"), [("claude-opus-4-6", OPUS), ("Claude-Opus-4-6", OPUS), ("gpt-4o", GPT), ("GPT-4o", GPT)]
)
def test_an_id_alone_is_enough(query: str, model: ModelInfo) -> None:
    assert find_model(query, REGISTRY) is model


@pytest.mark.parametrize(
    ("query", "model"), [("haiku", HAIKU), ("HAIKU", HAIKU), ("sonnet", SONNET), ("opus", OPUS), ("gemini", GEMINI)]
)
def test_a_family_is_enough(query: str, model: ModelInfo) -> None:
    assert find_model(query, REGISTRY) is model


@pytest.mark.parametrize("query", ["claude-haiku-4.5", "anthropic/claude-haiku-4.5", "Claude-Haiku-4.5"])
def test_dots_and_dashes_are_the_same_in_a_query(query: str) -> None:
    haiku = info("anthropic/claude-haiku-4-5", "Claude Haiku 4.5")
    assert find_model(query, (OPUS, SONNET, haiku)) is haiku


def test_dots_and_dashes_are_the_same_in_an_id() -> None:
    assert find_model("gemini-2-5-pro", REGISTRY) is GEMINI


@pytest.mark.parametrize("query", ["claude-haiku-4-5-20251001", "anthropic/claude-haiku-4.5-20251001"])
def test_a_dated_query_matches_an_undated_id(query: str) -> None:
    dashed, dotted = info("anthropic/claude-haiku-4-5"), info("anthropic/claude-haiku-4.5")
    assert find_model(query, (OPUS, SONNET, dashed)) is dashed
    assert find_model(query, (OPUS, SONNET, dotted)) is dotted


def test_the_exact_dated_id_is_preferred() -> None:
    plain = info("anthropic/claude-haiku-4-5")
    assert find_model("claude-haiku-4-5-20251001", (plain, HAIKU)) is HAIKU


@pytest.mark.parametrize(
    ("query", "model"),
    [
        ("Opus 4.6", OPUS),
        ("Haiku 4.5", HAIKU),
        ("anthropic opus", OPUS),
        ("google pro", GEMINI),
        ("pro google", GEMINI),
    ],
)
def test_display_names_and_parts_in_any_order(query: str, model: ModelInfo) -> None:
    assert find_model(query, REGISTRY) is model


def test_of_several_candidates_the_shorter_id_wins() -> None:
    long, short = info("anthropic/claude-sonnet-4-6-fast"), info("anthropic/claude-sonnet-4-6")
    assert find_model("claude-sonnet", (long, short)) is short
    assert find_model("sonnet", (long, short)) is short


def test_a_version_is_honoured() -> None:
    older = info("anthropic/claude-sonnet-4-5-20250929", "Claude Sonnet 4.5")
    assert find_model("sonnet 4.5", (SONNET, older)) is older
    assert find_model("4-6", (older, SONNET)) is SONNET


def test_an_unknown_name_lists_what_there_is_sorted() -> None:
    assert find_model("nonexistent-model", REGISTRY) is None
    error = not_found("nonexistent-model", REGISTRY)
    assert isinstance(error, UnknownModelError)
    lines = str(error).splitlines()
    assert lines[0] == 'Model not found: "nonexistent-model". Available models:'
    assert lines[1:] == sorted(f"  {model.full_name}" for model in REGISTRY)


def test_only_available_models_count() -> None:
    assert find_model("openai/gpt-4o", (OPUS,)) is None
    assert find_model("anthropic/claude-opus-4-6", ()) is None
    assert "(none)" in str(not_found("x", ()))


@pytest.mark.parametrize("query", ["", " ", "/", "-", "a/".removeprefix("a"), "//", ". .", "\x00", "…"])
def test_a_query_without_a_letter_or_digit_matches_nothing(query: str) -> None:
    assert find_model(query, REGISTRY) is None


def test_a_family_means_its_newest_model_whatever_the_order_or_length() -> None:
    models = tuple(
        info(f"anthropic/claude-sonnet-{v}") for v in ("4-5", "5", "5-5-20260901", "4-6", "5-5", "5-20260630")
    )
    assert find_model("Sonnet", models) is models[4]


@pytest.mark.parametrize("query", ["m", "7", "x/y", "evil/m", "4o", "a b"])
def test_a_part_of_a_name_needs_three_characters(query: str) -> None:
    assert find_model(query, REGISTRY) is None


def test_a_name_that_fits_several_families_means_none_of_them() -> None:
    newer = info("anthropic/claude-opus-4-7")
    assert find_model("claude", (*REGISTRY, newer)) is None
    assert set(match_models("claude", (*REGISTRY, newer))) == {newer, SONNET, HAIKU}


def test_a_variant_of_a_family_does_not_make_its_name_ambiguous() -> None:
    models = tuple(info(f"openai/{name}") for name in ("gpt-5.5-mini", "gpt-5.4", "gpt-5.5", "gpt-5-nano"))
    assert find_model("gpt", models) is models[2]
    assert find_model("gpt-5.4", models) is models[1]
    assert find_model("mini", models) is models[0]


def test_a_provider_that_is_not_configured_leaves_the_bare_id() -> None:
    assert find_model("openrouter/gpt-4o", REGISTRY) is GPT
    assert find_model("a/b/gpt-4o", REGISTRY) is GPT


@pytest.mark.parametrize(
    ("query", "model", "same"),
    [
        ("sonnet-4.5", "claude-sonnet-4-5", True),
        ("4.5-sonnet", "claude-sonnet-4-5-20250929", True),
        ("gpt-4", "gpt-4o", False),
        ("claude-sonnet-6", "claude-sonnet-4-6", False),
        ("gpt-5", "gpt-5.6-sol", False),
        ("", "gpt-5", False),
    ],
)
def test_the_same_model_in_other_words(query: str, model: str, same: bool) -> None:
    assert same_model(query, model) is same


def test_versions() -> None:
    assert version("claude-opus-4-6-20260205") == (4, 6)
    assert version("gemini-3.8-flash") == (3, 8)
    assert version("gpt-4o") == ()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("gpt-5.5:high", ("gpt-5.5", "high")),
        ("openai/o3:MAX", ("openai/o3", "max")),
        ("gpt-oss:20b", ("gpt-oss:20b", None)),
        (":high", (":high", None)),
        ("plain", ("plain", None)),
    ],
)
def test_a_thinking_level_may_end_a_name(query: str, expected: tuple[str, str | None]) -> None:
    assert split_thinking(query) == expected


def test_spellings_of_other_programs() -> None:
    assert variants("gpt-4o@openai") == ["gpt-4o@openai", "openai/gpt-4o"]
    assert variants("Claude Sonnet 4.5 (copilot)") == ["Claude Sonnet 4.5 (copilot)", "Claude Sonnet 4.5"]
    assert variants("claude-sonnet-4-5@20250929") == ["claude-sonnet-4-5@20250929", "claude-sonnet-4-5"]
    assert variants(" haiku ") == ["haiku"]


@given(st.text(max_size=40))
def test_any_text_gives_a_model_of_the_registry_or_none(query: str) -> None:
    assert find_model(query, REGISTRY) in (None, *REGISTRY)
    assert query in str(not_found(query, REGISTRY))
    assert variants(query)[0] == query.strip()


@given(st.sampled_from(REGISTRY), st.permutations(REGISTRY))
def test_an_exact_id_never_depends_on_the_order(model: ModelInfo, registry: list[ModelInfo]) -> None:
    assert find_model(model.id, registry) is model
    assert find_model(model.full_name, registry) is model
