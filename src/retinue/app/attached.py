"""The conversation with a main agent that another process runs."""

from __future__ import annotations

from collections.abc import Callable

from retinue.app.feed import Feed, command_text
from retinue.app.progress import Phase, State
from retinue.app.session import Delivery
from retinue.core.events import Event, RunEnded, RunResumed


class Attached:
    """A conversation whose main run works in another process: watched through the log, spoken to through the log's
    commands. Leaving it changes nothing for the run. Nothing is ever `waiting`: words go to the other process at once,
    which says them before the run's next request."""

    def __init__(self, feed: Feed, run_id: str, *, changed: Callable[[], None] = lambda: None) -> None:
        self._feed = feed
        self._changed = changed
        self._phase = Phase()
        # It has ended in its process: it can be taken up here.
        self.over = False
        self.main_id: str | None = run_id
        self.state: State = "working"
        self.waiting: tuple[str, ...] = ()

    async def say(self, text: str) -> Delivery:
        """Say something to the run, or to an agent of it. Raise CommandRefusedError when it cannot take it."""
        answer = await self._feed.say(self.main_id or "", text, by="")
        if answer.run_id == self.main_id:
            return Delivery("sent")
        return Delivery("steered", text.split()[0].removeprefix("@"))

    def interrupt(self) -> bool:
        """Return False: Esc of someone who watches stops nothing in another process."""
        return False

    async def resend(self) -> bool:
        return False

    def unqueue(self) -> str:
        return ""

    async def compact(self, wish: str = "") -> str:
        return await command_text(self._feed.compact(self.main_id or "", wish, by=""))

    async def stop(self) -> str:
        """End the run and everything below it, in its process. Return what became of it."""
        return await command_text(self._feed.stop(self.main_id or "", by="", tree=True))

    def observe(self, event: Event) -> None:
        if isinstance(event.body, (RunEnded, RunResumed)):
            self.over = isinstance(event.body, RunEnded)
        state = self._phase.take(event.body)
        if state is not None:
            self._become(state)

    async def pump(self) -> bool:
        return False

    def _become(self, state: State) -> None:
        self.state = state
        self._changed()
