"""The events of one run in order, read a few at a time: a run of any length takes little memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from retinue.core.encode import decode
from retinue.core.events import AssistantEnded, Body, Event, ToolEnded
from retinue.core.messages import ToolResult
from retinue.core.run_state import RunPlace
from retinue.errors import StateError
from retinue.log.migrations import RARE_TYPES
from retinue.log.tool_results import read_whole, refers

PAGE = 64
"""Events that are in memory at once."""

_NEWEST = 2**62
Select = Callable[[str, tuple[object, ...]], Sequence[Any]]
"""Reads rows of the log."""


class RunEvents:
    """One run's events in the log at `path`. Each is yielded with its place in the order of the whole log."""

    def __init__(self, select: Select, path: Path, place: RunPlace) -> None:
        self._select = select
        self._path = path
        self._place = place
        self._keeps = True
        self._results: dict[int, ToolResult] = {}
        """Of the calls of the turn that is being read: its `tools.ended` refers to them."""

    def read(
        self,
        *,
        after: int = 0,
        types: Collection[str] = (),
        limit: int | None = None,
        condition: str = "",
        newest_first: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        """Yield the events above number `after`: those of `types`, or all; at most `limit`. `condition` is SQL that
        they meet besides. With `newest_first`, all of them the other way round."""
        conditions, order = "run_id=? AND seq>?", "seq"
        if newest_first:
            conditions, order, after = "run_id=? AND seq<?", "seq DESC", _NEWEST
        if types:
            conditions += f" AND type IN ({', '.join('?' * len(types))})"
            if all("run." <= kind < "tool." for kind in types):
                conditions += f" AND {RARE_TYPES}"
        if condition:
            conditions += f" AND ({condition})"
        query = f"SELECT id, seq, at, body FROM events WHERE {conditions} ORDER BY {order} LIMIT ?"  # noqa: S608 - marks
        # Without the answers in between, results would gather.
        self._keeps = not types
        left = limit
        while left is None or left > 0:
            wanted = PAGE if left is None else min(PAGE, left)
            rows = self._select(query, (self._place.run_id, after, *types, wanted))
            for number, seq, at, body in rows:
                after = seq
                yield (
                    number,
                    Event(
                        self._place.run_id, self._place.parent_id, self._place.root_id, seq, at, self._body(seq, body)
                    ),
                )
            if len(rows) < wanted:
                return
            if left is not None:
                left -= wanted

    def _body(self, seq: int, text: str) -> Body:
        try:
            if refers(text):
                return read_whole(text, self._result)
            body = decode(text)
        except ValueError as error:
            raise StateError(
                f"Event {seq} of run {self._place.run_id} in {self._path} cannot be read ({error}).",
                remedy="The other events are untouched: retinue runs show lists them up to there.",
            ) from error
        if isinstance(body, ToolEnded) and self._keeps:
            self._results[seq] = body.result
        elif isinstance(body, AssistantEnded):
            self._results.clear()
        return body

    def _result(self, seq: int) -> ToolResult:
        known = self._results.get(seq)
        if known is not None:
            return known
        rows = self._select("SELECT body FROM events WHERE run_id=? AND seq=?", (self._place.run_id, seq))
        body = decode(rows[0][0]) if rows else None
        if not isinstance(body, ToolEnded):
            raise ValueError(f"it refers to event {seq}, which is not the end of a call")
        return body.result
