"""A conversation whose main run works in another process: watched through the log, spoken to
through the log's commands. Leaving it changes nothing for the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from retinue.core.events import AssistantEnded, Event, RunEnded, RunResumed, TurnEnded, TurnStarted
from retinue.errors import StateError
from retinue.faces.tui.session import Delivery, State
from retinue.log.commands import CommandKind, RunCommand, send
from retinue.log.query import LogReader
from retinue.log.replay import replay
from retinue.runs.handles import parse_mention, without_prefix


class Attached:
    """`queue` is always empty: words go to the other process at once, which says them before the
    run's next request."""

    def __init__(self, folder: Path, run_id: str, *, changed: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._changed = changed
        self._final = False
        self.over = False
        """It has ended in its process: it can be taken up here."""
        self.main_id: str | None = run_id
        self.state: State = "working"
        self.queue: list[str] = []

    async def say(self, text: str) -> Delivery:
        """Raises StateError when the run cannot take it."""
        run_id, words, agent = self._addressed(text)
        answer = await self._send(run_id, "steer", words)
        if not answer[0]:
            raise StateError(answer[1])
        return Delivery("steered" if agent else "sent", agent)

    def interrupt(self) -> bool:
        """Esc of someone who watches stops nothing in another process."""
        return False

    async def resend(self) -> bool:
        return False

    def unqueue(self) -> str:
        return ""

    async def compact(self) -> str:
        return (await self._send(self.main_id or "", "compact"))[1]

    async def stop(self) -> str:
        """Ends the run and everything below it, in its process."""
        return (await self._send(self.main_id or "", "stop-tree"))[1]

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

    async def _send(self, run_id: str, kind: CommandKind, text: str = "") -> tuple[bool, str]:
        (answer,) = await send(self._folder, [RunCommand(run_id, kind, text)])
        return answer.accepted, answer.text

    def _addressed(self, text: str) -> tuple[str, str, str]:
        """The run that is meant, the words for it, and its name if it is not the main one."""
        mention = parse_mention(text)
        if mention is not None and self.main_id is not None:
            if mention.handle == "main":
                return self.main_id, mention.message, ""
            names = {mention.handle, without_prefix(mention.handle)}
            with LogReader.open(self._folder) as reader:
                for row in reader.list_runs(parent_id=self.main_id):
                    first = replay(reader.events(row.id, limit=1)).created
                    if first is not None and first.options.get("name") in names:
                        return row.id, mention.message, mention.handle
        return self.main_id or "", text, ""

    def _become(self, state: State) -> None:
        self.state = state
        self._changed()
