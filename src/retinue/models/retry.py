"""Retries requests that failed for a passing reason, and adapts requests that a server does not accept.

A run of hours must survive a deploy, an overload or a network outage of minutes, so retries continue for about ten
minutes in all. A server that never answered this conversation is given up much sooner: its address is wrong, or it is
not running. The server's Retry-After is honoured, with jitter on top. Requests to models have no side effects, so a
retry repeats none; text that was already shown is passed on with the announcement, so that a display can strike it
out.

Models and compatible servers differ in the optional parameters they take and in their values, and new ones appear
faster than any table. When a refusal names an optional parameter of the request, a refused *value* steps to the
nearest one that is supported, and a refused *parameter* is left out. This applies to one run and model, and is
announced; only what concerns the shape of requests, never their meaning, is shared by all runs. A refusal that names
nothing optional remains a failure.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from retinue.core import events
from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall
from retinue.core.outcome import Failure, FailureKind
from retinue.models.draft import parse_event
from retinue.models.efforts import ORDER, nearest
from retinue.models.protocol import Finished, Model, ModelInfo, ModelRequest, Part

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


_AMOUNT = r"(\d+(?:\.\d+)?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
_PROSE = rf"(?:try again|retry|wait)[^\d.]{{0,24}}((?:{_AMOUNT}\s*)+)"


def retry_after(
    headers: Mapping[str, str], details: Any = None, now: float | None = None, message: str = ""
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
        _prose(message),
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


def _prose(message: str) -> float | None:
    match = re.search(_PROSE, message[:2000], re.IGNORECASE)
    if match is None:
        return None
    total = 0.0
    for number, unit in re.findall(_AMOUNT, match[1], re.IGNORECASE):
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
    unparsed = number.rstrip("\0")
    if unparsed:
        if not total:
            return _number(unparsed)
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


_OPTIONAL = (
    "stream_options",
    "parallel_tool_calls",
    "prompt_cache_key",
    "temperature",
    "reasoning_effort",
    "reasoning",
    "include",
    "output_config",
    "thinking",
    "chat_template_kwargs",
    "enable_thinking",
    "tool_choice",
    "thinkingConfig",
    "toolConfig",
)
_STRUCTURAL = frozenset({"stream_options", "parallel_tool_calls", "prompt_cache_key", "max_tokens"})
"""What says nothing about the answer: one run may learn it for all."""
_ALSO_CALLED = {
    "include": ("reasoning.encrypted_content", "encrypted content is not supported"),
    "output_config": ("effort",),
    "thinkingConfig": ("thinking_config", "thinking level", "thinking_level", "thinking budget", "thinking is not"),
    "toolConfig": ("tool_config", "function_calling_config", "function calling config"),
    "tool_choice": ("tool choice",),
}
_OBJECTIONS = (
    r"not (?:be )?(?:\w+ )?(?:support|allow|permit|accept|recogni|valid|compatible)|unsupported|unknown|unrecogni"
    r"|invalid|unexpected|mandatory|does not|doesn't|cannot|can't|extra inputs|deprecated|must be|should be"
    r"|only .*support"
)
_EFFORTS = (("reasoning_effort",), ("reasoning", "effort"), ("output_config", "effort"))
_USUAL = frozenset({"low", "medium", "high"})
"""What is tried when a refusal does not say which values are supported."""
_GEMINI_LEVEL = ("generationConfig", "thinkingConfig", "thinkingLevel")


class RequestRefusal(NamedTuple):
    """`param` is the field that the server itself names, where it does."""

    message: str
    param: str = ""
    code: str = ""

    @property
    def said(self) -> str:
        return f"{self.message} {self.code}".rstrip().lower()


def read_refusal(body: bytes, message: str) -> RequestRefusal:
    """Return what an error body says. `message` stands in for a body that cannot be read."""
    try:
        data: Any = parse_event(body)
    except ValueError:
        return RequestRefusal(message)
    if isinstance(data, list) and data:
        data = data[0]
    error = None
    if isinstance(data, dict):
        error = data.get("error", data)
    if not isinstance(error, dict):
        return RequestRefusal(message)
    text = error.get("message") or error.get("detail") or message
    param, code = error.get("param"), error.get("code")
    return RequestRefusal(str(text), param if isinstance(param, str) else "", code if isinstance(code, str) else "")


class SharedLessons:
    """What all models over one transport learned of one server's requests."""

    __slots__ = ("left_out", "renamed")

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        self.renamed: dict[str, str] = {}


class Repairs:
    """Grows with each lesson; each parameter and value teaches once, so repairing ends. `said`
    collects what people should know."""

    __slots__ = ("_left_out", "_refused", "_shared", "_steps", "said")

    def __init__(self, shared: SharedLessons | None = None) -> None:
        self._shared = shared or SharedLessons()
        self._left_out: set[str] = set()
        self._steps: dict[tuple[str, ...], dict[str, str]] = {}
        self._refused: dict[tuple[str, ...], set[str]] = {}
        self.said: list[str] = []

    def learn(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Return whether the next attempt will differ."""
        return self._rename(body, refusal.said) or self._step(body, refusal) or self._leave_out(body, refusal)

    def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        for path, steps in self._steps.items():
            holder = _holder(body, path)
            if holder is not None and str(holder[path[-1]]).lower() in steps:
                value = steps[str(holder[path[-1]]).lower()]
                holder[path[-1]] = value.upper() if path == _GEMINI_LEVEL else value
        for name in (*self._left_out, *self._shared.left_out):
            body.pop(name, None)
            if "generationConfig" in body:
                body["generationConfig"].pop(name, None)
        for old, new in self._shared.renamed.items():
            if old in body:
                body[new] = body.pop(old)
        return body

    def _rename(self, body: dict[str, Any], message: str) -> bool:
        if "max_completion_tokens" not in message or self._shared.renamed:
            return False
        for old, new in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
            if old in body:
                self._shared.renamed[old] = new
                return True
        return False

    # ---------------------------------------------------------------- values
    def _step(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Replace an effort that the model does not have by the nearest one it has."""
        for path in (*_EFFORTS, _GEMINI_LEVEL):
            holder = _holder(body, path)
            if holder is None or not _about_value(path, str(holder[path[-1]]), refusal):
                continue
            value = str(holder[path[-1]]).lower()
            refused = self._refused.setdefault(path, set())
            if value in refused:
                return False
            refused.add(value)
            offered = _list_supported(refusal.said) or _USUAL
            other = nearest(offered - refused, value)
            if other is None:
                return False
            steps = self._steps.setdefault(path, {})
            for before, after in steps.items():
                if after == value:
                    steps[before] = other
            steps[value] = other
            self.said.append(f"does not take the thinking effort '{value}': '{other}' is used")
            return True
        return False

    # ---------------------------------------------------------------- parameters
    def _leave_out(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        for name in _OPTIONAL:
            present = name in body or name in (body.get("generationConfig") or {})
            if not present or name in self._left_out or not _objects_to(name, refusal):
                continue
            if name in _STRUCTURAL:
                self._shared.left_out.add(name)
            else:
                self.said.append(f"does not take '{name}': it is left out")
            self._left_out.add(name)
            return True
        return False


def _holder(body: dict[str, Any], keys: Iterable[str]) -> dict[str, Any] | None:
    """Return the object that holds the last name of `place`, if it is there."""
    *path, last = keys
    holder: Any = body
    for name in path:
        holder = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(holder, dict) and last in holder:
        return holder
    return None


def _about_value(path: tuple[str, ...], value: str, refusal: RequestRefusal) -> bool:
    """Return whether a refusal is about the value at `place`, not about the field as such. OpenAI:
    "Unsupported value: 'none' is not supported with the 'gpt-6.1-sol' model", `param`
    reasoning.effort (codex#6647); OpenRouter: "Reasoning is mandatory for this endpoint"."""
    message = refusal.said
    if refusal.param and _plain(refusal.param) == _plain(".".join(path)):
        return "value" in message or bool(_list_supported(message)) or _is_quoted(value.lower(), message)
    if value == "none" and "reasoning is mandatory" in message:
        return True
    words = ("effort", "reasoning", "thinking")
    return (
        any(word in message for word in words)
        and _is_quoted(value.lower(), message)
        and bool(re.search(_OBJECTIONS, message))
    )


def _is_quoted(value: str, message: str) -> bool:
    return re.search(rf"['\"`]{re.escape(value)}['\"`]", message) is not None


def _list_supported(message: str) -> frozenset[str]:
    """Return the values that a refusal lists: "Supported values are: 'low', 'medium', and 'high'."."""
    match = re.search(
        r"(?:supported values|supported efforts|one of|please use|expected|allowed values)(.{0,160})", message
    )
    if match is None:
        return frozenset()
    return frozenset(ORDER).intersection(re.findall(r"[a-z]+", match[1]))


def _objects_to(name: str, refusal: RequestRefusal) -> bool:
    """Return whether a refusal objects to a parameter. Words of plain English count only as the name of
    a field, or the talk of a model would cost it its thinking."""
    if refusal.param:
        first = re.split(r"[.\[]", refusal.param)[0]
        if _plain(first) == _plain(name):
            return True
    message = refusal.said
    if not re.search(_OBJECTIONS, message):
        return False
    if any(other in message for other in _ALSO_CALLED.get(name, ())):
        return True
    if name in ("include", "reasoning", "thinking"):
        field = rf"(?:['\"`]{name}[\w.\[\]]*['\"`]|\b{name}[.:\[]|parameters?:? {name}\b|\b{name} parameter|^{name}\b)"
        return re.search(field, message) is not None
    return _plain(name) in _plain(message)


def _plain(text: str) -> str:
    """`reasoning_effort`, `reasoningEffort` and `reasoning.effort` are one name."""
    return re.sub(r"[^a-z0-9 ]", "", text.lower())
