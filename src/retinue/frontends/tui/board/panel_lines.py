"""The list of agents below the prompt, as lines, and the selection in it.

The list is a heading and a tree of runs in at most 12 rows. The selected run and working runs get rows first, then the
queue (always one row), then finished runs; the last row counts the runs that do not fit. No line is wider than the
terminal: in a narrow one the description is shortened first, then numbers are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from retinue.app.rich_text import STYLES, fit, fit_line, one_line
from retinue.app.text import optional, status_count, status_word
from retinue.frontends.tui.board.board import Board, counts, tree
from retinue.frontends.tui.board.cards import RunCard, Window
from retinue.frontends.tui.board.marks import badge, icon, stats

if TYPE_CHECKING:
    from retinue.app.settings import Settings

MAX_LIST_ROWS = 12
RICH_WIDTH = 88
MIN_WIDTH = 6
MIN_DESCRIPTION_CELLS = 10
Mode = Literal["all", "background", "off"]
Display = Literal["auto", "rich", "compact"]


@dataclass(frozen=True, slots=True)
class Look:
    """The display options of the list. `hint` explains the keys in the heading."""

    width: int = 80
    mode: Mode = "all"
    display: Display = "auto"
    show_cost: bool = False
    motion: bool = True
    max_depth: int = 3
    most: int = MAX_LIST_ROWS
    selected: str | None = None
    pinned: str | None = None
    hint: str = ""
    window: Window = field(default=lambda model: None)

    @classmethod
    def from_settings(cls, settings: Settings, width: int, *, motion: bool, window: Window) -> Look:
        return cls(
            width=width,
            mode=settings.widget_mode,
            display=settings.widget_display_mode,
            show_cost=settings.show_cost,
            motion=motion,
            max_depth=settings.max_subagent_depth,
            window=window,
        )


def listed_agents(board: Board, now: float, look: Look) -> list[RunCard]:
    """Return the agents of the list: live ones and recently finished ones."""
    if look.mode == "off" or look.width < MIN_WIDTH:
        return []
    cards = board.shown(now, background_only=look.mode == "background")
    pinned = board.cards.get(look.pinned or "")
    if pinned is not None and pinned not in cards:
        cards.append(pinned)
    return cards


def selectable(board: Board, cards: Iterable[RunCard]) -> list[RunCard]:
    """Return the runs that have begun, in the order of their rows. Queued runs share one row."""
    begun = [card for card in cards if card.status != "queued"]
    return [card for card, _, _ in tree(begun, {*board.cards, board.main_id})]


def agent_lines(board: Board, cards: list[RunCard], now: float, frame: int, look: Look) -> list[Text]:
    """Return the lines of the list; none when there is nothing to show."""
    if not cards:
        return []
    queued: list[RunCard] = []
    rows: list[RunCard] = []
    for card in cards:
        if card.status == "queued":
            queued.append(card)
        else:
            rows.append(card)
    room = look.most - 1 - bool(queued)
    rich = look.display == "rich" or (
        look.display == "auto" and look.width >= RICH_WIDTH and _height(rows, rich=True) <= room
    )
    chosen, hidden = _choose(rows, room, rich, look.selected)
    lines = [_heading(cards, look)]
    lines += _Rows(board, now, frame, look, rich).draw(chosen, queued, hidden)
    return [fit_line(line, look.width) for line in lines]


def _height(cards: Iterable[RunCard], *, rich: bool) -> int:
    height = 0
    for card in cards:
        height += 1 + (rich and card.at_work)
    return height


def _choose(
    cards: list[RunCard], room: int, rich: bool, selected: str | None = None
) -> tuple[list[RunCard], list[RunCard]]:
    """Return the runs that fit, with their ancestors, and the runs that do not. The selected run and working runs
    come first. As soon as a run does not fit, one row is reserved for the footer."""
    if _height(cards, rich=rich) <= room:
        return cards, []
    by_id = {card.id: card for card in cards}
    chosen: dict[str, RunCard] = {}
    free = room - 1
    for card in sorted(
        cards, key=lambda other: (other.id != selected, not other.at_work, other.began or other.created_at)
    ):
        if card.id in chosen or free <= 0:
            continue
        needed = [other for other in _with_ancestors(card, by_id) if other.id not in chosen]
        height = _height(needed, rich=rich)
        if height <= free:
            free -= height
            chosen.update({other.id: other for other in needed})
    return [card for card in cards if card.id in chosen], [card for card in cards if card.id not in chosen]


def _with_ancestors(card: RunCard, by_id: dict[str, RunCard]) -> list[RunCard]:
    branch = {card.id: card}
    above = by_id.get(card.parent_id or "")
    while above is not None and above.id not in branch:
        branch[above.id] = above
        above = by_id.get(above.parent_id or "")
    return list(branch.values())


def _heading(cards: list[RunCard], look: Look) -> Text:
    running, queued = counts(cards)
    parts = [status_count("running", running), status_count("queued", queued)]
    if not running and not queued:
        parts.append(f"{len(cards)} finished")
    deepest = max(card.depth for card in cards)
    if deepest > 1:
        parts.append(f"depth {deepest}/{look.max_depth}")
    mark, style = ("●", "accent") if running or queued else ("○", "dim")
    parts.append(look.hint)
    suffix = optional("  {}", " · ".join(filter(None, parts)))
    return Text.assemble((mark, STYLES[style]), (" Agents", "bold"), (suffix, STYLES["dim"]))


@dataclass(frozen=True, slots=True)
class _Rows:
    board: Board
    now: float
    frame: int
    look: Look
    rich: bool

    def draw(self, cards: list[RunCard], queued: list[RunCard], hidden: list[RunCard]) -> list[Text]:
        """Return working branches, the queue, finished branches and the count of hidden runs."""
        drawn = tree(cards, {*self.board.cards, self.board.main_id})
        split = 0
        while split < len(drawn) and (drawn[split][1] or not self._over(drawn, split)):
            split += 1
        lines = self._branches(drawn[:split], has_following_rows=bool(queued or hidden or drawn[split:]))
        if queued:
            lines.append(_queue(queued, last=not hidden and not drawn[split:]))
        lines += self._branches(drawn[split:], has_following_rows=bool(hidden))
        if hidden:
            lines.append(_footer(hidden))
        return lines

    def _over(self, drawn: list[tuple[RunCard, int, bool]], at: int) -> bool:
        """Return whether no run of the branch that begins here is at work."""
        if drawn[at][0].at_work:
            return False
        for card, level, _ in drawn[at + 1 :]:
            if not level:
                break
            if card.at_work:
                return False
        return True

    def _branches(self, drawn: list[tuple[RunCard, int, bool]], *, has_following_rows: bool) -> list[Text]:
        lines: list[Text] = []
        bars: list[str] = []
        for index, (card, level, orphan) in enumerate(drawn):
            prefix = "".join(bars[:level])
            branch, bar = "├─ ", "│  "
            if _is_last(drawn, index, level) and not (has_following_rows and level == 0):
                branch, bar = "└─ ", "   "
            bars[level:] = [bar]
            lines.append(self._row(card, prefix + branch, orphan))
            if self.rich and card.at_work:
                lines.append(Text(f"{prefix}{bar}⎿ {one_line(card.activity())}", STYLES["dim"]))
        return lines

    def _row(self, card: RunCard, prefix: str, orphan: bool) -> Text:
        look = self.look
        mark, style = icon(card, self.frame, motion=look.motion)
        if card.id == look.selected:
            line = Text.assemble((prefix[:-1], STYLES["dim"]), ("❯", STYLES["accent"]), (mark, STYLES[style]), " ")
            line.append(one_line(card.label), "bold reverse")
        else:
            line = Text.assemble((prefix, STYLES["dim"]), (mark, STYLES[style]), " ")
            line.append_text(name_of(card))
        if card.inherits_prompt:
            line.append(" (twin)", STYLES["dim"])
        if orphan:
            line.append(" ⚠ orphan", STYLES["warning"])
        ending = Text()
        if not card.live and not card.succeeded:
            ending.append(f" · {status_word(card.status)}", STYLES[style])
        described = description_of(card)
        room = look.width - line.cell_len - ending.cell_len
        least = 0
        if described:
            least = min(len(described), MIN_DESCRIPTION_CELLS) + 2
        numbers = stats(card, self.now, look.window, cost=look.show_cost, room=room - least - 3)
        if numbers:
            numbers = Text.assemble((" · ", STYLES["dim"]), numbers)
        if described:
            line.append(f"  {fit(described, max(room - 2 - numbers.cell_len, 0))}")
        return line.append_text(numbers).append_text(ending)


def name_of(card: RunCard) -> Text:
    """Return the name of a run; a live run has the colour from its agent file."""
    style = badge(card.color)
    if card.live and style:
        return Text(f" {one_line(card.label)} ", style)
    return Text(one_line(card.label), "bold")


def description_of(card: RunCard) -> str:
    """Return the description of a run, where it differs from its name."""
    if card.about == card.label:
        return ""
    return one_line(card.about)


def _is_last(drawn: list[tuple[RunCard, int, bool]], index: int, level: int) -> bool:
    for _, other, _ in drawn[index + 1 :]:
        if other < level:
            return True
        if other == level:
            return False
    return True


def _queue(queued: list[RunCard], *, last: bool) -> Text:
    names = ", ".join(one_line(card.about or card.label) for card in queued[:20])
    dim = STYLES["dim"]
    branch = "└─ " if last else "├─ "
    return Text.assemble((branch, dim), ("◦ ", dim), status_count("queued", len(queued)), (f"  {names}", dim))


def _footer(hidden: list[RunCard]) -> Text:
    running = sum(card.at_work for card in hidden)
    kinds = filter(None, (status_count("running", running), optional("{} finished", len(hidden) - running)))
    return Text(f"└─ +{len(hidden)} more ({', '.join(kinds)})", STYLES["dim"])


@dataclass(slots=True)
class AgentSelection:
    """The selected run of the list. It is a run rather than a row, because rows appear and disappear. While
    `selected` is None, the editor has the focus."""

    selected: str | None = None
    pinned: str | None = None
    """The run whose viewer is open: it stays in the list after it has ended."""
    _row: int = 0
    """The last row of the selection, near which it stays when its run leaves the list."""

    def enter(self, rows: Sequence[RunCard]) -> bool:
        """Move from an empty prompt into the list. Return whether the list has a row."""
        self.leave()
        if rows:
            self._select(0, rows)
        return bool(rows)

    def move(self, step: int, rows: Sequence[RunCard]) -> None:
        """Select another row, at most the last; a step above the first row leaves the list."""
        if self.selected is None:
            return
        row = self.index(rows) + step
        if row < 0:
            self.leave()
        else:
            self._select(min(row, len(rows) - 1), rows)

    def leave(self) -> None:
        self.selected, self._row = None, 0

    def chosen(self, rows: Sequence[RunCard]) -> RunCard | None:
        """Return the run under the selection."""
        for card in rows:
            if card.id == self.selected:
                return card
        return None

    def index(self, rows: Sequence[RunCard]) -> int:
        """Return the row of the selection. Where its run is gone, select the next one."""
        ids = [card.id for card in rows]
        if self.selected in ids:
            self._row = ids.index(self.selected)
        else:
            self._select(min(self._row, len(rows) - 1), rows)
        return self._row

    def _select(self, row: int, rows: Sequence[RunCard]) -> None:
        self._row, self.selected = row, rows[row].id
