"""What one run of the loop needs, frozen before it starts, and the controls by which other tasks steer and stop it.

The loop charges every request to a `LoopAccount` and asks it before the next one; the supervisor gives each run the
account of its position in the tree.

Every method of `Controls` is called from other tasks of the same event loop, returns at once, and its return value says
whether the run can still take the order. Steering is delivered in order and exactly once; a run that has ended accepts
nothing, so nobody is told "delivered" when it was not.

While a run waits for its model it is one task, suspended in the model's stream. A limit that fires or a person who
stops the run cancels exactly that wait, as `asyncio.timeout` does: the cancellation is taken back when it arrives
here, unless someone else cancelled as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field

from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.core.messages import Image, Origin, UserMessage, user
from retinue.core.tool import Tool, ToolContext
from retinue.core.usage import LimitName, Limits, Usage
from retinue.errors import LaunchError
from retinue.log.replay import Conversation
from retinue.loop.finish import SUBMIT, Ending


class Verdict(NamedTuple):
    """Why there may be no ordinary request. With `wrap_up` there may be one more, in which the
    agent is asked to come to its end; without, none."""

    limit: LimitName
    text: str
    wrap_up: bool = False


class LoopAccount(Protocol):
    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        """Record what was spent. Never refuses: it has happened."""
        ...

    def verdict(self) -> Verdict | None:
        """Asked before each request; None: go on."""
        ...

    def calls_left(self) -> int | None:
        """Return how many tool calls may still be made; None: any number."""
        ...


class Unlimited:
    """The account of a run that shares nothing."""

    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        return None

    def verdict(self) -> None:
        return None

    def calls_left(self) -> None:
        return None


UNLIMITED = Unlimited()


class Compaction(Struct, frozen=True):
    """When and how the conversation is shortened. `at` is the share of the model's window that
    may be full before a request; None leaves it to overflow errors and people. The newest
    `keep_turns` turns stay as they are."""

    at: float | None = 0.85
    keep_turns: int = 3


class Job(Struct, frozen=True, kw_only=True):
    """`past` is what the log has of the run: its usage continues, while turns, tool calls and time are granted anew.
    `messages` is new (the task, or the prompt of a resume) and is announced first. `system` and `tools` never change
    during the run; `late_tools` is called before every request, and what it returns is added after them for good.

    Permission checks, hooks and audits are wrappers around the tools: the loop knows no flags
    for them. `remind` returns text that must survive a compaction, such as the live children.
    """

    system: str
    messages: tuple[UserMessage, ...]
    context: ToolContext
    past: Conversation = field(default_factory=Conversation)
    tools: tuple[Tool, ...] = ()
    limits: Limits = field(default_factory=Limits)
    account: LoopAccount = UNLIMITED
    """What the run shares with its tree: charged after every request, asked before the next."""
    thinking: str | None = None
    temperature: float | None = None
    max_output: int | None = None
    schema: Mapping[str, Any] | bool | None = None
    accept: Callable[[Any], object] | None = None
    """Raises ValueError for a result that matches the schema and is wrong all the same."""
    compaction: Compaction = field(default_factory=Compaction)
    parallel_calls: int = 16
    cancel_seconds: float = 5.0
    """How long a cancelled tool may take to clean up before it is left behind."""
    remind: Callable[[], str] = str
    absent: Callable[[str], str] = lambda name: ""
    """Why the run lacks a tool that exists, as a sentence for its model; empty if it is not known."""
    late_tools: Callable[[], tuple[Tool, ...]] = tuple
    """Tools that became available since: a server that was slow, or what the run searched for."""
    request_headers: Callable[[], Mapping[str, str]] = dict
    """Further headers of the next request to the model."""
    before_end: Callable[[], Awaitable[str | None]] | None = None
    """Asked when the run would end well: a text is its next instruction."""
    before_compact: Callable[[str], Awaitable[str | None]] | None = None
    """Asked with the reason before the conversation is shortened; a text says why not to."""
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        names = [tool.spec.name for tool in self.tools]
        if self.schema is not None:
            names.append(SUBMIT)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise LaunchError(
                f"Two tools share the name {', '.join(twice)}.",
                remedy="A model calls tools by name: rename or drop one of them.",
            )
        # A provider would refuse an empty conversation.
        if not self.messages and not self.past.messages:
            raise LaunchError("There is nothing to do.", remedy="Give the run a task.")


T = TypeVar("T")


class Interrupted(Exception):  # noqa: N818 - it is a signal between two functions, not an error
    """The wait was cut short; `Interrupt.ending` says why."""


class Interrupt:
    """The first reason wins and stays."""

    __slots__ = ("_cancelled", "_task", "_waker", "ending", "loop")

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self.loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False
        self._waker: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether the run waits for its model at this moment."""
        return self._task is not None

    def fire(self, ending: Ending) -> None:
        """End the run as soon as it can be. Safe to call at any time from the same event loop."""
        if self.ending is not None:
            return
        self.ending = ending
        self.wake()
        if self._task is None:
            return
        if self._task is asyncio.current_task():
            # Called by the model itself, in the middle of its step: a cancellation now could
            # strike anywhere later. It may still end this step by itself; look again then.
            self.loop.call_soon(self._cut)
        else:
            self._cut()

    def _cut(self) -> None:
        if self._task is not None:
            self._cancelled = True
            self._task.cancel()

    async def part(self, stream: AsyncGenerator[T, None]) -> T:
        """The next part of `stream`. Raise Interrupted, or StopAsyncIteration at its end."""
        if self.ending is not None:
            raise Interrupted
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A run must be iterated by an asyncio task.")
        others = task.cancelling()
        self._task = task
        try:
            return await anext(stream)
        except asyncio.CancelledError:
            # Someone else may have cancelled the task as well: then that counts.
            if self._cancelled and task.cancelling() - 1 <= others:
                raise Interrupted from None
            raise
        finally:
            self._task = None
            if self._cancelled:
                self._cancelled = False
                task.uncancel()

    async def unless(self, work: Awaitable[T]) -> T | None:
        """Return the result of `work`; None if the run is interrupted first: then it is cancelled, and
        waited for."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done() and self.ending is None:
                waker = asyncio.ensure_future(self.woken())
                try:
                    await asyncio.wait({task, waker}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waker.cancel()
                    await asyncio.gather(waker, return_exceptions=True)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def woken(self) -> None:
        """Wait for `wake`; return at once if it came since the last wait."""
        if self._waker is None:
            self._waker = self.loop.create_future()
        try:
            await self._waker
        finally:
            self._waker = None

    def wake(self) -> None:
        if self._waker is None:
            self._waker = self.loop.create_future()
        if not self._waker.done():
            self._waker.set_result(None)


class Listener(Protocol):
    """The running loop, as its mailbox sees it."""

    def mail(self) -> None: ...

    def stop(self, reason: str) -> None: ...

    def waiting(self, call_id: str | None, begins: bool) -> None: ...


class Controls:
    """Made before the run starts: what arrives early waits for it."""

    __slots__ = (
        "_at_rest",
        "_compact",
        "_ended",
        "_follow_ups",
        "_held",
        "_listener",
        "_steers",
        "_stop",
        "_waits",
        "rested",
    )

    def __init__(self) -> None:
        # Lists, although taken from the front: an empty deque costs 0.7 kB in each of thousands of waiting runs.
        self._steers: list[UserMessage] = []
        self._follow_ups: list[UserMessage] = []
        # What a summary should keep, once shortening was asked for: often nothing in particular.
        self._compact: str | None = None
        self._stop: str | None = None
        self._waits: list[str | None] = []
        self._held = 0
        self._at_rest = False
        self.rested: Callable[[], None] = _nothing
        """Called when the agent has nothing left to do but to wait for runs of its own."""
        self._listener: Listener | None = None
        self._ended = False

    # What others do

    def steer(self, text: str, origin: Origin = "steer", images: Sequence[Image] = ()) -> bool:
        """Say `text` to the agent after its current tool calls, before the next request."""
        return self.tell(text, origin, images) is not None

    def tell(self, text: str, origin: Origin = "steer", images: Sequence[Image] = ()) -> UserMessage | None:
        """As `steer`. Return the message, which can be withdrawn until the agent hears it, or
        None when it cannot be told."""
        message = user(text, origin, images)
        return message if self.deliver(message) else None

    def deliver(self, message: UserMessage) -> bool:
        """Queue a message as `steer` does. Return False when the run takes none any more."""
        return self._put(self._steers, message)

    def follow_up(self, text: str, origin: Origin = "follow-up") -> bool:
        """Say `text` when the agent would otherwise be done."""
        return self._put(self._follow_ups, user(text, origin))

    def withdraw(self, message: UserMessage) -> bool:
        """Take back what was said with `steer`. False when the agent has heard it already."""
        before = len(self._steers)
        self._steers = [each for each in self._steers if each is not message]
        return len(self._steers) < before

    def stop(self, reason: str = "Stopped by the user.") -> bool:
        """End the run as `stopped`, keeping what it has said so far."""
        if self._ended:
            return False
        if self._stop is None:
            self._stop = reason
            if self._listener is not None:
                self._listener.stop(reason)
        return True

    def compact(self, wish: str = "") -> bool:
        """Shorten the conversation before the next request. `wish` says what its summary should keep."""
        if self._ended:
            return False
        self._compact = wish
        return True

    @contextmanager
    def waiting(self, call_id: str | None = None) -> Iterator[None]:
        """While a person or another run is waited for. Stops the idle clock, and the clock of
        the tool call `call_id` if the wait happens inside one."""
        self._wait(call_id, begins=True)
        try:
            yield
        finally:
            self._wait(call_id, begins=False)

    @contextmanager
    def keep_open(self) -> Iterator[None]:
        """The run does not end in here: instead it waits for steering or follow-ups. For
        children in the background whose results are still to come."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if self._listener is not None:
                self._listener.mail()

    # What others may ask

    @property
    def pending_steer(self) -> bool:
        return bool(self._steers)

    @property
    def pending(self) -> tuple[UserMessage, ...]:
        """Return what has not been delivered, in the order it would be."""
        return (*self._steers, *self._follow_ups)

    @property
    def stopping(self) -> bool:
        """Someone has asked the run to stop."""
        return self._stop is not None

    @property
    def is_waiting(self) -> bool:
        return bool(self._waits)

    @property
    def at_rest(self) -> bool:
        """Return whether the agent only waits for runs of its own: it reads nothing meanwhile."""
        return self._at_rest

    @property
    def ended(self) -> bool:
        return self._ended

    # What the loop does

    def attach(self, listener: Listener) -> None:
        """The loop begins to listen. Raise if another run does, or did."""
        if self._listener is not None or self._ended:
            raise RuntimeError("Controls belong to one run: make new ones for the next.")
        self._listener = listener

    def catch_up(self) -> None:
        """Tell the loop what came before it listened."""
        if self._listener is not None:
            for call_id in self._waits:
                self._listener.waiting(call_id, True)
            if self._stop is not None:
                self._listener.stop(self._stop)

    def close(self) -> None:
        """From here on nothing is accepted."""
        self._ended = True
        self._listener = None

    @property
    def held(self) -> bool:
        return self._held > 0

    @contextmanager
    def resting(self) -> Iterator[None]:
        """While the agent has answered and only others hold its run open."""
        self._at_rest = True
        try:
            with self.waiting():
                self.rested()
                yield
        finally:
            self._at_rest = False

    def take_steers(self) -> list[UserMessage]:
        taken, self._steers = self._steers, []
        return taken

    def take_follow_ups(self) -> list[UserMessage]:
        taken, self._follow_ups = self._follow_ups, []
        return taken

    def take_compact(self) -> str | None:
        """Return the wish of who asked for shortening; None when nobody did."""
        wish, self._compact = self._compact, None
        return wish

    def _put(self, box: list[UserMessage], message: UserMessage) -> bool:
        # A run that is being stopped reads nothing more: saying "delivered" would be a lie.
        if self._ended or self._stop is not None:
            return False
        box.append(message)
        if self._listener is not None:
            self._listener.mail()
        return True

    def _wait(self, call_id: str | None, *, begins: bool) -> None:
        if begins:
            self._waits.append(call_id)
        else:
            self._waits.remove(call_id)
        if self._listener is not None:
            self._listener.waiting(call_id, begins)


def _nothing() -> None:
    pass
