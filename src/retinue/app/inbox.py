"""The inbox for programs: what waits for an answer, and answering it.

    async with Retinue(".") as retinue:
        async for item in retinue.inbox:
            await retinue.inbox.answer(item.id, "allow" if item.risk == "low" else "deny", "Not now.")

While someone iterates, runs of this process wait for the answers instead of being denied.
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

# True allows once and False denies; a text is one of the item's options or, for a question, the answer; None leaves
# it to others, such as `retinue inbox answer`.
ApprovalResult = bool | str | InboxAnswer | None
Approve = Callable[[InboxItem], ApprovalResult | Awaitable[ApprovalResult]]


def list_inbox(folder: Path | None, *, everything: bool = False, limit: int | None = None) -> list[InboxRow]:
    """Return what waits in the project with that state folder, or in all for None, oldest first; with `everything` also
    what was answered, expired or withdrawn."""

    def read(reader: LogReader) -> list[InboxRow]:
        return items(reader, everything=everything, limit=limit)

    if folder is None:
        return [row for _, rows in everywhere(retinue_state(), read) for row in rows]
    with LogReader.open(folder) as reader:
        return read(reader)


def locate_item(item_id: str, first: Path) -> tuple[Path, InboxItem]:
    """Return an item by its id or the beginning of it, and the state folder it is in: `first` is looked at first."""
    return locate(retinue_state(), item_id, first)


class Inbox:
    """The inbox of one project: items of all its runs, in whichever process they are."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._listeners: list[Callable[[], object]] = []
        self._version = -1
        self._timer: asyncio.Handle | None = None

    def items(self, *, all: bool = False) -> list[InboxItem]:
        """Return what waits, oldest first; with `all` also what was answered, expired or withdrawn."""
        return [row.item for row in items(self._project.log.reader, everything=all)]

    async def answer(self, item_id: str, choice: str, message: str = "", *, by: str = "program") -> InboxItem:
        """Answer an item by its id or the beginning of it, and return it as it is then. Raise
        UnknownItemError, UsageError for what is no answer to it, and AnsweredError when someone
        else was first."""
        item = find(self._project.log.reader, item_id)
        return await self._project.inbox_service.answer(item, InboxAnswer(choice, self._project.redactor(message), by))

    async def __aiter__(self) -> AsyncIterator[InboxItem]:
        """Yield what waits now, and every new item as it comes, each once. Ends with the task."""
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
        """Call `listener` whenever what waits may have changed, by whichever process, until the returned function is
        called. One clock looks for all listeners, and only at the number of the log's last change."""
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
            # A log that cannot be read is reported by those who write runs.
            return
        if version != self._version:
            self._version = version
            for listener in tuple(self._listeners):
                listener()

    def rows(self, limit: int | None = None, *, everything: bool = False) -> list[InboxRow]:
        """Return what waits, oldest first, with the state of each run; with `everything` also what was answered,
        expired or withdrawn. `limit` keeps the newest."""
        return items(self._project.log.reader, everything=everything, limit=limit)

    def waiting_ids(self) -> tuple[str, ...]:
        """Return the ids of what waits, oldest first."""
        return waiting_ids(self._project.log.reader)

    def closed(self, ids: Sequence[str]) -> list[InboxItem]:
        """Return those of the items that do not wait any more."""
        return closed(self._project.log.reader, ids)


def approver(approve: Approve) -> Approver:
    """Return `approve` as the inbox service calls it. A plain function runs in a thread, so that it may take its
    time. What it raises, or returns that is no answer, denies."""

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
