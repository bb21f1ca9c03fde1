"""The signs and numbers of a run: icons that differ in shape and not in colour alone, and stats."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from retinue.core.delegation import Status
from retinue.core.format import format_cost, format_count, format_duration, urgency
from retinue.faces.tui.board.cards import RunCard, Window

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.08
STILL = "●"
"""In place of the spinner where motion is unwanted."""
SEPARATOR = " · "

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

_SPARE = ("cost", "tools", "tokens", "turns", "time")
"""Which number goes first where there is no room for all."""


def icon(card: RunCard, frame: int, *, motion: bool = True) -> tuple[str, str]:
    """The sign of a run and what it means: `accent`, `success`, `warning`, `error` or `dim`."""
    return status_icon(card.status) or ((FRAMES[frame % len(FRAMES)] if motion else STILL), "accent")


def status_icon(status: Status) -> tuple[str, str] | None:
    """The same for a status alone; None for one that is at work."""
    if status in _ICONS:
        return _ICONS[status]
    return None if status in ("starting", "running") else ("✗", "error")


def stats(
    card: RunCard, now: float, window: Window, *, cost: bool = False, room: int | None = None, time: bool = True
) -> Text:
    """`↻5≤30 · 3 tool uses · 33.8k token (62% · ⇊2) · ~$0.02 · 12.3s`; parts that say nothing
    are left out, and so are the least needed ones when there is less `room` than that."""
    parts = _parts(card, now, window, cost=cost, time=time)
    if room is not None:
        for name in _SPARE:
            if _width(list(parts.values())) <= room:
                break
            parts.pop(name, None)
    return Text(SEPARATOR).join(parts.values())


def _parts(card: RunCard, now: float, window: Window, *, cost: bool, time: bool) -> dict[str, Text]:
    parts: dict[str, Text] = {}
    turns = card.turns or int(card.at_work)
    if turns:
        parts["turns"] = Text(f"↻{turns}" + (f"≤{card.max_turns}" if card.max_turns else ""))
    if card.tool_uses:
        parts["tools"] = Text(f"{card.tool_uses} tool use{'s' if card.tool_uses != 1 else ''}")
    if card.usage.total_tokens:
        parts["tokens"] = _tokens(card, window)
    if cost and format_cost(card.usage.cost_usd):
        parts["cost"] = Text(format_cost(card.usage.cost_usd))
    if time and card.began is not None:
        parts["time"] = Text(format_duration(card.elapsed_ms(now)))
    return parts


def _width(parts: Sequence[Text]) -> int:
    return sum(part.cell_len for part in parts) + len(SEPARATOR) * max(len(parts) - 1, 0)


def _tokens(card: RunCard, window: Window) -> Text:
    text = Text(f"{format_count(card.usage.total_tokens)} token")
    percent = card.context_percent(window)
    notes = [] if percent is None else [Text(f"{round(percent)}%", STYLES[urgency(percent)])]
    if card.compactions:
        notes.append(Text(f"⇊{card.compactions}", STYLES["dim"]))
    if not notes:
        return text
    return Text.assemble(text, " (", Text(SEPARATOR).join(notes), ")")
