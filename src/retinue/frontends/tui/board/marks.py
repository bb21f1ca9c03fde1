"""The signs, colours and numbers of a run. Icons differ in shape and not in colour alone; the colour of an agent is a
badge that can be read on any theme."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color, ColorParseError
from rich.text import Text

from retinue.app.rich_text import STYLES
from retinue.app.text import STATUS_MARKS, optional, plural
from retinue.core.format import format_cost, format_duration, format_tokens, urgency
from retinue.frontends.tui.board.cards import RunCard, Window

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.08
STILL = STATUS_MARKS["running"].sign
"""Replaces the spinner for people who want no motion."""
SEPARATOR = " · "

# The order in which numbers are left out where there is too little room.
_SPARE = ("cost", "tools", "tokens", "turns", "time")


def icon(card: RunCard, frame: int, *, motion: bool = True) -> tuple[str, str]:
    """Return the sign of a run and what it means: `accent`, `success`, `warning`, `error` or `dim`."""
    sign, tone, _ = STATUS_MARKS[card.status]
    if card.status in ("starting", "running") and motion:
        sign = FRAMES[frame % len(FRAMES)]
    return sign, tone


def stats(
    card: RunCard, now: float, window: Window, *, cost: bool = False, room: int | None = None, time: bool = True
) -> Text:
    """Return `↻5≤30 · 3 tool uses · 33.8k token (62% · ⇊2) · ~$0.02 · 12.3s` without empty parts. Where `room` is too
    small, the least important parts are left out as well."""
    parts = _parts(card, now, window, cost=cost, time=time)
    text = Text(SEPARATOR).join(parts.values())
    for name in _SPARE:
        if room is None or text.cell_len <= room:
            break
        parts.pop(name, None)
        text = Text(SEPARATOR).join(parts.values())
    return text


def _parts(card: RunCard, now: float, window: Window, *, cost: bool, time: bool) -> dict[str, Text]:
    parts: dict[str, Text] = {}
    turns = card.turn or int(card.at_work)
    if turns:
        parts["turns"] = Text(f"↻{turns}{optional('≤{}', card.max_turns)}")
    if card.tool_uses:
        parts["tools"] = Text(plural(card.tool_uses, "tool use"))
    if card.usage.total_tokens:
        parts["tokens"] = _tokens(card, window)
    if cost and format_cost(card.usage.cost_usd):
        parts["cost"] = Text(format_cost(card.usage.cost_usd))
    if time and card.began is not None:
        parts["time"] = Text(format_duration(card.elapsed_ms(now)))
    return parts


def _tokens(card: RunCard, window: Window) -> Text:
    text = Text(format_tokens(card.usage.total_tokens))
    percent = card.context_percent(window)
    notes = []
    if percent is not None:
        notes.append(Text(f"{round(percent)}%", STYLES[urgency(percent)]))
    if card.compactions:
        notes.append(Text(f"⇊{card.compactions}", STYLES["dim"]))
    if not notes:
        return text
    return Text.assemble(text, " (", Text(SEPARATOR).join(notes), ")")


# The colour names of agent files, with colours that can be told apart on light and dark screens.
_COLOURS = {
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


@lru_cache(maxsize=256)
def resolve(color: object) -> str | None:
    """Return `#rrggbb` for a name or for three or six hex digits; None for any other value."""
    if not isinstance(color, str):
        return None
    name = color.strip().lower()
    if name in _COLOURS:
        return _COLOURS[name]
    if len(name) == 4 and name.startswith("#"):
        name = f"#{name[1] * 2}{name[2] * 2}{name[3] * 2}"
    try:
        parsed = Color.parse(name)
    except ColorParseError:
        return None
    if parsed.is_default:
        return None
    return parsed.get_truecolor().hex


@lru_cache(maxsize=256)
def badge(color: object) -> str | None:
    """Return a style with the colour as background, and black or white text, whichever has more contrast."""
    back = resolve(color)
    if back is None:
        return None
    front = max("#000000", "#ffffff", key=lambda color: contrast(color, back))
    return f"bold {front} on {back}"


def contrast(one: str, other: str) -> float:
    """Return the contrast of two `#rrggbb` colours as WCAG defines it: 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    luminance = 0.0
    for at, share in ((1, 0.2126), (3, 0.7152), (5, 0.0722)):
        channel = int(color[at : at + 2], 16) / 255
        # The formula of WCAG: linear for dark values, with a gamma for others.
        linear = channel / 12.92
        if channel > 0.03928:
            linear = ((channel + 0.055) / 1.055) ** 2.4
        luminance += share * linear
    return luminance
