"""The fleet below the editor: `main` and its agents, earliest first, five rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from retinue.domain.format import format_elapsed, format_fleet_tokens
from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.cards import RunCard
from retinue.faces.tui.board.marks import STYLES, icon
from retinue.faces.tui.board.text import fit_line, one_line

MOST_ROWS = 5
LINGER_SECONDS = 4.0


@dataclass(slots=True)
class Fleet:
    """The selection in the list. `selected` None means that the editor has the keys; 0 is main."""

    selected: int | None = None
    pinned: str | None = None
    """The run whose viewer is open: it stays in the list after it has ended."""

    def rows(self, board: Board, now: float) -> list[RunCard]:
        """Agents that have begun: at work, or ended a moment ago. Nested ones belong to theirs."""
        cards = [
            card
            for card in board.agents()
            if card.began is not None
            and (card.live or card.id == self.pinned or now - (card.ended_at or 0) < LINGER_SECONDS)
        ]
        return sorted(cards, key=lambda card: (card.began or 0.0, card.id))

    def enter(self, rows: Sequence[RunCard]) -> bool:
        """From an empty prompt into the list, if there is one."""
        self.selected = 0 if rows else None
        return self.selected is not None

    def move(self, step: int, rows: Sequence[RunCard]) -> None:
        """Clamps at the last row; above main it leaves the list."""
        if self.selected is None:
            return
        moved = self.selected + step
        self.selected = None if moved < 0 else min(moved, len(rows))

    def leave(self) -> None:
        self.selected = None

    def chosen(self, rows: Sequence[RunCard]) -> RunCard | None:
        """The run under the selection; None for main."""
        return rows[self.selected - 1] if self.selected and self.selected <= len(rows) else None


def fleet_lines(board: Board, fleet: Fleet, now: float, frame: int, width: int, *, motion: bool = True) -> list[Text]:
    rows = fleet.rows(board, now)
    if not rows or width < 6:
        return []
    if fleet.selected is not None:
        fleet.selected = min(fleet.selected, len(rows))
    first = _first(fleet.selected, len(rows))
    lines = [_main(fleet.selected == 0)]
    for number, card in enumerate(rows[first : first + MOST_ROWS], first + 1):
        lines.append(_row(card, now, frame, selected=fleet.selected == number, motion=motion))
    below = len(rows) - first - MOST_ROWS
    if below > 0:
        lines.append(Text(f"    ↓ {below} more", "dim"))
    return [fit_line(line, width) for line in lines]


def _first(selected: int | None, count: int) -> int:
    """The first row on show, so that the selected one is among them."""
    if not selected or selected <= MOST_ROWS:
        return 0
    return min(selected - MOST_ROWS, max(count - MOST_ROWS, 0))


def _main(selected: bool) -> Text:
    return Text.assemble(("❯ " if selected else "  "), ("main", "bold reverse" if selected else "bold"))


def _row(card: RunCard, now: float, frame: int, *, selected: bool, motion: bool) -> Text:
    mark, style = icon(card, frame, motion=motion)
    parts = [format_elapsed(card.elapsed_ms(now))]
    if card.usage.total_tokens:
        parts.append(format_fleet_tokens(card.usage.total_tokens))
    return Text.assemble(
        "❯ " if selected else "  ",
        (mark, STYLES[style]),
        " ",
        (one_line(card.name), "bold reverse" if selected else "bold"),
        f"  {one_line(card.description)}",
        (f"  {' · '.join(parts)}", "dim"),
    )
