"""Forks: new runs that begin with the past of another run, up to a chosen event.

The events up to that one are copied under a new id, so that the two runs are independent: the old one can be pruned,
and the new one resumed, exported and forked like any other. The usage of the old run is not counted again. Files are
restored to that moment if checkpoints have them and nobody else has changed them since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.capabilities.audit.ledger import ChangeAuthor
from retinue.capabilities.audit.undo import Undo, UndoneFile, UndoScope, undone_event
from retinue.core.delegation import LIVE, new_run_id
from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    MessageAdded,
    ResultRead,
    Retrying,
    Rewound,
    RunCreated,
    RunEnded,
    RunStarted,
    TurnEnded,
    Undone,
    Warned,
)
from retinue.core.outcome import Outcome
from retinue.core.run_state import RunPlace, RunState
from retinue.core.usage import Usage
from retinue.errors import StateError, UsageError
from retinue.log.commands import annotate
from retinue.log.replay import current_branch, replay
from retinue.log.transcript import transcript_path
from retinue.runs.record import slug
from retinue.runs.system_prompt import restored_prompt

if TYPE_CHECKING:
    from retinue.runs.project import Project

_UNCOPIED_EVENTS = (InboxOpened, InboxClosed, ResultRead, Retrying, Undone, Rewound)
"""Events about inbox items, agents and files of the old run, which the new one does not have."""


class Fork(Struct, frozen=True):
    """A new run that has not been resumed yet. `at` is the last event it shares with the old run; `prompt` is the
    message with which it continues, if there is one."""

    run_id: str
    source: str
    at: int
    turn: int
    prompt: str | None = None
    files: tuple[UndoneFile, ...] = ()


async def fork_run(
    project: Project, run_id: str, at: int, *, edit: str | None = None, keep_files: bool = False, by: str = ""
) -> Fork:
    """Create a run with the past of `run_id` up to its event `at`, or up to the end of the turn or message before it.
    `edit` is the next message; if `at` is a message of a person, `edit` replaces it. `by` names who asked.

    Raise UsageError if the run had not begun at that event, and StateError if files should be restored while the old
    run or an agent of it is at work."""
    log = project.log
    await log.flush()
    reader = log.reader
    row = reader.run(run_id)
    past = current_branch([event for event in reader.events(row.id) if event.seq <= at])
    cut = _last_moment(past)
    last_body = past[cut].body if cut >= 0 else None
    if isinstance(last_body, MessageAdded) and edit is not None:
        # The edit replaces this message: the past ends before it.
        cut -= 1
    if cut < 1 or not any(isinstance(event.body, RunStarted) for event in past[: cut + 1]):
        raise UsageError(
            f"Run {row.id} had not begun at event {at}.", remedy="Name a later event: retinue runs show ID --json"
        )
    copied = past[: cut + 1]
    conversation = replay(copied)
    turn = conversation.turn
    # Without any message, the edit is the task itself.
    task = edit if edit is not None and not conversation.messages else None
    files: list[UndoneFile] = []
    if not keep_files:
        files = await _restore_files(project, row, turn + 1, copied[-1].at)
    new_id = new_run_id()
    new_run = RunPlace(new_id)
    transcript = transcript_path(project.state, new_id)
    for body in _copied(copied, row, transcript):
        if isinstance(body, RunCreated):
            old, system = body.options, restored_prompt(reader, body, row.parent_id)
            options = replace(
                old,
                name=f"{slug(old.name or body.agent)}-{new_id[:4]}",
                fork={"run": row.id, "at": copied[-1].seq},
                call_id=None,
                transcript=transcript if old.transcript else None,
                system=old.system if system is None else {"inherits": 0, "text": system},
                asked={"by": by} if by else old.asked,
            )
            body = replace(body, task=task or body.task, options=options)
        log.append(new_run, body)
    log.append(new_run, RunEnded(_ending(copied[-1], row)))
    await log.flush()
    return Fork(new_id, row.id, copied[-1].seq, turn, edit, tuple(files))


def _ending(last: Event, row: RunState) -> Outcome:
    """Return the outcome of the new run before it is resumed: that of the old run if it ended with the last copied
    event."""
    note = f"Forked from run {row.id} at event {last.seq}."
    if isinstance(last.body, RunEnded):
        outcome = last.body.outcome
        return replace(outcome, usage=Usage(), tree_usage=None, notes=(*outcome.notes, note))
    return Outcome("stopped", notes=(note,), stopped_by="program")


def _last_moment(past: Sequence[Event]) -> int:
    """Return the index of the last event after which a conversation can continue, which is never in the middle of a
    turn; -1 if there is none."""
    moments = (MessageAdded, TurnEnded, Compacted, RunEnded)
    return max((number for number, event in enumerate(past) if isinstance(event.body, moments)), default=-1)


def _copied(past: Sequence[Event], row: RunState, transcript: str) -> Iterator[Body]:
    """Yield the events of the new run."""
    bodies = [event.body for event in past if not isinstance(event.body, _UNCOPIED_EVENTS)]
    # The fork gets its own ending.
    while isinstance(bodies[-1], RunEnded):
        bodies.pop()
    is_noted = False
    for body in bodies:
        match body:
            case RunStarted():
                yield replace(body, transcript=transcript if body.transcript else None)
                if not is_noted:
                    yield Warned("fork", f"This run was forked from {row.id} at event {past[-1].seq}.")
                is_noted = True
            case AssistantEnded():
                yield replace(body, message=replace(body.message, usage=Usage()))
            case TurnEnded():
                yield replace(body, usage=Usage(), total=Usage())
            case RunEnded(outcome):
                yield RunEnded(replace(outcome, usage=Usage(), tree_usage=None))
            case _:
                yield body


async def _restore_files(project: Project, row: RunState, turn: int, since: float) -> list[UndoneFile]:
    """Restore the files that the run and its agents have changed from `turn` on. Return the result for each file whose
    content had changed."""
    if not (project.state / "checkpoints" / "ledger.db").is_file():
        return []
    tree = project.log.reader.tree(row)
    for run in tree:
        if run.state in LIVE:
            raise StateError(
                f"{run.agent} ({run.id[:8]}) is still at work, so files cannot go back.",
                remedy="Stop it first, or fork with --keep-files.",
            )
    scope = UndoScope(ChangeAuthor(row.id, row.agent), turn, tuple(run.id for run in tree[1:]), since)

    def work() -> list[UndoneFile]:
        with closing(Undo(project.state)) as undo:
            done = [file for file in undo.run(scope) if file.fate != "unchanged"]
        if done:
            annotate(project.state, row.id, undone_event(done, by="person", turn=turn), project.redactor)
        return done

    return await asyncio.to_thread(work)
