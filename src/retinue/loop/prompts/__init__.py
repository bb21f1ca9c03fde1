"""What the loop itself says to a model, one Markdown file each. `{name}` marks what is filled in."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def prompt(name: str, **values: object) -> str:
    """The text of `name`.md with `values` filled in. Braces in a value stay what they are."""
    text = _text(name)
    if not values:
        return text
    parts: list[str] = []
    for piece in text.split("{"):
        key, closed, rest = piece.partition("}")
        parts.append(f"{values[key]}{rest}" if closed and key in values else ("{" if parts else "") + piece)
    return "".join(parts)
