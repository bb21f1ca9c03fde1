"""Model names: which are surely understood, which look like a slip."""

from __future__ import annotations

import re

from retinue.agents.lint.nearness import distance, fold

ALIASES = ("inherit", "default", "auto", "fast", "sonnet", "opus", "haiku", "fable", "opusplan", "best")
FAMILIES = (
    "claude", "gpt", "chatgpt", "codex", "gemini", "gemma", "deepseek", "glm", "kimi", "moonshot", "qwen", "qwq",
    "llama", "mistral", "mixtral", "codestral", "devstral", "magistral", "ministral", "grok", "composer", "minimax",
    "mimo", "phi", "command", "nova", "sonar", "smollm", "granite", "nemotron", "mai", "yi", "hermes", "starcoder",
    "olmo",
)  # fmt: skip
_SERIES = re.compile(r"(?:o[1-9]|sonnet|opus|haiku|fable)(?:$|[-.\d])")
_LIKE_A_MODEL = re.compile(r"\d|^(?:pro|flash|mini|max|large|small|medium|coder|chat|turbo|opus|sonnet|haiku)\b")
_CHOICES = re.compile(r"\s*\|\s*|\s*,\s*")


def is_known(model: str) -> bool:
    """True for an alias, any `provider/model`, and the families whose names begin like this."""
    name = model.strip().strip("'\"").casefold()
    if name in ALIASES or name.startswith("@") or "/" in name.strip("/"):
        return True
    word = re.split(r"[\s:@]", name, maxsplit=1)[0]
    return bool(word.startswith(FAMILIES) or _SERIES.match(word))


def suggest(model: str) -> str | None:
    """The name that was probably meant: an alias, or the same with its family spelled right."""
    name = model.strip()
    whole = fold(name)
    close = [alias for alias in ALIASES if len(alias) > 3 and distance(whole, alias, 1) <= 1]
    if len(close) == 1:
        return close[0]
    head, mark, rest = name.partition("-")
    families = [family for family in FAMILIES if len(family) > 3 and distance(fold(head), family, 1) == 1]
    if len(families) != 1 or not mark or not _LIKE_A_MODEL.search(rest):
        return None  # `code-analyzer` is some agent's name, not a slip of `codex`
    return f"{families[0]}{mark}{rest}"


def alternatives(model: str) -> tuple[str, ...]:
    """`a | b` names two models, which only a list may do."""
    return tuple(part for part in _CHOICES.split(model) if part) if "|" in model else ()
