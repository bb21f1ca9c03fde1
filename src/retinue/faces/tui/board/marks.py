"""The signs and numbers of a run: icons that differ in shape and not in colour alone, and stats."""

from __future__ import annotations

from rich.text import Text

from retinue.domain.delegation import Status
from retinue.domain.format import format_cost, format_count, format_duration, urgency
from retinue.faces.tui.board.cards import RunCard, Window

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.08
STILL = "●"
"""In place of the spinner where motion is unwanted."""

_ICONS: dict[Status, tuple[str, str]] = {
    "queued": ("◦", "dim"),
    "waiting": ("?", "warning"),
    "completed": ("✓", "success"),
    "steered": ("✓", "warning"),
    "stopped": ("■", "dim"),
    "interrupted": ("■", "warning"),
}

STYLES = {
    "accent": "bold cyan",
    "success": "green",
    "warning": "yellow",
    "error": "bold red",
    "dim": "dim",
    "": "",
}
"""By meaning. The app replaces them by those of its theme."""


def icon(card: RunCard, frame: int, *, motion: bool = True) -> tuple[str, str]:
    """The sign of a run and what it means: `accent`, `success`, `warning`, `error` or `dim`."""
    if card.status in _ICONS:
        return _ICONS[card.status]
    if card.live:
        return (FRAMES[frame % len(FRAMES)] if motion else STILL), "accent"
    return "✗", "error"


def stats(card: RunCard, now: float, window: Window, *, cost: bool = False) -> Text:
    """`↻5≤30 · 3 tool uses · 33.8k token (62% · ⇊2) · ~$0.02 · 12.3s`; parts that say nothing
    are left out."""
    parts: list[Text] = []
    if card.turns:
        parts.append(Text(f"↻{card.turns}" + (f"≤{card.max_turns}" if card.max_turns else "")))
    if card.tool_uses:
        parts.append(Text(f"{card.tool_uses} tool use{'s' if card.tool_uses != 1 else ''}"))
    if card.usage.total_tokens:
        parts.append(_tokens(card, window))
    if cost and format_cost(card.usage.cost_usd):
        parts.append(Text(format_cost(card.usage.cost_usd)))
    if card.began is not None:
        parts.append(Text(format_duration(card.elapsed_ms(now))))
    return Text(" · ").join(parts)


def _tokens(card: RunCard, window: Window) -> Text:
    text = Text(f"{format_count(card.usage.total_tokens)} token")
    percent = card.context_percent(window)
    notes = [] if percent is None else [Text(f"{round(percent)}%", STYLES[urgency(percent)])]
    if card.compactions:
        notes.append(Text(f"⇊{card.compactions}"))
    if not notes:
        return text
    return Text.assemble(text, " (", Text(" · ").join(notes), ")")
