"""The conversation with the main agent on the screen, event by event."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from textual import work
from textual.containers import VerticalScroll
from textual.widget import AwaitMount, Widget

from retinue.app.call_text import SPAWNING, tool_of
from retinue.core.events import Event, TextDelta
from retinue.core.messages import ChildAsked, ChildrenEnded, ModeNotice, UserMessage
from retinue.core.outcome import CUT_OFF, Outcome
from retinue.core.run_state import ActiveRun
from retinue.core.story import Entry, Story, StoryStep, Topic
from retinue.core.tool import Todo
from retinue.frontends.tui.board.board import Board
from retinue.frontends.tui.board.cards import RunCard, Window
from retinue.frontends.tui.board.questions import asked_question, without_frames
from retinue.frontends.tui.chat.answer import Answer, Notice, Said
from retinue.frontends.tui.chat.folded import AgentBlock, Checklist, Folded, Thinking, ToolBlock
from retinue.frontends.tui.chat.notification import EndKey, NotificationBox
from retinue.frontends.tui.chat.question import QuestionBlock, QuestionBox
from retinue.runs.notifications import ending

# Blocks that stay on the screen. Older ones are in the log and in the viewer.
MAX_BLOCKS = 300
CUT_BLOCKS = 100
# Blocks that are mounted at once.
BLOCKS_PER_MOUNT = 20
MOUNT_PAUSE_SECONDS = 0.02
# The displayed notes, each with its kind.
NOTES: Mapping[Topic | None, str] = {
    "compacted": "info",
    "limit": "warning",
    "plan": "warning",
    "retry": "warning",
    "rewound": "info",
    "warning": "warning",
}
EARLIER = "Earlier parts of the conversation are not shown here; the viewer has all of it."


class ChatLog(VerticalScroll, can_focus=False):
    """Shows the events of one run, live or from the log. `board` has the agents that its calls start."""

    # The width does not change when the scroll bar appears: nothing is drawn twice.
    DEFAULT_CSS = "ChatLog { scrollbar-gutter: stable; }"

    def __init__(self, board: Board | None = None) -> None:
        super().__init__(id="chat")
        self._board = board or Board()
        self._checklist: Checklist | None = None
        self._questions: list[QuestionBox] = []  # of agents that still wait for an answer
        self._story = Story()
        # Entries that may still change. One widget may show both an answer that was cut off and its continuation.
        self._answers: dict[Entry, Answer] = {}
        self._thoughts: dict[Entry, Thinking] = {}
        self._tools: dict[Entry, ToolBlock] = {}
        self._waiting: deque[Event] = deque()
        self._busy = False
        # Blocks of a conversation from the log, before the newest of them are mounted.
        self._collected: list[Widget] | None = None
        # Whether the run was resumed without a prompt, so that its next message is the default one.
        self._continues = False
        # Ends of agents that were shown before the main agent was told of them.
        self._early: set[EndKey] = set()
        self._cutting = False
        # Whether new tool calls are open.
        self.unfolded = False
        # The context sizes of models, for `paint`.
        self._window: Window = lambda model: None

    def on_mount(self) -> None:
        self.anchor()

    async def take(self, event: Event) -> None:
        for step in self._story.take(event.body, event.seq, event.at):
            if step.change == "grew":
                self._grow(step)
            else:
                await self._take_step(step)

    def _grow(self, step: StoryStep) -> None:
        entry = step.entry
        if entry.kind == "answer":
            self._answers[entry].write(step.piece)
        elif entry.kind == "thinking":
            self._thoughts[entry].write(step.piece)
        elif entry in self._tools:
            self._tools[entry].progress(step.piece)

    async def _take_step(self, step: StoryStep) -> None:
        entry = step.entry
        match entry.kind:
            case "answer":
                await self._take_answer(step)
            case "thinking":
                await self._take_thought(step)
            case "call":
                self._take_call(step)
            case "todos":
                await self._show_todos(entry.todos)
            case "message" if entry.message is not None:
                self._said(entry.message)
            case "note" if entry.topic == "resumed":
                self._continues = not entry.detail
            case "note" if entry.topic in NOTES:
                self.add(Notice(entry.text, NOTES[entry.topic]))
            case "ended" if entry.outcome is not None:
                self._ended(entry.outcome)
            case _:
                pass

    async def show(self, events: Sequence[Event]) -> None:
        """Replace this conversation on the screen by an earlier one, or by its end."""
        await self.empty()
        blocks: list[Widget] = []
        self._collected = blocks
        try:
            for event in events:
                await self.take(event)
        finally:
            self._collected = None
        shown = blocks[-MAX_BLOCKS:]
        if len(blocks) > MAX_BLOCKS or any(event.seq > 1 for event in events[:1]):
            shown.insert(0, Notice(EARLIER))
        await self.mount(*shown[-BLOCKS_PER_MOUNT:])
        self.anchor()
        if len(shown) > BLOCKS_PER_MOUNT:
            self._mount_earlier(shown[:-BLOCKS_PER_MOUNT])

    @work(group="earlier", exclusive=True)
    async def _mount_earlier(self, blocks: list[Widget]) -> None:
        """Mount the blocks above the visible screen, a few at a time, so that the app keeps responding to keys."""
        while blocks:
            await self.mount(*blocks[-BLOCKS_PER_MOUNT:], before=0)
            del blocks[-BLOCKS_PER_MOUNT:]
            await asyncio.sleep(MOUNT_PAUSE_SECONDS)

    def push(self, event: Event) -> None:
        """Queue an event, to be shown in order, for callers that must not wait."""
        self._waiting.append(event)
        if not self._busy:
            self._busy = True
            self._drain()

    def add(self, block: Widget) -> AwaitMount:
        if self._collected is not None:
            self._collected.append(block)
            return AwaitMount(self, [])
        mounted = self.mount(block)
        if len(self.children) > MAX_BLOCKS + CUT_BLOCKS and not self._cutting:
            self._cut()
        return mounted

    def tell_early(self, news: Sequence[ActiveRun], *, show_cost: bool) -> None:
        """Show completions of which the main agent has not been told yet, each once."""
        if not news:
            return
        notice = ChildrenEnded(tuple(map(ending, news)), group=len(news) > 1)
        box = NotificationBox(notice, without=self._early)
        if box.ends:
            self._early |= box.ends
            self.add(box)

    def fold_all(self) -> bool:
        """Open every folded block, or fold all of them again. Return whether they are open now."""
        self.unfolded = not self.unfolded
        for block in self.query(Folded):
            block.fold(not self.unfolded)
        return self.unfolded

    async def empty(self) -> None:
        self._story, self._checklist = Story(), None
        for open_entries in (self._answers, self._thoughts, self._tools):
            open_entries.clear()
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
        """Return the next event. Waiting pieces of text are joined."""
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
        """Remove old blocks, so that the screen stays fast in a long conversation."""
        self._cutting = True
        try:
            # A block that may still change stays, because its next event needs it.
            at_work = {*self._answers.values(), *self._thoughts.values(), *self._tools.values()}
            with self.app.batch_update():
                await self.remove_children([block for block in self.children[:-MAX_BLOCKS] if block not in at_work])
                await self.mount(Notice(EARLIER), before=0)
        finally:
            self._cutting = False

    def paint(self, now: float, window: Window, *, frame: int = 0, motion: bool = True) -> None:
        """Show the current state of the agents for which calls wait."""
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

    async def _show_todos(self, todos: Sequence[Todo]) -> None:
        """Show the to-do list at the end of the conversation. A completed list stays in its position, and a new one
        begins."""
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

    async def _take_answer(self, step: StoryStep) -> None:
        entry = step.entry
        match step.change:
            case "added":
                self._answers[entry] = self._open_answer(entry)
            case "ended":
                answer = self._answers.pop(entry, None) or self._open_answer(entry)
                await answer.finish(entry.text)
                if entry.continues is not None:
                    self._answers.pop(entry.continues, None)
                if entry.cut_off:
                    self._answers[entry] = answer
            case "void":
                await self._withdraw_answer(self._answers.pop(entry))
            case _:
                pass

    def _open_answer(self, entry: Entry) -> Answer:
        """Return the widget of an answer. The continuation of an answer that was cut off gets the same widget."""
        beginning = self._answers.get(entry.continues) if entry.continues is not None else None
        if beginning is not None:
            beginning.go_on()
            return beginning
        answer = Answer()
        self.add(answer)
        return answer

    async def _withdraw_answer(self, answer: Answer) -> None:
        """Remove the streamed text of an answer that is requested again, because it does not become part of the
        conversation. Text before a cut by the output limit stays."""
        await answer.finish("")
        if not answer.source:
            await self._take_away(answer)

    async def _take_thought(self, step: StoryStep) -> None:
        entry = step.entry
        match step.change:
            case "added":
                self._thoughts[entry] = Thinking()
                self._add_folded(self._thoughts[entry])
            case "ended" if self._thoughts.pop(entry, None) is None:
                self._add_folded(Thinking(entry.text))
            case "void":
                await self._take_away(self._thoughts.pop(entry))
            case _:
                pass

    def _take_call(self, step: StoryStep) -> None:
        entry = step.entry
        if step.change == "began" and entry.call is not None:
            block = self._tools[entry] = _block(entry)
            # The to-do list shows the effect of a `todo` call. A failed call gets its own line when it ends.
            if tool_of(entry.call) != "todo":
                self._add_folded(block)
            return
        shown = self._tools.get(entry)
        if shown is None:
            return
        if step.change != "ended":
            shown.redraw()
            return
        del self._tools[entry]
        if isinstance(shown, AgentBlock) and entry.result is not None:
            card = self._card_of(shown.call.id)
            if card is not None and not card.live:
                shown.paint(card, card.ended_at or 0.0, self._window)
        shown.end()
        if entry.state == "failed" and tool_of(shown.call) == "todo":
            self._add_folded(shown)

    def _said(self, message: UserMessage) -> None:
        if message.origin == "notification":
            self._told(message)
        elif message.origin in ("follow-up", "steer") and self._continues:
            self._continues = False
            self.add(Notice("It goes on from where it was."))
        elif message.origin in ("task", "follow-up", "steer"):
            self.add(Said(message.text))

    def _told(self, message: UserMessage) -> None:
        """Show a notification, without the ends of agents that were shown before."""
        match message.notice:
            case ModeNotice():
                # The person chose the mode, and the status line shows it.
                return
            case ChildAsked() as asked:
                question = QuestionBox(asked_question(asked))
                self._questions.append(question)
                self.add(question)
            case ChildrenEnded() as notice:
                box = NotificationBox(notice, without=self._early)
                if box.ends:
                    self.add(box)
            case _:
                self.add(Notice(without_frames(message.text)))

    def _ended(self, outcome: Outcome) -> None:
        if outcome.truncated:
            self.add(Notice(f"The answer was {CUT_OFF}. Say how to go on, and the rest can follow.", "warning"))
        if outcome.ok:
            return
        if outcome.ended == "stopped":
            self.add(Notice("Interrupted. What was said so far is kept; say how to go on.", "warning"))
        elif outcome.failure is not None:
            self.add(Notice(f"{outcome.failure.message} {outcome.failure.remedy}".strip(), "error"))


def _block(entry: Entry) -> ToolBlock:
    assert entry.call is not None, "the entry is a call"
    if entry.call.name in SPAWNING:
        return AgentBlock(entry)
    if tool_of(entry.call) == "ask_user":
        return QuestionBlock(entry)
    return ToolBlock(entry)
