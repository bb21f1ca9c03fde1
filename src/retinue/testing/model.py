"""Fake models: one that follows a script, and one that misbehaves on purpose.

`ScriptedModel` fails on a request that its script does not expect, and at the end on turns that were never asked for,
so a test that passes has seen exactly the conversation it describes. `ChaosModel` wraps another model and damages its
answers the way real providers and networks do, the same way every time for the same seed. Faults that stop a request
before it starts do not use up a turn of a script inside.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.events import Retrying, TextDelta, ThinkingDelta
from retinue.core.messages import AssistantMessage, Message, StopReason, Text, Thinking, ToolCall, ToolMessage
from retinue.core.outcome import Failure, FailureKind
from retinue.core.usage import Usage
from retinue.models.protocol import Alive, Finished, Model, ModelInfo, ModelRequest, Part, ToolCallStarted
from retinue.testing.scripts import (
    Call,
    Do,
    Expect,
    Fail,
    Hang,
    Pulse,
    Retry,
    Say,
    Spend,
    Step,
    Stop,
    Think,
    Turn,
    Wait,
    script,
)

SCRIPTED = ModelInfo("scripted", "scripted", "Scripted", thinking=True)


class ScriptError(AssertionError):
    """A difference between a run and its script."""


class ScriptedModel:
    """A model that plays `turns`, one for each request. `requests` are those it was sent.

    Used as a context manager, it checks on leaving that the whole script was played. Every difference is also kept in
    `problems`, because a run turns what a model raises into a failed outcome.
    """

    def __init__(self, *turns: Turn | str, info: ModelInfo = SCRIPTED) -> None:
        self.info = info
        self.requests: list[ModelRequest] = []
        self.problems: list[str] = []
        self._turns: list[Turn] = []
        self.add(*turns)
        self._calls = 0
        self.closed = False

    @classmethod
    def parse(cls, text: str, info: ModelInfo = SCRIPTED) -> Self:
        """Make a model from the lines described in `retinue.testing.scripts`."""
        return cls(*script(text), info=info)

    def add(self, *turns: Turn | str) -> None:
        """Append turns to the script."""
        for turn in turns:
            if isinstance(turn, str):
                turn = Turn(turn)
            self._turns.append(turn)

    @property
    def left(self) -> int:
        """The number of turns that have not been asked for yet."""
        return max(len(self._turns) - len(self.requests), 0)

    def assert_exhausted(self) -> None:
        """Raise ScriptError unless the run followed the script to its end."""
        problems = list(self.problems)
        if self.left:
            problems.append(f"{self.left} of {len(self._turns)} scripted turns were never asked for")
        if problems:
            raise ScriptError("; ".join(problems))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.assert_exhausted()

    async def close(self) -> None:
        self.closed = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._turns):
            raise self._problem(
                f"request {number + 1} was not expected: the script has {len(self._turns)} turns; "
                f"newest message: {_newest(request.messages)!r}"
            )
        answer = _Answer(self.info.full_name)
        for step in self._turns[number].steps:
            if isinstance(step, Expect):
                self._check(step, request, number)
                continue
            if isinstance(step, Call) and step.id is None:
                self._calls += 1
                step = Call(step.name, step.arguments, f"call-{self._calls}", step.broken)
            if isinstance(step, Wait):
                await step.event.wait()
            elif isinstance(step, Hang):
                await asyncio.get_running_loop().create_future()
            for event in answer.play(step):
                yield event
            # Steps after a failure are for nobody: the request has ended.
            if answer.failure is not None:
                break
        yield Finished(answer.message())

    def _check(self, step: Expect, request: ModelRequest, number: int) -> None:
        if isinstance(step.what, str):
            newest = _newest(request.messages)
            if step.what not in newest:
                raise self._problem(f"request {number + 1} should say {step.what!r}, but says {newest!r}")
        elif step.what(request) is False:
            raise self._problem(f"request {number + 1} is not what was expected")

    def _problem(self, text: str) -> ScriptError:
        self.problems.append(text)
        return ScriptError(text)


class _Answer:
    """One message while it is streamed."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._content: list[Text | Thinking | ToolCall] = []
        self._stop: StopReason | None = None
        self._usage = Usage()
        self.failure: Failure | None = None

    def play(self, step: Step) -> Iterator[Part]:
        match step:
            case Say():
                for piece in _pieces(step.text, step.chunks):
                    yield TextDelta(piece)
                self._content.append(Text(step.text))
            case Think():
                yield ThinkingDelta(step.text)
                self._content.append(Thinking(step.text, step.signature))
            case Call():
                yield ToolCallStarted(step.name)
                self._content.append(ToolCall(step.id or "", step.name, step.arguments, step.broken))
            case Retry():
                # The model layer begins the answer anew, so earlier parts are discarded.
                self._content.clear()
                yield Retrying(step.attempt, step.delay, Failure(step.kind, "scripted retry"))
            case Fail():
                self.failure = Failure(step.kind, step.message, retry_after=step.retry_after)
            case Do():
                step.action()
            case Pulse():
                yield Alive()
            case Stop():
                self._stop = step.reason
            case Spend():
                self._usage = step.usage
            case Wait() | Hang() | Expect():
                # These concern the request, not the message.
                pass

    def message(self) -> AssistantMessage:
        content = tuple(self._content)
        if self.failure is not None:
            spoken = tuple(block for block in content if not isinstance(block, ToolCall))
            return AssistantMessage(spoken, "error", self._usage, self._model, self.failure)
        usual: StopReason = "tool_use" if any(isinstance(block, ToolCall) for block in content) else "end"
        return AssistantMessage(content, self._stop or usual, self._usage, self._model)


def _pieces(text: str, chunks: int) -> Iterable[str]:
    if chunks <= 0 or not text:
        return ()
    # Rounded up, so that there are never more pieces than asked for.
    size = -(-len(text) // chunks)
    return (text[start : start + size] for start in range(0, len(text), size))


def _newest(messages: tuple[Message, ...]) -> str:
    if not messages:
        return ""
    newest = messages[-1]
    if isinstance(newest, ToolMessage):
        return "\n".join(result.text for result in newest.results)
    return newest.text


GARBAGE = ('{"path": "a', "not json", "[1, 2]", "", '{"a": }', "null", "\x00", "{'a': 1}")


class Rates(Struct, frozen=True):
    """The probability of each fault for one request, between 0 and 1; together at most 1."""

    rate_limit: float = 0.0
    """429 with a Retry-After."""
    overloaded: float = 0.0
    """529."""
    server: float = 0.0
    """Another 5xx."""
    dropped: float = 0.0
    """The stream breaks off somewhere; text so far is partial."""
    garbage: float = 0.0
    """Tool calls have arguments that are not a JSON object."""
    hang: float = 0.0
    """No answer at all, until cancelled."""
    duplicate: float = 0.0
    """All tool calls carry the same id."""
    empty: float = 0.0
    """An answer without any content."""
    no_end: float = 0.0
    """The stream ends without its last part, which no model should do."""

    @classmethod
    def everything(cls, each: float = 0.05) -> Rates:
        """Return all faults with the same rate, except hanging, which somebody has to cancel."""
        return cls(**{name: 0.0 if name == "hang" else each for name in cls.__struct_fields__})


class ChaosModel:
    """A model that damages the answers of another one. `faults` counts the damage by name; `none` counts requests that
    were left alone."""

    def __init__(self, inner: Model, seed: int, rates: Rates | None = None) -> None:
        self._inner = inner
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._rates = rates or Rates.everything()
        self.faults: Counter[str] = Counter()

    @property
    def info(self) -> ModelInfo:
        return self._inner.info

    async def close(self) -> None:
        await self._inner.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        fault = self._choose()
        self.faults[fault] += 1
        match fault:
            case "rate_limit":
                yield _failure_part(self.info, "rate_limit", "429: too many requests", self._random.uniform(0.1, 30))
            case "overloaded":
                yield _failure_part(self.info, "overloaded", "529: overloaded")
            case "server":
                yield _failure_part(self.info, "server", f"{self._random.choice((500, 502, 504))}: server error")
            case "hang":
                await asyncio.get_running_loop().create_future()
            case "empty":
                yield Finished(AssistantMessage((), model=self.info.full_name))
            case _:
                async with aclosing(self._damage_stream(fault, request)) as parts:
                    async for part in parts:
                        yield part

    def _choose(self) -> str:
        chosen = self._random.random()
        for name in self._rates.__struct_fields__:
            chosen -= getattr(self._rates, name)
            if chosen < 0:
                return name
        return "none"

    async def _damage_stream(self, fault: str, request: ModelRequest) -> AsyncGenerator[Part, None]:
        remaining = self._random.randint(0, 3) if fault == "dropped" else -1
        text: list[str] = []
        async with aclosing(self._inner.stream(request)) as parts:
            async for part in parts:
                # A stream of fewer parts breaks off before its last one, so that the fault always happens.
                if remaining == 0 or (fault == "dropped" and isinstance(part, Finished)):
                    yield _failure_part(self.info, "dropped", "the stream broke off", partial="".join(text))
                    return
                remaining -= 1
                if isinstance(part, TextDelta):
                    text.append(part.text)
                if not isinstance(part, Finished):
                    yield part
                elif fault != "no_end":
                    yield Finished(self._damage_message(fault, part.message))

    def _damage_message(self, fault: str, message: AssistantMessage) -> AssistantMessage:
        def change(call: ToolCall) -> ToolCall:
            if fault == "garbage":
                return replace(call, arguments={}, broken=self._random.choice(GARBAGE))
            return replace(call, id="same") if fault == "duplicate" else call

        return replace(message, content=tuple(change(p) if isinstance(p, ToolCall) else p for p in message.content))


def _failure_part(
    info: ModelInfo, kind: FailureKind, text: str, retry_after: float | None = None, partial: str = ""
) -> Finished:
    content = (Text(partial),) if partial else ()
    failure = Failure(kind, text, retry_after=retry_after)
    return Finished(AssistantMessage(content, "error", model=info.full_name, failure=failure))
