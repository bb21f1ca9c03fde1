"""The fleet below the editor: `main` and its agents, earliest first, five rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from retinue.core.format import format_elapsed, format_fleet_tokens
from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.cards import RunCard
from retinue.faces.tui.board.marks import STYLES, icon
from retinue.faces.tui.board.text import fit, fit_line, one_line
from retinue.faces.tui.board.widget_lines import LEAST_DESCRIPTION, NARROWEST, name_of

MOST_ROWS = 5
LINGER_SECONDS = 4.0
MAIN = "main"
"""The row that stands for the run the person talks to. No run has such an id."""


@dataclass(slots=True)
class Fleet:
    """The selection in the list, by run and not by row: rows come and go under it. `selected`
    None means that the editor has the keys."""

    selected: str | None = None
    pinned: str | None = None
    """The run whose viewer is open: it stays in the list after it has ended."""
    _row: int = 0
    """Where the selection was last: it stays about there when its run leaves the list."""

    def rows(self, board: Board, now: float) -> list[RunCard]:
        """Agents that have begun: at work, or ended a moment ago."""
        found = [card for card in board.recent(now) if card.began is not None and self._stays(card, now)]
        pinned = board.cards.get(self.pinned or "")
        if pinned is not None and pinned not in found:
            found.append(pinned)
        return sorted(found, key=lambda card: (card.began or 0.0, card.id))

    def enter(self, rows: Sequence[RunCard]) -> bool:
        """From an empty prompt into the list, if there is one."""
        self.selected, self._row = (MAIN if rows else None), 0
        return self.selected is not None

    def move(self, step: int, rows: Sequence[RunCard]) -> None:
        """Clamps at the last row; above main it leaves the list."""
        if self.selected is None:
            return
        wanted = self.index(rows) + step
        self._select(None if wanted < 0 else min(wanted, len(rows)), rows)

    def leave(self) -> None:
        self.selected = None

    def chosen(self, rows: Sequence[RunCard]) -> RunCard | None:
        """The run under the selection; None for main."""
        return next((card for card in rows if card.id == self.selected), None)

    def index(self, rows: Sequence[RunCard]) -> int:
        """The row of the selection: 0 is main. A run that is gone gives its place to the next."""
        found = next((at for at, card in enumerate(rows, 1) if card.id == self.selected), None)
        if found is None and self.selected != MAIN:
            self._select(min(self._row, len(rows)), rows)
            return self._row
        self._row = found or 0
        return self._row

    def _select(self, row: int | None, rows: Sequence[RunCard]) -> None:
        if row is None:
            self.selected = None
            return
        self._row, self.selected = row, rows[row - 1].id if row else MAIN

    def _stays(self, card: RunCard, now: float) -> bool:
        return card.live or now - (card.ended_at or 0.0) < LINGER_SECONDS


def fleet_lines(
    board: Board, fleet: Fleet, now: float, frame: int, width: int, *, motion: bool = True, most: int = MOST_ROWS
) -> list[Text]:
    rows = fleet.rows(board, now)
    if not rows or width < NARROWEST:
        return []
    at = fleet.index(rows) if fleet.selected is not None else None
    first = _first(at, len(rows), most)
    lines = [_main(at == 0)]
    for number, card in enumerate(rows[first : first + most], first + 1):
        lines.append(_row(card, now, frame, width, selected=at == number, motion=motion))
    below = len(rows) - first - most
    hidden = [f"↑ {first} more"] if first else []
    hidden += [f"↓ {below} more"] if below > 0 else []
    if hidden:
        lines.append(Text(f"    {' · '.join(hidden)}", STYLES["dim"]))
    return [fit_line(line, width) for line in lines]


def _first(selected: int | None, count: int, most: int) -> int:
    """The first row on show, so that the selected one is among them."""
    if not selected or selected <= most:
        return 0
    return min(selected - most, max(count - most, 0))


def _main(selected: bool) -> Text:
    return Text.assemble(("❯ " if selected else "  "), (MAIN, "bold reverse" if selected else "bold"))


def _row(card: RunCard, now: float, frame: int, width: int, *, selected: bool, motion: bool) -> Text:
    mark, style = icon(card, frame, motion=motion)
    parts = [format_elapsed(card.elapsed_ms(now))]
    if card.usage.total_tokens:
        parts.append(format_fleet_tokens(card.usage.total_tokens))
    name = Text(one_line(card.name), "bold reverse") if selected else name_of(card)
    line = Text.assemble("❯ " if selected else "  ", (mark, STYLES[style]), " ", name)
    if width - line.cell_len - len("  ".join(parts)) < LEAST_DESCRIPTION:
        del parts[1:]
    numbers = f"  {' · '.join(parts)}"
    room = width - line.cell_len - len(numbers) - 2
    described = fit(one_line(card.description), room) if card.description != card.name else ""
    line.append(f"  {described}" if described else "")
    return line.append(numbers, STYLES["dim"])
