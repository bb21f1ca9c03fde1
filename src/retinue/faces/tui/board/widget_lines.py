"""The live widget above the editor, as lines: a heading and a tree of runs in at most 12 rows.

What does not fit is counted, never just gone: working runs go first, then the queue (always one
row), then finished ones. No line is wider than the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from rich.text import Text

from retinue.faces.tui.board.board import Board, tree
from retinue.faces.tui.board.cards import RunCard, Window
from retinue.faces.tui.board.marks import STYLES, icon, stats
from retinue.faces.tui.board.text import fit_line, one_line

MOST_LINES = 12
RICH_WIDTH = 88
Mode = Literal["all", "background", "off"]
Display = Literal["auto", "rich", "compact"]


@dataclass(frozen=True, slots=True)
class Look:
    """How the widget is to be drawn, and for whom."""

    width: int = 80
    mode: Mode = "background"
    display: Display = "auto"
    show_cost: bool = False
    motion: bool = True
    max_depth: int = 3
    most: int = MOST_LINES
    window: Window = field(default=lambda model: None)


def widget_lines(board: Board, now: float, frame: int, look: Look) -> list[Text]:
    """Nothing when there is nothing to show."""
    if look.mode == "off" or look.width < 6:
        return []
    cards = board.shown(now, background_only=look.mode == "background")
    if not cards:
        return []
    queued = [card for card in cards if card.status == "queued"]
    rows = [card for card in cards if card.status != "queued"]
    room = look.most - 1 - bool(queued)
    rich = look.display == "rich" or (
        look.display == "auto" and look.width >= RICH_WIDTH and _height(rows, rich=True) <= room
    )
    chosen, hidden = _choose(rows, room, rich)
    lines = [_heading(board, cards, look)]
    lines += _rows(chosen, board, now, frame, look, rich=rich, more=bool(queued or hidden))
    if queued:
        lines.append(_queue(queued, last=not hidden))
    if hidden:
        lines.append(_footer(hidden))
    return [fit_line(line, look.width) for line in lines]


def _height(cards: Iterable[RunCard], *, rich: bool) -> int:
    return sum(2 if rich and card.at_work else 1 for card in cards)


def _choose(cards: list[RunCard], room: int, rich: bool) -> tuple[list[RunCard], list[RunCard]]:
    """What fits, with the ancestors of each; working ones first. One row is kept for the footer
    as soon as something is left out."""
    if _height(cards, rich=rich) <= room:
        return cards, []
    known = {card.id: card for card in cards}
    chosen: dict[str, RunCard] = {}
    left = room - 1
    for card in sorted(cards, key=lambda each: not each.at_work):
        if card.id in chosen:
            continue
        needed = [each for each in _with_ancestors(card, known) if each.id not in chosen]
        height = _height(needed, rich=rich)
        if height <= left:
            left -= height
            chosen.update({each.id: each for each in needed})
    return [card for card in cards if card.id in chosen], [card for card in cards if card.id not in chosen]


def _with_ancestors(card: RunCard, known: dict[str, RunCard]) -> list[RunCard]:
    found = [card]
    while found[-1].parent_id in known and known[found[-1].parent_id or ""] not in found:
        found.append(known[found[-1].parent_id or ""])
    return found


def _heading(board: Board, cards: list[RunCard], look: Look) -> Text:
    running, queued = board.counts()
    parts = [f"{running} running"] if running else []
    parts += [f"{queued} queued"] if queued else []
    deepest = max(card.depth for card in cards)
    if deepest > 1:
        parts.append(f"depth {deepest}/{look.max_depth}")
    mark, style = ("●", "accent") if running or queued else ("○", "dim")
    return Text.assemble((mark, STYLES[style]), (" Agents", "bold"), (f"  {' · '.join(parts)}" if parts else "", "dim"))


def _rows(
    cards: list[RunCard], board: Board, now: float, frame: int, look: Look, *, rich: bool, more: bool
) -> list[Text]:
    drawn = tree(cards, board.main_id)
    lines: list[Text] = []
    open_levels: dict[int, bool] = {}
    for index, (card, level, orphan) in enumerate(drawn):
        last = _is_last(drawn, index, level) and not (more and level == 0)
        prefix = "".join("│  " if open_levels.get(above) else "   " for above in range(level))
        open_levels[level] = not last
        lines.append(_row(card, prefix + ("└─ " if last else "├─ "), orphan, now, frame, look))
        if rich and card.at_work:
            below = "│  " if open_levels[level] else "   "
            lines.append(Text.assemble((prefix + below, "dim"), ("⎿ ", "dim"), (one_line(card.activity()), "dim")))
    return lines


def _is_last(drawn: list[tuple[RunCard, int, bool]], index: int, level: int) -> bool:
    for _, other, _ in drawn[index + 1 :]:
        if other < level:
            return True
        if other == level:
            return False
    return True


def _row(card: RunCard, prefix: str, orphan: bool, now: float, frame: int, look: Look) -> Text:
    mark, style = icon(card, frame, motion=look.motion)
    name_style = f"bold {card.color}" if card.color and card.live and _is_color(card.color) else "bold"
    line = Text.assemble((prefix, "dim"), (mark, STYLES[style]), " ", (one_line(card.name), name_style))
    if card.twin:
        line.append(" (twin)", "dim")
    if orphan:
        line.append(" ⚠ orphan", STYLES["warning"])
    if card.description and card.description != card.name:
        line.append(f"  {one_line(card.description)}")
    numbers = stats(card, now, look.window, cost=look.show_cost)
    if numbers.plain:
        line.append(" · ", "dim")
        line.append_text(numbers)
    if not card.live and not card.succeeded:
        line.append(f" · {card.status}", STYLES[style])
    return line


def _is_color(name: str) -> bool:
    from rich.color import Color, ColorParseError

    try:
        Color.parse(name)
    except ColorParseError:
        return False
    return True


def _queue(queued: list[RunCard], *, last: bool) -> Text:
    names = ", ".join(one_line(card.description or card.name) for card in queued)
    return Text.assemble(
        ("└─ " if last else "├─ ", "dim"), ("◦ ", "dim"), f"{len(queued)} queued", (f"  {names}", "dim")
    )


def _footer(hidden: list[RunCard]) -> Text:
    running = sum(card.at_work for card in hidden)
    kinds = [f"{running} running"] if running else []
    kinds += [f"{len(hidden) - running} finished"] if len(hidden) > running else []
    return Text.assemble(("└─ ", "dim"), (f"+{len(hidden)} more ({', '.join(kinds)})", "dim"))
