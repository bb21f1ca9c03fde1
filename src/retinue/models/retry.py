"""Retries requests that failed for a temporary reason, and adapts requests that a server does not accept.

A run of hours must survive a deploy, an overload or a network outage of minutes, so retries continue for about ten
minutes. A server that never answered this conversation is given up much sooner, because its address is probably wrong
or it is not running. The server's Retry-After is honoured, with jitter added. Requests to models have no side effects,
so a retry is safe. The event of a retry holds the text that was already shown, so that a display can strike it out.

Models and compatible servers accept different optional parameters and values, and new ones appear faster than any
table is updated. When a refusal names an optional parameter of the request, a refused *value* is replaced by the
nearest supported one, and a refused *parameter* is left out. This applies to one run and model, and is reported. Only
parameters that cannot change the answer are left out for all runs. A refusal that names no optional parameter remains a
failure.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from retinue.core import events
from retinue.core.events import TextDelta
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall
from retinue.core.outcome import Failure, FailureKind
from retinue.models.draft import parse_event
from retinue.models.efforts import EFFORT_ORDER, nearest
from retinue.models.protocol import Finished, Model, ModelInfo, ModelRequest, Part

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_SECONDS = 1e10
_AMOUNT = r"(\d+(?:\.\d+)?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
_DURATION = rf"(?:{_AMOUNT}\s*)+"
_WAIT_IN_PROSE = rf"(?:try again|retry|wait)[^\d.]{{0,24}}({_DURATION})"


def retry_after(
    headers: Mapping[str, str], details: Any = None, now: float | None = None, message: str = ""
) -> float | None:
    """Return the seconds to wait from now, never negative; None if the server named none. The names in `headers` are
    in lower case, `details` is the list in a Google error. `message` is the text of the error: in the middle of a
    stream it alone names the wait ("Please try again in 11.054s")."""
    if now is None:
        now = time.time()
    for seconds in (
        _number(headers.get("retry-after-ms") or headers.get("x-ms-retry-after-ms"), 0.001),
        _number(headers.get("retry-after")),
        _http_date(headers.get("retry-after"), now),
        _google(details),
        _resets(headers, now),
        _wait_in_prose(message),
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
    # Python also reads "inf" and "nan".
    if value is not None and abs(value * factor) < _MAX_SECONDS:
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


def _wait_in_prose(message: str) -> float | None:
    match = re.search(_WAIT_IN_PROSE, message[:2000], re.IGNORECASE)
    return None if match is None else duration(match[1])


def _resets(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until the exhausted limits are reset. Anthropic writes moments, OpenAI durations."""
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
    """Return the seconds of `34s`, `1m30s`, `20ms`, `6m0.5s`, `2 minutes` or plain seconds."""
    text = text.strip()
    if re.fullmatch(_DURATION, text, re.IGNORECASE) is None:
        return _number(text)
    total = 0.0
    for number, unit in re.findall(_AMOUNT, text.lower()):
        total += float(number) * _UNIT_SECONDS["ms" if unit.startswith(("ms", "milli")) else unit[0]]
    return total if total < _MAX_SECONDS else None


MAX_REQUEST_ATTEMPTS = 15
"""With the waits below, requests survive an outage of ten minutes, whatever the jitter is."""
UNANSWERED: frozenset[FailureKind] = frozenset({"dropped", "timeout", "malformed"})
"""Failures in which no model server answered."""


class RetryPolicy(Struct, frozen=True):
    """When a request is sent again. `attempts` includes the first one; `first_contact_attempts` apply to a server that
    never answered. The first wait is one second, each further one is twice as long, up to `max_delay_seconds`.
    Retrying ends at a Retry-After of more than `max_retry_after_seconds`, and at a wait that would end more than
    `total_seconds` after the first attempt."""

    attempts: int = MAX_REQUEST_ATTEMPTS
    max_delay_seconds: float = 100.0
    max_retry_after_seconds: float = 600.0
    total_seconds: float = 1800.0
    first_contact_attempts: int = 4

    def max_attempts(self, failure: Failure, *, answered: bool) -> int:
        """Return the number of attempts. A server that has only answered with errors gets all of them, because the
        first errors do not tell an outage from a defect."""
        if not answered and failure.kind in UNANSWERED:
            return min(self.attempts, self.first_contact_attempts)
        return self.attempts

    def delay(
        self, attempt: int, failure: Failure, draw: Callable[[], float], *, answered: bool = True
    ) -> float | None:
        """Return the seconds to wait after the failed attempt of that number; None if it was the last one."""
        if attempt >= self.max_attempts(failure, answered=answered) or not failure.transient:
            return None
        step = min(self.max_delay_seconds, 2.0 ** min(attempt - 1, 32))
        if failure.retry_after is None:
            # A quarter is jitter: many agents that failed together must not retry together.
            return step * (0.75 + 0.25 * draw())
        if failure.retry_after > self.max_retry_after_seconds:
            return None
        return failure.retry_after + draw() * min(step, 1.0 + 0.1 * failure.retry_after)


class RequestGate:
    """Called around every attempt, for a limiter that many runs share. This one admits every request."""

    __slots__ = ()

    async def before(self) -> Failure | None:
        """Wait until the attempt may be sent. After a failure nothing is sent and no retry follows."""
        return None

    async def after(self, failure: Failure | None) -> None:
        """Note the end of an attempt that was sent, also of one that was cancelled."""

    def began(self) -> None:
        """Note that the first part of the answer has arrived."""

    def held(self) -> float:
        """Return for how many seconds no request will be sent."""
        return 0.0


class RetryingModel:
    """A model that repeats the failed requests of another one. If all attempts fail, the final message has the longest
    text that any of them produced."""

    def __init__(
        self,
        model: Model,
        policy: RetryPolicy | None = None,
        *,
        gate: RequestGate | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._model = model
        self._policy = policy or RetryPolicy()
        self._gate = gate or RequestGate()
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
            # The wait for the gate does not count as time of the attempts.
            started += now() - arrived
            has_begun = False
            try:
                async with aclosing(self._model.stream(request)) as parts:
                    async for event in parts:
                        if isinstance(event, Finished):
                            message = event.message
                            break
                        if not has_begun:
                            has_begun = True
                            self._gate.began()
                        if isinstance(event, TextDelta):
                            shown.append(event.text)
                        yield event
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
            max_attempts = self._policy.max_attempts(message.failure, answered=self._answered)
            text = "".join(shown) or message.text
            yield events.Retrying(attempt, wait, message.failure, partial=text, most=max_attempts)
            await self._sleep(wait)


def _has_answered(info: ModelInfo, request: ModelRequest) -> bool:
    """Return whether the model has answered in this conversation, in this process or another one."""
    answers = (message for message in request.messages if isinstance(message, AssistantMessage))
    return any(answer.model == info.full_name and answer.failure is None for answer in answers)


def _ended(info: ModelInfo, shown: list[str]) -> AssistantMessage:
    text = "".join(shown)
    failure = Failure("dropped", f"The stream of {info.full_name} ended without an end.")
    content = (Text(text),) if text else ()
    return AssistantMessage(content, "error", model=info.full_name, failure=failure)


def _final(message: AssistantMessage, longest: AssistantMessage, attempts: int) -> AssistantMessage:
    """Return the last failure with the longest text. Its message states the number of attempts."""
    failure = message.failure
    if failure is not None and attempts > 1:
        failure = replace(failure, message=f"{failure.message} (tried {attempts} times)")
    content: tuple[Text | Thinking | ToolCall, ...] = longest.content
    return replace(message, content=content, failure=failure)


_OPTIONAL_PARAMETERS = (
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
_STRUCTURAL_PARAMETERS = frozenset({"stream_options", "parallel_tool_calls", "prompt_cache_key", "max_tokens"})
"""Parameters that do not change the answer: all runs leave them out after one refusal."""
_PARAMETER_ALIASES = {
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
_EFFORT_PATHS = (("reasoning_effort",), ("reasoning", "effort"), ("output_config", "effort"))
_USUAL_EFFORTS = frozenset({"low", "medium", "high"})
"""The efforts to try when a refusal does not list the supported ones."""
_GEMINI_LEVEL = ("generationConfig", "thinkingConfig", "thinkingLevel")


class RequestRefusal(NamedTuple):
    """An error of a server that did not accept a request. `param` is the field that it names, if it names one."""

    message: str
    param: str = ""
    code: str = ""

    @property
    def text(self) -> str:
        """The message and the code, in lower case."""
        return f"{self.message} {self.code}".rstrip().lower()


def read_refusal(body: bytes, message: str) -> RequestRefusal:
    """Return the refusal in an error body. `message` is used if the body cannot be read."""
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
    """The parameters that one server does not accept, shared by all models over one transport."""

    __slots__ = ("left_out", "renamed")

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        self.renamed: dict[str, str] = {}


class Repairs:
    """The changes to the requests of one run that refusals have taught. Each parameter and value is learned once, so
    repairing ends. `notes` are texts for people."""

    __slots__ = ("_left_out", "_refused", "_shared", "_steps", "notes")

    def __init__(self, shared: SharedLessons | None = None) -> None:
        self._shared = shared or SharedLessons()
        self._left_out: list[str] = []
        self._steps: dict[tuple[str, ...], dict[str, str]] = {}
        self._refused: dict[tuple[str, ...], set[str]] = {}
        self.notes: list[str] = []

    def learn(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Return whether the next attempt will differ."""
        return self._rename(body, refusal.text) or self._step(body, refusal) or self._leave_out(body, refusal)

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

    def _step(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        """Replace a thinking effort that the model does not support by the nearest supported one."""
        for path in (*_EFFORT_PATHS, _GEMINI_LEVEL):
            holder = _holder(body, path)
            if holder is None or not _about_value(path, str(holder[path[-1]]), refusal):
                continue
            value = str(holder[path[-1]]).lower()
            refused = self._refused.setdefault(path, set())
            if value in refused:
                return False
            refused.add(value)
            supported = _list_supported(refusal.text) or _USUAL_EFFORTS
            other = nearest(supported - refused, value)
            if other is None:
                return False
            steps = self._steps.setdefault(path, {})
            for before, after in steps.items():
                if after == value:
                    steps[before] = other
            steps[value] = other
            self.notes.append(f"does not take the thinking effort '{value}': '{other}' is used")
            return True
        return False

    def _leave_out(self, body: dict[str, Any], refusal: RequestRefusal) -> bool:
        for name in _OPTIONAL_PARAMETERS:
            present = name in body or name in (body.get("generationConfig") or {})
            if not present or name in self._left_out or not _objects_to(name, refusal):
                continue
            if name in _STRUCTURAL_PARAMETERS:
                self._shared.left_out.add(name)
            else:
                self.notes.append(f"does not take '{name}': it is left out")
            self._left_out.append(name)
            return True
        return False


def _holder(body: dict[str, Any], keys: Iterable[str]) -> dict[str, Any] | None:
    """Return the object that has the last one of `keys`; None if there is none."""
    *path, last = keys
    holder: Any = body
    for name in path:
        holder = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(holder, dict) and last in holder:
        return holder
    return None


def _about_value(path: tuple[str, ...], value: str, refusal: RequestRefusal) -> bool:
    """Return whether a refusal objects to the value at `path`, and not to the parameter. OpenAI: "Unsupported value:
    'none' is not supported with the 'gpt-6.1-sol' model", `param` reasoning.effort (codex#6647); OpenRouter:
    "Reasoning is mandatory for this endpoint"."""
    message = refusal.text
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
    return frozenset(EFFORT_ORDER).intersection(re.findall(r"[a-z]+", match[1]))


def _objects_to(name: str, refusal: RequestRefusal) -> bool:
    """Return whether a refusal objects to a parameter. A parameter whose name is a common English word must appear as
    the name of a field, because error messages use such words in other ways."""
    if refusal.param:
        first = re.split(r"[.\[]", refusal.param)[0]
        if _plain(first) == _plain(name):
            return True
    message = refusal.text
    if not re.search(_OBJECTIONS, message):
        return False
    if any(alias in message for alias in _PARAMETER_ALIASES.get(name, ())):
        return True
    if name in ("include", "reasoning", "thinking"):
        field = rf"(?:['\"`]{name}[\w.\[\]]*['\"`]|\b{name}[.:\[]|parameters?:? {name}\b|\b{name} parameter|^{name}\b)"
        return re.search(field, message) is not None
    return _plain(name) in _plain(message)


def _plain(text: str) -> str:
    """Return a name in one spelling: `reasoning_effort`, `reasoningEffort` and `reasoning.effort` are the same."""
    return re.sub(r"[^a-z0-9 ]", "", text.lower())
