"""Retries of requests that failed for a passing reason, and the wait a server asks for.

A run of hours must survive a deploy, an overload or a network outage of minutes, so retries go on
for about ten minutes in all. A server that never answered this conversation is given up much sooner: then its
address is wrong, or it is not running. The server's own Retry-After is honoured, with jitter on top.
Requests to models have no side effects, so a retry repeats none; text that was already shown is
passed on with the announcement, so that a display can strike it out and nobody loses it.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from retinue.core import events
from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall
from retinue.core.outcome import Failure, FailureKind
from retinue.models.protocol import Finished, Model, ModelInfo, ModelRequest, Part

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


_AMOUNT = r"(\d+(?:\.\d+)?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
_PROSE = rf"(?:try again|retry|wait)[^\d.]{{0,24}}((?:{_AMOUNT}\s*)+)"


def retry_after(
    headers: Mapping[str, str], details: Any = None, now: float | None = None, said: str = ""
) -> float | None:
    """Seconds from now, never negative; None if the server did not say. `headers` have
    lower-case names; `details` is the list in a Google error; `said` is its prose, the only place
    where a limit in the middle of a stream names a wait ("Please try again in 11.054s")."""
    if now is None:
        now = time.time()
    for seconds in (
        _number(headers.get("retry-after-ms") or headers.get("x-ms-retry-after-ms"), 0.001),
        _number(headers.get("retry-after")),
        _http_date(headers.get("retry-after"), now),
        _google(details),
        _resets(headers, now),
        _prose(said),
    ):
        if seconds is not None:
            return max(0.0, seconds)
    return None


def _number(text: str | None, factor: float = 1.0) -> float | None:
    try:
        value = None
        if text:
            value = float(text)
    except ValueError:
        return None
    # inf and nan are numbers to Python and nonsense to everyone else.
    if value is not None and abs(value * factor) < 1e10:
        return value * factor
    return None


def _http_date(text: str | None, now: float) -> float | None:
    if not text or not text[:1].isalpha():
        return None
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None


def _google(details: Any) -> float | None:
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            return duration(detail["retryDelay"])
    return None


def _prose(said: str) -> float | None:
    found = re.search(_PROSE, said[:2000], re.IGNORECASE)
    if found is None:
        return None
    total = 0.0
    for number, unit in re.findall(_AMOUNT, found[1], re.IGNORECASE):
        word = unit.lower()
        short = "ms" if word.startswith(("ms", "milli")) else word[0]
        total += float(number) * _UNITS[short]
    return total


def _resets(headers: Mapping[str, str], now: float) -> float | None:
    """When the limits that are used up are renewed: Anthropic writes moments, OpenAI durations."""
    waits: list[float | None] = []
    for name, value in headers.items():
        if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            if headers.get(name.removesuffix("reset") + "remaining") == "0":
                waits.append(_moment(value, now))
        elif name.startswith("x-ratelimit-reset-"):
            if headers.get(name.replace("-reset-", "-remaining-")) == "0":
                waits.append(duration(value))
        elif name == "x-ratelimit-reset" and headers.get("x-ratelimit-remaining", "0") == "0":
            waits.append(_epoch(value, now))
    return max((seconds for seconds in waits if seconds is not None), default=None)


def _moment(text: str, now: float) -> float | None:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp() - now
    except (ValueError, OverflowError):
        return None


def _epoch(text: str, now: float) -> float | None:
    value = _number(text, 1e-3) if len(text) > 11 else _number(text)
    if value is None:
        return None
    # Small numbers are seconds from now.
    return value - now if value > 1e8 else value


def duration(text: str) -> float | None:
    """Return the seconds of `34s`, `1m30s`, `20ms`, `6m0.5s` or plain seconds."""
    total, number, unit = 0.0, "", ""
    for character in text.strip() + "\0":
        if character.isdigit() or character == "." or character == "\0":
            if unit:
                if unit not in _UNITS or (value := _number(number)) is None:
                    return None
                total, number, unit = total + value * _UNITS[unit], "", ""
            number += character
        else:
            unit += character
    rest = number.rstrip("\0")
    if rest:
        if not total:
            return _number(rest)
        return None
    if text.strip():
        return total
    return None


ATTEMPTS = 15
"""With the waits below, a storm of ten minutes is survived whatever the jitter draws."""
UNANSWERED: frozenset[FailureKind] = frozenset({"dropped", "timeout", "malformed"})
"""Failures in which no model server spoke."""


class RetryPolicy(Struct, frozen=True):
    """`attempts` counts the first one. A Retry-After beyond `longest_wait`, or a wait beyond
    `total_seconds` since the first attempt, ends the trying: waiting less would be pointless.
    `first_contact` is for a server that has never answered."""

    attempts: int = ATTEMPTS
    base: float = 1.0
    cap: float = 100.0
    longest_wait: float = 600.0
    total_seconds: float = 1800.0
    first_contact: int = 4

    def most(self, failure: Failure, *, answered: bool) -> int:
        """Return how many attempts there are at most. A server that answers with errors only, from the first request
        on, is waited for as long as one that had answered: a run that begins in an outage is worth as much as one
        that is overtaken by it, and nothing in the first errors tells an outage from a defect."""
        if not answered and failure.kind in UNANSWERED:
            return min(self.attempts, self.first_contact)
        return self.attempts

    def delay(self, failed: int, failure: Failure, draw: Callable[[], float], *, answered: bool = True) -> float | None:
        """Seconds to wait after the attempt of that number; None when it was the last."""
        if failed >= self.most(failure, answered=answered) or not failure.transient:
            return None
        step = min(self.cap, self.base * 2.0 ** min(failed - 1, 32))
        if failure.retry_after is None:
            # A quarter is jitter: many agents that failed together must not come back together.
            return step * (0.75 + 0.25 * draw())
        if failure.retry_after > self.longest_wait:
            return None
        return failure.retry_after + draw() * min(step, 1.0 + 0.1 * failure.retry_after)


class RequestSlot(Protocol):
    """Stands before every attempt, for a limiter that many runs share. `before` may wait; if it
    returns a failure, nothing is sent and the retries end with that failure. `after` is called once for each
    attempt that was sent, with the failure or None, even if the attempt is cancelled; `began` when the first
    part of an answer arrives. `held` returns for how many seconds nobody will pass."""

    async def before(self) -> Failure | None: ...

    async def after(self, failure: Failure | None) -> None: ...

    def began(self) -> None: ...

    def held(self) -> float: ...


class OpenGate:
    """Lets every request pass."""

    async def before(self) -> Failure | None:
        return None

    async def after(self, failure: Failure | None) -> None: ...

    def began(self) -> None: ...

    def held(self) -> float:
        return 0.0


class RetryingModel:
    """A model that asks another one again. The final message of a request that kept failing has
    the longest text that any attempt had produced."""

    def __init__(
        self,
        model: Model,
        policy: RetryPolicy | None = None,
        *,
        gate: RequestSlot | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._model = model
        self._policy = policy or RetryPolicy()
        self._gate: RequestSlot = gate or OpenGate()
        self._answered = False
        self._sleep = sleep
        self._draw = draw
        self._clock = clock

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    async def close(self) -> None:
        await self._model.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        now = self._clock or asyncio.get_running_loop().time
        self._answered = self._answered or _has_answered(self.info, request)
        started, attempt = now(), 0
        longest: AssistantMessage | None = None
        while True:
            attempt += 1
            shown: list[str] = []
            message: AssistantMessage | None = None
            arrived = now()
            closed = await self._gate.before()
            if closed is not None:
                ended = AssistantMessage((), "error", model=self.info.full_name, failure=closed)
                yield Finished(_final(ended, longest or ended, attempt - 1))
                return
            # Waiting in line is not trying.
            started += now() - arrived
            has_begun = False
            try:
                async with aclosing(self._model.stream(request)) as parts:
                    async for part in parts:
                        if isinstance(part, Finished):
                            message = part.message
                            break
                        if not has_begun:
                            has_begun = True
                            self._gate.began()
                        if isinstance(part, TextDelta):
                            shown.append(part.text)
                        yield part
            finally:
                failure = None
                if message is not None:
                    failure = message.failure
                await self._gate.after(failure)
            message = message or _ended(self.info, shown)
            if message.failure is None or message.stop != "error":
                self._answered = True
                yield Finished(message)
                return
            self._answered = self._answered or message.failure.kind not in UNANSWERED
            if longest is None or len(message.text) >= len(longest.text):
                longest = message
            wait = self._policy.delay(attempt, message.failure, self._draw, answered=self._answered)
            if wait is not None:
                # The announced wait is the real one.
                wait = max(wait, self._gate.held())
            if wait is None or now() - started + wait > self._policy.total_seconds:
                yield Finished(_final(message, longest, attempt))
                return
            most = self._policy.most(message.failure, answered=self._answered)
            text = "".join(shown) or message.text
            yield events.Retrying(attempt, wait, message.failure, partial=text, most=most)
            await self._sleep(wait)


def _has_answered(info: ModelInfo, request: ModelRequest) -> bool:
    """Return whether the model has spoken in this conversation, perhaps to another process."""
    answers = (message for message in request.messages if isinstance(message, AssistantMessage))
    return any(answer.model == info.full_name and answer.failure is None for answer in answers)


def _ended(info: ModelInfo, shown: list[str]) -> AssistantMessage:
    text = "".join(shown)
    failure = Failure("dropped", f"The stream of {info.full_name} ended without an end.")
    content = (Text(text),) if text else ()
    return AssistantMessage(content, "error", model=info.full_name, failure=failure)


def _final(message: AssistantMessage, longest: AssistantMessage, attempts: int) -> AssistantMessage:
    """Return the last failure with the longest text; how often it was tried stands in its message."""
    failure = message.failure
    if failure is not None and attempts > 1:
        failure = replace(failure, message=f"{failure.message} (tried {attempts} times)")
    content: tuple[Text | Thinking | ToolCall, ...] = longest.content
    return replace(message, content=content, failure=failure)
