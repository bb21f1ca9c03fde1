"""Thinking levels, and the efforts of each model and provider that correspond to them.

The levels are off, minimal, low, medium, high, xhigh, max. None means that nobody chose a level: the provider's default
applies. Each family has a row, with its source beside it; the first row whose provider and prefix match is used. A
model without a row gets the three efforts that nearly all servers support, and refusals teach the others (`retry.py`).
If a model does not have a level, the next higher one is used, or else the highest."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from retinue.core.spec import THINKING_LEVELS, ThinkingLevel

BUDGETS: dict[ThinkingLevel, int] = {
    "off": 0,
    "minimal": 1024,
    "low": 4096,
    "medium": 10_240,
    "high": 20_480,
    "xhigh": 32_768,
    "max": 65_536,
}
_LEVEL_ALIASES: dict[str, ThinkingLevel] = {
    "none": "off",
    "no": "off",
    "false": "off",
    "disabled": "off",
    "on": "medium",
    "yes": "medium",
    "true": "medium",
    "enabled": "medium",
    "ultra": "max",
    "ultrathink": "max",
}

MIN_ANTHROPIC_BUDGET = 1024
MIN_ANSWER_TOKENS = 4096
"""Tokens that stay for the answer if a thinking budget has to shrink."""


def level_of(text: str | None) -> ThinkingLevel | None:
    """Return the level that a text means. A number is a budget in tokens. Any other text means None."""
    word = (text or "").strip().lower()
    if word in THINKING_LEVELS:
        return word
    if word in _LEVEL_ALIASES:
        return _LEVEL_ALIASES[word]
    if word.isdecimal() and word.isascii():
        tokens = int(word[:9])
        for level in THINKING_LEVELS:
            if tokens <= BUDGETS[level]:
                return level
        return "max"
    return None


@lru_cache(maxsize=256)
def version_of(model: str, family: str) -> tuple[int, int] | None:
    """Return the version in a model id: (4, 5) for claude-sonnet-4-5-20250929, (5, 0) for gpt-5-mini, None for another
    family or a name without a number. After a family with a dash the number must follow at once: gpt-oss-20b is not
    GPT 20."""
    name = model.rpartition("/")[2].lower()
    start = name.find(family)
    if start < 0 or (family.endswith("-") and not name[start + len(family) :][:1].isdecimal()):
        return None
    numbers = re.findall(r"(?<![\d.])\d{1,2}(?:\.\d{1,2})?(?![\d.])", name[start:])
    if not numbers:
        return None
    major, _, minor = numbers[0].partition(".")
    if not minor and len(numbers) > 1 and re.search(rf"\b{major}[-@]{numbers[1]}(?!\d)", name[start:]):
        minor = ""
        if numbers[1].isdecimal():
            minor = numbers[1]
    return int(major), int(minor or 0)


# Anthropic


def anthropic_style(model: str) -> Literal["budget", "adaptive"]:
    """Return how thinking is requested. Claude 4.6 and later take an effort; earlier models, and other makers' models
    in the same format, take a number of tokens."""
    version = version_of(model, "claude")
    if version is None:
        return "adaptive" if "claude-mythos" in model else "budget"
    return "adaptive" if version >= (4, 6) else "budget"


def anthropic_adaptive(model: str, level: ThinkingLevel) -> dict[str, Any]:
    """Return the fields of a request to a model with adaptive thinking."""
    version = version_of(model, "claude") or (5, 0)
    always_thinks = any(name in model for name in ("fable", "mythos")) or ("opus" in model and version >= (5, 5))
    if level == "off" and not always_thinks:
        if version < (5, 0):
            # It does not think unless asked.
            return {}
        quiet = "between_tools" if "sonnet" in model and version >= (5, 5) else "disabled"
        return {"thinking": {"type": quiet}}
    effort = {"off": "low", "minimal": "low", "xhigh": "xhigh" if version >= (4, 7) else "max"}.get(level, level)
    thinking: dict[str, Any] = {"type": "adaptive"}
    if version >= (4, 7):
        thinking["display"] = "summarized"
    return {"thinking": thinking, "output_config": {"effort": effort}}


def checks_prefix(model: str) -> bool:
    """Return whether a model preserves its thinking: Fable and Mythos from 5.1 on, the others from 5.5 on."""
    version = version_of(model, "claude") or (0, 0)
    return version >= ((5, 1) if "fable" in model or "mythos" in model else (5, 5))


def anthropic_budget(level: ThinkingLevel, max_tokens: int, model_limit: int) -> tuple[int, int] | None:
    """Return the thinking budget and an output limit that exceeds it. The limit is raised up to that of the model, and
    then the budget shrinks. Return None if too few tokens are left to think."""
    budget = BUDGETS[level]
    if budget < MIN_ANTHROPIC_BUDGET:
        return None
    max_tokens = max(max_tokens, min(model_limit, budget + MIN_ANSWER_TOKENS))
    budget = min(budget, max_tokens - min(MIN_ANSWER_TOKENS, max_tokens // 2))
    return (budget, max_tokens) if MIN_ANTHROPIC_BUDGET <= budget < max_tokens else None


# Gemini


def gemini_config(model: str, level: ThinkingLevel) -> dict[str, Any]:
    """Return `thinkingConfig`: a level since Gemini 3, a budget in earlier models."""
    version = version_of(model, "gemini") or (3, 0)
    if version >= (3, 0):
        step = {"off": "low", "minimal": "low", "xhigh": "high", "max": "high"}.get(level, level)
        return {"thinkingLevel": step.upper(), "includeThoughts": level != "off"}
    if level == "off":
        return {"thinkingBudget": 128 if "pro" in model else 0}
    max_budget = 32_768 if "pro" in model else 24_576
    return {"thinkingBudget": min(BUDGETS[level], max_budget), "includeThoughts": True}


EFFORT_ORDER = ("none", "minimal", "low", "medium", "default", "high", "xhigh", "max")
"""All efforts, from least to most. `default` is Groq's word for a model that thinks."""
_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


class Efforts(NamedTuple):
    """The efforts of a model. `values` are in rising order, and empty for a model without efforts. `off` are the fields
    that switch thinking off, if that is not an effort of `none`; `on` are those for any other level."""

    values: tuple[str, ...]
    off: Mapping[str, Any] | None = None
    on: Mapping[str, Any] = _NO_FIELDS
    always: Mapping[str, Any] = _NO_FIELDS
    """Fields of every request; those above are merged into them."""


_DISABLED = {"thinking": {"type": "disabled"}}
_ENABLED = {"thinking": {"type": "enabled"}}
# docs.z.ai "Preserved thinking", pydantic-ai models/zai.py: else the server drops the thoughts of earlier turns.
_KEEPS_THINKING = {"thinking": {"clear_thinking": False}}
_LOW_TO_MAX = ("low", "medium", "high", "xhigh", "max")
_THREE = ("low", "medium", "high")

# pydantic-ai profiles/openai.py, every row verified against the live Responses API (2026-07 to 2026-10).
_OPENAI: tuple[tuple[str, Efforts], ...] = (
    ("gpt-6-astra", Efforts(_LOW_TO_MAX)),
    ("gpt-6.1-sol", Efforts(_LOW_TO_MAX)),
    ("gpt-6", Efforts(("none", *_LOW_TO_MAX))),
    ("gpt-5.6", Efforts(("none", *_LOW_TO_MAX))),
    ("gpt-5.5-pro", Efforts(("medium", "high", "xhigh"))),
    ("gpt-5.5", Efforts(("none", "low", "medium", "high", "xhigh"))),
    ("gpt-5.4-pro", Efforts(("medium", "high", "xhigh"))),
    ("gpt-5.4", Efforts(("none", "low", "medium", "high", "xhigh"))),
    ("gpt-5.3-chat", Efforts(("medium",))),
    ("gpt-5.3-codex", Efforts(("low", "medium", "high", "xhigh"))),
    ("gpt-5.3", Efforts(("none", "low", "medium", "high", "xhigh"))),
    ("gpt-5.2-pro", Efforts(("medium", "high", "xhigh"))),
    ("gpt-5.2-chat", Efforts(("medium",))),
    ("gpt-5.2-codex", Efforts(("low", "medium", "high", "xhigh"))),
    ("gpt-5.2", Efforts(("none", "low", "medium", "high", "xhigh"))),
    ("gpt-5.1-chat", Efforts(("medium",))),
    ("gpt-5.1-codex", Efforts(_THREE)),
    ("gpt-5.1", Efforts(("none", *_THREE))),
    ("gpt-5-pro", Efforts(("high",))),
    ("gpt-5-chat", Efforts(())),
    ("gpt-5-codex", Efforts(_THREE)),
    ("gpt-5", Efforts(("minimal", *_THREE))),
    ("o1", Efforts(_THREE)),
    ("o3", Efforts(_THREE)),
    ("o4", Efforts(_THREE)),
    ("gpt-oss", Efforts(_THREE)),
)

_BY_PROVIDER: tuple[tuple[str, str, Efforts], ...] = (
    # docs.x.ai reasoning; pydantic-ai profiles/grok.py. Code and build models refuse the parameter (pi#8381).
    ("xai", "grok-4.7", Efforts(("low", "medium", "high", "xhigh"))),
    ("xai", "grok-4.6", Efforts(_THREE)),
    ("xai", "grok-4.5", Efforts(_THREE)),
    ("xai", "grok-build-latest", Efforts(_THREE)),
    ("xai", "grok-4.3", Efforts(("none", *_THREE))),
    ("xai", "grok-latest", Efforts(("none", *_THREE))),
    ("xai", "grok-3-mini", Efforts(("none", "low", "high"))),
    ("xai", "grok", Efforts(())),
    # api-docs.deepseek.com/guides/thinking_mode; pydantic-ai providers/deepseek.py
    ("deepseek", "deepseek-reasoner", Efforts(())),
    ("deepseek", "deepseek-chat", Efforts(())),
    ("deepseek", "deepseek", Efforts(("low", "high", "max"), _DISABLED, _ENABLED)),
    # platform.kimi.ai/docs/guide/use-reasoning-effort; pydantic-ai providers/moonshotai.py
    ("moonshot", "kimi-k3", Efforts(("low", "high", "max"))),
    ("moonshot", "kimi-k2.7", Efforts(())),
    ("moonshot", "kimi-k2.6", Efforts(("low", "medium", "high", "max"), _DISABLED)),
    ("moonshot", "kimi-k2.5", Efforts(_THREE, _DISABLED)),
    ("moonshot", "", Efforts(())),
    # docs.z.ai thinking-mode; pydantic-ai profiles/zai.py: 5.3 refuses `disabled` ("please use low, high, or max")
    ("zai", "glm-5.3", Efforts(("low", "high", "max"), None, _ENABLED, _KEEPS_THINKING)),
    ("zai", "glm-5.2", Efforts(("minimal", *_LOW_TO_MAX), _DISABLED, _ENABLED, _KEEPS_THINKING)),
    ("zai", "glm", Efforts((), _DISABLED, _ENABLED, _KEEPS_THINKING)),
    # docs.mistral.ai/capabilities/reasoning: `none` and `high` only; magistral always thinks
    ("mistral", "magistral", Efforts(())),
    ("mistral", "", Efforts(("none", "high"))),
    # litellm llms/minimax: takes `thinking` and `reasoning_split`, no effort
    ("minimax", "minimax-m3", Efforts((), _DISABLED, _ENABLED)),
    ("minimax", "", Efforts(())),
    # console.groq.com/docs/reasoning: qwen3 takes none and default, gpt-oss three steps, nobody else any
    ("groq", "qwen/qwen3", Efforts(("none", "default"))),
    ("groq", "openai/gpt-oss", Efforts(_THREE)),
    ("groq", "", Efforts(())),
    # help.aliyun.com/model-studio "deep thinking": enable_thinking beside the OpenAI fields
    ("qwen", "", Efforts((), {"enable_thinking": False}, {"enable_thinking": True})),
    # ollama docs/openai.md: reasoning_effort high, medium, low, none
    ("ollama", "", Efforts(("none", *_THREE))),
    # vLLM and llama.cpp pass chat_template_kwargs to the model's template
    ("vllm", "", Efforts(_THREE, {"chat_template_kwargs": {"enable_thinking": False}})),
    ("llama.cpp", "", Efforts(_THREE, {"chat_template_kwargs": {"enable_thinking": False}})),
    # OpenRouter snaps an effort to what the routed model has (pydantic-ai models/openrouter.py)
    ("openrouter", "", Efforts(("none", *_THREE, "xhigh", "max"))),
)
_MANDATORY_THINKING = (
    "anthropic/claude-fable",
    "anthropic/claude-mythos",
    "x-ai/grok-build",
    "z-ai/glm-5.3",
    "openai/gpt-6.1-sol",
)
"""Models that refuse `none` at OpenRouter: "Reasoning is mandatory for this endpoint and cannot be
disabled" (pydantic-ai providers/openrouter.py, from the model list's `reasoning.mandatory`)."""
_ANY_SERVER = Efforts(("none", *_THREE))


@lru_cache(maxsize=512)
def efforts_of(provider: str, model: str) -> Efforts:
    """Return the efforts of a model at this provider."""
    name = model.lower()
    for row_provider, prefix, efforts in _BY_PROVIDER:
        if row_provider == provider and name.startswith(prefix):
            if provider == "openrouter" and name.startswith(_MANDATORY_THINKING):
                return Efforts(efforts.values[1:])
            return efforts
    bare = name.rpartition("/")[2]
    for prefix, efforts in _OPENAI:
        if bare.startswith(prefix):
            return efforts
    if (version_of(bare, "gpt-") or (0, 0)) >= (5, 6):
        return Efforts(("none", *_LOW_TO_MAX))
    return _ANY_SERVER


def takes_level(provider: str, model: str, level: ThinkingLevel) -> bool:
    """Return whether anything is sent for a level. The thinking of some models cannot be changed."""
    efforts = efforts_of(provider, model)
    if level == "off":
        return bool(efforts.values) or efforts.off is not None
    return bool(efforts.values) or bool(efforts.on)


def nearest(values: Collection[str], effort: str) -> str | None:
    """Return the lowest of `values` at or above `effort`, or else the highest one."""
    best = None
    for index, value in enumerate(EFFORT_ORDER):
        if value in values:
            best = value
            if index >= EFFORT_ORDER.index(effort):
                break
    return best


def effort_for(provider: str, model: str, level: ThinkingLevel) -> str | None:
    """Return the effort for a level. Return None if the model has no efforts, or thinking is switched off by other
    fields."""
    efforts = efforts_of(provider, model)
    if level == "off" and "none" not in efforts.values and efforts.off is not None:
        return None
    if level == "off":
        return nearest(efforts.values, "none")
    return nearest(set(efforts.values) - {"none"}, level)
