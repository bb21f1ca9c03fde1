"""Runs in lists, and one run in detail: its status, its story and its result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from retinue.app.text import status_word
from retinue.core.delegation import State
from retinue.core.events import TodosUpdated, Undone
from retinue.core.outcome import SUCCESS, Outcome
from retinue.core.run_state import RunState
from retinue.core.story import Story, StoryStep
from retinue.log.follow import export_document
from retinue.log.inbox import items
from retinue.log.overview import describe_activity
from retinue.log.query import LogReader, everywhere
from retinue.log.replay import describe_call
from retinue.settings.places import retinue_state

_STORY_TYPES = (
    "message.added",
    "assistant.ended",
    "tool.ended",
    "model.retrying",
    "limit.reached",
    "run.compacted",
    "run.warned",
    "run.mode_changed",
    "run.moved",
    "run.pruned",
)
"""Events of the story of a run. Of ends of calls only those that failed are told, and so read."""
_FOR_APPROVAL = "waiting for approval"

# Lists


class ListedRun(RunState):
    """A run of a list. `truncated` means that its answer was cut off at the output limit."""

    truncated: bool = False


class InterruptedRun(Struct, frozen=True):
    """The calls of an interrupted run whose effect is unknown, and their commands that still run."""

    id: str
    unknown: list[str]
    still_running: list[str]


class RunListing(Struct, frozen=True, omit_defaults=True):
    """Runs, newest first. Interrupted runs are described only when the list covers one project."""

    runs: list[ListedRun]
    interrupted: list[InterruptedRun] = []


def list_runs(
    folder: Path | None,
    *,
    states: Collection[State] | None = None,
    agent: str | None = None,
    touched: str | None = None,
    limit: int | None = None,
) -> RunListing:
    """List the runs of the project with that state folder, or of all projects; with `touched` those that read or wrote
    this file."""

    def read(reader: LogReader) -> list[ListedRun]:
        rows = reader.list_runs(states=states, agent=agent, touched=touched, limit=limit)
        describe_activity(reader, rows)
        return [ListedRun(**asdict(row), truncated=_is_truncated(reader, row)) for row in rows]

    if folder is not None:
        with LogReader.open(folder) as reader:
            runs = read(reader)
            return RunListing(runs, _describe_interrupted(reader, runs))
    runs = [run for _, runs_of_project in everywhere(retinue_state(), read) for run in runs_of_project]
    runs.sort(key=lambda run: run.created_at, reverse=True)
    return RunListing(runs[:limit])


def _describe_interrupted(reader: LogReader, runs: Sequence[RunState]) -> list[InterruptedRun]:
    interrupted = [run.id for run in runs if run.state == "interrupted"]
    commands = _living_commands(reader) if interrupted else {}
    described = []
    for run_id in interrupted:
        unknown = [*map(describe_call, reader.last_turn(run_id).unknown)]
        described.append(InterruptedRun(run_id, unknown, commands.get(run_id, [])))
    return described


def list_main_runs(folder: Path | None, limit: int) -> list[tuple[Path, list[RunState]]]:
    """Return the newest main runs, at most `limit` per project, with the state folder: of one project, or of all."""

    def read(reader: LogReader) -> list[RunState]:
        return reader.list_runs(depth=0, limit=limit)

    if folder is None:
        return everywhere(retinue_state(), read)
    with LogReader.open(folder) as reader:
        return [(folder, read(reader))]


def _is_truncated(reader: LogReader, row: RunState) -> bool:
    if row.state != "ended" or row.ended not in SUCCESS:
        return False
    outcome = reader.outcome(row.id)
    return outcome is not None and outcome.truncated


def waiting_words(folder: Path | None) -> dict[str, str]:
    """Return, by run, whether it waits for an approval or for an answer to a question."""

    def read(reader: LogReader) -> dict[str, str]:
        words: dict[str, str] = {}
        for entry in items(reader):
            is_question = entry.item.kind == "question" and words.get(entry.item.run_id) != _FOR_APPROVAL
            words[entry.item.run_id] = "waiting for an answer" if is_question else _FOR_APPROVAL
        return words

    if folder is None:
        return {run_id: word for _, words in everywhere(retinue_state(), read) for run_id, word in words.items()}
    with LogReader.open(folder) as reader:
        return read(reader)


def status_text(run: RunState, waiting: Mapping[str, str]) -> str:
    """Return the status of a run in words; `waiting` is from `waiting_words`."""
    if run.state == "waiting":
        return waiting.get(run.id, _FOR_APPROVAL)
    return status_word(run.status)


# One run


class RunEnding(Struct, frozen=True, kw_only=True):
    """The result of a run so far. `partial`, `unknown` and `unrun` are set only without an outcome. `saved` are lines
    that state where its work is."""

    outcome: Outcome | None
    todos: list[str]
    partial: str
    unknown: list[str]
    unrun: list[str]
    still_running: list[str]
    saved: list[str]
    undone: list[Undone]


def read_ending(folder: Path, row: RunState) -> RunEnding:
    """Return the result of a run so far."""
    from retinue.app.worktrees import where_saved
    from retinue.capabilities.questions.attach import todo_line

    with LogReader.open(folder) as reader:
        outcome = reader.outcome(row.id)
        interrupted = outcome is None and row.state == "interrupted"
        past = reader.last_turn(row.id) if outcome is None else None
        todos: list[str] = []
        for _, event in reader.ordered(row.id, ("todos.updated",), newest_first=True):
            if isinstance(event.body, TodosUpdated):
                todos = [*map(todo_line, event.body.todos)]
                break
        undone = [event.body for _, event in reader.ordered(row.id, ("run.undone",)) if isinstance(event.body, Undone)]
        branch = outcome.branch if outcome is not None else None
        return RunEnding(
            outcome=outcome,
            todos=todos,
            partial=past.partial.strip() if past is not None else "",
            unknown=[*map(describe_call, past.unknown)] if past is not None else [],
            unrun=[*map(describe_call, past.unrun)] if past is not None else [],
            still_running=_living_commands(reader).get(row.id, []) if interrupted else [],
            saved=where_saved(folder, row, branch) if interrupted or outcome is not None else [],
            undone=undone,
        )


def _living_commands(reader: LogReader) -> dict[str, list[str]]:
    from retinue.runs.cleanup import find_commands

    return find_commands(reader)


def read_document(folder: Path, row: RunState) -> Iterator[bytes]:
    """Yield the JSON document of a run with all its events, in pieces."""
    with LogReader.open(folder) as reader:
        yield from export_document(reader, row.id)


def read_story(folder: Path, row: RunState) -> Iterator[StoryStep]:
    """Yield the steps of a run's story, in order."""
    story = Story()
    with LogReader.open(folder) as reader:
        for event in reader.stream(row.id, types=_STORY_TYPES, condition="type <> 'tool.ended' OR level='warning'"):
            yield from story.take(event.body, event.seq, event.at)
