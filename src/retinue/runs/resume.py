"""Resuming runs: their state, and the completions of children that their parents do not know, read from the log.

The children of a run are the runs that name it as their parent. A parent knows the completion of a child if its own log
has, after that completion, a notification about it or the result of a call that read it. So a completion that a dead
process could not announce is announced when the parent is resumed, and it is announced exactly once, however often
processes are killed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from retinue.core.delegation import LIVE
from retinue.core.events import (
    AssistantEnded,
    Body,
    ChildResumed,
    MessageAdded,
    ResultRead,
    RunResumed,
    ToolEnded,
    ToolStarted,
)
from retinue.core.messages import ChildrenEnded
from retinue.core.run_state import ActiveRun, RunState
from retinue.core.usage import Usage
from retinue.errors import UnknownRunError
from retinue.log.replay import describe_call
from retinue.runs.notifications import announcement
from retinue.runs.record import RESERVED_HANDLES

if TYPE_CHECKING:
    from retinue.core.messages import UserMessage
    from retinue.log.query import LogReader
    from retinue.runs.run import Run

_NEWS_HEADING = "Results of agents you started, which ended while you were not running:"


def past_run(reader: LogReader, row: RunState) -> ActiveRun:
    """Return the state of a run that this process knows only from the log."""
    outcome, first = reader.outcome(row.id), reader.created(row.id)
    run = ActiveRun(**asdict(row), began=row.started_at, outcome=outcome)
    run.description = row.description or row.agent
    if outcome is not None:
        run.notes = outcome.notes
    else:
        run.text = _last_words(reader, row.id)
        if row.state == "interrupted":
            cut_off = map(describe_call, reader.last_turn(row.id).unknown)
            run.notes = tuple(f"nobody knows what this did: {call}" for call in cut_off)
    if first is not None and first.options.placement:
        # Its transcript is a file of its worker.
        run.transcript = None
    return run


def names_below(reader: LogReader, parent_id: str) -> list[str]:
    """Return the names of the children of a run."""
    return [row.name for row in reader.list_runs(parent_id=parent_id) if row.name]


def find_child(reader: LogReader, parent_id: str, key: str, min_prefix: int) -> ActiveRun | None:
    """Return the child of `parent_id` with an id, the only child whose id begins with at least `min_prefix` characters,
    or the newest child with a name; None if there is none."""
    rows = reader.list_runs(parent_id=parent_id)
    exact = [row for row in rows if row.id == key]
    matches = exact or [row for row in rows if len(key) >= min_prefix and row.id.startswith(key)]
    if len(matches) == 1:
        return past_run(reader, matches[0])
    return next((past_run(reader, row) for row in rows if row.name == key), None)


def find_named(reader: LogReader, name: str) -> RunState | None:
    """Return the run with a name, at any depth: live runs come first, then the newest. `main` is the run that a person
    talks to."""
    if name in RESERVED_HANDLES:
        matches = reader.list_runs(depth=0, states=LIVE, limit=1) or reader.list_runs(depth=0, limit=1)
    else:
        matches = reader.named(name)
    return next((row for row in matches if row.state in LIVE), matches[0] if matches else None)


def find_run(reader: LogReader, key: str) -> RunState:
    """Return the run with an id, the beginning of an id, or `@name`. Raise UnknownRunError, and UsageError if several
    runs match."""
    if not key.startswith("@"):
        return reader.run(key)
    row = find_named(reader, key[1:].lower())
    if row is None:
        raise UnknownRunError(f"No run of this project is called {key}.", remedy="See: retinue runs list")
    return row


def children(reader: LogReader, parent_id: str, limit: int, without: Collection[str] = ()) -> list[ActiveRun]:
    """Return the newest children of a run, newest first, except those in `without`."""
    rows = [row for row in reader.list_runs(parent_id=parent_id, limit=limit) if row.id not in without]
    known = KnownCompletions(reader, parent_id) if rows else None
    runs = [past_run(reader, row) for row in rows]
    for run in runs:
        run.consumed = known is not None and known.includes(run)
    return runs


def undelivered(reader: LogReader, parent_id: str, members: Mapping[str, Run]) -> list[ActiveRun]:
    """Return the children of a run that have ended or were interrupted and whose completion it does not know. Live
    children are left out: their completion will be announced."""
    known: KnownCompletions | None = None
    runs: list[ActiveRun] = []
    for row in reversed(reader.list_runs(parent_id=parent_id)):
        # The log may have the end of a run that this process will announce in a moment.
        is_announced_here = row.id in members and members[row.id].live
        if row.state not in LIVE and not is_announced_here:
            known = known or KnownCompletions(reader, parent_id)
            if not known.includes(row):
                runs.append(past_run(reader, row))
    return runs


def news_of(children: list[ActiveRun], *, show_cost: bool = False) -> UserMessage | None:
    """Return the notification about children for a resumed run; None without children."""
    if not children:
        return None
    return announcement(children, group=len(children) > 1, head=_NEWS_HEADING, show_cost=show_cost)


def used_below(reader: LogReader, run_id: str) -> Usage:
    """Return the usage of all runs below a run."""
    below = reader.tree(reader.run(run_id))[1:]
    return sum((row.usage for row in below), Usage())


class KnownCompletions:
    """The completions of children that a run knows, by the numbers of events in the log."""

    def __init__(self, reader: LogReader, parent_id: str) -> None:
        self._reader = reader
        self._known: dict[str, int] = {}
        self._read: dict[str, dict[str, int]] = {}
        """By call: the children whose results it read, and when."""
        self._calls: dict[str, tuple[int, frozenset[str]]] = {}
        """Calls without a result: when they began, and the texts among their arguments."""
        self._resumed: dict[str, int] = {}
        types = ("message.added", "child.read", "child.resumed", "tool.started", "tool.ended")
        for number, event in reader.ordered(parent_id, types):
            self._take(number, event.body)

    def includes(self, row: RunState) -> bool:
        """Return whether the run knows the present state of this child. It does not if it was told of an interruption
        and its reaction was lost: the call was cut off, or the child was resumed and interrupted again in the queue,
        where it records no event."""
        known = self._known.get(row.id, 0)
        if known < self._reader.newest(row.id):
            return False
        if row.state == "ended":
            return True
        cut_off = any(number > known and row.id in texts for number, texts in self._calls.values())
        return not cut_off and self._resumed.get(row.id, 0) < known

    def _take(self, number: int, body: Body) -> None:
        match body:
            case MessageAdded(message) if isinstance(message.notice, ChildrenEnded):
                self._known.update({ending.id: number for ending in message.notice.endings})
            case ResultRead(child_id, call_id):
                self._read.setdefault(call_id or "", {})[child_id] = number
            case ChildResumed(child_id):
                self._resumed[child_id] = number
            case ToolStarted(call):
                texts = frozenset(value for value in call.arguments.values() if isinstance(value, str))
                self._calls[call.id] = (number, texts)
            case ToolEnded():
                self._calls.pop(body.call_id, None)
                read = self._read.pop(body.call_id, {})
                if body.effect.status != "unknown":
                    # The run knows a result only if the call that read it has returned.
                    self._known.update(read)
            case _:
                pass


def _last_words(reader: LogReader, run_id: str) -> str:
    """Return the last text of an interrupted run since it was last resumed: earlier answers belong to earlier
    prompts."""
    text = reader.partial(run_id)
    if text.strip():
        return text
    for _, event in reader.ordered(run_id, ("run.resumed", "assistant.ended"), newest_first=True):
        match event.body:
            case AssistantEnded(_, message) if message.text.strip():
                return message.text
            case RunResumed():
                break
            case _:
                pass
    return ""
