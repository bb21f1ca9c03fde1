"""A model that misbehaves on purpose, the same way every time for the same seed.

It wraps another model and hurts its answers the way real providers and networks do. Faults
that stop a request before it starts do not use up a turn of a script inside.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, fields

from msgspec.structs import replace

from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, ToolCall
from retinue.core.outcome import Failure, FailureKind
from retinue.models.protocol import Finished, Model, ModelInfo, ModelRequest, Part

GARBAGE = ('{"path": "a', "not json", "[1, 2]", "", '{"a": }', "null", "\x00", "{'a': 1}")


@dataclass(frozen=True, slots=True)
class Rates:
    """How likely each fault is for one request, between 0 and 1; together at most 1."""

    rate_limit: float = 0.0
    """429 with a Retry-After."""
    overloaded: float = 0.0
    """529."""
    server: float = 0.0
    """Another 5xx."""
    dropped: float = 0.0
    """The stream breaks off somewhere; text so far is partial."""
    garbage: float = 0.0
    """Arguments of tool calls that are no JSON object."""
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
        """All faults but hanging, which needs someone to cancel it."""
        return cls(**{field.name: 0.0 if field.name == "hang" else each for field in fields(cls)})


class ChaosModel:
    """`faults` counts what was done to the run, by name; `none` for requests left alone."""

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
                yield _failed(self.info, "rate_limit", "429: too many requests", self._random.uniform(0.1, 30))
            case "overloaded":
                yield _failed(self.info, "overloaded", "529: overloaded")
            case "server":
                yield _failed(self.info, "server", f"{self._random.choice((500, 502, 504))}: server error")
            case "hang":
                await asyncio.get_running_loop().create_future()
            case "empty":
                yield Finished(AssistantMessage((), model=self.info.full_name))
            case _:
                async with aclosing(self._hurt(fault, request)) as parts:
                    async for part in parts:
                        yield part

    def _choose(self) -> str:
        chosen = self._random.random()
        for field in fields(self._rates):
            chosen -= getattr(self._rates, field.name)
            if chosen < 0:
                return field.name
        return "none"

    async def _hurt(self, fault: str, request: ModelRequest) -> AsyncGenerator[Part, None]:
        left = self._random.randint(0, 3) if fault == "dropped" else -1
        text: list[str] = []
        async with aclosing(self._inner.stream(request)) as parts:
            async for part in parts:
                if left == 0 or (fault == "dropped" and isinstance(part, Finished)):
                    yield _failed(self.info, "dropped", "the stream broke off", partial="".join(text))
                    return
                left -= 1
                if isinstance(part, TextDelta):
                    text.append(part.text)
                if not isinstance(part, Finished):
                    yield part
                elif fault != "no_end":
                    yield Finished(self._changed(fault, part.message))

    def _changed(self, fault: str, message: AssistantMessage) -> AssistantMessage:
        def change(call: ToolCall) -> ToolCall:
            if fault == "garbage":
                return replace(call, arguments={}, broken=self._random.choice(GARBAGE))
            return replace(call, id="same") if fault == "duplicate" else call

        return replace(message, content=tuple(change(p) if isinstance(p, ToolCall) else p for p in message.content))


def _failed(
    info: ModelInfo, kind: FailureKind, text: str, retry_after: float | None = None, partial: str = ""
) -> Finished:
    content = (Text(partial),) if partial else ()
    failure = Failure(kind, text, retry_after=retry_after)
    return Finished(AssistantMessage(content, "error", model=info.full_name, failure=failure))
