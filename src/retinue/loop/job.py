"""The inputs of one run of the loop, frozen before it starts, and the controls with which other tasks steer and stop
it.

The loop charges every request to a `LoopAccount` and asks it before the next one; the supervisor gives each run the
account of its position in the tree.

Other tasks of the same event loop call the methods of `Controls`. Each returns at once and reports whether the run
still accepts the order. Messages are delivered in order and exactly once. A run that has ended accepts none, so no
message is reported as delivered that was not.

While a run waits for its model it is one task, suspended in the model's stream. A limit or a person that stops the run
cancels exactly this wait, as `asyncio.timeout` does: the cancellation is undone when it arrives here, unless another
task cancelled the run as well.
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
from retinue.loop.ending import Ending
from retinue.loop.submission import SUBMIT


class Verdict(NamedTuple):
    """Why no ordinary request is allowed. With `wrap_up`, one more is allowed, which asks the agent to finish."""

    limit: LimitName
    text: str
    wrap_up: bool = False


class LoopAccount(Protocol):
    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        """Record usage. It is never refused, because it has already happened."""
        ...

    def verdict(self) -> Verdict | None:
        """Return why the next request is not allowed; None if it is. Called before each request."""
        ...

    def calls_left(self) -> int | None:
        """Return how many tool calls are left; None if they are not limited."""
        ...


class Unlimited:
    """The account of a run without a shared budget."""

    def charge(self, usage: Usage, *, turns: int = 0, tool_calls: int = 0) -> None:
        return None

    def verdict(self) -> None:
        return None

    def calls_left(self) -> None:
        return None


UNLIMITED = Unlimited()


class Compaction(Struct, frozen=True):
    """When and how the conversation is shortened.

    `at` is the share of the model's window that may be full before a request. With None, only overflow errors and
    people start a compaction. The newest `keep_turns` turns stay unchanged."""

    at: float | None = 0.85
    keep_turns: int = 3


class Job(Struct, frozen=True, kw_only=True):
    """The inputs of one run.

    `past` is the conversation in the log: its usage continues, while turns, tool calls and time start from zero.
    `messages` are new (the task, or the prompt of a resume) and are announced first. `system` and `tools` never change
    during the run. `late_tools` is called before every request, and the tools that it returns are added permanently.

    Permission checks, hooks and audits are wrappers around the tools; the loop has no options for them. `remind`
    returns text that must survive a compaction, such as the running children."""

    system: str
    messages: tuple[UserMessage, ...]
    context: ToolContext
    past: Conversation = field(default_factory=Conversation)
    tools: tuple[Tool, ...] = ()
    limits: Limits = field(default_factory=Limits)
    account: LoopAccount = UNLIMITED
    """The budget that the run shares with its tree: charged after every request, checked before the next."""
    thinking: str | None = None
    temperature: float | None = None
    max_output: int | None = None
    schema: Mapping[str, Any] | bool | None = None
    accept: Callable[[Any], object] | None = None
    """Raises ValueError for a result that matches the schema and is wrong for another reason."""
    compaction: Compaction = field(default_factory=Compaction)
    parallel_calls: int = 16
    cancel_seconds: float = 5.0
    """The time that a cancelled tool has for cleaning up before it is left behind."""
    remind: Callable[[], str] = str
    absent: Callable[[str], str] = lambda name: ""
    """Returns why the run lacks an existing tool, as a sentence for the model; empty if the reason is not known."""
    late_tools: Callable[[], tuple[Tool, ...]] = tuple
    """Returns tools that have become available: of a server that was slow, or by a tool search."""
    request_headers: Callable[[], Mapping[str, str]] = dict
    """Returns additional headers for the next request to the model."""
    before_end: Callable[[], Awaitable[str | None]] | None = None
    """Called when the run would end with success. A returned text is its next instruction."""
    before_compact: Callable[[str], Awaitable[str | None]] | None = None
    """Called with the reason before a compaction. A returned text is the reason not to compact."""
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


Item = TypeVar("Item")


class Interrupted(Exception):  # noqa: N818 - it is a signal between two functions, not an error
    """The wait was interrupted; `Interrupt.ending` has the reason."""


class Interrupt:
    """Interrupts the waits of a run. The first `ending` stays; later ones are ignored."""

    __slots__ = ("_cancelled", "_task", "_waker", "ending", "loop")

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self.loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False
        self._waker: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether the run is waiting for its model."""
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
            # The model itself called this in the middle of its step. A cancellation now could take effect
            # anywhere later, so it waits until the step has ended or is suspended.
            self.loop.call_soon(self._cut)
        else:
            self._cut()

    def _cut(self) -> None:
        if self._task is not None:
            self._cancelled = True
            self._task.cancel()

    async def next_item(self, stream: AsyncGenerator[Item, None]) -> Item:
        """Return the next item of `stream`. Raise Interrupted, or StopAsyncIteration at its end."""
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
            # If another task cancelled it as well, that cancellation continues.
            if self._cancelled and task.cancelling() - 1 <= others:
                raise Interrupted from None
            raise
        finally:
            self._task = None
            if self._cancelled:
                self._cancelled = False
                task.uncancel()

    async def unless(self, work: Awaitable[Item]) -> Item | None:
        """Return the result of `work`. If the run is interrupted first, cancel `work`, wait for it and return None."""
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
        """Wait for `wake`. Return at once if it was called since the last wait."""
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
    """The running loop, as seen by its controls."""

    def wake(self) -> None: ...

    def stop(self, reason: str) -> None: ...

    def waiting(self, call_id: str | None, begins: bool) -> None: ...


class Controls:
    """The mailbox of a run. It exists before the run starts, so early messages wait for it."""

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
        # The wish of the person who asked for a compaction: empty if they gave none, None if nobody asked.
        self._compact: str | None = None
        self._stop: str | None = None
        self._waits: list[str | None] = []
        self._held = 0
        self._at_rest = False
        self.rested: Callable[[], None] = _nothing
        """Called when the agent only waits for its own runs."""
        self._listener: Listener | None = None
        self._ended = False

    # Orders from outside

    def steer(self, text: str, origin: Origin = "steer", images: Sequence[Image] = ()) -> bool:
        """Send `text` to the agent after its current tool calls, before the next request."""
        return self.tell(text, origin, images) is not None

    def tell(self, text: str, origin: Origin = "steer", images: Sequence[Image] = ()) -> UserMessage | None:
        """Do the same as `steer`. Return the message, which can be withdrawn until it is delivered, or None if the run
        accepts none."""
        message = user(text, origin, images)
        return message if self.deliver(message) else None

    def deliver(self, message: UserMessage) -> bool:
        """Queue a message as `steer` does. Return False if the run accepts no more messages."""
        return self._put(self._steers, message)

    def follow_up(self, text: str, origin: Origin = "follow-up") -> bool:
        """Send `text` when the agent would otherwise be done."""
        return self._put(self._follow_ups, user(text, origin))

    def withdraw(self, message: UserMessage) -> bool:
        """Withdraw a message of `steer`. Return False if it has been delivered."""
        before = len(self._steers)
        self._steers = [queued for queued in self._steers if queued is not message]
        return len(self._steers) < before

    def stop(self, reason: str = "Stopped by the user.") -> bool:
        """End the run as `stopped`. Its text so far is kept."""
        if self._ended:
            return False
        if self._stop is None:
            self._stop = reason
            if self._listener is not None:
                self._listener.stop(reason)
        return True

    def compact(self, wish: str = "") -> bool:
        """Shorten the conversation before the next request. The summary keeps the content named in `wish`."""
        if self._ended:
            return False
        self._compact = wish
        return True

    @contextmanager
    def waiting(self, call_id: str | None = None) -> Iterator[None]:
        """Stop the idle clock while a person or another run is waited for, and the clock of the tool call `call_id` if
        the wait happens inside one."""
        self._wait(call_id, begins=True)
        try:
            yield
        finally:
            self._wait(call_id, begins=False)

    @contextmanager
    def keep_open(self) -> Iterator[None]:
        """Keep the run from ending: it waits for messages instead. Used while results of background children are
        missing."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if self._listener is not None:
                self._listener.wake()

    # Queries from outside

    @property
    def pending_steer(self) -> bool:
        return bool(self._steers)

    @property
    def pending(self) -> tuple[UserMessage, ...]:
        """Return the messages that have not been delivered, in order of delivery."""
        return (*self._steers, *self._follow_ups)

    @property
    def stopping(self) -> bool:
        """Return whether the run has been asked to stop."""
        return self._stop is not None

    @property
    def is_waiting(self) -> bool:
        return bool(self._waits)

    @property
    def at_rest(self) -> bool:
        """Return whether the agent only waits for its own runs."""
        return self._at_rest

    @property
    def ended(self) -> bool:
        return self._ended

    # Methods for the loop

    def attach(self, listener: Listener) -> None:
        """Connect the loop. Raise RuntimeError if another run is or was connected."""
        if self._listener is not None or self._ended:
            raise RuntimeError("Controls belong to one run: make new ones for the next.")
        self._listener = listener

    def catch_up(self) -> None:
        """Pass on the orders that came before the loop was connected."""
        if self._listener is not None:
            for call_id in self._waits:
                self._listener.waiting(call_id, True)
            if self._stop is not None:
                self._listener.stop(self._stop)

    def close(self) -> None:
        """Accept no more orders."""
        self._ended = True
        self._listener = None

    @property
    def held(self) -> bool:
        return self._held > 0

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Mark the agent as at rest: it has answered, and only its children keep the run open."""
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
        """Return the wish of the person who asked for a compaction; None if nobody did."""
        wish, self._compact = self._compact, None
        return wish

    def _put(self, box: list[UserMessage], message: UserMessage) -> bool:
        # A run that is being stopped reads no more messages, so none may be reported as delivered.
        if self._ended or self._stop is not None:
            return False
        box.append(message)
        if self._listener is not None:
            self._listener.wake()
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
