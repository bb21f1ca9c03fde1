"""The inbox for programs: read what waits for an answer, and answer it.

    async with Retinue(".") as retinue:
        async for item in retinue.inbox:
            await retinue.inbox.answer(item.id, "allow" if item.risk == "low" else "deny", "Not now.")

While a program iterates, questions of runs in this process wait for its answers instead of being denied.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.permission import InboxAnswer, InboxItem, InboxRow
from retinue.errors import RetinueError
from retinue.log.inbox import closed, find, items, locate, waiting_ids
from retinue.log.query import LogReader, everywhere
from retinue.settings.places import retinue_state

if TYPE_CHECKING:
    from retinue.guard.inbox_service import Approver
    from retinue.runs.project import Project

INBOX_POLL_SECONDS = 0.25

# True allows once and False denies. A text is one of the item's options or, for a question, the answer. None leaves
# the decision to others, such as `retinue inbox answer`.
ApprovalResult = bool | str | InboxAnswer | None
Approve = Callable[[InboxItem], ApprovalResult | Awaitable[ApprovalResult]]


def list_inbox(folder: Path | None, *, everything: bool = False, limit: int | None = None) -> list[InboxRow]:
    """Return the waiting items of the project with that state folder, or of all projects, oldest first; with
    `everything` also the answered, expired and withdrawn ones."""

    def read(reader: LogReader) -> list[InboxRow]:
        return items(reader, everything=everything, limit=limit)

    if folder is None:
        return [row for _, rows in everywhere(retinue_state(), read) for row in rows]
    with LogReader.open(folder) as reader:
        return read(reader)


def locate_item(item_id: str, first: Path) -> tuple[Path, InboxItem]:
    """Find an item by its id or a prefix of it. Return its state folder and the item; `first` is searched first."""
    return locate(retinue_state(), item_id, first)


class Inbox:
    """The inbox of one project, with the items of runs in all processes."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._listeners: list[Callable[[], object]] = []
        self._version = -1
        self._timer: asyncio.Handle | None = None

    def items(self, *, all: bool = False) -> list[InboxItem]:
        """Return the waiting items, oldest first; with `all` also the answered, expired and withdrawn ones."""
        return [row.item for row in items(self._project.log.reader, everything=all)]

    async def answer(self, item_id: str, choice: str, message: str = "", *, by: str = "program") -> InboxItem:
        """Answer an item by its id or a prefix of it, and return the closed item. Raise UnknownItemError, UsageError
        for an invalid answer, and AnsweredError if someone answered first."""
        item = find(self._project.log.reader, item_id)
        return await self._project.inbox_service.answer(item, InboxAnswer(choice, self._project.redactor(message), by))

    async def __aiter__(self) -> AsyncIterator[InboxItem]:
        """Yield the waiting items, and then every new one, each once, until the task is cancelled."""
        inbox_service, seen, changed = self._project.inbox_service, set[str](), asyncio.Event()
        inbox_service.attended += 1
        leave = self.listen(changed.set)
        try:
            while True:
                changed.clear()
                for item in self.items():
                    if item.id not in seen:
                        seen.add(item.id)
                        yield item
                await changed.wait()
        finally:
            leave()
            inbox_service.attended -= 1

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` when the waiting items may have changed, in any process, until the returned function is
        called. One timer serves all listeners; it reads only the number of the log's last change."""
        self._listeners.append(listener)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._look)
        return lambda: self._listeners.remove(listener)

    def _look(self) -> None:
        self._timer = None
        if not self._listeners:
            return
        self._timer = asyncio.get_running_loop().call_later(INBOX_POLL_SECONDS, self._look)
        try:
            version = self._project.log.reader.version()
        except RetinueError:
            # The writers of runs report a log that cannot be read.
            return
        if version != self._version:
            self._version = version
            for listener in tuple(self._listeners):
                listener()

    def rows(self, limit: int | None = None, *, everything: bool = False) -> list[InboxRow]:
        """Return the waiting items, oldest first, with the state of each run; with `everything` also the closed ones.
        `limit` keeps the newest."""
        return items(self._project.log.reader, everything=everything, limit=limit)

    def waiting_ids(self) -> tuple[str, ...]:
        """Return the ids of the waiting items, oldest first."""
        return waiting_ids(self._project.log.reader)

    def closed(self, ids: Sequence[str]) -> list[InboxItem]:
        """Return the given items that are no longer waiting."""
        return closed(self._project.log.reader, ids)


def approver(approve: Approve) -> Approver:
    """Adapt `approve` to the inbox service. A plain function runs in a thread. An exception or an invalid answer
    denies."""

    async def ask(item: InboxItem) -> InboxAnswer | None:
        if inspect.iscoroutinefunction(approve) or inspect.iscoroutinefunction(type(approve).__call__):
            answer = approve(item)
        else:
            answer = await asyncio.to_thread(approve, item)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None or isinstance(answer, InboxAnswer):
            return answer
        if isinstance(answer, bool):
            answer = "allow" if answer else "deny"
        return InboxAnswer(str(answer), by="program")

    return ask
