"""Taking up again what an earlier process, or an earlier attempt of a run, left behind.

The log is the only memory: a run's children are those that name it as their parent, and it knows
of an end if, after that end, its own log has a notification about it or a tool result that
carried it. So the end that a dead process could not bring is brought when the parent goes on,
and one that was brought is not brought again, however often a process is killed.
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
from retinue.runs.record import RESERVED

if TYPE_CHECKING:
    from retinue.core.messages import UserMessage
    from retinue.log.query import LogReader
    from retinue.runs.run import Run

_HEAD = "What became of agents you started, while you were not running:"


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
        # Its transcript is a file of the worker that had it.
        run.transcript = None
    return run


def names_below(reader: LogReader, parent_id: str) -> list[str]:
    """Return the names of the children of a run."""
    return [row.name for row in reader.list_runs(parent_id=parent_id) if row.name]


def find_child(reader: LogReader, parent_id: str, wanted: str, shortest: int) -> ActiveRun | None:
    """The child of `parent_id` that an id, the only beginning of one of at least `shortest`
    characters, or a name means. Of several with one name, the newest."""
    rows = reader.list_runs(parent_id=parent_id)
    exact = [row for row in rows if row.id == wanted]
    alike = exact or [row for row in rows if len(wanted) >= shortest and row.id.startswith(wanted)]
    if len(alike) == 1:
        return past_run(reader, alike[0])
    return next((past_run(reader, row) for row in rows if row.name == wanted), None)


def find_named(reader: LogReader, name: str) -> RunState | None:
    """The run that a person means by a name, however old and deep it is: one that lives before
    one that does not, then the newest. `main` is the run a person talks to."""
    if name in RESERVED:
        alike = reader.list_runs(depth=0, states=LIVE, limit=1) or reader.list_runs(depth=0, limit=1)
    else:
        alike = reader.named(name)
    return next((row for row in alike if row.state in LIVE), alike[0] if alike else None)


def find_run(reader: LogReader, wanted: str) -> RunState:
    """The run that a person or a program means: an id, the beginning of one, or `@name`. Raises
    UnknownRunError, and UsageError when several fit."""
    if not wanted.startswith("@"):
        return reader.run(wanted)
    found = find_named(reader, wanted[1:].lower())
    if found is None:
        raise UnknownRunError(f"No run of this project is called {wanted}.", remedy="See: retinue runs list")
    return found


def children(reader: LogReader, parent_id: str, limit: int, without: Collection[str] = ()) -> list[ActiveRun]:
    """The newest children of a run, newest first, but for some."""
    rows = [row for row in reader.list_runs(parent_id=parent_id, limit=limit) if row.id not in without]
    ears = _Ears(reader, parent_id) if rows else None
    found = [past_run(reader, row) for row in rows]
    for run in found:
        run.consumed = ears is not None and ears.heard(run)
    return found


def undelivered(reader: LogReader, parent_id: str, members: Mapping[str, Run]) -> list[ActiveRun]:
    """The children of a run that have ended, or were interrupted, since it last heard of them.
    Those that still run are left out: their end is brought when it comes."""
    ears: _Ears | None = None
    runs: list[ActiveRun] = []
    for row in reversed(reader.list_runs(parent_id=parent_id)):
        # The log may have the end of a run that this process is still about to report.
        reported = row.id not in members or not members[row.id].live
        if row.state not in LIVE and reported:
            ears = ears or _Ears(reader, parent_id)
            if not ears.heard(row):
                runs.append(past_run(reader, row))
    return runs


def news_of(children: list[ActiveRun], *, show_cost: bool = False) -> UserMessage | None:
    """Return the message that a run gets about them before it continues; None when there is nothing to tell."""
    if not children:
        return None
    return announcement(children, group=len(children) > 1, head=_HEAD, show_cost=show_cost)


def used_below(reader: LogReader, run_id: str) -> Usage:
    """What all descendants of a run have used."""
    below = reader.tree(reader.run(run_id))[1:]
    return sum((row.usage for row in below), Usage())


class _Ears:
    """What a run has heard of its children, by places in the log."""

    def __init__(self, reader: LogReader, parent_id: str) -> None:
        self._reader = reader
        self._told: dict[str, int] = {}
        self._read: dict[str, dict[str, int]] = {}
        """By the call that carries them: the children whose results it read, and where."""
        self._calls: dict[str, tuple[int, frozenset[str]]] = {}
        """Calls without a result: where they began, and the texts among their arguments."""
        self._resumed: dict[str, int] = {}
        types = ("message.added", "child.read", "child.resumed", "tool.started", "tool.ended")
        for place, event in reader.ordered(parent_id, types):
            self._take(place, event.body)

    def heard(self, row: RunState) -> bool:
        """Whether it knows how this child stands. It does not when it was told of an
        interruption and what it then did about it came to nothing: the call was cut off, or the
        child was taken up and cut off again in the queue, where it leaves no trace of its own."""
        told = self._told.get(row.id, 0)
        if told < self._reader.newest(row.id):
            return False
        if row.state == "ended":
            return True
        cut_off = any(place > told and row.id in texts for place, texts in self._calls.values())
        return not cut_off and self._resumed.get(row.id, 0) < told

    def _take(self, place: int, body: Body) -> None:
        match body:
            case MessageAdded(message) if isinstance(message.notice, ChildrenEnded):
                self._told.update({ending.id: place for ending in message.notice.endings})
            case ResultRead(child_id, call_id):
                self._read.setdefault(call_id or "", {})[child_id] = place
            case ChildResumed(child_id):
                self._resumed[child_id] = place
            case ToolStarted(call):
                texts = frozenset(value for value in call.arguments.values() if isinstance(value, str))
                self._calls[call.id] = (place, texts)
            case ToolEnded():
                self._calls.pop(body.call_id, None)
                read = self._read.pop(body.call_id, {})
                if body.effect.status != "unknown":
                    # The run has a result only if the call that read it came back with it.
                    self._told.update(read)
            case _:
                pass


def _last_words(reader: LogReader, run_id: str) -> str:
    """What a run that was cut off had said since it was last taken up: an answer it gave before
    is none to what it was asked then."""
    said = reader.partial(run_id)
    if said.strip():
        return said
    for _, event in reader.ordered(run_id, ("run.resumed", "assistant.ended"), newest_first=True):
        match event.body:
            case AssistantEnded(_, message) if message.text.strip():
                return message.text
            case RunResumed():
                break
            case _:
                pass
    return ""
