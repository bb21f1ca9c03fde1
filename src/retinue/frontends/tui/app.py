"""The terminal app: it composes the screen and handles keys. Other modules do the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from textual import work
from textual.app import ComposeResult

import retinue.frontends.tui.report_commands  # noqa: F401 - it registers its commands
from retinue.app.conversation import AttachedConversation, read_end
from retinue.app.model_choice import is_without_model
from retinue.app.modes import next_mode
from retinue.app.progress import WorkProgress
from retinue.app.prompt_history import PromptHistory
from retinue.app.retinue import Retinue
from retinue.app.run_events import ProcessEvents, read_conversation
from retinue.app.session import ActiveConversation, Session
from retinue.app.text import optional
from retinue.core.delegation import LIVE
from retinue.core.events import FILE_PROBLEM, MISSING, Event, RunEnded, Warned
from retinue.errors import RetinueError, StateError
from retinue.frontends.tui.board.board import Board, backfill_from, load_conversation
from retinue.frontends.tui.board.marks import FRAME_SECONDS
from retinue.frontends.tui.board.panel_lines import Look
from retinue.frontends.tui.builtin_commands import edit_draft
from retinue.frontends.tui.chat.answer import Notice
from retinue.frontends.tui.chat.log import ChatLog
from retinue.frontends.tui.chat.notification import Waiting
from retinue.frontends.tui.chat.welcome import Welcome, welcome_facts
from retinue.frontends.tui.clipboard import copy_selection
from retinue.frontends.tui.editor.completion import Completer
from retinue.frontends.tui.editor.prompt import Prompt
from retinue.frontends.tui.frame import COMMANDS, Frame, move_to_background, sentence
from retinue.frontends.tui.panels import AgentsPanel, StatusLine
from retinue.frontends.tui.screens.inbox_watch import InboxWatch
from retinue.frontends.tui.shell import PersonShell
from retinue.frontends.tui.statusline import FactFinder
from retinue.frontends.tui.submission import ask_to_run, submit
from retinue.frontends.tui.working import WorkingLine, WorkLook

_SAID_ONCE = frozenset({FILE_PROBLEM, MISSING})
PAINT_SECONDS = 0.05
QUIET_SECONDS = 0.5
TWICE_SECONDS = 2.0


class RetinueApp(Frame):
    """One window on one `Retinue`, which the caller opens and closes. `resume` is the run to continue, `choose` opens
    the list of runs, and `viewed` is a run to open in the viewer. `first_words` are sent at once. `first_model` offers
    to set up a model if there is none. `may_keep` means that runs can continue after the app is closed. The other
    options are passed to the main agent's run."""

    def __init__(
        self,
        retinue: Retinue,
        *,
        resume: str | None = None,
        viewed: str | None = None,
        choose: bool = False,
        first_words: str = "",
        first_model: bool = False,
        may_keep: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(retinue, may_keep=may_keep)
        self.board = Board(backfill=backfill_from(self.project.log))
        self.session = Session(retinue, changed=self._talk_changed, **options)
        self.session.ask = partial(ask_to_run, self)
        self.shell = PersonShell(self)
        self.talk: ActiveConversation = self.session
        self.first_mode = self.session.mode
        self.board_feed = ProcessEvents(self.project.log, self._take, self._fail)
        self.finder = FactFinder(self)
        self._resume, self._viewed, self._choose, self._first_words = resume, viewed, choose, first_words
        self.first_model = first_model
        self.on_beat: Callable[[], None] = lambda: None
        """Writes signals to the terminal, such as its title and notifications."""
        self._leave_at = self._back_at = 0.0
        self._said: set[str] = set()
        self._chat = ChatLog(self.board)
        self._welcome = Welcome()
        self._working = WorkingLine()
        self._agents = AgentsPanel()
        self._status = StatusLine()
        self.project.on_wait = lambda what, seconds: self._status.show(f"{what}, {round(seconds)} s")
        self._waiting = Waiting()
        self._inbox: InboxWatch | None = None
        history = PromptHistory(self.project.state / "history.jsonl", self.project.redactor)
        editor = partial(edit_draft, self)
        self._prompt = Prompt(history, Completer(retinue, self.board), editor)

    # Widgets

    def compose(self) -> ComposeResult:
        yield self._chat
        yield self._working
        yield self._waiting
        yield self.banner
        yield self._prompt.popup
        yield self._prompt
        yield self._agents
        yield self._status

    async def on_mount(self) -> None:
        self.set_up()
        self._painter = self.set_interval(PAINT_SECONDS, self._paint)
        self._inbox = InboxWatch(self)
        self.board_feed.open()
        self.retinue.supervisor.idle_news = self._hear_news
        self.retinue.supervisor.broken_off = self._lose
        if self.retinue.supervisor.settings.scheduling_enabled:
            self.retinue.schedules.begin()
        self.set_interval(QUIET_SECONDS, self._painter.resume)
        self._prompt.cursor_blink = self.motion
        self._prompt.focus()
        for problem in (*self.project.settings.warnings, *self.key_problems):
            self.tell(problem, "warning")
        if self._resume:
            await self.open_session(self._resume)
        else:
            self._chat.add(self._welcome)
        self._look_around()
        if self._viewed:
            self.watch_run(self._viewed)
        if self._choose:
            # The first words stay in the editor until the person chooses a conversation.
            self._prompt.put(self._first_words)
            self.action_open_screen("sessions")
        elif self._first_words:
            self.on_prompt_submitted(Prompt.Submitted(self._first_words))

    async def on_unmount(self) -> None:
        await self.shell.close()
        await self.board_feed.close()
        if self._inbox is not None:
            self._inbox.close()

    # Conversations

    async def open_session(self, run_id: str) -> None:
        row = self.project.log.reader.run(run_id)
        self.board_feed.unwatch()
        self.board.main_id = row.id
        self._working.progress = WorkProgress()
        if row.state in LIVE and row.id not in self.retinue.supervisor.members:
            self.talk = AttachedConversation(self.feed, row.id, changed=self._talk_changed)
            await self._chat.empty()
            self.tell(f"Process {row.pid} runs this conversation. What you say goes there; /stop ends it.")
            self.board_feed.watch(self.feed, row.root_id)
            return
        self.session.open(row.id)
        self.talk = self.session
        load_conversation(self.board, await self.project.log.read(partial(read_conversation, root_id=row.root_id)))
        await self._chat.show(await self.project.log.read(partial(read_end, run_id=row.id)))
        self._show_news()

    @work
    async def open_later(self, run_id: str) -> None:
        if not self.is_busy():
            await self._guarded(self.open_session(run_id))

    def is_busy(self) -> bool:
        busy = self.talk.state == "working" and self.talk is self.session
        if busy:
            self.tell("The main agent is at work: interrupt it with Esc first.", "warning")
        return busy

    async def new_conversation(self) -> None:
        self.board_feed.unwatch()
        self.session.clear()
        self.talk, self.board.main_id = self.session, None
        self._working.progress = WorkProgress()
        await self._chat.empty()
        self._welcome = Welcome()
        self._chat.add(self._welcome)

    @work
    async def _look_around(self) -> None:
        """Complete the first screen with the model and the loaded files. Offer to set up a model if there is none."""
        await self._guarded(self.finder.look_around())
        self._talk_changed()
        if self.finder.selection is not None and self.finder.selection.source == "offline":
            await self.offer_model()

    async def offer_model(self) -> None:
        """Offer to set up a model, unless the app was opened for another purpose or the person declined a model."""
        busy = self._resume or self._viewed or self._choose or self._first_words
        if self.first_model and not busy and not is_without_model(self.project.environment):
            await self.open_screen("first_model")
            await self._guarded(self.finder.look_around())
            self._welcome.tell(welcome_facts(self.project, self.finder, self.session.mode))

    def tell(self, text: str, kind: str = "info") -> None:
        self._chat.add(Notice(text, kind))

    def put_words(self, text: str) -> None:
        self._prompt.put(text + optional("\n\n{}", self._prompt.text))

    # Input of the person

    def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        submit(self, message.text)

    def on_prompt_leaving(self, message: Prompt.Leaving) -> None:
        self._agents.enter()
        self._painter.resume()

    def on_prompt_scrolling(self, message: Prompt.Scrolling) -> None:
        if message.pages < 0:
            self._chat.scroll_page_up(animate=False)
        else:
            self._chat.scroll_page_down(animate=False)

    def on_prompt_taking_back(self) -> None:
        self._prompt.put(self.talk.unqueue())

    def on_agents_panel_chosen(self, message: AgentsPanel.Chosen) -> None:
        self._prompt.focus()
        if message.run_id is not None:
            self.watch_run(message.run_id)

    def action_interrupt(self) -> None:
        if self.focused is not self._prompt and len(self.screen_stack) == 1:
            self._prompt.focus()
        elif self.shell.interrupt():
            pass
        elif self.talk.interrupt():
            # Queued messages go back into the editor, before the text that is there.
            waiting = self.talk.unqueue()
            if waiting:
                self.put_words(waiting)
        elif isinstance(self.talk, AttachedConversation):
            self._status.show("It runs in another process: /stop ends it, Ctrl+C twice leaves it alone.")
        elif self.talk.main_id is not None and not self._prompt.text:
            self._go_back_at_second_press()

    def _go_back_at_second_press(self) -> None:
        if time.monotonic() - self._back_at < TWICE_SECONDS:
            self._back_at = 0.0
            self.action_open_screen("rewind")
        else:
            self._back_at = time.monotonic()
            self._status.show("Press Esc again to go back to an earlier message.")

    @work
    async def action_cycle_mode(self) -> None:
        """Choose the next permission mode; outside of the prompt, focus the previous widget."""
        if len(self.screen_stack) > 1 or self.focused is not self._prompt:
            self.screen.focus_previous()
        elif self.talk is not self.session:
            self._status.show("It runs in another process: its permission mode cannot be changed from here.")
        else:
            await self._guarded(self.session.change_mode(next_mode(self.session.mode, self.first_mode)))

    @work
    async def action_resend(self) -> None:
        await self._guarded(self.talk.resend())

    def action_background(self) -> None:
        moved = move_to_background(self.retinue.supervisor)
        self._status.show(optional("{} moved to the background.", moved) or "Nothing waits in the foreground.")

    def on_text_selected(self) -> bool:
        """Copy the text selected with the mouse, as terminals do. Return False if none is selected."""
        marked = copy_selection(self)
        if marked:
            self._status.show(marked)
        return bool(marked)

    def action_fold(self) -> None:
        self._chat.fold_all()

    def action_leave(self) -> None:
        """Copy the selected text. If there is none, the first press clears the line or warns, and a second one within
        two seconds leaves the app."""
        if self.on_text_selected():
            self.screen.clear_selection()
        elif self._prompt.text and len(self.screen_stack) == 1:
            self._prompt.text = ""
        elif time.monotonic() - self._leave_at < TWICE_SECONDS:
            self.leave_later()
        else:
            self._leave_at = time.monotonic()
            self._status.show("Press Ctrl+C again to quit.")

    @work
    async def run_command(self, name: str, words: str) -> None:
        await self._guarded(COMMANDS[name].handler(self, words))

    @work
    async def say(self, text: str) -> None:
        if isinstance(self.talk, AttachedConversation) and self.talk.over:
            # The conversation continues in this app.
            await self._guarded(self.open_session(self.talk.main_id or ""))
        delivery = await self._guarded(self.talk.say(text), back=text)
        self.board.main_id = self.talk.main_id
        if delivery is not None and delivery.agent:
            self.tell(f"→ @{delivery.agent} ({delivery.how}): {text}")
            if self.talk.main_id is None:
                self.tell("No conversation can receive its answer yet. To read it, press ↓ and Enter.")

    async def _guarded(self, doing: Any, back: str = "") -> Any:
        """Await `doing` and show its failure, if any; then `back` returns to the editor."""
        try:
            return await doing
        except RetinueError as error:
            self.tell(sentence(error), "error")
            if back and not self._prompt.text:
                self._prompt.put(back)
            return None

    # Events

    def _take(self, event: Event) -> None:
        self.board.take(event)
        self._painter.resume()
        if self._inbox is not None:
            self._inbox.take(event)
        if isinstance(event.body, Warned) and event.body.code in _SAID_ONCE:
            # All runs of an agent have the same note, so it is shown once.
            if event.root_id == self.talk.main_id and event.body.text not in self._said:
                self._said.add(event.body.text)
                self._chat.push(event)
        elif event.run_id == self.talk.main_id:
            self.talk.observe(event)
            self._working.progress.take(event)
            self._chat.push(event)
            if isinstance(event.body, RunEnded):
                self._pump()

    def _lose(self, run_id: str, failure: StateError) -> None:
        """Show that a run can no longer be recorded. For the main run, also show the reason and return queued messages
        to the editor; the next message resumes the run."""
        self.board.mark_lost(run_id, time.time())
        self._painter.resume()
        if run_id == self.session.main_id and self.session.break_off():
            self.tell(sentence(failure), "error")
            waiting = self.session.unqueue()
            if waiting:
                self.put_words(waiting)

    @work
    async def _fail(self, error: Exception) -> None:
        """Close the app after a defect with a visible error, a restored terminal and an intact log."""
        raise error

    @work
    async def _pump(self) -> None:
        """Send queued messages. After an interruption send nothing, but show the notifications that the main agent has
        not received."""
        if not await self._guarded(self.talk.pump()):
            self._show_news()

    def _hear_news(self, run_id: str) -> None:
        if self.talk is not self.session:
            return
        if run_id == self.session.main_id:
            self._wake()
        elif run_id in self.board.cards:
            # A nested agent, which the person asked directly.
            self._show_news_for(run_id)

    @work
    async def _wake(self) -> None:
        """Notify the idle main agent that one of its agents has ended: now or, if the settings require it, with the
        next message of the person. The person sees the end in any case."""
        wakes = self.retinue.supervisor.settings.wake_main
        if not (wakes and await self._guarded(self.session.wake())):
            self._show_news()

    def _show_news(self) -> None:
        if self.talk.state == "idle" and self.talk.main_id is not None:
            self._show_news_for(self.talk.main_id)

    def _show_news_for(self, run_id: str) -> None:
        supervisor = self.retinue.supervisor
        self._chat.tell_early(supervisor.news_for(run_id), show_cost=supervisor.settings.show_cost)

    def _talk_changed(self) -> None:
        self.board.changed = True
        self._painter.resume()

    def _paint(self) -> None:
        self.board.changed = False
        is_alone = len(self.screen_stack) == 1 and self._agents.selection.selected is None
        if is_alone and self.talk.state == "idle" and not any(self.board.counts()):
            # Nothing moves. The next event, or half a second, triggers the next drawing.
            self._painter.pause()
        now = time.time()
        frame = int(time.monotonic() / FRAME_SECONDS)
        settings = self.retinue.supervisor.settings
        # This runs twenty times a second. The panels below draw only changes.
        look = Look.from_settings(settings, self.size.width - 2, motion=self.motion, window=self.finder.window)
        key = self.interrupt_key if self.talk is self.session else ""
        work_look = WorkLook(self.size.width - 2, frame, self.motion, key)
        self._working.paint(self.board, self.talk.state, now, work_look)
        self._agents.enabled = settings.fleet_view
        self._agents.paint(self.board, now, frame, look)
        self._chat.paint(now, self.finder.window, frame=frame, motion=self.motion)
        self._waiting.paint(self.talk.waiting, settings.abort_resend_key)
        self._prompt.waiting = bool(self.talk.waiting)
        if self._welcome.is_attached:
            self._welcome.tell(welcome_facts(self.project, self.finder, self.session.mode))
        self._status.paint(self.status_facts(), self.project)
        if self._inbox is not None:
            self._inbox.beat()
        self.on_beat()
        self.beat.publish(now)
