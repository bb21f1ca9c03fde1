"""One scale of thinking, and each provider's words for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.spec import THINKING_LEVELS
from retinue.models.efforts import anthropic_style, effort_for, level_of, version_of
from tests.models.scripts import RELAXED


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("high", "high"),
        (" HIGH ", "high"),
        ("off", "off"),
        ("none", "off"),
        ("false", "off"),
        ("0", "off"),
        ("on", "medium"),
        ("ultrathink", "max"),
        ("2000", "low"),
        ("32000", "xhigh"),
        ("999999999999", "max"),
        ("deep", None),
        ("", None),
        (None, None),
        ("²", None),
    ],
)
def test_what_people_write(text: str | None, level: str | None) -> None:
    assert level_of(text) == level


@RELAXED
@given(st.text())
def test_any_word_is_a_level_or_none(text: str) -> None:
    assert level_of(text) in (None, *THINKING_LEVELS)


@pytest.mark.parametrize(
    ("id", "family", "version"),
    [
        ("claude-sonnet-4-5-20250929", "claude", (4, 5)),
        ("claude-3-7-sonnet-20250219", "claude", (3, 7)),
        ("claude-3-haiku-20240307", "claude", (3, 0)),
        ("claude-opus-4-20250514", "claude", (4, 0)),
        ("claude-opus-5", "claude", (5, 0)),
        ("claude-sonnet-5-5", "claude", (5, 5)),
        ("anthropic/claude-sonnet-4.5", "claude", (4, 5)),
        ("claude-sonnet-4@20250514", "claude", (4, 0)),
        ("claude-mythos-preview", "claude", None),
        ("gpt-5", "gpt-", (5, 0)),
        ("gpt-5.1-codex", "gpt-", (5, 1)),
        ("gpt-4o", "gpt-", (4, 0)),
        ("gpt-4.1-mini", "gpt-", (4, 1)),
        ("gpt-oss-20b", "gpt-", None),
        ("gemini-2.5-flash", "gemini", (2, 5)),
        ("gemini-3-pro-preview", "gemini", (3, 0)),
        ("gemini-4-argon", "gemini", (4, 0)),
        ("llama3.2", "gemini", None),
    ],
)
def test_versions_in_model_ids(id: str, family: str, version: tuple[int, int] | None) -> None:
    assert version_of(id, family) == version


@pytest.mark.parametrize(
    ("id", "style"),
    [
        ("claude-opus-4-5", "budget"),
        ("claude-opus-4-6", "adaptive"),
        ("claude-haiku-5-5", "adaptive"),
        ("claude-mythos-preview", "adaptive"),
        ("kimi-k2", "budget"),
    ],
)
def test_who_takes_a_budget(id: str, style: str) -> None:
    assert anthropic_style(id) == style


@pytest.mark.parametrize(
    ("full_name", "off", "minimal", "medium", "max"),
    [
        # OpenAI: pydantic-ai profiles/openai.py, verified live
        ("openai/gpt-5", "minimal", "minimal", "medium", "high"),
        ("openai/gpt-5.1", "none", "low", "medium", "high"),
        ("openai/gpt-5.2", "none", "low", "medium", "xhigh"),
        ("openai-responses/gpt-5.6-sol", "none", "low", "medium", "max"),
        ("openai-responses/gpt-6-astra", "low", "low", "medium", "max"),
        ("openai-responses/gpt-6.1-sol", "low", "low", "medium", "max"),
        ("openai-responses/gpt-6.1-terra", "none", "low", "medium", "max"),
        ("openai-responses/gpt-5.5-pro", "medium", "medium", "medium", "xhigh"),
        ("openai/gpt-5-pro", "high", "high", "high", "high"),
        ("openai-responses/gpt-7-nova", "none", "low", "medium", "max"),
        ("openai/o3", "low", "low", "medium", "high"),
        # xAI: docs.x.ai reasoning
        ("xai/grok-4.7", "low", "low", "medium", "xhigh"),
        ("xai/grok-4.3", "none", "low", "medium", "high"),
        ("xai/grok-build-0.1", None, None, None, None),
        ("xai/grok-code-fast-1", None, None, None, None),
        # DeepSeek, Kimi, GLM: low, high and max
        ("deepseek/deepseek-v4-pro", None, "low", "high", "max"),
        ("moonshot/kimi-k3", "low", "low", "high", "max"),
        ("moonshot/kimi-k2.6", None, "low", "medium", "max"),
        ("zai/glm-5.3", "low", "low", "high", "max"),
        ("zai/glm-4.7", None, None, None, None),
        ("mistral/mistral-large-4", "none", "high", "high", "high"),
        ("groq/qwen/qwen3-32b", "none", "default", "default", "default"),
        ("groq/openai/gpt-oss-120b", "low", "low", "medium", "high"),
        ("openrouter/anthropic/claude-sonnet-5.5", "none", "low", "medium", "max"),
        ("openrouter/z-ai/glm-5.3", "low", "low", "medium", "max"),
        ("ollama/qwen3", "none", "low", "medium", "high"),
        ("mine/whatever", "none", "low", "medium", "high"),
        ("mine/gpt-oss-20b", "low", "low", "medium", "high"),
    ],
)
def test_a_level_becomes_the_nearest_that_the_model_has(
    full_name: str, off: str | None, minimal: str | None, medium: str | None, max: str | None
) -> None:
    provider, _, id = full_name.partition("/")
    found = [effort_for(provider, id, level) for level in ("off", "minimal", "medium", "max")]
    assert found == [off, minimal, medium, max]
