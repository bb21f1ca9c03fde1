"""Events on their way to the file: encoded, freed of secrets, and written in one transaction."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from retinue.core.events import AssistantEnded, Body, Event, RunCreated, TextDelta, ThinkingDelta, ToolProgress
from retinue.core.lean import dataclass
from retinue.log.bulk import insert, update
from retinue.log.encode import encode, whole
from retinue.log.redaction import Redactor
from retinue.log.rows import CHANGING, COUNTED, COUNTS, IDENTITY, Tally, changing, counts, identity

if TYPE_CHECKING:
    import sqlite3

Row = tuple[str, int, float, str, str]
Encoded = tuple[Body, bytes]

_STREAMED = frozenset({TextDelta, ThinkingDelta, ToolProgress})
_LOOKED_AT = 256
"""How many bodies are looked through for secrets at once."""

_EVENT = ("run_id", "seq", "at", "type", "body")
_TEXT = ("run_id", "seq", "kind", "text")
_DELETE_TEXT = "DELETE FROM partials WHERE run_id=? AND seq>=?"


@dataclass(slots=True)
class Batch:
    """What one hand-over from the event loop holds, in order. `rows` is filled once, by the
    writer, so that a second attempt after a full disk does not do the work again."""

    number: int
    events: list[Event]
    rows: list[Row] | None = None

    def prepare(self, redact: Redactor | None) -> list[Row]:
        if self.rows is None:
            durable = [at for at, event in enumerate(self.events) if type(event.body) not in _STREAMED]
            made = [encode(self.events[at].body) for at in durable]
            if redact is not None:
                made = [
                    clean
                    for start in range(0, len(made), _LOOKED_AT)
                    for clean in _clean(made[start : start + _LOOKED_AT], redact)
                ]
            self.rows = [self._row(at, body, data) for at, (body, data) in zip(durable, made, strict=True)]
        return self.rows

    def _row(self, at: int, body: Body, data: bytes) -> Row:
        event = self.events[at]
        if body is not event.body:
            event = self.events[at] = replace(event, body=body)
        return event.run_id, event.seq, event.at, body.type, data.decode()


def _clean(made: list[Encoded], redact: Redactor) -> list[Encoded]:
    """Nearly always there is nothing to hide, and one look at all of them is enough to know. A
    secret does not go across the line feed between two bodies, nor begin with one."""
    if not redact.suspects(b"\n".join([data for _, data in made])):
        return made
    clean = [redact.body(body, data) for body, data in made]
    return [old if body is old[0] else encode(body) for body, old in zip(clean, made, strict=True)]


@dataclass(slots=True)
class Changes:
    """What a transaction is about to write. Nothing of it reaches `tallies` before `settle`:
    a transaction that fails leaves the writer's memory as it was."""

    tallies: dict[str, Tally]
    touched: dict[str, Tally] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    created: dict[str, tuple[object, ...]] = field(default_factory=dict)
    texts: dict[str, dict[tuple[int, str], list[str]]] = field(default_factory=dict)
    obsolete: list[tuple[str, int]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        body, run_id = event.body, event.run_id
        kind = type(body)
        if kind not in COUNTED:
            if isinstance(body, (TextDelta, ThinkingDelta)):
                place = (event.seq, "text" if kind is TextDelta else "thinking")
                self.texts.setdefault(run_id, {}).setdefault(place, []).append(body.text)
            return
        tally = self._tally(run_id)
        if isinstance(body, RunCreated):
            self.created[run_id] = identity(event, body)
        if tally.take(event):
            self.changed[run_id] = None
        if isinstance(body, AssistantEnded) and body.message.failure is None:
            self._said_whole(run_id, tally)

    def _said_whole(self, run_id: str, tally: Tally) -> None:
        """The message holds the text whole now. (A failed one may not: then the pieces stay.)"""
        texts = self.texts.pop(run_id, None)
        older = {place: parts for place, parts in texts.items() if place[0] < tally.turn_seq} if texts else None
        if older:
            self.texts[run_id] = older
        if tally.saved_text:
            self.obsolete.append((run_id, tally.turn_seq))
            tally.saved_text = False

    def _tally(self, run_id: str) -> Tally:
        tally = self.touched.get(run_id)
        if tally is None:
            known = self.tallies.get(run_id)
            tally = self.touched[run_id] = known.copy() if known is not None else Tally()
        return tally

    def write(self, connection: sqlite3.Connection, rows: list[Row], owner: str) -> None:
        """All of it, inside the transaction that the caller began."""
        insert(connection, "events", _EVENT, rows)
        created = [start + changing(self.touched[run_id], owner) for run_id, start in self.created.items()]
        insert(connection, "runs", (*IDENTITY, *CHANGING), created)
        changed = [(run_id, self.touched[run_id]) for run_id in self.changed if run_id not in self.created]
        moved = [(*changing(tally, owner), run_id) for run_id, tally in changed if tally.moved]
        update(connection, "runs", CHANGING, moved)
        update(connection, "runs", COUNTS, [(*counts(tally), run_id) for run_id, tally in changed if not tally.moved])
        if self.obsolete:
            connection.executemany(_DELETE_TEXT, self.obsolete)
        texts = []
        for run_id, pieces in self.texts.items():
            self._tally(run_id).saved_text = True
            texts += [(run_id, seq, kind, whole("".join(parts))) for (seq, kind), parts in pieces.items()]
        insert(connection, "partials", _TEXT, texts)

    def settle(self) -> None:
        """The transaction is committed: this is what is so now."""
        for run_id, tally in self.touched.items():
            tally.moved = False
            if tally.state == "ended":
                self.tallies.pop(run_id, None)
            else:
                self.tallies[run_id] = tally
