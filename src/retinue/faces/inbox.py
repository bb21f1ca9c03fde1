"""The inbox for programs: what waits for an answer, and answering it.

    async with Retinue(".") as retinue:
        async for item in retinue.inbox:
            await retinue.inbox.answer(item.id, "allow" if item.risk == "low" else "deny", "Not now.")

While someone iterates, runs of this process wait for the answers instead of being denied.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from retinue.core.permission import InboxAnswer, InboxItem

if TYPE_CHECKING:
    from retinue.guard.inbox_service import Approver
    from retinue.runs.project import Project

LOOK_SECONDS = 0.1

# True allows once and False denies; a text is one of the item's options or, for a question, the answer; None leaves
# it to others, such as `retinue inbox answer`.
Said = bool | str | InboxAnswer | None
Approve = Callable[[InboxItem], Said | Awaitable[Said]]


class Inbox:
    """The inbox of one project: items of all its runs, in whichever process they are."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def items(self, *, all: bool = False) -> list[InboxItem]:
        """Return what waits, oldest first; with `all` also what was answered, expired or withdrawn."""
        from retinue.log.inbox import items

        return [each.item for each in items(self._project.log.reader, everything=all)]

    async def answer(self, item_id: str, choice: str, message: str = "", *, by: str = "program") -> InboxItem:
        """Answer an item by its id or the beginning of it, and return it as it is then. Raise
        UnknownItemError, UsageError for what is no answer to it, and AnsweredError when someone
        else was first."""
        from retinue.log.inbox import find

        item = find(self._project.log.reader, item_id)
        return await self._project.inbox_service.answer(item, InboxAnswer(choice, self._project.redactor(message), by))

    async def __aiter__(self) -> AsyncIterator[InboxItem]:
        """Yield what waits now, and every new item as it comes, each once. Ends with the task."""
        project = self._project
        inbox_service, seen, version = project.inbox_service, set[str](), -1
        inbox_service.attended += 1
        try:
            while True:
                now = project.log.reader.version()
                if now != version:
                    version = now
                    for item in self.items():
                        if item.id not in seen:
                            seen.add(item.id)
                            yield item
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            inbox_service.attended -= 1


def approver(approve: Approve) -> Approver:
    """Return `approve` as the inbox service calls it. A plain function runs in a thread, so that it may take its
    time. What it raises, or returns that is no answer, denies."""

    async def ask(item: InboxItem) -> InboxAnswer | None:
        if inspect.iscoroutinefunction(approve) or inspect.iscoroutinefunction(type(approve).__call__):
            said = approve(item)
        else:
            said = await asyncio.to_thread(approve, item)
        if inspect.isawaitable(said):
            said = await said
        if said is None or isinstance(said, InboxAnswer):
            return said
        if isinstance(said, bool):
            said = "allow" if said else "deny"
        return InboxAnswer(str(said), by="program")

    return ask
