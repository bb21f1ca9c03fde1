"""How hard a model should think: one scale, and what each provider calls its steps.

The scale is off, minimal, low, medium, high, xhigh, max. None means nobody said: the provider's
default stands. Model generations differ in which steps they take; a step that a model does not
have becomes the nearest one it has.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal, get_args

Level = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
LEVELS: tuple[Level, ...] = get_args(Level)

BUDGETS: dict[Level, int] = {
    "off": 0,
    "minimal": 1024,
    "low": 4096,
    "medium": 10_240,
    "high": 20_480,
    "xhigh": 32_768,
    "max": 65_536,
}
_ALIASES: dict[str, Level] = {
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

ANTHROPIC_MINIMUM = 1024
ANSWER_ROOM = 4096
"""Tokens that are left for the answer when a thinking budget has to shrink."""


def level_of(text: str | None) -> Level | None:
    """The level someone wrote. A number is a budget in tokens. Other words say nothing."""
    word = (text or "").strip().lower()
    if word in LEVELS:
        return word
    if word in _ALIASES:
        return _ALIASES[word]
    if word.isdecimal() and word.isascii():
        tokens = int(word[:9])
        return next((level for level in LEVELS if tokens <= BUDGETS[level]), "max")
    return None


@lru_cache(maxsize=256)
def version_of(model: str, family: str) -> tuple[int, int] | None:
    """The version in a model id: (4, 5) for claude-sonnet-4-5-20250929, (5, 0) for gpt-5-mini,
    None for another family or a name without a number. After a family that is written with its
    dash the number has to follow at once: gpt-oss-20b is no GPT 20."""
    name = model.rpartition("/")[2].lower()
    start = name.find(family)
    if start < 0 or (family.endswith("-") and not name[start + len(family) :][:1].isdecimal()):
        return None
    numbers = re.findall(r"(?<![\d.])\d{1,2}(?:\.\d{1,2})?(?![\d.])", name[start:])
    if not numbers:
        return None
    major, _, minor = numbers[0].partition(".")
    if not minor and len(numbers) > 1 and re.search(rf"\b{major}[-@]{numbers[1]}(?!\d)", name[start:]):
        minor = numbers[1] if numbers[1].isdecimal() else ""
    return int(major), int(minor or 0)


# ------------------------------------------------------------------ Anthropic
def anthropic_style(model: str) -> Literal["budget", "adaptive"]:
    """Claude 4.6 and later decide themselves how long to think and take an effort; earlier
    models, and other makers' models behind the same format, take a number of tokens."""
    version = version_of(model, "claude")
    if version is None:
        return "adaptive" if "claude-mythos" in model else "budget"
    return "adaptive" if version >= (4, 6) else "budget"


def anthropic_adaptive(model: str, level: Level) -> dict[str, Any]:
    """Body fields for a model with adaptive thinking."""
    version = version_of(model, "claude") or (5, 0)
    always = any(name in model for name in ("fable", "mythos")) or ("opus" in model and version >= (5, 5))
    if level == "off" and not always:
        if version < (5, 0):
            return {}  # does not think unless asked
        quiet = "between_tools" if "sonnet" in model and version >= (5, 5) else "disabled"
        return {"thinking": {"type": quiet}}
    effort = {"off": "low", "minimal": "low", "xhigh": "xhigh" if version >= (4, 7) else "max"}.get(level, level)
    thinking: dict[str, Any] = {"type": "adaptive"}
    if version >= (4, 7):
        thinking["display"] = "summarized"
    return {"thinking": thinking, "output_config": {"effort": effort}}


def checks_prefix(model: str) -> bool:
    """Models with preserved thinking: Fable and Mythos from 5.1 on, the others from 5.5 on."""
    version = version_of(model, "claude") or (0, 0)
    return version >= ((5, 1) if "fable" in model or "mythos" in model else (5, 5))


def anthropic_budget(level: Level, max_tokens: int, most: int) -> tuple[int, int] | None:
    """Budget and output limit such that the limit exceeds the budget: raised as far as the model
    allows (`most`), then the budget shrinks. None when there is no room to think."""
    budget = BUDGETS[level]
    if budget < ANTHROPIC_MINIMUM:
        return None
    if max_tokens < budget + ANSWER_ROOM:
        max_tokens = max(max_tokens, min(most, budget + ANSWER_ROOM))
    room = max_tokens - min(ANSWER_ROOM, max_tokens // 2)
    budget = min(budget, room)
    return (budget, max_tokens) if ANTHROPIC_MINIMUM <= budget < max_tokens else None


# ------------------------------------------------------------------ Gemini
def gemini_config(model: str, level: Level) -> dict[str, Any]:
    """`thinkingConfig`: a level since Gemini 3, a budget before."""
    version = version_of(model, "gemini") or (3, 0)
    if version >= (3, 0):
        step = {"off": "low", "minimal": "low", "xhigh": "high", "max": "high"}.get(level, level)
        return {"thinkingLevel": step.upper(), "includeThoughts": level != "off"}
    if level == "off":
        return {"thinkingBudget": 128 if "pro" in model else 0}
    most = 32_768 if "pro" in model else 24_576
    return {"thinkingBudget": min(BUDGETS[level], most), "includeThoughts": True}
