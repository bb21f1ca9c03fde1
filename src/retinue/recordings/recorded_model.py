"""The models of a cassette: they give recorded answers by position, independent of the conversation.

A new child is matched with a recorded child of the same parent: with the same agent and task, else with the same agent,
else the next one. So the order in which children start does not matter. Folders and run ids in an answer become those
of the current run.

Agents in the background end at unpredictable moments, and a recorded answer that waits for one would end the run if
that agent had ended before. Therefore such an agent does not end before its parent has given as many answers as in the
recording. A parent that is notified after its last recorded answer repeats that answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from retinue.core.events import TextDelta, ThinkingDelta
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, UserMessage
from retinue.core.outcome import Failure
from retinue.core.request import RunRequest
from retinue.core.story import Story
from retinue.models.known import known_models
from retinue.models.protocol import Finished, ModelInfo, ModelRequest, Part, ToolCallStarted
from retinue.models.resolve import EMBEDDED
from retinue.models.select import ModelSelection
from retinue.recordings.cassette import Cassette, RecordedRun
from retinue.recordings.portable import MachineFolders, RecordedT, localize
from retinue.recordings.record import one_line

_MISSING_SUMMARY = "(The recording has no summary for this place.)"
_MAX_DELAY_SECONDS = 5.0
"""The longest delay of an agent's end while its parent has given fewer answers than in the recording."""
_RUN_NUMBER = re.compile(r"\$RUN(\d+)(?!\d)")
_UNKNOWN_MODEL_WINDOW_TOKENS = 1_000_000
"""The assumed context window of an unknown model, so large that no conversation is shortened."""


class RecordedModels:
    """A `ModelSource` that plays a cassette. `problems` are requests that the recording could not answer."""

    def __init__(self, cassette: Cassette, folders: MachineFolders) -> None:
        self._cassette = cassette
        self._folders = folders
        self._waiting = list(cassette.runs)
        self._played: dict[str, RecordedRun] = {}
        self._models: dict[int, RecordedModel] = {}
        self._notified_after = _notified_after(cassette)
        self.problems: list[str] = []

    def select(self, request: RunRequest) -> ModelSelection:
        return ModelSelection(self._info(self._find(request)), EMBEDDED["offline"], "call", "the recording says so")

    def _info(self, recorded: RecordedRun | None) -> ModelInfo:
        return model_info(recorded.created.model if recorded is not None else self._cassette.head.model)

    def build(self, request: RunRequest, run_id: str) -> RecordedModel:
        recorded = self._find(request)
        model = RecordedModel(self._info(recorded), recorded, self)
        if recorded is None:
            self.problems.append(
                f"The recording has no run of {request.spec.name} here: {one_line(request.task, 60)!r}."
            )
        else:
            self._waiting.remove(recorded)
            self._played[run_id] = recorded
            self._models[recorded.number] = model
        return model

    async def may_end(self, number: int) -> None:
        """Wait until the parent of a run has given as many answers as it had when it was notified of the run's end."""
        parent, answers = self._notified_after.get(number, (0, 0))
        if parent in self._models:
            await self._models[parent].reach(answers)

    @property
    def unplayed(self) -> int:
        """The number of recorded answers that no run requested."""
        not_begun = sum(len(run.answers) for run in self._waiting)
        return not_begun + sum(model.unplayed for model in self._models.values())

    def recorded(self, run_id: str) -> RecordedRun | None:
        """Return the recorded run that is matched with the run `run_id`."""
        return self._played.get(run_id)

    def run_id(self, number: int) -> str | None:
        """Return the id of the run that is matched with a recorded run."""
        return next((run_id for run_id, run in self._played.items() if run.number == number), None)

    def localized(self, value: RecordedT) -> RecordedT:
        """Return an answer or an event with the current folders and run ids."""
        return localize(value, self._folders, self.run_id)

    def _find(self, request: RunRequest) -> RecordedRun | None:
        if request.parent_id is None:
            return next((run for run in self._waiting if run.parent is None), None)
        above = self._played.get(request.parent_id)
        if above is None:
            return None
        candidates = [run for run in self._waiting if run.parent == above.number]
        same_agent = [run for run in candidates if run.created.agent == request.spec.name]
        for run in same_agent:
            if localize(run.created.task, self._folders) == request.task:
                return run
        return next(iter(same_agent or candidates), None)


class RecordedModel:
    """The answers of one recorded run, one for each request."""

    def __init__(self, info: ModelInfo, run: RecordedRun | None, source: RecordedModels) -> None:
        self.info = info
        self._source = source
        self._number = run.number if run is not None else 0
        self._moved = asyncio.Event()
        self._answers = run.answers if run is not None else []
        self._summaries = run.summaries if run is not None else []
        self._asked = 0

    @property
    def unplayed(self) -> int:
        """The number of answers that have not been requested."""
        return max(len(self._answers) - self._asked, 0)

    async def close(self) -> None:
        return

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        if not request.tools and _asks_for_summary(request):
            text = (self._summaries.pop(0) if self._summaries else "") or _MISSING_SUMMARY
            yield Finished(AssistantMessage((Text(text),), model=self.info.full_name))
            return
        self._asked += 1
        self._moved.set()
        if self._asked > len(self._answers) and not self._is_late_notification(request):
            yield Finished(self._fail())
            return
        if self._asked == len(self._answers):
            await self._source.may_end(self._number)
        message = self._source.localized(self._answers[min(self._asked, len(self._answers)) - 1])
        for content in message.content:
            match content:
                case Text():
                    yield TextDelta(content.text)
                case Thinking():
                    yield ThinkingDelta(content.text)
                case ToolCall():
                    yield ToolCallStarted(content.name)
        yield Finished(replace(message, model=message.model or self.info.full_name))

    async def reach(self, answers: int) -> None:
        """Wait until so many answers have been requested, at most `_MAX_DELAY_SECONDS`."""
        deadline = asyncio.get_running_loop().time() + _MAX_DELAY_SECONDS
        while self._asked < answers:
            self._moved.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._moved.wait()
            except TimeoutError:
                return

    def _is_late_notification(self, request: ModelRequest) -> bool:
        """Return whether the request only adds a notification, which the recorded run had received earlier."""
        newest = request.messages[-1] if request.messages else None
        if not self._answers or self._answers[-1].tool_calls:
            return False
        return isinstance(newest, UserMessage) and newest.origin == "notification"

    def _fail(self) -> AssistantMessage:
        text = f"The recording has {len(self._answers)} answers, and the run asked for number {self._asked}."
        self._source.problems.append(text)
        failure = Failure("invalid_request", text, "Record it again: retinue test --record")
        return AssistantMessage((), "error", model=self.info.full_name, failure=failure)


def _notified_after(cassette: Cassette) -> dict[int, tuple[int, int]]:
    """Return for each run whose parent was notified of its end: the parent's number, and how many answers the parent
    had given by then."""
    notified: dict[int, tuple[int, int]] = {}
    for run in cassette.runs:
        story = Story()
        for body in run.bodies:
            for step in story.take(body):
                message = step.entry.message
                if message is not None and message.origin == "notification":
                    for number in _RUN_NUMBER.findall(message.text):
                        notified.setdefault(int(number), (run.number, step.entry.turn))
    return notified


def model_info(full_name: str) -> ModelInfo:
    """Return the known facts about a model, by its full name."""
    provider, _, name = full_name.partition("/")
    for info in known_models(provider):
        if info.id == name:
            return info
    return ModelInfo(provider, name or provider, window=_UNKNOWN_MODEL_WINDOW_TOKENS, thinking=True)


def _asks_for_summary(request: ModelRequest) -> bool:
    """Return whether this request asks for a summary that shortens the conversation (`loop/compact.py`)."""
    return len(request.messages) == 1 and request.thinking == "off"
