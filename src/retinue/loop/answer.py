"""One request to the model, and its answer as it enters the conversation and the counters of the run.

Whatever happens (a failure, a stream that just stops, an exception, a limit, a person), the answer is
a whole message that says so in its `stop` and `failure`, and text that was shown is kept in it.

A conversation is valid when every tool call has exactly one result, in call order, in the message
right after it, and no two calls share an id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import orjson
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.events import Body, Retrying, TextDelta, ThinkingDelta
from retinue.core.messages import AssistantMessage, Message, Text, ToolCall
from retinue.core.outcome import CUT_OFF, SUCCESS, Failure, Outcome
from retinue.core.usage import Usage
from retinue.log.replay import closed
from retinue.loop.ending import Ending, EvidenceCollector
from retinue.loop.job import Interrupt, Interrupted, Job
from retinue.loop.limits import Countdown
from retinue.loop.shrink import cut
from retinue.models.protocol import Finished, Model, ModelRequest, Noted, Part, estimate

Result = TypeVar("Result")
_MIN_MESSAGES_FOR_THREAD = 500
"""Conversations with this many messages are measured and cut in a thread."""


class ModelTurn:
    """One request to the model.

    `next` returns the events of the answer and then None. After that, `message` is the answer, `shown` the last text
    that was streamed before a retry discarded it, `notes` the remarks for people, and `sent` whether a request was
    sent. `close` must be called in every case."""

    __slots__ = (
        "_announced",
        "_clock",
        "_idle",
        "_interrupt",
        "_model",
        "_request",
        "_stream",
        "_text",
        "message",
        "notes",
        "sent",
        "shown",
    )

    def __init__(
        self, model: Model, request: ModelRequest, interrupt: Interrupt, idle: Countdown, clock: Clock
    ) -> None:
        self._model = model
        self._request = request
        self._interrupt = interrupt
        self._idle = idle
        self._clock = clock
        self._stream: AsyncGenerator[Part, None] | None = None
        self._announced = 0.0
        self._text: list[str] = []
        self.message = AssistantMessage(())
        self.notes: list[Noted] = []
        self.shown = ""
        self.sent = False

    async def next(self) -> Body | None:
        try:
            if self._stream is None:
                # A run that was stopped in the meantime sends no request, so its usage is complete.
                self.sent = self._interrupt.ending is None
                self._stream = self._model.stream(self._request)
            try:
                while True:
                    self._idle.feed(self._clock.monotonic() + self._announced)
                    event = await self._interrupt.next_item(self._stream)
                    self._announced = 0.0
                    if isinstance(event, Finished):
                        self.message = self._with_streamed_text(event.message)
                        break
                    body = self._shown(event)
                    if body is not None:
                        return body
            except BaseException:
                await self.close()
                raise
            await self.close()
        except Interrupted:
            self.message = self._interrupted_message()
        except StopAsyncIteration:
            self._fail(Failure("dropped", "The model's stream ended without an end."))
        except Exception as error:  # noqa: BLE001 - a model that raises is a failed request, not a dead run
            self._fail(Failure("internal", cut(f"The model raised {type(error).__name__}: {error}", 1_000)))
        return None

    def _shown(self, event: Part) -> Body | None:
        """Return the event that others see; None if it only shows that the provider is alive."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
            return event
        if isinstance(event, ThinkingDelta):
            return event
        if isinstance(event, Noted):
            self.notes.append(event)
        elif isinstance(event, Retrying):
            # The provider has announced this pause, so it is not idle time.
            self._announced = max(event.delay, 0.0)
            return self._discard_text(event)
        return None

    async def close(self) -> None:
        """Close the stream of the model."""
        if self._stream is not None:
            await self._stream.aclose()

    def _discard_text(self, event: Retrying) -> Retrying:
        text = event.partial or "".join(self._text)
        self._text.clear()
        self.shown = text or self.shown
        return event if event.partial == text else replace(event, partial=text)

    def _with_streamed_text(self, message: AssistantMessage) -> AssistantMessage:
        """Return the message. A failed message without text gets the text that was streamed."""
        if message.stop == "error" and not message.text and self._text:
            return replace(message, content=(*message.content, Text("".join(self._text))))
        return message

    def _interrupted_message(self) -> AssistantMessage:
        ending = self._interrupt.ending
        failure = ending.failure if ending is not None else None
        return AssistantMessage(self._streamed_content(), "aborted", model=self._model.info.full_name, failure=failure)

    def _fail(self, failure: Failure) -> None:
        self.message = AssistantMessage(
            self._streamed_content(), "error", model=self._model.info.full_name, failure=failure
        )

    def _streamed_content(self) -> tuple[Text, ...]:
        text = "".join(self._text)
        if text:
            return (Text(text),)
        return ()


class Tally:
    """Counters over the whole life of a run: they start with the totals from before it was resumed."""

    def __init__(self, job: Job, model: str) -> None:
        self._job = job
        self._began = job.clock.monotonic()
        self._model = model
        self._text = ""
        self._continues = False
        self.truncated = False
        """Whether the newest answer was cut off at the output limit."""
        self.usage: Usage = job.past.usage
        self.turns = job.past.turn
        self.tool_uses = job.past.tool_uses
        self.compactions = job.past.compactions
        self.evidence = EvidenceCollector()
        self.notes: list[str] = []

    @property
    def text(self) -> str:
        """Return the last text of this attempt: the answer, or the part of it that arrived."""
        return self._text

    def answered(self, message: AssistantMessage, shown: str) -> None:
        """Count an answer, and keep its text as the last text of this attempt."""
        self.usage += message.usage
        self.turns += 1
        # A fallback may have replaced the model.
        self._model = message.model or self._model
        text = message.text
        self.truncated = message.stop == "length" and not message.tool_calls
        continued, self._continues = self._continues, False
        if text.strip():
            if not continued:
                self._text = ""
            self._text += text
        elif message.failure is not None and shown.strip():
            self._text = shown

    def continues(self) -> None:
        """Expect the next answer to continue where the newest one was cut off."""
        self._continues = True

    def not_continued(self, failure: Failure) -> None:
        """Keep the answer as it was cut off, with a note."""
        self.truncated = True
        self.notes.append(f"The rest of its answer could not be had: {failure.message}")

    def outcome(self, ending: Ending) -> Outcome:
        text = self._text if ending.text is None else ending.text
        truncated = self.truncated and ending.ended in SUCCESS and ending.text is None
        notes = list(self.notes)
        if truncated:
            notes.append(f"Its answer was {CUT_OFF}: the end is missing.")
        return Outcome(
            ended=ending.ended,
            text=text,
            partial=bool(text) and ending.ended not in SUCCESS,
            truncated=truncated,
            value=ending.value,
            failure=ending.failure,
            limit=ending.limit,
            usage=self.usage,
            turns=self.turns,
            tool_uses=self.tool_uses,
            compactions=self.compactions,
            duration_ms=round((self._job.clock.monotonic() - self._began) * 1000),
            model=self._model,
            evidence=self.evidence.evidence(),
            notes=tuple(notes),
        )


def failure_of(message: AssistantMessage) -> Failure | None:
    """Return why a message is not an answer; None if it is one, even if it is empty."""
    match message.stop:
        case "error":
            return message.failure or Failure("server", "The provider failed without saying why.")
        case "refusal":
            message_text = "The model or a safety system of its provider declined to answer."
            return message.failure or Failure("refused", message_text, "Rephrase the task, or use another model.")
        case "length" if not message.text.strip() and not message.tool_calls:
            message_text = "The run hit the output token limit before producing any text."
            return Failure("length", message_text, "Raise the output limit, or lower the thinking level.")
        case "aborted":
            return message.failure or Failure("stopped", "The answer was cut off.")
        case _:
            return None


def mend_history(messages: Sequence[Message]) -> list[Message]:
    """Return a history that a model accepts: every call has a result, and no message of the model is empty."""
    return closed(m for m in messages if not isinstance(m, AssistantMessage) or m.content)


async def aside(work: Callable[..., Result], messages: Sequence[Message], *arguments: Any) -> Result:
    """Return `work(messages, …)`. For a long conversation it runs in a thread, because it takes up to half a second
    and other runs must not wait for it."""
    if len(messages) < _MIN_MESSAGES_FOR_THREAD:
        return work(messages, *arguments)
    return await asyncio.to_thread(work, messages, *arguments)


class PastMessages(NamedTuple):
    """The conversation that a run continues: messages that models accept, the ids of the calls, the size."""

    messages: list[Message]
    used_ids: set[str]
    tokens: int


def read_past(messages: Sequence[Message]) -> PastMessages:
    history = mend_history(messages)
    return PastMessages(history, used_ids(history), estimate(history))


def used_ids(messages: Iterable[Message]) -> set[str]:
    used: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage):
            used.update(call.id for call in message.tool_calls)
    return used


def settle_message(message: AssistantMessage, used: set[str]) -> AssistantMessage:
    """Return the message in a form that may enter a conversation.

    A failed message has no tool calls, no call id is empty or used before, and all arguments can be serialised. The
    ids of this message are added to `used`."""
    calls = message.tool_calls
    if not calls:
        return message
    if message.stop in ("error", "aborted", "refusal"):
        return replace(message, content=tuple(block for block in message.content if not isinstance(block, ToolCall)))
    ids = [call.id for call in calls]
    distinct = "" not in ids and len(set(ids)) == len(ids) and used.isdisjoint(ids)
    if distinct and all(_is_json(call.arguments) for call in calls):
        used.update(ids)
        return message
    content = list(message.content)
    for index, block in enumerate(content):
        if isinstance(block, ToolCall):
            content[index] = _settled(block, used)
    return replace(message, content=tuple(content))


def _settled(call: ToolCall, used: set[str]) -> ToolCall:
    renamed = _renamed(call, used)
    if _is_json(call.arguments):
        return renamed
    return replace(renamed, arguments={}, broken=call.broken or "(nested too deeply, or not text)")


def _is_json(arguments: Mapping[str, Any]) -> bool:
    try:
        orjson.dumps(arguments, default=dict)
    except TypeError:
        return False
    return True


def _renamed(call: ToolCall, used: set[str]) -> ToolCall:
    # Providers refuse a conversation in which two calls share an id.
    name, number = call.id or "call", 1
    while name in used or not name:
        number += 1
        name = f"{call.id or 'call'}-{number}"
    used.add(name)
    return call if name == call.id else replace(call, id=name)
