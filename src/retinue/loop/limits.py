"""The limits of a run: its clocks, which share one timer, and turns, tool calls, repeated calls, budgets.

A clock counts only time that the process was awake to see. After a host slept, or an event loop stood
still, the next tick comes far too late; the excess is not counted, so that closing a laptop does not
end every run at once.
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
from retinue.loop.finish import SUBMIT, Ending
from retinue.loop.job import Verdict
from retinue.loop.prompts import prompt

_LONGEST_TICK = 30.0
_TICKS_PER_LIMIT = 4
_TOLERANCE = 1.0
_ROUNDING = 1e-6


def _nothing() -> None:
    pass


class Countdown:
    """Calls `expire` once when `limit` seconds were spent, unless fed, paused or stopped.

    Pauses nest: two reasons to wait need two resumes.
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
        return not self._pauses and self.spent >= self.limit - _ROUNDING

    def feed(self, now: float) -> None:
        """A sign of life at `now`, or silence expected until then: what was spent is forgotten.
        Called for every delta, so it does nothing else."""
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
        """Stop for good, and release the callback."""
        self._watch.forget(self)
        self._expire = _nothing

    def again(self) -> None:
        """Count from zero again, even after it expired."""
        self._watch.add(self)


class Watch:
    """Counts down every countdown of a run with at most one timer pending."""

    __slots__ = ("_active", "_clock", "_due", "_last", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._active: list[Countdown] = []
        self._timer: Timer | None = None
        self._due = 0.0
        self._last = clock.monotonic()

    def start(self, limit: float | None, expire: Callable[[], None]) -> Countdown:
        """A new countdown; with no limit one that never expires."""
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
        """Count the time since the last look, as far as it was seen."""
        now = self._clock.monotonic()
        passed = now - self._last
        if self._timer is not None:
            planned = max(self._due - self._last, 0.0)
            # A tick that came much too late means that the process did not run.
            passed = min(passed, 2 * planned + _TOLERANCE)
        for countdown in self._active:
            if not countdown._pauses:
                countdown.spent += max(min(passed, now - countdown._fed), 0.0)
        self._last = now

    def schedule(self) -> None:
        """Make sure a tick comes early enough; a tick that comes too early does no harm."""
        delay = _LONGEST_TICK
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
        for countdown in [each for each in self._active if each.expired]:
            self.forget(countdown)
            countdown._expire()
        self.schedule()


_SAME_RESULT = 2
"""How much more often a call may return the same result than fail: a command that waits for something
elsewhere is asked again and again for good reason."""


class WrapUp(NamedTuple):
    """The one message that asks a run to come to its end."""

    limit: LimitName
    message: UserMessage
    detail: str


class Turns:
    """Counts the turns of this attempt of a run, and the grace after the wrap-up.

    The wrap-up is asked for only when there would be another turn, so a run that is done on
    its last turn is simply completed. Whichever limit asks first, it is asked once.
    """

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
        """Return whether the next request may be answered with calls. Once all of them would be
        refused, and on the last turn, it may not, so that an answer comes. The tools themselves stay in
        the request: providers cache them, and refuse a conversation with calls that lists none."""
        if self.wrapped is None or self._hands_in:
            return "auto"
        is_last = self._last is not None and self._taken >= self._last - 1
        return "none" if is_last or self.wrapped != "turns" else "auto"

    @property
    def allows_another(self) -> bool:
        """Return whether there may be another turn before any limit asks for the wrap-up."""
        most = self._limits.max_turns
        return self.wrapped is None and (not most or self._taken < most)

    def before_next(self, calls_refused: bool, verdict: Verdict | None = None) -> WrapUp | Ending | None:
        """Return what the limits say to another turn. A `verdict` of the run's account allows one more."""
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
        what = "turn limit" if limit == "turns" else "tool-call limit"
        message = f"The run hit its {what} and did not come to an end within {self._grace} more turns."
        return Ending("aborted", Failure("limit", message, "Raise the limit, or give it a smaller task."), limit)


def overdrawn(verdict: Verdict) -> Ending:
    """Return the end of a run whose account allows no other request."""
    return Ending("over-budget", Failure("budget", verdict.text, "Raise the budget and resume."), verdict.limit)


class Repeats:
    """Notices a model that makes the same call again and again, to no avail: it fails each time,
    or returns the same result each time, which is allowed twice as often.

    Equal calls of one turn count once: the model had not seen the result of the first one. The
    refused submissions of a structured result have their own, smaller count.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._key: str | None = None
        self._given: tuple[Content, ...] | None = None
        """The result of the call; None when it failed."""
        self._times = 0

    def judge(self, calls: Sequence[ToolCall], message: ToolMessage) -> tuple[ToolMessage, Ending | None]:
        """Return the results, with a warning where one more such call would be the last."""
        if self._most is None:
            return message, None
        results = list(message.results)
        this_turn: set[str] = set()
        for index, (call, result) in enumerate(zip(calls, message.results, strict=True)):
            key = _key(call)
            # Submissions have their own count, and equal calls of a turn were made without seeing a result.
            if call.name == SUBMIT or key in this_turn:
                continue
            this_turn.add(key)
            self._count(key, result)
            most = self._most if result.is_error else _SAME_RESULT * self._most
            if self._times >= most:
                return ToolMessage(tuple(results)), self._ending(call, result)
            if self._times == most - 1:
                results[index] = _warned(result, self._times)
        return ToolMessage(tuple(results)), None

    def _count(self, key: str, result: ToolResult) -> None:
        given = None if result.is_error else result.content
        same = key == self._key and given == self._given
        self._times = self._times + 1 if same else 1
        self._key, self._given = key, given

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
