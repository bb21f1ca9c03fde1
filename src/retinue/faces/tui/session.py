"""The conversation with the main agent, without a terminal: what happens to what a person says.

    idle       nothing runs: the first words start the main agent, later ones take it up again
    working    it is at work: words wait in `queue` and are said before its next request
    holding    it has answered and only waits for its background agents: words are said at once

Interrupting stops the main agent and its foreground work, never a background agent. What the
interrupted agent said so far stays; nothing goes on until the person speaks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from retinue.domain.events import AssistantEnded, Event, RunEnded, TurnEnded, TurnStarted
from retinue.faces.api import Retinue

if TYPE_CHECKING:
    from retinue.supervisor.handle import RunHandle

State = Literal["idle", "working", "holding"]


class Session:
    """One main run, through all its legs. `changed` is called when the state or the queue did."""

    def __init__(
        self,
        crew: Retinue,
        *,
        agent: str | None = None,
        changed: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self._crew = crew
        self._agent = agent
        self._options = options
        self._changed = changed
        self._final = False
        self.run: RunHandle | None = None
        self.main_id: str | None = None
        self.state: State = "idle"
        self.queue: list[str] = []

    async def say(self, text: str) -> Literal["sent", "queued"]:
        """Raises RetinueError when the main agent cannot start; the words are not lost then, the
        caller still has them."""
        if self.state == "working":
            self.queue.append(text)
            self._changed()
            return "queued"
        if self.state == "holding" and self.run is not None and self.run.steerer(text):
            return "sent"
        await self._begin(text)
        return "sent"

    def interrupt(self) -> bool:
        """Stops what the main agent does in the foreground. False when it does nothing."""
        return self.run is not None and self.state == "working" and self.run.stopper("Interrupted by the user.")

    async def resend(self) -> bool:
        """Interrupts, and sends what waits as the next turn; with nothing waiting it only
        interrupts. On failure what waits is put back."""
        run = self.run
        if not self.interrupt() or run is None:
            return False
        waiting, self.queue = self.queue, []
        await run.wait()
        if waiting:
            try:
                await self._begin("\n\n".join(waiting))
            except BaseException:
                self.queue = waiting + self.queue
                raise
        return True

    def unqueue(self) -> str:
        """Takes back what waits, for the editor."""
        text = "\n\n".join(self.queue)
        self.queue.clear()
        self._changed()
        return text

    def compact(self) -> bool:
        """Shortens the conversation before the next request; only while the run lives."""
        return self.run is not None and self.run.outcome is None and self.run.controls.compact()

    def open(self, run_id: str) -> None:
        """The next words go on with this run of the log."""
        self.main_id, self.run, self.state = run_id, None, "idle"
        self.queue.clear()
        self._changed()

    def clear(self) -> None:
        """The next words start a new conversation. The old one stays in the log."""
        self.main_id, self.run, self.state = None, None, "idle"
        self._changed()

    def observe(self, event: Event) -> None:
        """Every event of the main run, in order."""
        match event.body:
            case TurnStarted():
                self._become("working")
            case AssistantEnded(message=message):
                self._final = not message.tool_calls and message.failure is None
            case TurnEnded():
                if self.queue and self.run is not None:
                    self._flush(self.run)
                elif self._final:
                    self._become("holding")
            case RunEnded():
                self._become("idle")
            case _:
                pass

    async def _begin(self, text: str) -> None:
        """A new leg of the main run, or its first."""
        if self.main_id is None:
            self.run = await self._crew.prompt(text, agent=self._agent, **self._options)
        else:
            self.run = await self._crew.resume(self.main_id, text)
        self.main_id = self.run.id
        self._become("working")

    async def pump(self) -> bool:
        """After the main run ended: what still waits begins the next leg. False when nothing does."""
        if self.state != "idle" or not self.queue:
            return False
        waiting, self.queue = self.queue, []
        try:
            await self._begin("\n\n".join(waiting))
        except BaseException:
            self.queue = waiting + self.queue
            raise
        return True

    def _flush(self, run: RunHandle) -> None:
        """Between two turns: what waits is said, in order. The run may end just now; then it
        stays in the queue for the next leg."""
        while self.queue and run.steerer(self.queue[0]):
            self.queue.pop(0)
        self._changed()

    def _become(self, state: State) -> None:
        self.state = state
        self._changed()
