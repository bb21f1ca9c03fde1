"""The models and the people of a cassette: recorded answers, played by position, whatever the conversation is now.

A child is played by the recorded child of the same parent that had the same agent and task, else the same agent, else
the next one: which of several children starts first does not matter. What an answer says about folders and runs is
said about those of the run that is played.

When an agent in the background ends is a matter of luck, and an answer that only waits for it would end a run that has
nobody to wait for. So such an agent does not end before its parent has come as far as it had when it heard of that end;
and a parent that hears of it after its last recorded answer gives that answer again.

What a person answered comes from the recorded run, or from a test file that writes it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
from msgspec.structs import replace

from retinue.core.events import (
    AssistantEnded,
    Compacted,
    InboxClosed,
    InboxOpened,
    MessageAdded,
    TextDelta,
    ThinkingDelta,
)
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, UserMessage
from retinue.core.outcome import Failure
from retinue.core.permission import InboxAnswer, InboxItem
from retinue.core.request import RunRequest
from retinue.evidence.case_file import InboxAnswers
from retinue.evidence.cassette import Cassette, RecordedRun
from retinue.evidence.portable import MachineFolders, localize
from retinue.log.encode import dump
from retinue.models.known import known_models
from retinue.models.protocol import Finished, ModelInfo, ModelRequest, Part, ToolCallStarted
from retinue.models.resolve import EMBEDDED
from retinue.models.select import ModelSelection

_SUMMARY = "(The recording has no summary for this place.)"
_PATIENCE = 5.0
"""Seconds that the end of an agent is held back at most, if its parent does not come so far this time."""
_RUN = re.compile(r"\$RUN(\d+)(?!\d)")
_WINDOW = 1_000_000
"""Of a model that this version does not know: large enough that no conversation is shortened because of it."""


class RecordedModels:
    """A `ModelSource` that plays a cassette. `problems` says what the recording could not answer."""

    def __init__(self, cassette: Cassette, places: MachineFolders) -> None:
        self._cassette = cassette
        self._places = places
        self._waiting = list(cassette.runs)
        self._played: dict[str, RecordedRun] = {}
        self._models: list[RecordedModel] = []
        self._by_number: dict[int, RecordedModel] = {}
        self._heard_after = _heard_after(cassette)
        self.problems: list[str] = []

    def select(self, request: RunRequest) -> ModelSelection:
        found = self._find(request)
        info = model_info(found.created.model if found is not None else self._cassette.head.model)
        return ModelSelection(info, EMBEDDED["offline"], "call", "the recording says so")

    def build(self, request: RunRequest, run_id: str) -> RecordedModel:
        found = self._find(request)
        info = model_info(found.created.model if found is not None else self._cassette.head.model)
        if found is None:
            self.problems.append(f"The recording has no run of {request.spec.name} here: {_short(request.task)!r}.")
            model = RecordedModel(info, (), self)
        else:
            self._waiting.remove(found)
            self._played[run_id] = found
            model = RecordedModel(info, found.events, self, found.number)
            self._by_number[found.number] = model
        self._models.append(model)
        return model

    async def may_end(self, number: int) -> None:
        """Return when the parent of a recorded run has come as far as it had when it heard of that run's end."""
        if number not in self._heard_after:
            return
        parent, answers = self._heard_after[number]
        model = self._by_number.get(parent)
        if model is not None:
            await model.reach(answers)

    @property
    def unplayed(self) -> int:
        """The number of recorded answers that nobody asked for."""
        rest = sum(len(answers_of(run)) for run in self._waiting)
        return rest + sum(model.left for model in self._models)

    def recorded(self, run_id: str) -> RecordedRun | None:
        """Return the recorded run that plays the run `run_id`."""
        return self._played.get(run_id)

    def run_id(self, number: int) -> str | None:
        """Return the run that plays the recorded run of a number."""
        for run_id, run in self._played.items():
            if run.number == number:
                return run_id
        return None

    def localized(self, message: AssistantMessage) -> AssistantMessage:
        """Return an answer with the folders and runs of here."""
        return msgspec.json.decode(localize(dump(message), self._places, self.run_id), type=AssistantMessage)

    def _find(self, request: RunRequest) -> RecordedRun | None:
        if request.parent_id is None:
            return next((run for run in self._waiting if run.parent is None), None)
        above = self._played.get(request.parent_id)
        if above is None:
            return None
        candidates = [run for run in self._waiting if run.parent == above.number]
        same_agent = [run for run in candidates if run.created.agent == request.spec.name]
        for run in same_agent:
            task = localize(dump(run.created.task), self._places, lambda _: None)
            if msgspec.json.decode(task) == request.task:
                return run
        return next(iter(same_agent or candidates), None)


class RecordedModel:
    """The answers of one recorded run, one for each request."""

    def __init__(self, info: ModelInfo, events: Sequence[object], source: RecordedModels, number: int = 0) -> None:
        self.info = info
        self._source = source
        self._number = number
        self._moved = asyncio.Event()
        self._answers: list[AssistantMessage] = []
        self._summaries: list[str] = []
        self._asked = 0
        for event in events:
            body = getattr(event, "body", None)
            if isinstance(body, AssistantEnded):
                self._answers.append(body.message)
            elif isinstance(body, Compacted) and body.method == "summarised":
                self._summaries.append(_summary_of(body))

    @property
    def left(self) -> int:
        """The number of answers that have not been asked for."""
        return max(len(self._answers) - self._asked, 0)

    async def close(self) -> None:
        return

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        if not request.tools and _asks_for_summary(request):
            text = self._summaries.pop(0) if self._summaries else _SUMMARY
            yield Finished(AssistantMessage((Text(text),), model=self.info.full_name))
            return
        self._asked += 1
        self._moved.set()
        if self._asked > len(self._answers) and not self._hears_late(request):
            yield Finished(self._nothing_left())
            return
        if self._asked == len(self._answers):
            await self._source.may_end(self._number)
        message = self._source.localized(self._answers[min(self._asked, len(self._answers)) - 1])
        for part in message.content:
            match part:
                case Text():
                    yield TextDelta(part.text)
                case Thinking():
                    yield ThinkingDelta(part.text)
                case ToolCall():
                    yield ToolCallStarted(part.name)
        yield Finished(replace(message, model=message.model or self.info.full_name))

    async def reach(self, answers: int) -> None:
        """Return when so many answers have been asked for, or after a while."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while self._asked < answers:
            self._moved.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._moved.wait()
            except TimeoutError:
                return

    def _hears_late(self, request: ModelRequest) -> bool:
        """Return whether all that is new is the end of an agent, of which the recorded run had heard before."""
        newest = request.messages[-1] if request.messages else None
        if not self._answers or self._answers[-1].tool_calls:
            return False
        return isinstance(newest, UserMessage) and newest.origin == "notification"

    def _nothing_left(self) -> AssistantMessage:
        text = f"The recording has {len(self._answers)} answers, and the run asked for number {self._asked}."
        self._source.problems.append(text)
        failure = Failure("invalid_request", text, "Record it again: retinue test --record")
        return AssistantMessage((), "error", model=self.info.full_name, failure=failure)


def _heard_after(cassette: Cassette) -> dict[int, tuple[int, int]]:
    """Return, for each run whose end its parent was notified of, the number of that parent and of the answers that it
    had given by then."""
    found: dict[int, tuple[int, int]] = {}
    for run in cassette.runs:
        answers = 0
        for body in run.bodies:
            if isinstance(body, AssistantEnded):
                answers += 1
            elif isinstance(body, MessageAdded) and body.message.origin == "notification":
                for number in _RUN.findall(body.message.text):
                    found.setdefault(int(number), (run.number, answers))
    return found


def answers_of(run: RecordedRun) -> list[AssistantMessage]:
    """Return the answers of a recorded run, in order."""
    return [body.message for body in run.bodies if isinstance(body, AssistantEnded)]


def model_info(full_name: str) -> ModelInfo:
    """Return what is known of a model by its full name."""
    provider, _, name = full_name.partition("/")
    for known in known_models(provider):
        if known.id == name:
            return known
    return ModelInfo(provider, name or provider, window=_WINDOW, thinking=True)


def _asks_for_summary(request: ModelRequest) -> bool:
    """Return whether this request shortens the conversation: its text stands between tags (`loop/compact.py`)."""
    return len(request.messages) == 1 and request.thinking == "off"


def _summary_of(body: Compacted) -> str:
    for message in body.messages:
        if getattr(message, "origin", "") == "summary":
            return getattr(message, "text", "").partition("\n\n")[2]
    return _SUMMARY


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


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
