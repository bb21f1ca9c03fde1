"""The conversation with a main agent that another process runs."""

from __future__ import annotations

from collections.abc import Callable

from retinue.core.events import AssistantEnded, Event, RunEnded, RunResumed, TurnEnded, TurnStarted
from retinue.faces.feed.feed import Feed, command_text
from retinue.faces.tui.session import Delivery, State
from retinue.log.query import LogReader
from retinue.runs.record import parse_mention, without_prefix


class Attached:
    """A conversation whose main run works in another process: watched through the log, spoken to through the log's
    commands. Leaving it changes nothing for the run. Nothing is ever `waiting`: words go to the other process at once,
    which says them before the run's next request."""

    def __init__(self, feed: Feed, run_id: str, *, changed: Callable[[], None] = lambda: None) -> None:
        self._feed = feed
        self._changed = changed
        self._final = False
        # It has ended in its process: it can be taken up here.
        self.over = False
        self.main_id: str | None = run_id
        self.state: State = "working"
        self.waiting: tuple[str, ...] = ()

    async def say(self, text: str) -> Delivery:
        """Say something to the run, or to an agent of it. Raise CommandRefusedError when it cannot take it."""
        run_id, words, agent = await self._feed.read(self._find_run, text)
        await self._feed.say(run_id, words, by="")
        if agent:
            return Delivery("steered", agent)
        return Delivery("sent")

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
        match event.body:
            case TurnStarted():
                self._become("working")
            case AssistantEnded(message=message):
                self._final = not message.tool_calls and message.failure is None
            case TurnEnded():
                if self._final:
                    self._become("holding")
            case RunEnded():
                self.over = True
                self._become("idle")
            case RunResumed():
                self.over = False
            case _:
                pass

    async def pump(self) -> bool:
        return False

    def _find_run(self, reader: LogReader, text: str) -> tuple[str, str, str]:
        """Return the run that is meant, the words for it, and its name if it is not the main one."""
        mention = parse_mention(text)
        if mention is not None and self.main_id is not None:
            if mention.handle == "main":
                return self.main_id, mention.message, ""
            names = {mention.handle, without_prefix(mention.handle)}
            for row in reader.list_runs(parent_id=self.main_id):
                first = reader.created(row.id)
                if first is not None and first.options.get("name") in names:
                    return row.id, mention.message, mention.handle
        return self.main_id or "", text, ""

    def _become(self, state: State) -> None:
        self.state = state
        self._changed()
