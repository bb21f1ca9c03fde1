"""All runs of the project as a tree of cards, fed with events in the order of the log.

Runs that began before this process watched them are filled in from the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinue.core.delegation import LIVE
from retinue.core.events import Event, MessageAdded, RunResumed, ToolStarted
from retinue.errors import RetinueError
from retinue.frontends.tui.board.cards import RunCard

if TYPE_CHECKING:
    from retinue.core.run_state import RunState
    from retinue.log.store import Log


_SAID = ("task", "follow-up", "steer")
LINGER_TURNS = 1
LINGER_TURNS_FAILED = 2
LINGER_SECONDS = 30.0
LINGER_SECONDS_FAILED = 120.0

# Fills a card with the facts that the log has about its run; with the flag, also with its counts.
Backfill = Callable[[RunCard, bool], None]


@dataclass(slots=True)
class Board:
    """`main_id` is the run that the person talks to; the list has no row for it. `turns` counts its tool calls and
    incoming messages: finished rows disappear after a number of them. `backfill` supplies the facts of runs that began
    before this board existed."""

    main_id: str | None = None
    cards: dict[str, RunCard] = field(default_factory=dict)
    turns: int = 0
    changed: bool = False
    """Set by every event that could change the display; the caller resets it after drawing."""
    backfill: Backfill | None = None
    _recent: dict[str, RunCard] = field(default_factory=dict)
    """Live and recently ended runs. Drawing looks at these only, so its cost does not grow with the log."""

    def take(self, event: Event) -> RunCard:
        card = self.cards.get(event.run_id)
        if card is None:
            card = self._meet(event)
        was_live = card.live
        card.apply(event)
        if event.run_id == self.main_id:
            self._age(event)
        if was_live and not card.live:
            card.ended_turn = self.turns
        self._recent[card.id] = card
        self.changed = True
        return card

    def _age(self, event: Event) -> None:
        """Count the turns after which finished rows disappear."""
        match event.body:
            case ToolStarted():
                self.turns += 1
            case MessageAdded(message) if message.origin in _SAID:
                # Runs that ended before the person's new message leave the list.
                self.turns += LINGER_TURNS_FAILED
            case _:
                pass

    def mark_lost(self, run_id: str, at: float) -> None:
        """Mark a run whose process is gone."""
        card = self.cards.get(run_id)
        if card is not None and card.live:
            card.mark_lost(at)
            card.ended_turn = self.turns
            self.changed = True

    def forget(self, run_id: str) -> None:
        """Remove a run from the board, so that its events can be replayed without being counted twice."""
        self.cards.pop(run_id, None)
        self._recent.pop(run_id, None)

    def agents(self) -> Iterator[RunCard]:
        """Yield every run but main, in the order they were asked for."""
        return (card for card in self.cards.values() if not self._is_main(card))

    def recent(self, now: float) -> list[RunCard]:
        """Return live agents, and those that ended within the longest display time."""
        over = [
            card.id
            for card in self._recent.values()
            if card.ended_at is not None and now - card.ended_at >= LINGER_SECONDS_FAILED
        ]
        # Forget old runs here, so that drawing never looks at them.
        for run_id in over:
            del self._recent[run_id]
        return [card for card in self._recent.values() if not self._is_main(card)]

    def shown(self, now: float, *, background_only: bool = False) -> list[RunCard]:
        """Return the agents of the list: live ones, recently finished ones, and the ancestors of live ones, so that
        every branch starts at its root."""
        cards: dict[str, RunCard] = {}
        for card in self.recent(now):
            if background_only and not card.background:
                continue
            if card.live or self._lingers(card, now):
                cards[card.id] = card
        for card in list(cards.values()):
            if card.live:
                for above in self._above(card):
                    cards.setdefault(above.id, above)
        return list(cards.values())

    def counts(self) -> tuple[int, int]:
        """Return how many agents work, and how many wait in the queue."""
        return counts(card for card in self._recent.values() if not self._is_main(card))

    def children(self, parent_id: str | None) -> list[RunCard]:
        return [card for card in self.agents() if card.parent_id == parent_id]

    def _is_main(self, card: RunCard) -> bool:
        return card.id == self.main_id or card.is_main

    def _meet(self, event: Event) -> RunCard:
        card = RunCard(event.run_id, event.parent_id, event.root_id, created_at=event.at)
        self.cards[card.id] = card
        if self.backfill is None or event.seq == 1:
            return card
        # The start event of a resumed run has its counts. For other runs the log has them.
        self.backfill(card, isinstance(event.body, RunResumed))
        parent = card.parent_id
        while parent is not None and parent not in self.cards:
            above = self.cards[parent] = RunCard(parent, root_id=event.root_id)
            self.backfill(above, True)
            parent = above.parent_id
        return card

    def _above(self, card: RunCard) -> Iterator[RunCard]:
        seen = {card.id}
        parent = self.cards.get(card.parent_id or "")
        while parent is not None and not self._is_main(parent) and parent.id not in seen:
            seen.add(parent.id)
            yield parent
            parent = self.cards.get(parent.parent_id or "")

    def _lingers(self, card: RunCard, now: float) -> bool:
        if card.live or card.ended_at is None:
            return False
        turns, seconds = LINGER_TURNS, LINGER_SECONDS
        if not card.succeeded:
            turns, seconds = LINGER_TURNS_FAILED, LINGER_SECONDS_FAILED
        return self.turns - card.ended_turn < turns and now - card.ended_at < seconds


def counts(cards: Iterable[RunCard]) -> tuple[int, int]:
    """Return how many of them work, and how many wait in the queue."""
    running = queued = 0
    for card in cards:
        running += card.at_work
        queued += card.status == "queued"
    return running, queued


def tree(cards: Iterable[RunCard], existing: Container[str | None] = ()) -> list[tuple[RunCard, int, bool]]:
    """Return cards in drawing order, each with its level and whether its parent is gone. Branches with a working run
    precede finished ones, then the earliest start comes first; children are below their parent. `existing` are runs
    that exist but are not drawn."""
    drawn = {card.id: card for card in cards}
    below: dict[str | None, list[RunCard]] = {}
    for card in drawn.values():
        parent = card.parent_id if card.parent_id in drawn and card.parent_id != card.id else None
        below.setdefault(parent, []).append(card)
    rows: list[tuple[RunCard, int, bool]] = []
    seen: set[str] = set()

    def rank(card: RunCard, above: frozenset[str] = frozenset()) -> int:
        own = 0 if card.at_work else 1 if card.status == "queued" else 2
        if own == 0 or card.id in above:
            return own
        return min([own, *(rank(child, above | {card.id}) for child in below.get(card.id, ()))])

    def walk(parent: str | None, level: int) -> None:
        for card in sorted(below.get(parent, ()), key=lambda card: (rank(card), card.began or card.created_at)):
            if card.id in seen:
                continue
            seen.add(card.id)
            orphan = parent is None and card.parent_id is not None and card.parent_id not in existing
            rows.append((card, level, orphan))
            walk(card.id, level + 1)

    walk(None, 0)
    for card in drawn.values():
        # A cycle of parents, which no log should contain.
        if card.id not in seen:
            seen.add(card.id)
            rows.append((card, 0, True))
    return rows


_MOVES = ("run.created", "run.started", "run.resumed", "run.ended")


def backfill_from(log: Log) -> Backfill:
    """Return a function that reads a few rows of the log for each run, however long the run is."""

    def backfill(card: RunCard, with_counts: bool) -> None:
        reader = log.reader
        try:
            row = reader.run(card.id)
            past = list(reader.ordered(card.id, _MOVES))
        except RetinueError:
            # A run can be watched without its history.
            return
        for _, event in past:
            card.apply(event)
        if with_counts:
            card.turn = card.turns = row.turns
            card.tool_uses, card.compactions, card.usage = row.tool_uses, row.compactions, row.usage
        if row.state == "interrupted":
            card.mark_lost(time.time())

    return backfill


def load_conversation(board: Board, conversation: list[tuple[RunState, list[Event]]]) -> None:
    """Load the current state of a conversation into the board."""
    for row, events in conversation:
        if row.state in LIVE and row.id in board.cards:
            # The board already follows its events.
            continue
        board.forget(row.id)
        for event in events:
            board.take(event)
        if row.state == "interrupted":
            board.mark_lost(row.id, row.updated_at)
