"""What a person answered in a recorded run, and answers as a test file writes them."""

from __future__ import annotations

from collections.abc import Callable

from retinue.core.events import InboxClosed, InboxOpened
from retinue.core.permission import InboxAnswer, InboxItem
from retinue.evidence.case_file import InboxAnswers
from retinue.evidence.cassette import Cassette

BY = "test"


def recorded_answers(cassette: Cassette) -> InboxAnswers:
    """Return the answers of a recording, in order; without any where nobody was asked."""
    given: dict[str, list[str]] = {"approval": [], "question": []}
    kinds: dict[str, str] = {}
    for run in cassette.runs:
        for body in run.bodies:
            if isinstance(body, InboxOpened):
                kinds[body.item_id] = body.kind
            elif isinstance(body, InboxClosed):
                kind = kinds.get(body.item_id, "approval")
                given["question" if kind == "question" else "approval"].append(body.choice)
    return InboxAnswers(given["approval"] or None, given["question"] or None)


def answers_for(answers: InboxAnswers) -> Callable[[InboxItem], InboxAnswer]:
    """Return what answers the items of a run. A list that is used up denies, and answers questions with nothing."""
    approvals, questions = _supply(answers.approval, "deny"), _supply(answers.question, "")

    def answer(item: InboxItem) -> InboxAnswer:
        supply = questions if item.kind == "question" else approvals
        return InboxAnswer(supply(), by=BY)

    return answer


def _supply(said: str | list[str] | None, otherwise: str) -> Callable[[], str]:
    if isinstance(said, str):
        return lambda: said
    rest = list(said or ())

    def next_answer() -> str:
        return rest.pop(0) if rest else otherwise

    return next_answer
