"""One scale of thinking, and each provider's words for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.models.thinking import LEVELS, anthropic_style, level_of, openai_effort, version_of
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
    assert level_of(text) in (None, *LEVELS)


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
    ("id", "off", "minimal", "xhigh", "max"),
    [
        ("gpt-5", "minimal", "minimal", "high", "high"),
        ("gpt-5.1", "none", "low", "high", "high"),
        ("gpt-5.2", "none", "low", "xhigh", "xhigh"),
        ("gpt-5.6-sol", "none", "low", "xhigh", "max"),
        ("gpt-6-astra", "low", "low", "xhigh", "max"),
        ("o3", "low", "low", "high", "high"),
        ("qwen3", "none", "low", "high", "high"),
        ("gpt-oss-20b", "low", "low", "high", "high"),
    ],
)
def test_efforts_by_generation(id: str, off: str, minimal: str, xhigh: str, max: str) -> None:
    assert [openai_effort(id, level) for level in ("off", "minimal", "xhigh", "max")] == [off, minimal, xhigh, max]
    assert [openai_effort(id, level) for level in ("low", "medium", "high")] == ["low", "medium", "high"]
