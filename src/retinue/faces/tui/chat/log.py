"""The conversation with the main agent on the screen, event by event."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace
from rich.text import Text
from textual import work
from textual.containers import VerticalScroll
from textual.widget import AwaitMount, Widget
from textual.widgets import Markdown, Static

from retinue.core.delegation import ChildView
from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    LimitReached,
    MessageAdded,
    Retrying,
    RunEnded,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Warned,
)
from retinue.core.format import retry_text
from retinue.core.messages import AssistantMessage, UserMessage
from retinue.core.messages import Thinking as Thought
from retinue.core.outcome import CUT_OFF, Outcome
from retinue.faces.text import optional
from retinue.faces.tui.board.text import clean, cut_lines, diff
from retinue.faces.tui.chat.folded import Folded, Thinking, ToolBlock, arguments, heading
from retinue.faces.tui.chat.notification import EndKey, NotificationBox
from retinue.runs.notification_text import notification

__all__ = ["Answer", "Notice", "Said", "Thinking", "ToolBlock", "arguments", "diff", "heading"]

SAID_LINES = 40
SAID_CHARACTERS = 8_000
FLUSH_SECONDS = 0.05
# Drawing streamed text may take one part of this many of the time: the rest is for the keys.
SHARE = 4


class Said(Static):
    """A person's words. A long paste is shown by its beginning."""

    def __init__(self, text: str) -> None:
        shown, missing = cut_lines(clean(text), SAID_LINES, SAID_CHARACTERS)
        more = optional("\n  … {:,} more lines", max(missing, 0))
        super().__init__(Text(f"❯ {shown}{more}"), classes="said")
        self.text = text


class Notice(Static):
    """Something the person should know: `kind` is `warning`, `error` or `info`."""

    def __init__(self, text: str, kind: str = "info") -> None:
        super().__init__(Text(clean(text)), classes=f"notice {kind}")


class Answer(Markdown):
    """The model's text, as it comes: pieces gather and are drawn together, the less often the
    longer drawing takes, so that neither keys nor other runs wait for it."""

    def __init__(self, text: str = "") -> None:
        super().__init__(clean(text), classes="answer", open_links=False)
        self._pieces: list[str] = []
        self._drawing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        # What it said before the output limit cut it off, where it goes on after that.
        self._before = ""

    def on_unmount(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()

    def write(self, piece: str) -> None:
        self._pieces.append(piece)
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._draw(), name="streamed text")

    def go_on(self) -> None:
        """Expect the rest of an answer that was cut off."""
        self._before = self.source
        self._hurry.clear()

    async def finish(self, text: str | None = None) -> None:
        """Draw everything: `text` where it differs from what was streamed."""
        if self._drawing is not None:
            self._hurry.set()
            await asyncio.gather(self._drawing, return_exceptions=True)
        if text is None or not self.is_attached:
            return
        whole = self._before + clean(text)
        if whole != self.source:
            await self.update(whole)

    async def _draw(self) -> None:
        while self._pieces and self.is_attached:
            text, self._pieces = "".join(self._pieces), []
            began = time.perf_counter()
            await self.append(clean(text))
            # The longer drawing takes, the longer the pause: neither keys nor other runs wait for it.
            pause = max(FLUSH_SECONDS, (time.perf_counter() - began) * (SHARE - 1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()


# Parts that are kept on the screen; older ones are in the log, and in the viewer.
MOST_BLOCKS = 300
CUT = 100
EARLIER = "Earlier parts of the conversation are not shown here; the viewer has all of it."


class ChatLog(VerticalScroll, can_focus=False):
    """Follows its end until someone scrolls up. Takes events of one run, live or from the log."""

    def __init__(self) -> None:
        super().__init__(id="chat")
        self._answer: Answer | None = None
        # The newest answer, where it was cut off at the output limit.
        self._cut_off: Answer | None = None
        self._thinking: Thinking | None = None
        self._tools: dict[str, ToolBlock] = {}
        self._waiting: deque[Event] = deque()
        self._busy = False
        # Ends that were shown before the main agent heard of them.
        self._early: set[EndKey] = set()
        self._cutting = False
        # Whether new tool calls are shown open.
        self.unfolded = False

    def on_mount(self) -> None:
        self.anchor()

    async def take(self, event: Event) -> None:
        match event.body:
            case TextDelta(text):
                self._open_answer().write(text)
            case ThinkingDelta(text):
                self._open_thinking().write(text)
            case AssistantEnded(message=message):
                await self._answered(message)
            case Retrying(attempt, delay, failure):
                await self._close_answer(None)
                self.add(Notice(retry_text(failure.message, delay, attempt), "warning"))
            case ToolStarted(call):
                self._tools[call.id] = block = ToolBlock(call)
                self._add_folded(block)
            case MessageAdded(message):
                self._said(message)
            case RunEnded(outcome):
                await self._close_answer(None)
                self._tools.clear()
                self._ended(outcome)
            case ToolProgress() | ToolEnded() | InboxOpened() | InboxClosed():
                self._tool_news(event.body)
            case _:
                notice = _notice(event.body)
                if notice is not None:
                    self.add(notice)

    async def show(self, events: Sequence[Event]) -> None:
        """Show an earlier conversation in place of this one; of a very long one its end."""
        await self.empty()
        with self.app.batch_update():
            if len(events) > MOST_BLOCKS * 3:
                self.add(Notice(EARLIER))
            for event in events[-MOST_BLOCKS * 3 :]:
                await self.take(event)
        self.anchor()

    def push(self, event: Event) -> None:
        """Take an event later, and in order: for callers that must not wait."""
        self._waiting.append(event)
        if not self._busy:
            self._busy = True
            self._drain()

    def add(self, block: Widget) -> AwaitMount:
        mounted = self.mount(block)
        if len(self.children) > MOST_BLOCKS + CUT and not self._cutting:
            self._cut()
        return mounted

    def tell_early(self, news: Sequence[ChildView], *, show_cost: bool) -> None:
        """Show completions that the main agent has yet to hear of, each once."""
        if not news:
            return
        text = notification([*news], group=len(news) > 1, show_cost=show_cost)
        box = NotificationBox.from_text(text, without=self._early)
        if box is not None and box.ends:
            self._early |= box.ends
            self.add(box)

    def fold_all(self) -> bool:
        """Open every tool call and thought, or fold them again. Return which."""
        self.unfolded = not self.unfolded
        for block in self.query(Folded):
            block.fold(not self.unfolded)
        return self.unfolded

    async def empty(self) -> None:
        self._answer, self._cut_off, self._thinking = None, None, None
        self._tools.clear()
        self._early.clear()
        self._waiting.clear()
        await self.remove_children()

    @work(group="chat")
    async def _drain(self) -> None:
        try:
            while self._waiting:
                try:
                    await self.take(self._next())
                except Exception as error:  # noqa: BLE001 - a part that cannot be drawn must not hide what comes after it
                    self.add(Notice(f"A part cannot be shown here ({type(error).__name__}: {error}).", "error"))
        finally:
            self._busy = False

    def _next(self) -> Event:
        """Return the next event; pieces of text that wait are taken together."""
        event = self._waiting.popleft()
        if not isinstance(event.body, TextDelta):
            return event
        pieces = [event.body.text]
        while self._waiting and isinstance(following := self._waiting[0].body, TextDelta):
            pieces.append(following.text)
            self._waiting.popleft()
        return replace(event, body=TextDelta("".join(pieces)))

    @work(group="cut")
    async def _cut(self) -> None:
        """Remove old parts, so that the screen stays quick however long the conversation is."""
        self._cutting = True
        try:
            # What is still at work stays: its next event must find it.
            at_work = {self._answer, self._thinking, *self._tools.values()}
            with self.app.batch_update():
                await self.remove_children([each for each in self.children[:-MOST_BLOCKS] if each not in at_work])
                await self.mount(Notice(EARLIER), before=0)
        finally:
            self._cutting = False

    def _add_folded(self, block: Folded) -> None:
        block.unfolded = block.unfolded or self.unfolded
        self.add(block)

    def _open_answer(self) -> Answer:
        if self._answer is None:
            self._answer = Answer()
            self.add(self._answer)
        return self._answer

    def _open_thinking(self) -> Thinking:
        if self._thinking is None:
            self._thinking = Thinking()
            self._add_folded(self._thinking)
        return self._thinking

    async def _answered(self, message: AssistantMessage) -> None:
        thought = "\n".join(part.text for part in message.content if isinstance(part, Thought) and part.text)
        if self._thinking is None and self._answer is None and thought:
            self._add_folded(Thinking(thought))
        was_cut = message.stop == "length" and not message.tool_calls
        if was_cut and self._answer is None:
            # It is drawn by the time that its rest comes.
            self._answer = Answer()
            await self.add(self._answer)
        answer = self._answer
        await self._close_answer(message.text)
        if was_cut:
            self._cut_off = answer

    async def _close_answer(self, text: str | None) -> None:
        """Finish the answer. `text` is the whole of it; where that is None, what was streamed stays."""
        answer, self._answer, self._thinking, self._cut_off = self._answer, None, None, None
        if answer is None and text and text.strip():
            self.add(Answer(text))
        elif answer is not None:
            await answer.finish(text)

    def _tool_news(self, body: ToolProgress | ToolEnded | InboxOpened | InboxClosed) -> None:
        block = self._tools.get(body.call_id or "")
        if block is None:
            return
        match body:
            case ToolProgress(text=text):
                block.progress(text)
            case ToolEnded(result=result, effect=effect, duration_ms=duration):
                del self._tools[body.call_id]
                block.finish(result, effect, duration)
            case InboxOpened():
                block.asking(True)
            case InboxClosed():
                block.asking(False)

    def _said(self, message: UserMessage) -> None:
        if message.origin == "notification":
            self._told(message.text)
        elif message.origin == "correction" and self._cut_off is not None:
            # The model is asked for the rest: both parts are one answer.
            self._cut_off.go_on()
            self._answer, self._cut_off = self._cut_off, None
        elif message.origin in ("task", "follow-up", "steer"):
            self.add(Said(message.text))

    def _told(self, text: str) -> None:
        """Show what a notification tells, without the ends that were shown before."""
        box = NotificationBox.from_text(text, without=self._early)
        if box is None:
            self.add(Notice(text))
        elif box.ends:
            self.add(box)

    def _ended(self, outcome: Outcome) -> None:
        if outcome.truncated:
            self.add(Notice(f"The answer was {CUT_OFF}. Say how to go on, and the rest can follow.", "warning"))
        if outcome.ok:
            return
        if outcome.ended == "stopped":
            self.add(Notice("Interrupted. What was said so far is kept; say how to go on.", "warning"))
        elif outcome.failure is not None:
            self.add(Notice(f"{outcome.failure.message} {outcome.failure.remedy}".strip(), "error"))


def _notice(body: Body) -> Notice | None:
    match body:
        case Warned(text=text):
            return Notice(text, "warning")
        case LimitReached(detail=detail):
            return Notice(detail, "warning")
        case Compacted(tokens_before=before, tokens_after=after):
            return Notice(f"The conversation was shortened: {before:,} to {after:,} tokens.")
        case _:
            return None
