"""The limits of a run: its clocks, which share one timer, and turns, tool calls, repeated calls, budgets.

A clock counts only the time during which the process was awake. After the host slept or the event loop was blocked, the
next tick comes far too late. The excess is not counted, so closing a laptop does not end every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import orjson
from msgspec.structs import replace

from retinue.core.clock import Clock, Timer
from retinue.core.messages import Content, Text, ToolCall, ToolMessage, ToolResult, UserMessage, user
from retinue.core.outcome import Failure
from retinue.core.usage import LimitName, Limits
from retinue.loop.ending import Ending
from retinue.loop.job import Verdict
from retinue.loop.prompts import prompt
from retinue.loop.submission import SUBMIT

_MAX_TICK_SECONDS = 30.0
_TICKS_PER_LIMIT = 4
_TICK_TOLERANCE_SECONDS = 1.0
_ROUNDING_SECONDS = 1e-6


def _nothing() -> None:
    pass


class Countdown:
    """Calls `expire` once after `limit` seconds, unless it is fed, paused or stopped.

    Pauses nest: after two calls of `pause`, two calls of `resume` are needed.
    """

    __slots__ = ("_expire", "_fed", "_pauses", "_watch", "limit", "spent")

    def __init__(self, watch: Watch, limit: float, expire: Callable[[], None]) -> None:
        self.limit = limit
        self.spent = 0.0
        self._fed = 0.0
        self._pauses = 0
        self._watch = watch
        self._expire = expire

    @property
    def expired(self) -> bool:
        return not self._pauses and self.spent >= self.limit - _ROUNDING_SECONDS

    def feed(self, now: float) -> None:
        """Start counting again from `now`, which may be in the future for announced silence. Runs for every delta, so
        it does nothing else."""
        self.spent = 0.0
        self._fed = now

    def pause(self) -> None:
        self._watch.settle()
        self._pauses += 1

    def resume(self) -> None:
        self._watch.settle()
        self._pauses -= 1
        self._watch.schedule()

    def stop(self) -> None:
        """Stop permanently, and release the callback."""
        self._watch.forget(self)
        self._expire = _nothing

    def again(self) -> None:
        """Count from zero again, even after it expired."""
        self._watch.add(self)


class Watch:
    """Runs all countdowns of a run with at most one pending timer."""

    __slots__ = ("_active", "_clock", "_due", "_last", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._active: list[Countdown] = []
        self._timer: Timer | None = None
        self._due = 0.0
        self._last = clock.monotonic()

    def start(self, limit: float | None, expire: Callable[[], None]) -> Countdown:
        """Return a new countdown. Without a limit it never expires."""
        countdown = Countdown(self, limit or 0.0, expire)
        if limit is not None:
            self.add(countdown)
        return countdown

    def add(self, countdown: Countdown) -> None:
        self.settle()
        countdown.feed(self._last)
        if countdown not in self._active:
            self._active.append(countdown)
        self.schedule()

    def forget(self, countdown: Countdown) -> None:
        if countdown in self._active:
            self._active.remove(countdown)

    def close(self) -> None:
        self._active.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def settle(self) -> None:
        """Count the time since the last call, as far as the process was awake."""
        now = self._clock.monotonic()
        passed = now - self._last
        if self._timer is not None:
            planned = max(self._due - self._last, 0.0)
            # A tick that comes much too late means that the process did not run.
            passed = min(passed, 2 * planned + _TICK_TOLERANCE_SECONDS)
        for countdown in self._active:
            if not countdown._pauses:
                countdown.spent += max(min(passed, now - countdown._fed), 0.0)
        self._last = now

    def schedule(self) -> None:
        """Ensure that a tick comes early enough. A tick that comes too early does no harm."""
        delay = _MAX_TICK_SECONDS
        running = False
        for countdown in self._active:
            if not countdown._pauses:
                running = True
                remaining = countdown.limit - countdown.spent
                delay = min(delay, remaining, max(countdown.limit / _TICKS_PER_LIMIT, 0.01))
        if not running:
            return
        delay = max(delay, 0.0)
        due = self._last + delay
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._clock.call_later(delay, self._tick)

    def _tick(self) -> None:
        self.settle()
        self._timer = None
        for countdown in [active for active in self._active if active.expired]:
            self.forget(countdown)
            countdown._expire()
        self.schedule()


_SAME_RESULT_FACTOR = 2
"""A call may return the same result this many times as often as it may fail: repeating a command that waits for
something is legitimate."""


class WrapUp(NamedTuple):
    """The message that asks a run to finish, sent once."""

    limit: LimitName
    message: UserMessage
    detail: str


class Turns:
    """Counts the turns of this attempt of a run, and the grace turns after the wrap-up message.

    The wrap-up message is sent only if there would be another turn, so a run that finishes on its last turn is
    completed. It is sent once, for the limit that is reached first."""

    def __init__(self, limits: Limits, *, hands_in: bool = False) -> None:
        self._limits = limits
        self._hands_in = hands_in
        self._finish = "give your final answer"
        if hands_in:
            self._finish = f"hand in your result with `{SUBMIT}`"
        self._grace = max(limits.grace_turns, 1)
        self._taken = 0
        self._last: int | None = None
        self._last_paid: int | None = None
        self.wrapped: LimitName | None = None

    def took_one(self) -> None:
        self._taken += 1

    @property
    def tool_choice(self) -> Literal["auto", "none"]:
        """Return whether the model may answer the next request with calls.

        On the last turn, and once all calls would be refused, it may not, so that it answers. The tools stay in the
        request: providers cache them, and refuse a conversation that contains calls but lists no tools.
        """
        if self.wrapped is None or self._hands_in:
            return "auto"
        is_last = self._last is not None and self._taken >= self._last - 1
        return "none" if is_last or self.wrapped != "turns" else "auto"

    @property
    def allows_another(self) -> bool:
        """Return whether another turn is allowed before a limit requires the wrap-up message."""
        most = self._limits.max_turns
        return self.wrapped is None and (not most or self._taken < most)

    def before_next(self, calls_refused: bool, verdict: Verdict | None = None) -> WrapUp | Ending | None:
        """Return the wrap-up message or the end that the limits require before another turn; None if it is allowed. A
        `verdict` of the run's account allows one more turn."""
        most = self._limits.max_turns
        if verdict is not None:
            due = self._last_on_account(verdict)
            if due is not None:
                return due
        if self._last is not None and self._taken >= self._last:
            return self._abort()
        if most and self._taken >= most:
            end = max(most, 1) + self._grace
            self._last = end if self._last is None else min(self._last, end)
            if self.wrapped is None:
                self.wrapped = "turns"
                text = prompt("wrap-up-turns", limit=most, grace=self._grace, finish=self._finish)
                return WrapUp("turns", user(text, "wrap-up"), f"The turn limit of {most} is reached.")
        most = self._limits.max_tool_calls
        if calls_refused and most is not None and self.wrapped is None:
            self.wrapped = "tool_calls"
            self._last = self._taken + self._grace
            text = prompt("wrap-up-tool-calls", limit=most, finish=self._finish)
            return WrapUp("tool_calls", user(text, "wrap-up"), f"The limit of {most} tool calls is reached.")
        return None

    def _last_on_account(self, verdict: Verdict) -> WrapUp | Ending | None:
        if not verdict.wrap_up or (self._last_paid is not None and self._taken >= self._last_paid):
            return overdrawn(verdict)
        self._last_paid = self._taken + 1
        if self.wrapped is not None:
            return None
        self.wrapped = verdict.limit
        text = prompt("wrap-up-budget", detail=verdict.text, finish=self._finish)
        return WrapUp(verdict.limit, user(text, "wrap-up"), verdict.text)

    def _abort(self) -> Ending:
        limit = self.wrapped or "turns"
        limit_name = "turn limit" if limit == "turns" else "tool-call limit"
        message = f"The run hit its {limit_name} and did not finish within {self._grace} more turns."
        return Ending("aborted", Failure("limit", message, "Raise the limit, or give it a smaller task."), limit)


def overdrawn(verdict: Verdict) -> Ending:
    """Return the end of a run whose account allows no further request."""
    return Ending("over-budget", Failure("budget", verdict.text, "Raise the budget and resume."), verdict.limit)


class Repeats:
    """Detects a model that repeats the same call without effect: the call fails each time, or returns the same result
    each time, which is allowed twice as often.

    Equal calls of one turn are one attempt, because the model has not seen the result of the first. Refused submissions
    of a structured result have their own, smaller count.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._key: str | None = None
        self._given: tuple[Content, ...] | None = None
        """The result of the call; None when it failed."""
        self._times = 0

    def judge(self, calls: Sequence[ToolCall], message: ToolMessage) -> tuple[ToolMessage, Ending | None]:
        """Return the results, with a warning where one more repetition would end the run."""
        if self._most is None:
            return message, None
        results = list(message.results)
        this_turn: set[str] = set()
        for index, (call, result) in enumerate(zip(calls, message.results, strict=True)):
            key = _key(call)
            # Submissions have their own count; equal calls of a turn were made before any result.
            if call.name == SUBMIT or key in this_turn:
                continue
            this_turn.add(key)
            self._count(key, result)
            most = self._most if result.is_error else _SAME_RESULT_FACTOR * self._most
            if self._times >= most:
                return ToolMessage(tuple(results)), self._ending(call, result)
            if self._times == most - 1:
                results[index] = _warned(result, self._times)
        return ToolMessage(tuple(results)), None

    def _count(self, key: str, result: ToolResult) -> None:
        content = None if result.is_error else result.content
        same = key == self._key and content == self._given
        self._times = self._times + 1 if same else 1
        self._key, self._given = key, content

    def _ending(self, call: ToolCall, result: ToolResult) -> Ending:
        message = f"The agent made the same failing call of {call.name} {self._times} times in a row."
        if not result.is_error:
            message = f"The agent made the same call of {call.name} {self._times} times in a row, "
            message += "with the same result each time."
        return Ending("error", Failure("limit", message), "repeated_calls")


def _warned(result: ToolResult, times: int) -> ToolResult:
    often = "once" if times == 1 else f"{times} times in a row"
    if result.is_error:
        text = f"[This exact call has now failed {often}. Do something else: one more failure ends the run.]"
    else:
        text = f"[This exact call has now given the same result {often}. Do something else: one more ends the run.]"
    return replace(result, content=(*result.content, Text(text)))


def _key(call: ToolCall) -> str:
    if call.broken is not None:
        return f"{call.name} {call.broken}"
    return f"{call.name} {orjson.dumps(call.arguments, default=dict, option=orjson.OPT_SORT_KEYS).decode()}"
