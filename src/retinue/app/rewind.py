"""Rewinding a conversation, without a screen: the possible targets, the files changed since, and the rewind itself.

A rewind loses nothing. It is one event in the log, so the abandoned part remains as a branch that can be resumed. Files
are restored from the checkpoints of `retinue runs undo`, which keeps files that others have changed since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from retinue.app.changes import has_ledger
from retinue.app.conversation import exchanges
from retinue.app.rich_text import fit, one_line
from retinue.app.text import plural, short_path
from retinue.capabilities.audit.ledger import ChangeAuthor, RecordedChange
from retinue.capabilities.audit.undo import Undo, UndoneFile, UndoScope, chains_of, same_state, undone_event
from retinue.core.delegation import LIVE
from retinue.core.events import Body, Event, Rewound, TurnEnded
from retinue.core.person_prompt import words_of
from retinue.core.run_state import RunState
from retinue.core.story import Story
from retinue.errors import StateError
from retinue.log.commands import annotate
from retinue.log.query import LogReader
from retinue.log.replay import branch_ranges, current_branch, describe_call, read_branch
from retinue.recordings.fork import Fork as Fork
from retinue.recordings.fork import fork_run as fork_run

if TYPE_CHECKING:
    from retinue.runs.project import Project

MAX_NAMED_FILES = 5
_MAX_MOMENT_CELLS = 64
REWIND_TYPES = ("message.added", "turn.started", "run.rewound")
"""Events that determine the targets of a rewind."""


class RewindPoint(Struct, frozen=True):
    """A target of a rewind: the event before a message of the person, or the end of an abandoned part (`is_left`),
    which has no `turn`. `to` is the last event that remains in effect."""

    to: int
    at: float
    text: str
    turn: int = 0
    is_left: bool = False
    files: tuple[str, ...] = ()
    """Files that were changed after it."""

    @property
    def is_beginning(self) -> bool:
        """Whether it precedes the first message."""
        return self.turn == 1 and not self.is_left


def find_points(events: Sequence[Event], changes: Sequence[RecordedChange] = ()) -> list[RewindPoint]:
    """Return where one can go back to, oldest first, then the parts that were left. Of the run's events, those of the
    types `REWIND_TYPES` are enough."""
    branch = current_branch(events)
    points = []
    for exchange in exchanges(branch):
        # Messages without a turn are still in the editor, or were never sent.
        if exchange.turn:
            scope = UndoScope(ChangeAuthor(events[0].run_id, ""), exchange.turn, since=exchange.at)
            files = _changed_files(changes, scope)
            points.append(RewindPoint(exchange.seq - 1, exchange.at, exchange.text, exchange.turn, files=files))
    return [*points, *_find_left(events)]


def _changed_files(changes: Sequence[RecordedChange], scope: UndoScope) -> tuple[str, ...]:
    """Return the files that differ from how they were, without those that were put back already."""
    chains = chains_of(row for row in changes if scope.covers(row) and not row.is_only_folder)
    return tuple(path for path, chain in chains.items() if not same_state(chain[0].before, chain[-1].after))


def _find_left(events: Sequence[Event]) -> list[RewindPoint]:
    """Return the ends of abandoned parts, oldest first."""
    returns = {event.seq: event.body.to for event in events if isinstance(event.body, Rewound)}
    here = branch_ranges(returns, max(returns, default=0))
    points = []
    for event in events:
        end = event.seq - 1
        # There is nothing between two consecutive rewinds.
        if event.seq not in returns or end in returns or any(first <= end <= last for first, last in here):
            continue
        spoken = exchanges(current_branch([earlier for earlier in events if earlier.seq <= end]))
        if spoken:
            points.append(RewindPoint(end, event.at, spoken[-1].text, is_left=True))
    return points


class Rewinder:
    """Rewinds one conversation that is not running."""

    def __init__(self, project: Project, run_id: str) -> None:
        self._project = project
        self._row = project.log.reader.run(run_id)

    async def points(self) -> list[RewindPoint]:
        """Return the targets of a rewind, with the files changed after each."""
        await self._project.log.flush()
        events = await self._project.log.read(lambda reader: list(reader.stream(self._row.id, types=REWIND_TYPES)))
        runs = [row.id for row in self._tree()]
        changes = await asyncio.to_thread(_read_changes, self._project.state, runs)
        return find_points(events, changes)

    async def go_back(self, point: RewindPoint, still_changed: Sequence[str] = ()) -> None:
        """Rewind the conversation to this point. Raise StateError while it is running."""
        await asyncio.to_thread(self._record, Rewound(point.to, tuple(still_changed)))

    async def undo_files(self, point: RewindPoint) -> list[UndoneFile]:
        """Restore the files that the conversation and its agents have changed after this point. Return the fate of each
        file that differed. Raise StateError while one of its agents is running."""
        tree = self._tree()
        for row in tree:
            if row.state in LIVE:
                raise StateError(f"{row.agent} ({row.id[:8]}) is still at work.", remedy="Stop it first: /stop")
        below = tuple(row.id for row in tree[1:])
        scope = UndoScope(ChangeAuthor(self._row.id, self._row.agent), point.turn, below, point.at)
        return await asyncio.to_thread(self._undo, scope)

    def _tree(self) -> list[RunState]:
        return self._project.log.reader.tree(self._row)

    def _undo(self, scope: UndoScope) -> list[UndoneFile]:
        if not has_ledger(self._project.state):
            return []
        with closing(Undo(self._project.state)) as undo:
            done = undo.run(scope)
        changed = [file for file in done if file.fate != "unchanged"]
        if changed:
            self._record(undone_event(changed, by="person", turn=scope.turn))
        return changed

    def _record(self, body: Body) -> None:
        annotate(self._project.state, self._row.id, body, self._project.redactor)


def _read_changes(state: Path, run_ids: Sequence[str]) -> list[RecordedChange]:
    if not has_ledger(state):
        return []
    with closing(Undo(state)) as undo:
        return undo.changed(run_ids)


def name_files(paths: Sequence[str], cwd: str) -> str:
    """Return the names of the first few files, and the number of the others."""
    names = ", ".join(short_path(path, cwd) for path in paths[:MAX_NAMED_FILES])
    missing = len(paths) - MAX_NAMED_FILES
    if missing > 0:
        names += f" and {missing} more"
    return names


def report_files(done: Sequence[UndoneFile], cwd: str) -> str:
    """Describe what was done with files, in sentences."""
    back = [file.path for file in done if file.fate in ("restored", "removed")]
    untouched = [file for file in done if file.fate in ("kept", "failed")]
    sentences = []
    if back:
        sentences.append(f"{plural(len(back), 'file')} put back: {name_files(back, cwd)}.")
    for file in untouched[:MAX_NAMED_FILES]:
        sentences.append(f"Not changed: {short_path(file.path, cwd)} ({file.detail}).")
    if len(untouched) > MAX_NAMED_FILES:
        sentences.append(f"And {len(untouched) - MAX_NAMED_FILES} more.")
    return " ".join(sentences) or "No file had to be put back."


def read_moments(reader: LogReader, run_id: str) -> list[tuple[str, str]]:
    """Return the events from which a run can be forked, each as its number and a description."""
    rows: list[tuple[str, str]] = []
    story, text = Story(), ""
    spoken = list(read_branch(reader, run_id, ("message.added", "assistant.ended", "turn.ended")))
    for event in reversed(spoken):
        for entry in (step.entry for step in story.take(event.body, event.seq, event.at)):
            if entry.message is not None:
                rows.append(
                    (str(event.seq), f"{event.seq:>4}  [{entry.message.origin}] {_short(words_of(entry.text))}")
                )
            elif entry.kind == "answer":
                text = entry.text
        if isinstance(event.body, TurnEnded):
            calls = [describe_call(entry.call) for entry in story.calls if entry.call is not None]
            rows.append((str(event.seq), f"{event.seq:>4}  turn {story.turn}: {_short(', '.join(calls) or text)}"))
            text = ""
    return rows


def _short(text: str) -> str:
    return fit(one_line(text), _MAX_MOMENT_CELLS)
