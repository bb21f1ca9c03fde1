"""The people of a cassette: their answers come from the recorded run or from the test file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING

from retinue.core.events import InboxClosed, InboxOpened
from retinue.core.permission import InboxAnswer, InboxItem
from retinue.recordings.case_file import InboxAnswers
from retinue.recordings.cassette import Cassette

if TYPE_CHECKING:
    from retinue.runs.project import Project

ANSWERED_BY = "test"


def recorded_answers(cassette: Cassette) -> InboxAnswers | None:
    """Return the answers of a recording, in order; None if nobody was asked."""
    choices: dict[str, list[str]] = {"approval": [], "question": []}
    kinds: dict[str, str] = {}
    for run in cassette.runs:
        for body in run.bodies:
            if isinstance(body, InboxOpened):
                kinds[body.item_id] = body.kind
            elif isinstance(body, InboxClosed):
                kind = "question" if kinds.get(body.item_id) == "question" else "approval"
                choices[kind].append(body.choice)
    return InboxAnswers(**choices) if any(choices.values()) else None


def answer_inbox(project: Project, answers: InboxAnswers | None) -> None:
    """Answer the inbox items of a project's runs; without `answers`, do nothing. After the end of a list, approvals are
    denied and questions get an empty answer."""
    if answers is None:
        return
    approvals, questions = _answer_stream(answers.approval, "deny"), _answer_stream(answers.question, "")

    async def answer(item: InboxItem) -> InboxAnswer | None:
        return InboxAnswer(next(questions if item.kind == "question" else approvals), by=ANSWERED_BY)

    project.approvers.append(answer)


def _answer_stream(answers: str | list[str] | None, default: str) -> Iterator[str]:
    return repeat(answers) if isinstance(answers, str) else chain(answers or (), repeat(default))
