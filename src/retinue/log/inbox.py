"""The inbox in the log: items are stored before anyone is asked, and answered exactly once.

An answer is one `UPDATE … WHERE state='waiting'`: of two people, two processes, or a person and the expiry, one
succeeds and the others learn which. The run that asked notices the answer, in whatever process it is, and marks it as
taken before it continues. If the process dies before that, the resumed run still finds the answer.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.delegation import State
from retinue.core.encode import dump, plain
from retinue.core.foreign import RunId, Text, decode_json, decode_row
from retinue.core.permission import InboxAnswer, InboxItem, InboxRow, InboxState
from retinue.errors import AnsweredError, StateError, UnknownItemError, UnknownRunError, UsageError
from retinue.log.database import NO_ROW_LIMIT, opened
from retinue.log.query import LogReader, check_unique, find_anywhere, readable

if TYPE_CHECKING:
    from retinue.core.spec import AgentIdentity
    from retinue.log.backend import LogConnection

_COLUMNS = "id, item, state, expires_at, choice, message, answered_by, answered_at, taken_at"
_SELECT = f"SELECT {_COLUMNS} FROM inbox"  # noqa: S608
_MAX_MESSAGE_CHARACTERS = 10_000
_MAX_ITEM_CHARACTERS = 1 << 25
"""An item contains the complete call, with the content of a file that it writes."""


def fingerprint(subject: Any) -> str:
    """Return a digest of a call or question, which does not depend on the redaction."""
    return hashlib.sha256(orjson.dumps(plain(subject), option=orjson.OPT_SORT_KEYS)).hexdigest()


# Inside a transaction, of `Log.transact` or of `answer` below


def put(connection: LogConnection, item: InboxItem, mark: str) -> None:
    """Store a waiting item without secrets. `mark` is its fingerprint."""
    connection.execute(
        "INSERT INTO inbox (id, run_id, fingerprint, item, created_at, expires_at, state) VALUES (?,?,?,?,?,?,?)",
        (item.id, item.run_id, mark, dump(item).decode(), item.created_at, item.expires_at, "waiting"),
    )


def settle(connection: LogConnection, item_id: str, state: InboxState, answer: InboxAnswer) -> InboxItem:
    """Close an item if it still waits. Return its present state, which another call may have set."""
    connection.execute(
        "UPDATE inbox SET state=?, choice=?, message=?, answered_by=?, answered_at=? WHERE id=? AND state='waiting'",
        (state, answer.choice, answer.message[:_MAX_MESSAGE_CHARACTERS], answer.by, answer.at, item_id),
    )
    return _item(connection.execute(f"{_SELECT} WHERE id=?", (item_id,)).fetchone())


def take(connection: LogConnection, item_id: str) -> None:
    """Mark an answer as taken: the run continues with it."""
    connection.execute("UPDATE inbox SET taken_at=? WHERE id=? AND taken_at IS NULL", (time.time(), item_id))


def adopt(connection: LogConnection, run_id: str, mark: str, now: float) -> InboxItem | None:
    """Return the newest item in which an earlier attempt of the run asked the same, if it still waits or its answer was
    not taken; None otherwise. An answer is marked as taken."""
    row = connection.execute(
        f"{_SELECT} WHERE run_id=? AND fingerprint=? AND taken_at IS NULL AND state IN ('waiting', 'answered') "
        "ORDER BY created_at DESC, rowid DESC LIMIT 1",
        (run_id, mark),
    ).fetchone()
    if row is None or _lapsed(row, now):
        return None
    item = _item(row)
    if item.state == "answered":
        take(connection, item.id)
    return item


def withdraw(connection: LogConnection, run_id: str, now: float) -> None:
    """Close the open items of a run that is over and needs no answers."""
    connection.execute(
        "UPDATE inbox SET state='withdrawn', answered_at=?, answered_by='run' WHERE run_id=? AND state='waiting'",
        (now, run_id),
    )


def grant(connection: LogConnection, agent: AgentIdentity, rule: str, by: str) -> None:
    """Store a rule that a person granted to all runs of an agent."""
    values = (agent.name, _origin(agent), rule, time.time(), by)
    connection.execute("INSERT INTO grants VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values)


# From anywhere


def granted(reader: LogReader, agent: AgentIdentity) -> tuple[str, ...]:
    """Return the rules that people granted to this agent, oldest first."""
    query = "SELECT rule FROM grants WHERE agent=? AND source=? ORDER BY at"
    return tuple(row[0] for row in reader.select(query, (agent.name, _origin(agent))))


def _origin(agent: AgentIdentity) -> str:
    """Return the value of the column `source`. Rows of versions without a digest match no agent."""
    return f"{agent.source} {agent.digest}"


def leftovers(reader: LogReader, run_id: str) -> bool:
    """Return whether an earlier attempt of the run left an item without a result."""
    query = "SELECT 1 FROM inbox WHERE run_id=? AND taken_at IS NULL AND state IN ('waiting', 'answered') LIMIT 1"
    return bool(reader.select(query, (run_id,)))


def closed(reader: LogReader, ids: Sequence[str]) -> list[InboxItem]:
    """Return those of the items that no longer wait."""
    marks = ", ".join("?" * len(ids))
    rows = reader.select(f"{_SELECT} WHERE id IN ({marks}) AND state!='waiting'", tuple(ids))
    return readable(rows, _item)


def opening_number(reader: LogReader, item: InboxItem) -> int:
    """Return the number of the event that opened this item; 0 if the log no longer has it."""
    query = (
        "SELECT coalesce(min(id), 0) FROM events WHERE run_id=? AND type='inbox.opened' "
        "AND json_extract(body, '$.item_id')=?"
    )
    return int(reader.select(query, (item.run_id, item.id))[0][0])


def items(reader: LogReader, *, everything: bool = False, limit: int | None = None) -> list[InboxRow]:
    """Return the waiting items, oldest first; with `everything` also those answered, expired or withdrawn."""
    where = "1=1" if everything else "state='waiting'"
    rows = reader.select(
        f"{_SELECT} WHERE {where} ORDER BY created_at DESC, rowid DESC LIMIT ?",
        (NO_ROW_LIMIT if limit is None else limit,),
    )
    rows.reverse()
    now = time.time()
    listed = [item for item in readable(rows, partial(_item, now=now)) if everything or item.state == "waiting"]
    states = {
        run_id: _run_state(reader, run_id) for run_id in {item.run_id for item in listed if item.state == "waiting"}
    }
    return [InboxRow(item, states.get(item.run_id)) for item in listed]


def waiting_ids(reader: LogReader) -> tuple[str, ...]:
    """Return the ids of the waiting items, oldest first. Callers compare them to notice changes cheaply."""
    return tuple(
        row[0] for row in reader.select("SELECT id FROM inbox WHERE state='waiting' ORDER BY created_at, rowid")
    )


def find(reader: LogReader, id_or_prefix: str) -> InboxItem:
    """Return the item with that id, or the only item whose id begins with it; waiting items come first. Raise
    UnknownItemError, and UsageError if several items match."""
    prefix = id_or_prefix.strip().lower()
    rows = reader.select(f"{_SELECT} WHERE id>=? AND id<? ORDER BY id LIMIT 100", (prefix, prefix + "\U0010ffff"))
    matches = readable(rows, partial(_item, now=time.time())) if prefix else []
    exact = [item for item in matches if item.id == prefix]
    matches = exact or [item for item in matches if item.state == "waiting"] or matches
    check_unique("items", prefix, [item.id for item in matches[:6]])
    if not matches:
        raise UnknownItemError(f"There is no item '{prefix}' in the inbox.", remedy="See: retinue inbox list --all")
    return matches[0]


def locate(home: Path, id_or_prefix: str, first: Path) -> tuple[Path, InboxItem]:
    """Return the project folder and the item with that id: from `first` if it has it, else from any project."""
    items = find_anywhere(home, first, lambda reader: find(reader, id_or_prefix))
    check_unique("items", id_or_prefix, [item.id for _, item in items])
    return items[0]


def answer(folder: Path, item: InboxItem, reply: InboxAnswer) -> InboxItem:
    """Answer an item from any process. Raise UsageError for an invalid answer, and AnsweredError, naming who was first,
    if it no longer waits."""
    with opened(folder, writable=True) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            return give(connection, item, reply)
        finally:
            # A refused answer may have marked the item as expired.
            connection.execute("COMMIT")


def give(connection: LogConnection, item: InboxItem, reply: InboxAnswer) -> InboxItem:
    """Answer an item inside a transaction."""
    reply = replace(reply, choice=check_choice(item, reply.choice), at=reply.at or time.time())
    row = connection.execute(f"{_SELECT} WHERE id=?", (item.id,)).fetchone()
    if row is None:
        raise UnknownItemError(f"There is no item '{item.id}' in the inbox.", remedy="See: retinue inbox list --all")
    before = _item(row)
    # It may have expired while no process was running.
    if _lapsed(row, reply.at):
        before = settle(connection, item.id, "expired", InboxAnswer(before.default, by="expiry", at=row[3]))
    if before.state != "waiting":
        raise AnsweredError(f"Not taken: {describe_closing(before)}.", remedy=_CLOSED_REMEDIES[before.state])
    return settle(connection, item.id, "answered", reply)


_CLOSED_REMEDIES: Mapping[InboxState, str] = {
    "waiting": "",
    "answered": "Each item is answered once; the first answer is valid.",
    "expired": "The run continued with the default answer. Give it longer with: permissions.expirySeconds",
    "withdrawn": "Nothing waits for the answer any more.",
}


def describe_closing(item: InboxItem) -> str:
    """Return how a closed item was closed, as a clause of a sentence."""
    answer = item.answer
    when = time.strftime("%H:%M:%S", time.localtime(answer.at)) if answer is not None else ""
    if item.state == "answered" and answer is not None:
        return f"{item.id} was answered '{answer.choice}' by {answer.by} at {when}"
    if item.state == "expired":
        return f"{item.id} expired at {when}, with the answer '{item.default}'"
    return f"{item.id} was withdrawn at {when}: its run ended or was stopped"


def check_choice(item: InboxItem, choice: str) -> str:
    """Return the choice in the spelling of the item. An empty choice skips the item if possible. Raise UsageError with
    the valid choices."""
    choice = choice.strip() or str(item.payload.get("skip") or "")
    for option in item.options:
        if choice.lower() == option.lower():
            return option
    if item.kind == "question" and choice:
        return choice
    remedy = f"Choose one of: {', '.join(item.options)}" if item.options else "Give an answer."
    if choice in ("allow-run", "allow-agent", "always"):
        remedy += ". (No rule can allow this kind of call in advance: it is asked each time.)"
    raise UsageError(f"'{choice}' is not an answer to {item.id}.", remedy=remedy)


def _run_state(reader: LogReader, run_id: str) -> State | None:
    try:
        return reader.run(run_id).state
    except UnknownRunError:
        return None


def _lapsed(row: Any, now: float) -> bool:
    return row[2] == "waiting" and row[3] is not None and row[3] <= now


class _ItemRow(Struct, frozen=True):
    """The columns of an item beside its JSON."""

    id: RunId
    run_id: RunId
    state: InboxState
    expires_at: float | None
    choice: Text | None
    message: Text | None
    answered_by: Text | None
    answered_at: float | None


def _item(row: Any, now: float | None = None) -> InboxItem:
    """Read an item from a row in the order of `_COLUMNS`. With `now`, an item past its expiry reads as expired even if
    no process has marked it."""
    item = decode_json(row[1], InboxItem, f"The inbox item {str(row[0])[:100]!r}", _MAX_ITEM_CHARACTERS)
    values = dict(zip(_COLUMNS.split(", "), tuple(row), strict=True))
    checked = decode_row({**values, "run_id": item.run_id}, _ItemRow, "An item of the inbox")
    if item.id != checked.id:
        raise StateError(f"The inbox item {checked.id} cannot be read (its JSON has another id).")
    state, reply = checked.state, None
    if now is not None and _lapsed(row, now):
        state, reply = "expired", InboxAnswer(item.default, by="expiry", at=row[3])
    elif checked.answered_at is not None:
        texts = checked.choice or "", checked.message or "", checked.answered_by or ""
        reply = InboxAnswer(*texts, checked.answered_at)
    return replace(item, state=state, expires_at=checked.expires_at, answer=reply)
