"""All runs of the project as a tree of cards, fed with events in the order of the log.

Runs that this process did not see begin are filled in from the log.
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

# Tells a card what the log knows of its run, and where the flag says so its counts as well.
Backfill = Callable[[RunCard, bool], None]


@dataclass(slots=True)
class Board:
    """`main_id` is the run the person talks to: it is no row of its own in the list. `turns`
    counts its tool calls and what it is told, by which finished rows age. `backfill` is asked about runs that were
    begun before this board was."""

    main_id: str | None = None
    cards: dict[str, RunCard] = field(default_factory=dict)
    turns: int = 0
    changed: bool = False
    """Set by every event that could change what is drawn; the caller that draws resets it."""
    backfill: Backfill | None = None
    _recent: dict[str, RunCard] = field(default_factory=dict)
    """Live or ended a moment ago: all that drawing has to look at, however many there were."""

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
        """Count what makes finished rows leave."""
        match event.body:
            case ToolStarted():
                self.turns += 1
            case MessageAdded(message) if message.origin in _SAID:
                # What had ended before the person spoke again leaves the list.
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
        """Take a run off the board, so that its events can be taken again without being counted twice."""
        self.cards.pop(run_id, None)
        self._recent.pop(run_id, None)

    def agents(self) -> Iterator[RunCard]:
        """Yield every run but main, in the order they were asked for."""
        return (card for card in self.cards.values() if not self._is_main(card))

    def recent(self, now: float) -> list[RunCard]:
        """Agents that live or have ended within the longest time that any is shown."""
        over = [
            card.id
            for card in self._recent.values()
            if card.ended_at is not None and now - card.ended_at >= LINGER_SECONDS_FAILED
        ]
        # Forgotten here, so that drawing never looks at runs that ended long ago.
        for run_id in over:
            del self._recent[run_id]
        return [card for card in self._recent.values() if not self._is_main(card)]

    def shown(self, now: float, *, background_only: bool = False) -> list[RunCard]:
        """Return what the list of agents has to show: all that lives, finished ones for a while, and the
        ancestors of those that live, so that no branch hangs in the air."""
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
        # A run that is taken up again comes with its counts; of others these are in the events.
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
    """Cards in the order they are drawn, each with its level and whether it lost its parent:
    branches with someone at work before finished ones, then by start; children below their
    parent. `known` are runs that exist though they are not drawn."""
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
        # A circle of parents, which no log should hold.
        if card.id not in seen:
            seen.add(card.id)
            rows.append((card, 0, True))
    return rows


_MOVES = ("run.created", "run.started", "run.resumed", "run.ended")


def backfill_from(log: Log) -> Backfill:
    """Costs a few rows of the log per run, whatever its length."""

    def backfill(card: RunCard, with_counts: bool) -> None:
        reader = log.reader
        try:
            row = reader.run(card.id)
            past = list(reader.ordered(card.id, _MOVES))
        except RetinueError:
            # A run can be watched without its past.
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
    """Show the board a conversation as it stands."""
    for row, events in conversation:
        if row.state in LIVE and row.id in board.cards:
            # What happens to it is on the board already.
            continue
        board.forget(row.id)
        for event in events:
            board.take(event)
        if row.state == "interrupted":
            board.mark_lost(row.id, row.updated_at)
