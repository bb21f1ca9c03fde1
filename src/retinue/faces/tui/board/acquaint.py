"""What the log knows of a run that this process did not see begin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from retinue.errors import RetinueError
from retinue.faces.tui.board.board import Acquaint
from retinue.faces.tui.board.cards import RunCard

if TYPE_CHECKING:
    from retinue.log.store import Log

_MOVES = ("run.created", "run.started", "run.resumed", "run.ended")


def acquainted_by(log: Log) -> Acquaint:
    """Costs a few rows of the log per run, whatever its length."""

    def acquaint(card: RunCard, with_counts: bool) -> None:
        reader = log.reader
        try:
            row = reader.run(card.id)
            past = reader.ordered(card.id, _MOVES)
        except RetinueError:  # a run can be watched without its past
            return
        for _, event in past:
            card.take(event)
        card.parent_id, card.root_id = row.parent_id, row.root_id
        if with_counts:
            card.turns, card.tool_uses, card.compactions, card.usage = (
                row.turns,
                row.tool_uses,
                row.compactions,
                row.usage,
            )
        if row.state == "interrupted":
            card.lost(time.time())

    return acquaint
