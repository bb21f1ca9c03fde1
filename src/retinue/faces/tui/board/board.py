"""All runs of the project as a tree of cards, fed with events in the order of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from retinue.domain.events import Event, ToolStarted
from retinue.faces.tui.board.cards import RunCard

LINGER_TURNS = 1
LINGER_TURNS_FAILED = 2
LINGER_SECONDS = 30.0
LINGER_SECONDS_FAILED = 120.0


@dataclass(slots=True)
class Board:
    """`main_id` is the run the person talks to: it is no row of its own in the widget. `turns`
    counts its tool calls, by which finished rows age."""

    main_id: str | None = None
    cards: dict[str, RunCard] = field(default_factory=dict)
    turns: int = 0
    changed: bool = False
    """Set by every event that could change what is drawn; whoever draws sets it back."""

    def take(self, event: Event) -> RunCard:
        card = self.cards.get(event.run_id)
        if card is None:
            card = self.cards[event.run_id] = RunCard(event.run_id, event.parent_id, event.root_id, queued_at=event.at)
        was_live = card.live
        card.take(event)
        if event.run_id == self.main_id and isinstance(event.body, ToolStarted):
            self.turns += 1
        if was_live and not card.live:
            card.ended_turn = self.turns
        self.changed = True
        return card

    def agents(self) -> Iterator[RunCard]:
        """Every run but main, in the order they were asked for."""
        return (card for card in self.cards.values() if card.id != self.main_id)

    def shown(self, now: float, *, background_only: bool = False) -> list[RunCard]:
        """What the live widget has to show: all that lives, finished ones for a while, and the
        ancestors of those, so that no branch hangs in the air."""
        wanted: dict[str, RunCard] = {}
        for card in self.agents():
            if background_only and not card.background:
                continue
            if card.live or self._lingers(card, now):
                wanted[card.id] = card
        for card in list(wanted.values()):
            if card.live:
                for above in self._above(card):
                    wanted.setdefault(above.id, above)
        return [card for card in self.cards.values() if card.id in wanted]

    def counts(self) -> tuple[int, int]:
        """How many work, and how many wait in the queue."""
        running = sum(card.at_work for card in self.agents())
        return running, sum(card.status == "queued" for card in self.agents())

    def children(self, parent_id: str | None) -> list[RunCard]:
        return [card for card in self.agents() if card.parent_id == parent_id]

    def _above(self, card: RunCard) -> Iterator[RunCard]:
        seen = {card.id}
        parent = self.cards.get(card.parent_id or "")
        while parent is not None and parent.id != self.main_id and parent.id not in seen:
            seen.add(parent.id)
            yield parent
            parent = self.cards.get(parent.parent_id or "")

    def _lingers(self, card: RunCard, now: float) -> bool:
        if card.live or card.ended_at is None:
            return False
        turns, seconds = (
            (LINGER_TURNS, LINGER_SECONDS) if card.succeeded else (LINGER_TURNS_FAILED, LINGER_SECONDS_FAILED)
        )
        return self.turns - card.ended_turn < turns + 1 and now - card.ended_at < seconds


def tree(cards: Iterable[RunCard], main_id: str | None = None) -> list[tuple[RunCard, int, bool]]:
    """Cards in the order they are drawn, each with its level and whether it lost its parent:
    running before queued before finished, then by start; children below their parent."""
    known = {card.id: card for card in cards}
    below: dict[str | None, list[RunCard]] = {}
    for card in known.values():
        parent = card.parent_id if card.parent_id in known and card.parent_id != card.id else None
        below.setdefault(parent, []).append(card)
    rows: list[tuple[RunCard, int, bool]] = []
    seen: set[str] = set()

    def walk(parent: str | None, level: int) -> None:
        for card in sorted(below.get(parent, ()), key=_order):
            if card.id in seen:
                continue
            seen.add(card.id)
            orphan = parent is None and card.parent_id not in (None, main_id)
            rows.append((card, level, orphan))
            walk(card.id, level + 1)

    walk(None, 0)
    for card in known.values():  # a circle of parents, which no log should hold
        if card.id not in seen:
            seen.add(card.id)
            rows.append((card, 0, True))
    return rows


def _order(card: RunCard) -> tuple[int, float]:
    rank = 0 if card.at_work else 1 if card.status == "queued" else 2
    return rank, card.began or card.queued_at
