"""The conversation with the main agent on the screen, event by event."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace
from textual import work
from textual.containers import VerticalScroll
from textual.widget import AwaitMount, Widget

from retinue.core.delegation import ChildView
from retinue.core.events import (
    MODE_CHANGED,
    AssistantEnded,
    Body,
    Compacted,
    Event,
    InboxClosed,
    InboxOpened,
    LimitReached,
    MessageAdded,
    Retrying,
    Rewound,
    RunEnded,
    RunResumed,
    TextDelta,
    ThinkingDelta,
    TodosUpdated,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Warned,
)
from retinue.core.format import retry_text
from retinue.core.messages import AssistantMessage, ToolCall, UserMessage
from retinue.core.messages import Thinking as Thought
from retinue.core.outcome import CUT_OFF, Outcome
from retinue.core.tool import Todo
from retinue.faces.tui.board.board import Board
from retinue.faces.tui.board.calls import SPAWNING, tool_of
from retinue.faces.tui.board.cards import RunCard, Window
from retinue.faces.tui.board.questions import agent_question, without_frames
from retinue.faces.tui.chat.answer import Answer, Notice, Said
from retinue.faces.tui.chat.folded import AgentBlock, Checklist, Folded, Thinking, ToolBlock
from retinue.faces.tui.chat.notification import EndKey, NotificationBox
from retinue.faces.tui.chat.question import QuestionBlock, QuestionBox
from retinue.runs.notification_text import notification
from retinue.runs.plan_mode import is_mode_notice
from retinue.runs.record import RESUME_PROMPT

# Parts that are kept on the screen; older ones are in the log, and in the viewer.
MOST_BLOCKS = 300
CUT = 100
# Parts that are put on the screen in one go.
AT_ONCE = 20
MOUNT_PAUSE = 0.02
EARLIER = "Earlier parts of the conversation are not shown here; the viewer has all of it."


class ChatLog(VerticalScroll, can_focus=False):
    """Shows the events of one run, live or from the log. `board` knows the agents that its calls start."""

    # The width does not change when the scroll bar appears: nothing is drawn twice.
    DEFAULT_CSS = "ChatLog { scrollbar-gutter: stable; }"

    def __init__(self, board: Board | None = None) -> None:
        super().__init__(id="chat")
        self._board = board or Board()
        self._checklist: Checklist | None = None
        self._questions: list[QuestionBox] = []  # of agents that still wait for an answer
        self._answer: Answer | None = None
        # The newest answer, where it was cut off at the output limit.
        self._cut_off: Answer | None = None
        self._thinking: Thinking | None = None
        self._tools: dict[str, ToolBlock] = {}
        self._waiting: deque[Event] = deque()
        self._busy = False
        # Parts of a conversation from the log: only those that stay are put on the screen.
        self._collected: list[Widget] | None = None
        # Ends that were shown before the main agent heard of them.
        self._early: set[EndKey] = set()
        self._cutting = False
        # Whether new tool calls are shown open.
        self.unfolded = False
        # The context sizes of models, for `paint`.
        self._window: Window = lambda model: None

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
            case Retrying(attempt, delay, failure, most=most):
                await self._withdraw_answer()
                self.add(Notice(retry_text(failure.message, delay, attempt, most), "warning"))
            case ToolStarted(call):
                self._start_call(call)
            case TodosUpdated(todos):
                await self._show_todos(todos)
            case MessageAdded(message):
                self._said(message)
            case RunEnded(outcome):
                await self._close_answer(None)
                self._tools.clear()
                self._ended(outcome)
            case ToolProgress() | ToolEnded() | InboxOpened() | InboxClosed() | RunResumed():
                self._tool_news(event.body)
            case _:
                notice = _notice(event.body)
                if notice is not None:
                    self.add(notice)

    async def show(self, events: Sequence[Event]) -> None:
        """Show an earlier conversation, or its end, in place of this one."""
        await self.empty()
        blocks: list[Widget] = []
        self._collected = blocks
        try:
            for event in events:
                await self.take(event)
        finally:
            self._collected = None
        shown = blocks[-MOST_BLOCKS:]
        if len(blocks) > MOST_BLOCKS or any(event.seq > 1 for event in events[:1]):
            shown.insert(0, Notice(EARLIER))
        await self.mount(*shown[-AT_ONCE:])
        self.anchor()
        if len(shown) > AT_ONCE:
            self._mount_earlier(shown[:-AT_ONCE])

    @work(group="earlier", exclusive=True)
    async def _mount_earlier(self, blocks: list[Widget]) -> None:
        """Put what is above the screen there, a few parts at a time: keys are heard meanwhile."""
        while blocks:
            await self.mount(*blocks[-AT_ONCE:], before=0)
            del blocks[-AT_ONCE:]
            await asyncio.sleep(MOUNT_PAUSE)

    def push(self, event: Event) -> None:
        """Take an event later, and in order: for callers that must not wait."""
        self._waiting.append(event)
        if not self._busy:
            self._busy = True
            self._drain()

    def add(self, block: Widget) -> AwaitMount:
        if self._collected is not None:
            self._collected.append(block)
            return AwaitMount(self, [])
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
        self._answer, self._cut_off, self._thinking, self._checklist = None, None, None, None
        self._tools.clear()
        self._early.clear()
        self._questions.clear()
        self._waiting.clear()
        self.workers.cancel_group(self, "earlier")
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

    def paint(self, now: float, window: Window, *, frame: int = 0, motion: bool = True) -> None:
        """Show agents that a call waits for as they stand now."""
        self._window = window
        self._paint_questions()
        at_work = [block for block in self._tools.values() if isinstance(block, AgentBlock)]
        if not at_work:
            return
        cards = {card.call_id: card for card in self._board.recent(now)}
        for block in at_work:
            card = cards.get(block.call.id)
            if card is not None:
                block.paint(card, now, window, frame=frame, motion=motion)

    def _paint_questions(self) -> None:
        for box in list(self._questions):
            card = self._board.cards.get(box.asked.agent_id)
            if card is not None and box.is_attached:
                box.paint(card)
            if box.is_settled:
                self._questions.remove(box)

    def _start_call(self, call: ToolCall) -> None:
        block = _block(call)
        self._tools[call.id] = block
        # The list itself shows what a call of `todo` did; a call that fails gets its line in the end.
        if tool_of(call) != "todo":
            self._add_folded(block)

    async def _show_todos(self, todos: Sequence[Todo]) -> None:
        """Show the list where the conversation is now. There is one; a list that was done stays where it ended."""
        last = self._checklist
        if last is not None and not last.is_done:
            await self._take_away(last)
        self._checklist = Checklist(todos)
        self.add(self._checklist)

    async def _take_away(self, block: Widget) -> None:
        if self._collected is not None and block in self._collected:
            self._collected.remove(block)
        elif block.is_attached:
            await block.remove()

    def _card_of(self, call_id: str) -> RunCard | None:
        for card in self._board.cards.values():
            if card.call_id == call_id:
                return card
        return None

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

    async def _withdraw_answer(self) -> None:
        """Take back what was streamed of an answer that is asked for again: the model never said it. What it said
        before the output limit cut it off stays."""
        if self._thinking is not None:
            await self._take_away(self._thinking)
            self._thinking = None
        if self._answer is None:
            return
        await self._answer.finish("")
        if self._answer.source:
            self._answer.go_on()
        else:
            await self._take_away(self._answer)
            self._answer = None

    def _tool_news(self, body: ToolProgress | ToolEnded | InboxOpened | InboxClosed | RunResumed) -> None:
        if isinstance(body, RunResumed):
            # Of a killed process: no answer reaches these calls any more.
            for cut in self._tools.values():
                cut.cut_off()
            self._tools.clear()
            return
        block = self._tools.get(body.call_id or "")
        if block is None:
            return
        match body:
            case ToolProgress(text=text):
                block.progress(text)
            case ToolEnded():
                del self._tools[body.call_id]
                self._finish_call(block, body)
            case InboxOpened():
                block.asking(True)
            case InboxClosed():
                block.asking(False)

    def _finish_call(self, block: ToolBlock, body: ToolEnded) -> None:
        if isinstance(block, AgentBlock):
            card = self._card_of(body.call_id)
            if card is not None and not card.live:
                block.paint(card, card.ended_at or 0.0, self._window)
        block.finish(body.result, body.effect, body.duration_ms)
        if body.result.is_error and tool_of(block.call) == "todo":
            self._add_folded(block)

    def _said(self, message: UserMessage) -> None:
        if message.origin == "notification":
            self._told(message.text)
        elif message.origin == "correction" and self._cut_off is not None:
            # The model is asked for the rest: both parts are one answer.
            self._cut_off.go_on()
            self._answer, self._cut_off = self._cut_off, None
        elif message.text == RESUME_PROMPT:
            self.add(Notice("It goes on from where it was."))
        elif message.origin in ("task", "follow-up", "steer"):
            self.add(Said(message.text))

    def _told(self, text: str) -> None:
        """Show what a notification tells, without the ends that were shown before."""
        if is_mode_notice(text) or text.startswith("<observer-report>"):
            # The person chose the mode, which the status line shows; a report was shown when it came.
            return
        asked = agent_question(text)
        if asked is not None:
            question = QuestionBox(asked)
            self._questions.append(question)
            self.add(question)
            return
        box = NotificationBox.from_text(text, without=self._early)
        if box is None:
            self.add(Notice(without_frames(text)))
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


def _block(call: ToolCall) -> ToolBlock:
    if call.name in SPAWNING:
        return AgentBlock(call)
    if tool_of(call) == "ask_user":
        return QuestionBlock(call)
    return ToolBlock(call)


def _notice(body: Body) -> Notice | None:
    match body:
        case Warned(code=code) if code == MODE_CHANGED:
            # The status line shows the mode.
            return None
        case Warned(text=text):
            return Notice(text, "warning")
        case LimitReached(detail=detail):
            return Notice(detail, "warning")
        case Rewound():
            return Notice("You went back to here. What came after it stays in the log: /rewind lists it.")
        case Compacted(tokens_before=before, tokens_after=after):
            return Notice(f"The conversation was shortened: {before:,} to {after:,} tokens.")
        case _:
            return None
