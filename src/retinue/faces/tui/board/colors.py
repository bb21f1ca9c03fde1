"""The colour of an agent, as its file names it: a badge that can be read on any theme."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color, ColorParseError

_NAMES = {
    "red": "#dc2626",
    "orange": "#ea580c",
    "yellow": "#ca8a04",
    "green": "#16a34a",
    "teal": "#0d9488",
    "cyan": "#0891b2",
    "blue": "#2563eb",
    "indigo": "#4f46e5",
    "purple": "#9333ea",
    "violet": "#7c3aed",
    "magenta": "#c026d3",
    "pink": "#db2777",
    "brown": "#92400e",
    "gray": "#6b7280",
    "grey": "#6b7280",
    "white": "#f3f4f6",
    "black": "#111827",
}
"""The names that agent files use, as colours that differ on light and on dark screens."""


@lru_cache(maxsize=256)
def resolve(color: object) -> str | None:
    """`#rrggbb` of a name or of hex digits in either length; None for what is no colour."""
    if not isinstance(color, str):
        return None
    name = color.strip().lower()
    if name in _NAMES:
        return _NAMES[name]
    if len(name) == 4 and name.startswith("#"):
        name = "#" + "".join(digit * 2 for digit in name[1:])
    try:
        parsed = Color.parse(name)
    except ColorParseError:
        return None
    return None if parsed.is_default else parsed.get_truecolor().hex


@lru_cache(maxsize=256)
def badge(color: object) -> str | None:
    """A style with the colour behind and black or white, whichever reads better, in front."""
    back = resolve(color)
    if back is None:
        return None
    light = _luminance(back)
    front = "#000000" if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else "#ffffff"
    return f"bold {front} on {back}"


def contrast(one: str, other: str) -> float:
    """Of two `#rrggbb` colours, as WCAG counts it: 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
