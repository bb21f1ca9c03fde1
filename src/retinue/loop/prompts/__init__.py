"""The messages of the loop itself to a model, one Markdown file each. `{name}` is a placeholder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PROMPTS_FOLDER = Path(__file__).parent


@cache
def _text(name: str) -> str:
    return (_PROMPTS_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def prompt(name: str, **values: object) -> str:
    """Return the text of `name`.md with `values` filled in. Braces inside a value stay unchanged."""
    text = _text(name)
    if not values:
        return text
    parts: list[str] = []
    for piece in text.split("{"):
        key, closed, tail = piece.partition("}")
        parts.append(f"{values[key]}{tail}" if closed and key in values else ("{" if parts else "") + piece)
    return "".join(parts)
