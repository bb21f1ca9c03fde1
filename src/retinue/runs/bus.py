"""Events by name for programs that use Retinue: `retinue.events`.

    off = retinue.events.on("subagents:completed", lambda data: print(data["id"], data["result"]))
    async for name, data in retinue.events.stream("subagents:created", "subagents:failed"): ...

Names and fields are those of pi-subagents, so that what was written for its bus reads the same
here. They are made from the events of the log, after those are in the file, and only while
someone listens. A handler that fails is reported to the logger `retinue.events` and harms nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, NamedTuple, get_args

from retinue.log.follow import EventQueue

Data = Mapping[str, Any]
Handler = Callable[[Data], object]

BusName = Literal[
    "subagents:created",
    "subagents:started",
    "subagents:completed",
    "subagents:failed",
    "subagents:steered",
    "subagents:compacted",
    "subagents:scheduled",
    "subagents:scheduler_ready",
    "subagents:ready",
    "subagents:settings_loaded",
    "subagents:settings_changed",
]
"""What Retinue publishes. Any other name may be used between programs."""
NAMES: frozenset[str] = frozenset(get_args(BusName))
FORWARDED = frozenset(f"subagents:{name}" for name in ("created", "started", "completed", "failed", "compacted"))
"""What is published of runs at any depth; the rest only of those one level below the listener."""


class BusEvent(NamedTuple):
    name: str
    data: Data


class _Listener(NamedTuple):
    names: frozenset[str]
    within: str | None
    take: Callable[[BusEvent], None]

    def wants(self, name: str, above: tuple[str, ...], nested: bool) -> bool:
        if self.names and name not in self.names:
            return False
        if self.within is None:
            return name in FORWARDED or not nested
        return self.within in above and (name in FORWARDED or above[0] == self.within)


class EventBus:
    """Use from one event loop. `listened` is called when someone begins to listen."""

    def __init__(self, listened: Callable[[], None] = lambda: None) -> None:
        self._listened = listened
        self._listeners: dict[int, _Listener] = {}
        self._numbers = 0
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def heard(self) -> bool:
        """Whether anyone listens to what Retinue says by itself."""
        return any(not each.names or each.names & NAMES for each in self._listeners.values())

    def hears(self, name: str) -> bool:
        """Return whether anyone listens to the event `name`."""
        return any(not each.names or name in each.names for each in self._listeners.values())

    def on(self, name: str, handler: Handler, *, within: str | None = None) -> Callable[[], None]:
        """Call `handler` with the data of every event `name` from now on; it may be a coroutine
        function. `within` is the id of a run: then only what is below it is heard. Return a
        function that ends it."""
        return self._add(frozenset({name}), within, lambda event: self._call(handler, event))

    def stream(self, *names: str, within: str | None = None) -> Stream:
        """The events of these names, or all, as an async iterator from now on."""
        stream = Stream()
        stream.end = self._add(frozenset(names), within, stream.push)
        return stream

    def emit(self, name: str, data: Data, *, above: tuple[str, ...] = (), nested: bool = False) -> None:
        """Tell everyone who listens. `above` are the runs above the one it is about, the
        nearest first; `nested` that it was started by a sub-agent. Events between programs
        have neither."""
        event = BusEvent(name, data)
        for listener in list(self._listeners.values()):
            if listener.wants(name, above, nested):
                listener.take(event)

    def _add(self, names: frozenset[str], within: str | None, take: Callable[[BusEvent], None]) -> Callable[[], None]:
        self._numbers += 1
        number = self._numbers
        self._listeners[number] = _Listener(names, within, take)
        self._listened()

        def leave() -> None:
            self._listeners.pop(number, None)

        return leave

    def _call(self, handler: Handler, event: BusEvent) -> None:
        try:
            result = handler(event.data)
            if asyncio.iscoroutine(result):
                self.spawn(result, event.name)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not the run's fault
            _report(event.name, error)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Let a handler's work go on by itself."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[object]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                _report(name, error)

        task.add_done_callback(done)


class Stream(EventQueue[BusEvent]):
    """Events of the bus in order, none left out, until `close` or the end of an `async with`."""

    def __init__(self) -> None:
        super().__init__()
        self.end: Callable[[], None] = lambda: None

    def unsubscribe(self) -> None:
        self.end()


def _report(name: str, error: BaseException) -> None:
    import logging

    logging.getLogger("retinue.events").error("A handler of %s failed.", name, exc_info=error)
