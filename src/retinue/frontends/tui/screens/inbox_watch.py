"""Watches the inbox, and shows new items as a count in the status line, as a banner, or in the inbox itself.

While the app is open a person can answer, so that runs of this process wait instead of being denied. The inbox opens by
itself only if it takes no keys from the person: the prompt is empty, no other screen is open, and the run belongs to
this process. Otherwise a banner describes the item.

An answer to a conversation whose process was killed resumes the conversation, regardless of where the answer was given.
"""

from __future__ import annotations

import time

from textual.css.query import NoMatches

from retinue.app.approvals import exact_line
from retinue.app.text import optional
from retinue.core.events import Event, InboxClosed, InboxOpened
from retinue.core.permission import InboxItem
from retinue.errors import RetinueError
from retinue.frontends.tui.editor.prompt import Prompt
from retinue.frontends.tui.frame import Frame, sentence

READ_SECONDS = 5.0


class InboxWatch:
    """Updates the app for changes of the inbox. It receives every event of the feed, and is closed with the app."""

    def __init__(self, app: Frame) -> None:
        self._app = app
        self._project = app.retinue.supervisor.project
        self._ids: tuple[str, ...] | None = None
        self._read_at = 0.0
        self._known: set[str] = set()
        self._project.inbox_service.attended += 1
        self._inbox = app.retinue.inbox
        self._leave = self._inbox.listen(self.look)
        app.call_after_refresh(self.look)

    def take(self, event: Event) -> None:
        if isinstance(event.body, InboxOpened | InboxClosed):
            self._app.call_after_refresh(self.look)

    def close(self) -> None:
        self._leave()
        self._project.inbox_service.attended -= 1

    def beat(self) -> None:
        """Look again after a while, because items expire without an event."""
        if time.monotonic() - self._read_at >= READ_SECONDS:
            self.look()

    def look(self) -> None:
        """Show the waiting items of every process, from the log."""
        try:
            ids, now = self._inbox.waiting_ids(), time.monotonic()
            if ids == self._ids and now - self._read_at < READ_SECONDS:
                return
            rows = self._inbox.rows() if ids else ()
            gone = self._inbox.closed(tuple(self._known.difference(ids)))
        except RetinueError:
            # The writers of runs report a log that cannot be read.
            return
        self._ids, self._read_at = ids, now
        waiting = [entry.item for entry in rows]
        new = [item for item in waiting if item.id not in self._known]
        self._known = {item.id for item in waiting}
        self._app.facts["inbox"] = len(waiting)
        self._app.banner.show("inbox", banner(waiting))
        # It does not open by itself for items of other processes, which another person may be watching.
        if any(self._is_ours(item) for item in new) and self._may_open():
            self._app.run_worker(self._app.open_screen("inbox", True), name="inbox", exclusive=False)
        if any(item.state == "answered" and item.run_id == self._app.session.main_id for item in gone):
            self._app.run_worker(self._take_up(), name="answered", exclusive=False)

    async def _take_up(self) -> None:
        try:
            await self._app.session.take_up()
        except RetinueError as error:
            self._app.tell(sentence(error), "error")

    def _is_ours(self, item: InboxItem) -> bool:
        node = self._app.retinue.supervisor.members.get(item.run_id)
        return node is not None and node.live

    def _may_open(self) -> bool:
        if len(self._app.screen_stack) != 1:
            return bool(getattr(self._app.screen, "shows_inbox", False))
        try:
            return not self._app.screen_stack[0].query_one(Prompt).text.strip()
        except NoMatches:
            return False


def banner(waiting: list[InboxItem]) -> str:
    """Return `? F2 to answer · Explore: edit src/a.py, and 2 more`."""
    if not waiting:
        return ""
    first = waiting[0]
    others = optional(", and {} more", len(waiting) - 1)
    return f"? F2 to answer · {exact_line(first.agent, 30)}: {exact_line(first.title, 120)}{others}"
