"""The live widget above the editor, as lines: a heading and a tree of runs in at most 12 rows.

What does not fit is counted: working runs go first, then the queue (always one row), then finished
ones. No line is wider than the terminal; in a narrow one the description shrinks first, then numbers
are left out. The colour of an agent is shown as a badge that can be read on any theme.

The fleet below the editor: `main` and its agents, earliest first, five rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from rich.color import Color, ColorParseError
from rich.text import Text

from retinue.core.format import format_elapsed, format_fleet_tokens
from retinue.faces.tui.board.board import Board, counts, tree
from retinue.faces.tui.board.cards import RunCard, Window
from retinue.faces.tui.board.marks import STYLES, icon, stats
from retinue.faces.tui.board.text import fit, fit_line, one_line

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


MOST_LINES = 12
RICH_WIDTH = 88
NARROWEST = 6
LEAST_DESCRIPTION = 10
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
    if look.mode == "off" or look.width < NARROWEST:
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
    lines = [_heading(cards, look)]
    lines += _Rows(board, now, frame, look, rich).draw(chosen, queued, hidden)
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
    for card in sorted(cards, key=lambda each: (not each.at_work, each.began or each.queued_at)):
        if card.id in chosen or left <= 0:
            continue
        needed = [each for each in _with_ancestors(card, known) if each.id not in chosen]
        height = _height(needed, rich=rich)
        if height <= left:
            left -= height
            chosen.update({each.id: each for each in needed})
    return [card for card in cards if card.id in chosen], [card for card in cards if card.id not in chosen]


def _with_ancestors(card: RunCard, known: dict[str, RunCard]) -> list[RunCard]:
    found = {card.id: card}
    above = known.get(card.parent_id or "")
    while above is not None and above.id not in found:
        found[above.id] = above
        above = known.get(above.parent_id or "")
    return list(found.values())


def _heading(cards: list[RunCard], look: Look) -> Text:
    running, queued = counts(cards)
    parts = [f"{running} running"] if running else []
    parts += [f"{queued} queued"] if queued else []
    deepest = max(card.depth for card in cards)
    if deepest > 1:
        parts.append(f"depth {deepest}/{look.max_depth}")
    mark, style = ("●", "accent") if running or queued else ("○", "dim")
    suffix = f"  {' · '.join(parts)}" if parts else ""
    return Text.assemble((mark, STYLES[style]), (" Agents", "bold"), (suffix, STYLES["dim"]))


@dataclass(frozen=True, slots=True)
class _Rows:
    board: Board
    now: float
    frame: int
    look: Look
    rich: bool

    def draw(self, cards: list[RunCard], queued: list[RunCard], hidden: list[RunCard]) -> list[Text]:
        """Branches with someone at work, the queue, finished branches, what is hidden."""
        drawn = tree(cards, {*self.board.cards, self.board.main_id})
        split = next((at for at, (_, level, _) in enumerate(drawn) if not level and self._over(drawn, at)), len(drawn))
        lines = self._branches(drawn[:split], more=bool(queued or hidden or drawn[split:]))
        if queued:
            lines.append(_queue(queued, last=not hidden and not drawn[split:]))
        lines += self._branches(drawn[split:], more=bool(hidden))
        return [*lines, _footer(hidden)] if hidden else lines

    def _over(self, drawn: list[tuple[RunCard, int, bool]], at: int) -> bool:
        """Whether nobody in the branch that begins here is at work."""
        if drawn[at][0].at_work:
            return False
        for card, level, _ in drawn[at + 1 :]:
            if not level:
                break
            if card.at_work:
                return False
        return True

    def _branches(self, drawn: list[tuple[RunCard, int, bool]], *, more: bool) -> list[Text]:
        lines: list[Text] = []
        open_levels: dict[int, bool] = {}
        for index, (card, level, orphan) in enumerate(drawn):
            last = _is_last(drawn, index, level) and not (more and level == 0)
            prefix = "".join("│  " if open_levels.get(above) else "   " for above in range(level))
            open_levels[level] = not last
            lines.append(self._row(card, prefix + ("└─ " if last else "├─ "), orphan))
            if self.rich and card.at_work:
                below = prefix + ("│  " if open_levels[level] else "   ")
                lines.append(Text(f"{below}⎿ {one_line(card.activity())}", STYLES["dim"]))
        return lines

    def _row(self, card: RunCard, prefix: str, orphan: bool) -> Text:
        look = self.look
        mark, style = icon(card, self.frame, motion=look.motion)
        line = Text.assemble((prefix, STYLES["dim"]), (mark, STYLES[style]), " ")
        line.append_text(name_of(card))
        if card.twin:
            line.append(" (twin)", STYLES["dim"])
        if orphan:
            line.append(" ⚠ orphan", STYLES["warning"])
        ending = Text(f" · {card.status}", STYLES[style]) if not card.live and not card.succeeded else Text()
        described = one_line(card.description) if card.description != card.name else ""
        room = look.width - line.cell_len - ending.cell_len
        least = min(len(described), LEAST_DESCRIPTION) + 2 if described else 0
        numbers = stats(card, self.now, look.window, cost=look.show_cost, room=room - least - 3)
        if described:
            line.append(f"  {fit(described, max(room - 2 - (numbers.cell_len + 3 if numbers else 0), 0))}")
        if numbers:
            line.append(" · ", STYLES["dim"])
            line.append_text(numbers)
        return line.append_text(ending)


def name_of(card: RunCard) -> Text:
    """Its name; one that lives wears the colour of its file."""
    style = badge(card.color) if card.live else None
    return Text(f" {one_line(card.name)} ", style) if style else Text(one_line(card.name), "bold")


def _is_last(drawn: list[tuple[RunCard, int, bool]], index: int, level: int) -> bool:
    for _, other, _ in drawn[index + 1 :]:
        if other < level:
            return True
        if other == level:
            return False
    return True


def _queue(queued: list[RunCard], *, last: bool) -> Text:
    names = ", ".join(one_line(card.description or card.name) for card in queued[:20])
    dim = STYLES["dim"]
    return Text.assemble(("└─ " if last else "├─ ", dim), ("◦ ", dim), f"{len(queued)} queued", (f"  {names}", dim))


def _footer(hidden: list[RunCard]) -> Text:
    running = sum(card.at_work for card in hidden)
    kinds = [f"{running} running"] if running else []
    kinds += [f"{len(hidden) - running} finished"] if len(hidden) > running else []
    return Text(f"└─ +{len(hidden)} more ({', '.join(kinds)})", STYLES["dim"])


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
