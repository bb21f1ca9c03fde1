"""Events by name for programs that use Retinue: `retinue.events`.

    off = retinue.events.on("subagents:completed", lambda data: print(data["id"], data["result"]))
    async for name, data in retinue.events.stream("subagents:created", "subagents:failed"): ...

Names and fields are those of pi-subagents, so that programs for its bus work here as well. The events are made from
events of the log after their commit, and only while there are listeners. A failed handler is reported to the logger
`retinue.events` and affects nothing else.
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
"""The events that Retinue publishes. Programs may use any other name among themselves."""
BUS_NAMES: frozenset[str] = frozenset(get_args(BusName))
FORWARDED_NAMES = frozenset(f"subagents:{name}" for name in ("created", "started", "completed", "failed", "compacted"))
"""The events that are published for runs at any depth; others only for runs one level below the listener."""


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
            return name in FORWARDED_NAMES or not nested
        return self.within in above and (name in FORWARDED_NAMES or above[0] == self.within)


class EventBus:
    """Delivers events to listeners. Use it from one event loop. `listener_added` is called for each new listener."""

    def __init__(self, listener_added: Callable[[], None] = lambda: None) -> None:
        self._listener_added = listener_added
        self._listeners: dict[int, _Listener] = {}
        self._next_key = 0
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def has_listeners(self) -> bool:
        """Whether anyone listens to the events of Retinue."""
        return any(not listener.names or listener.names & BUS_NAMES for listener in self._listeners.values())

    def is_listened_to(self, name: str) -> bool:
        """Return whether anyone listens to the event `name`."""
        return any(not listener.names or name in listener.names for listener in self._listeners.values())

    def on(self, name: str, handler: Handler, *, within: str | None = None) -> Callable[[], None]:
        """Call `handler`, which may be a coroutine function, with the data of every future event `name`. `within` is
        the id of a run and limits the events to runs below it. Return a function that removes the handler."""
        return self._add(frozenset({name}), within, lambda event: self._call(handler, event))

    def stream(self, *names: str, within: str | None = None) -> Stream:
        """Return an async iterator over the future events with these names, or over all events."""
        stream = Stream()
        stream.end = self._add(frozenset(names), within, stream.push)
        return stream

    def emit(self, name: str, data: Data, *, above: tuple[str, ...] = (), nested: bool = False) -> None:
        """Deliver an event. `above` are the runs above the event's run, the nearest first; `nested`: a sub-agent has
        started the run. Events between programs have neither."""
        event = BusEvent(name, data)
        for listener in list(self._listeners.values()):
            if listener.wants(name, above, nested):
                listener.take(event)

    def _add(self, names: frozenset[str], within: str | None, take: Callable[[BusEvent], None]) -> Callable[[], None]:
        self._next_key += 1
        key = self._next_key
        self._listeners[key] = _Listener(names, within, take)
        self._listener_added()

        def remove() -> None:
            self._listeners.pop(key, None)

        return remove

    def _call(self, handler: Handler, event: BusEvent) -> None:
        try:
            result = handler(event.data)
            if asyncio.iscoroutine(result):
                self.spawn(result, event.name)
        except Exception as error:  # noqa: BLE001 - a handler must not affect the run
            _report(event.name, error)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Run a handler's coroutine as a task, and report its failure."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[object]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                _report(name, error)

        task.add_done_callback(done)


class Stream(EventQueue[BusEvent]):
    """All events of the bus in order, until `close` or the end of an `async with`."""

    def __init__(self) -> None:
        super().__init__()
        self.end: Callable[[], None] = lambda: None

    def unsubscribe(self) -> None:
        self.end()


def _report(name: str, error: BaseException) -> None:
    import logging

    logging.getLogger("retinue.events").error("A handler of %s failed.", name, exc_info=error)
