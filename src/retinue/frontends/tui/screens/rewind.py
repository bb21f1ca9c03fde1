"""Earlier messages of this conversation: the person can rewind the conversation, the files or both, or make a fork.

A fork does not change the old run. The fork of a conversation opens with the text of the chosen message in the editor.
The fork of any other run starts at once with the message of the person, and its viewer opens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.widgets.option_list import Option

from retinue.app.conversation import AttachedConversation
from retinue.app.rewind import Fork, Rewinder, RewindPoint, fork_run, name_files, read_moments, report_files
from retinue.app.rich_text import STYLES, fit, one_line
from retinue.app.text import optional, plural
from retinue.core.format import format_wait
from retinue.errors import RetinueError
from retinue.frontends.tui.frame import Frame, sentence
from retinue.frontends.tui.screens.dialogs import Ask, Choice, ConfirmScreen, Pick
from retinue.frontends.tui.screens.sheet import ListPage


class RewindScreen(ListPage[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f", "fork", "fork")]
    heading = "Go back"
    hint = "Enter goes back to before it · f forks from there · Esc closes"

    def __init__(self, *_: str) -> None:
        super().__init__()
        self._points: list[RewindPoint] = []

    @work
    async def fill(self) -> None:
        refusal = why_not(self.host)
        if refusal:
            self.dismiss(None)
            self.host.tell(refusal, "warning")
            return
        self._points = await Rewinder(self.host.project, self.host.talk.main_id or "").points()
        if not self.is_attached:
            return
        now = time.time()
        for number, point in enumerate(self._points):
            self.options.add_option(Option(draw(point, now, self.room), id=str(number)))
        newest = [number for number, point in enumerate(self._points) if not point.is_left]
        if newest:
            self.options.highlighted = newest[-1]

    @work
    async def choose(self, key: str | None) -> None:
        app, point = self.host, self._points[int(key or 0)]
        chosen = await choose_what(app, point)
        if chosen is not None:
            self.dismiss(None)
            # A worker of this screen would end with it.
            app.run_worker(go_back(app, point, chosen))

    def action_fork(self) -> None:
        app, key = self.host, self.chosen
        if key is not None:
            self.dismiss(None)
            # A worker of this screen would end with it.
            app.run_worker(fork_conversation(app, self._points[int(key)]))


def draw(point: RewindPoint, now: float, width: int) -> Text:
    """Return `12m ago  the message  · 2 files changed since`."""
    when = format_wait(max(now - point.at, 0)).partition(" ")[0]
    note = optional("  · {} changed since", point.files and plural(len(point.files), "file"))
    head = f"{when:>4} ago  "
    if point.is_left:
        head += "back to the part that ended with: "
    line = Text(no_wrap=True)
    line.append(head, STYLES["dim"])
    line.append(fit(one_line(point.text), max(width - len(head) - len(note), 10)))
    line.append(note, STYLES["warning"])
    return line


def why_not(app: Frame) -> str:
    """Return why rewinding is impossible now; empty if it is possible."""
    if isinstance(app.talk, AttachedConversation):
        return "This conversation belongs to another process: go back there."
    if app.talk.main_id is None:
        return "Nothing was said yet."
    if app.talk.state == "working":
        return "The main agent is at work: interrupt it with Esc first."
    if app.talk.state == "holding":
        return "The main agent waits for its background agents: wait for them, or stop them with /stop."
    return ""


async def choose_what(app: Frame, point: RewindPoint) -> str | None:
    """Ask whether to rewind `both`, `conversation` or `files`. Return None if the person cancels. Ask nothing if there
    is no choice."""
    if not point.files:
        return "conversation"
    choices: list[Choice] = [
        ("both", "b", "conversation and files"),
        ("conversation", "c", "only the conversation; files stay as they are"),
        ("files", "f", "only the files; the conversation goes on"),
    ]
    detail = f"Changed since: {name_files(point.files, str(app.project.cwd))}"
    question = f"Go back to before “{fit(one_line(point.text), 50)}”?"
    return await app.push_screen_wait(ConfirmScreen(question, choices, detail))


async def go_back(app: Frame, point: RewindPoint, what: str) -> None:
    """Rewind and show the result. The text of the message returns to the editor."""
    refusal = why_not(app)
    if refusal:
        app.tell(refusal, "warning")
        return
    run_id = app.talk.main_id or ""
    rewinder = Rewinder(app.project, run_id)
    report = ""
    try:
        if what in ("both", "files"):
            report = report_files(await rewinder.undo_files(point), str(app.project.cwd))
        if what != "files":
            await go_back_in_conversation(app, rewinder, point, files_stay=what == "conversation")
    except RetinueError as error:
        app.tell(sentence(error), "error")
        return
    if report:
        app.tell(report)


async def go_back_in_conversation(app: Frame, rewinder: Rewinder, point: RewindPoint, *, files_stay: bool) -> None:
    run_id = app.talk.main_id or ""
    if point.is_beginning:
        await app.new_conversation()
        app.tell(f"A new conversation. The earlier one stays in the log: /sessions, or retinue --resume {run_id[:8]}")
    else:
        await rewinder.go_back(point, point.files if files_stay else ())
        await app.open_session(run_id)
    if not point.is_left:
        app.put_words(point.text)


async def fork_conversation(app: Frame, point: RewindPoint) -> None:
    """Open a new conversation with the messages of this one before `point`."""
    run_id = app.talk.main_id or ""
    if point.is_beginning:
        await app.new_conversation()
        app.put_words(point.text)
        return
    keep = await _keeps_files(app, point.files)
    if keep is None:
        return
    try:
        fork = await fork_run(app.project, run_id, point.to, keep_files=keep)
    except RetinueError as error:
        app.tell(sentence(error), "error")
        return
    await app.open_session(fork.run_id)
    app.tell(_report(app, fork))
    if not point.is_left:
        app.put_words(point.text)


async def fork_watched_run(app: Frame, run_id: str) -> None:
    """Ask for a point of a run and for a message, continue from there as a new run, and watch it."""
    await app.project.log.flush()
    rows = await app.project.log.read(partial(read_moments, run_id=run_id))
    if not rows:
        app.tell("This run has no messages yet.", "warning")
        return
    start = rows[-1][0]
    chosen = await app.push_screen_wait(Pick("Fork after which moment?", rows, start=start))
    if chosen is None:
        return
    detail = "At a message they take its place. Nothing: it goes on by itself."
    words = await app.push_screen_wait(Ask("What is said there?", detail=detail))
    if words is None:
        return
    try:
        fork = await fork_run(app.project, run_id, int(chosen), edit=words.strip() or None)
        await app.retinue.resume(fork.run_id, fork.prompt)
    except RetinueError as error:
        app.tell(sentence(error), "error")
        return
    app.tell(_report(app, fork))
    app.watch_run(fork.run_id)


async def _keeps_files(app: Frame, files: Sequence[str]) -> bool | None:
    """Ask whether files keep their changes; None for Esc. Ask nothing if no file was changed."""
    if not files:
        return True
    choices: list[Choice] = [
        ("back", "b", "with the files as they were then"),
        ("stay", "s", "leave the files as they are now"),
    ]
    detail = f"Changed since: {name_files(files, str(app.project.cwd))}"
    chosen = await app.push_screen_wait(ConfirmScreen("Fork the conversation?", choices, detail))
    return None if chosen is None else chosen == "stay"


def _report(app: Frame, fork: Fork) -> str:
    text = f"Forked from {fork.source[:8]}, which stays as it is: /sessions"
    if fork.files:
        text += f". {report_files(fork.files, str(app.project.cwd))}"
    return text
