"""Documents of the HTTP API. The docstring of a struct is its description in the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from retinue.app.feed import CommandAnswer
from retinue.app.projects import ProjectView
from retinue.core.delegation import State, Status
from retinue.core.outcome import Outcome
from retinue.core.permission import InboxItem, InboxRow
from retinue.core.run_state import RunState
from retinue.core.usage import Usage
from retinue.log.overview import SearchHit


class ProjectList(Struct, frozen=True):
    """The projects of this user that have a log, the served one first."""

    projects: list[ProjectView]


class RunDetail(Struct, frozen=True):
    """One run in detail. `partial` is the text of an unfinished answer. `asked_by` is the front end that started it.
    `prompt` is that of its agent, `tools` are its tools. `budget` is shared with all runs below it, and `spent` is
    their total usage."""

    run: RunState
    task: str
    outcome: Outcome | None
    partial: str
    asked_by: str | None
    unknown_effects: list[str]
    """Calls that had begun when the process died, so that their effects are unknown."""
    prompt: str
    tools: list[str]
    budget: Mapping[str, float]
    spent: Usage


class TranscriptView(Struct, frozen=True):
    """The conversation as lines of the transcript file: `type`, `message`, `timestamp`. `next` is the value of `after`
    for the next page."""

    run_id: str
    lines: list[Mapping[str, Any]]
    next: int | None


class InboxView(InboxItem, frozen=True, kw_only=True):
    """An item of the inbox. `payload` is the exact call or question and `detail` a diff for edits; `options` are the
    answers. `interrupted` means that the run takes the answer when it is resumed."""

    run_state: State | None = None
    interrupted: bool = False


def inbox_view(entry: InboxRow | InboxItem) -> InboxView:
    """Return an item as clients see it."""
    if isinstance(entry, InboxItem):
        return InboxView(**asdict(entry))
    return InboxView(**asdict(entry.item), run_state=entry.run_state, interrupted=entry.interrupted)


class InboxList(Struct, frozen=True):
    """The waiting items, oldest first."""

    items: list[InboxView]


class CommandView(Struct, frozen=True):
    """The answer to a command. `text` states what happens now."""

    run_id: str
    text: str


def command_view(answer: CommandAnswer) -> CommandView:
    """Return an answer to a command as clients see it."""
    return CommandView(answer.run_id, answer.text)


class CommandResult(Struct, frozen=True):
    """The answer of one run to a command. `status` is its status afterwards, if the command waited for it."""

    run: str
    accepted: bool
    answer: str
    status: Status | None


class CommandResultList(Struct, frozen=True):
    """The answers of all runs that a command was sent to."""

    results: list[CommandResult]


def list_results(answers: Iterable[CommandAnswer], statuses: Mapping[str, Status]) -> CommandResultList:
    """Return the answers as one document, with the statuses of the runs that have one."""
    results = []
    for answer in answers:
        results.append(CommandResult(answer.run_id, answer.accepted, answer.text, statuses.get(answer.run_id)))
    return CommandResultList(results)


class SearchList(Struct, frozen=True):
    """The newest events that contain the words."""

    hits: list[SearchHit]
