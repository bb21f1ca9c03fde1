"""The conversation with the main agent on the screen, event by event."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from textual import work
from textual.containers import VerticalScroll
from textual.widget import Widget

from retinue.domain.events import (
    AssistantEnded,
    Body,
    Compacted,
    Event,
    LimitReached,
    MessageAdded,
    Retrying,
    RunEnded,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    Warned,
)
from retinue.domain.messages import UserMessage
from retinue.domain.outcome import Outcome
from retinue.faces.tui.chat.blocks import Answer, Notice, Said, Thinking, ToolBlock


class ChatLog(VerticalScroll):
    """Follows its end until someone scrolls up. Takes events of one run, live or from the log."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="chat")
        self._answer: Answer | None = None
        self._thinking: Thinking | None = None
        self._tools: dict[str, ToolBlock] = {}
        self._waiting: deque[Event] = deque()
        self._busy = False

    def on_mount(self) -> None:
        self.anchor()

    async def take(self, event: Event) -> None:
        match event.body:
            case TextDelta(text):
                await self._open_answer().write(text)
            case ThinkingDelta(text):
                self._open_thinking().write(text)
            case AssistantEnded(message=message):
                await self._close_answer(message.text)
            case Retrying(failure=failure, delay=delay):
                await self._close_answer(None)
                self.add(Notice(f"{failure.message} Trying again in {delay:.0f} s.", "warning"))
            case ToolStarted(call):
                self._tools[call.id] = block = ToolBlock(call)
                self.add(block)
            case ToolEnded(result=result):
                started = self._tools.pop(event.body.call_id, None)
                if started is not None:
                    started.finish(result)
            case MessageAdded(message):
                self._said(message)
            case RunEnded(outcome):
                await self._close_answer(None)
                self._ended(outcome)
            case _:
                notice = _notice(event.body)
                if notice is not None:
                    self.add(notice)

    def push(self, event: Event) -> None:
        """As `take`, later and in order: for whoever must not wait."""
        self._waiting.append(event)
        if not self._busy:
            self._busy = True
            self._drain()

    @work(group="chat")
    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self.take(self._next())
        finally:
            self._busy = False

    def _next(self) -> Event:
        """The next event; pieces of text that wait are taken together."""
        event = self._waiting.popleft()
        if not isinstance(event.body, TextDelta):
            return event
        pieces = [event.body.text]
        while self._waiting and isinstance(following := self._waiting[0].body, TextDelta):
            pieces.append(following.text)
            self._waiting.popleft()
        return replace(event, body=TextDelta("".join(pieces)))

    def add(self, block: Widget) -> None:
        self.mount(block)

    async def empty(self) -> None:
        self._answer, self._thinking = None, None
        self._tools.clear()
        await self.remove_children()

    def _open_answer(self) -> Answer:
        if self._answer is None:
            self._answer = Answer()
            self.add(self._answer)
        return self._answer

    def _open_thinking(self) -> Thinking:
        if self._thinking is None:
            self._thinking = Thinking()
            self.add(self._thinking)
        return self._thinking

    async def _close_answer(self, text: str | None) -> None:
        """`text` is the whole answer; what was streamed of it stays where it is None."""
        if self._answer is None and text and text.strip():
            self.add(Answer(text))
        elif self._answer is not None:
            await self._answer.finish(text)
        self._answer, self._thinking = None, None

    def _said(self, message: UserMessage) -> None:
        if message.origin == "notification":
            self.add(Notice(message.text))
        elif message.origin in ("task", "follow-up", "steer"):
            self.add(Said(message.text))

    def _ended(self, outcome: Outcome) -> None:
        if outcome.ok:
            return
        if outcome.ended == "stopped":
            self.add(Notice("Interrupted.", "warning"))
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
