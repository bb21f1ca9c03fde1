"""Where a viewer's events come from, and where its orders go: a run of this process, one of
another process, or one that has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.events import TRANSIENT, Event, TextDelta
from retinue.core.states import LIVE

if TYPE_CHECKING:
    from retinue.log.commands import CommandKind
    from retinue.log.rows import RunRow
    from retinue.runs.crew import Supervisor
    from retinue.runs.member import Member

BATCH = 500
LOOK_AGAIN_SECONDS = 1.0
"""How often a run that is at rest elsewhere is asked whether someone took it up again."""


class Lost:
    """In place of an event: the process of the run is gone."""

    def __init__(self, at: float) -> None:
        self.at = at


class RunSource:
    """One run of the project of `crew`. Nothing here blocks the event loop."""

    def __init__(self, crew: Supervisor, run_id: str) -> None:
        self._crew = crew
        self._folder: Path = crew.world.state
        self.run_id = run_id
        self._after = 0

    @property
    def member(self) -> Member | None:
        """The run, if it is one of this process."""
        return self._crew.members.get(self.run_id)

    async def row(self) -> RunRow:
        """How it stands in the log. Raises UnknownRunError."""
        return await asyncio.to_thread(_row, self._folder, self.run_id)

    async def events(self) -> AsyncGenerator[Event | Lost, None]:
        """Everything from its first event on, then what happens, also after it is taken up
        again. Ends only when it is closed, or with the log."""
        while True:
            async for written in self._written():
                yield written
            async with aclosing(self._here() if self.member is not None else self._elsewhere()) as stream:
                async for event in stream:
                    yield event
            if not self._crew.opened:
                return

    async def steer(self, text: str) -> str:
        """Says what became of it."""
        member = self.member
        if member is not None and member.live:
            when = "when it starts" if member.status == "queued" else "after its current tool calls"
            said = self._crew.steer(member, text)
            return f"It reads this {when}." if said else "Not delivered: it has just ended."
        return await self._order("steer", self._crew.world.redactor(text))

    async def stop(self) -> str:
        member = self.member
        if member is not None and member.live:
            return "It is stopping." if self._crew.stop(member, "Stopped by the user.") else "It has just ended."
        return await self._order("stop")

    async def _order(self, kind: CommandKind, text: str = "") -> str:
        from retinue.log.commands import Command, send

        command = Command(self.run_id, kind, text)
        answers = await asyncio.to_thread(lambda: asyncio.run(send(self._folder, [command])))
        return answers[0].text

    async def _written(self) -> AsyncGenerator[Event, None]:
        """What is in the log and was not given yet, page by page."""
        while True:
            found = await asyncio.to_thread(_events, self._folder, self.run_id, self._after)
            for event in found:
                self._after = event.seq
                yield event
            if len(found) < BATCH:
                return

    async def _here(self) -> AsyncGenerator[Event | Lost, None]:
        """Live, until the run has ended; then it waits for its next leg."""
        log = self._crew.world.log
        await log.flush()
        subscription = log.subscribe(run_id=self.run_id)
        try:
            # No await from the flush to here: what the file has not yet, the subscription will.
            for event in log.reader.events(self.run_id, self._after):
                self._after = event.seq
                yield event
            partial = log.reader.partial(self.run_id)
            if partial and self.member is not None:
                place = self.member.handle.place
                yield Event(place.run_id, place.parent_id, place.root_id, self._after, time.time(), TextDelta(partial))
            async for event in subscription:
                if event.seq > self._after or (event.seq == self._after and isinstance(event.body, TRANSIENT)):
                    self._after = event.seq
                    yield event
        finally:
            subscription.close()

    async def _elsewhere(self) -> AsyncGenerator[Event | Lost, None]:
        """As the log grows, while another process runs it. At rest it is looked at now and then:
        someone may take it up again, here or there."""
        from retinue.log.follow import follow

        at_rest = False
        while self.member is None:
            row = await self.row()
            if row.state in LIVE:
                at_rest = False
                async for event in follow(self._folder, self.run_id, self._after):
                    self._after = max(self._after, event.seq)
                    yield event
                row = await self.row()
            if row.state == "interrupted" and not at_rest:
                yield Lost(row.updated_at)
            at_rest = True
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


def _events(folder: Path, run_id: str, after: int) -> list[Event]:
    from retinue.log.query import Reader

    with Reader.open(folder) as reader:
        return reader.events(run_id, after, BATCH)


def _row(folder: Path, run_id: str) -> RunRow:
    from retinue.log.query import Reader

    with Reader.open(folder) as reader:
        return reader.run(run_id)
