"""Creates an agent step by step, or lets an agent write it. Esc at any step leaves no file behind.

When an agent writes the file, the person watches, approves the write, or stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import OptionList, Static

from retinue.app.agent_files import (
    THINKING_LEVELS,
    WRITER_TURNS,
    AgentDraft,
    WrittenAgent,
    agents_folder,
    brief,
    check_name,
    create_agent,
    file_name,
    look,
    starter,
)
from retinue.app.model_choice import find_models, model_families, model_names
from retinue.app.rich_text import one_line
from retinue.app.text import optional
from retinue.errors import UsageError
from retinue.frontends.tui.board.marks import FRAME_SECONDS, FRAMES, STILL
from retinue.frontends.tui.frame import Frame, sentence
from retinue.frontends.tui.screens.dialogs import Ask, Pick, confirm
from retinue.frontends.tui.screens.external_editor import Feedback, Write, check_file
from retinue.frontends.tui.screens.sheet import ListSheet, Sheet, near

if TYPE_CHECKING:
    from retinue.app.retinue import Run


WRITER = "general-purpose"
GENERATE_TOOLS = ("read", "write", "edit", "bash", "grep", "find", "ls", "web_search", "fetch_content", "Agent")
PLACES = (("project", "Project: .retinue/agents, shared with the repository"), ("user", "Personal: for all your work"))


class GenerateScreen(Sheet[WrittenAgent | None]):
    """Returns the result of the writing agent from its file; None if the person stopped it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f2", "inbox", show=False)]
    shows_inbox: ClassVar[bool] = True
    """The inbox may open over this screen, because the writing agent may ask for permission."""
    heading = "A new agent is being written"
    keys_line = "F2 what waits for you · Esc stop"

    def __init__(self, name: str, described: str, path: Path) -> None:
        super().__init__()
        self._name_wanted, self._described, self._path = name, described, path
        self._run: Run | None = None
        self._stopped = False

    def body(self) -> Iterable[Static | OptionList]:
        yield Static(id="doing", classes="about")

    def on_mount(self) -> None:
        self.host.beat.subscribe(self, self._draw)
        self.do(self._write())

    def action_close(self) -> None:
        self._stopped = True
        # The screen closes when the stopped run has ended.
        if self._run is None or not self._run.stop_now("The person left."):
            self.dismiss(None)

    def action_inbox(self) -> None:
        self.do(self.host.open_screen("inbox"))

    async def _write(self) -> None:
        tools = [tool for tool in GENERATE_TOOLS if tool in self.project.tools]
        task = brief(self._name_wanted, self._described, self._path, tools)
        before = _stamp(self._path)
        writer = await self.retinue.spawn(WRITER, task, limits={"max_turns": WRITER_TURNS}, background=False)
        self._run = writer
        outcome = await self._run.wait()
        if self._stopped:
            self.dismiss(None)
            return
        if _stamp(self._path) == before:
            why = one_line(outcome.text)[:300] or "nothing."
            if outcome.failure is not None:
                why = outcome.failure.message
            self.dismiss(WrittenAgent(self._path, f"{self.near(self._path)} was not written. {WRITER} said: {why}"))
            return
        self.dismiss(await asyncio.to_thread(look, self._path, self._name_wanted))

    def _draw(self, now: float) -> None:
        sign = FRAMES[int(now / FRAME_SECONDS) % len(FRAMES)] if self.host.motion else STILL
        doing, turn = "starting…", ""
        if self._run is not None and self._run.id in self.host.board.cards:
            card = self.host.board.cards[self._run.id]
            doing = card.activity()
            turn = optional(f"turn {{}} of {WRITER_TURNS}", card.turn)
        lines = [f"{sign} {WRITER} writes {self.near(self._path)}", f"  {one_line(doing)}", f"  {turn}"]
        waiting = self.host.facts.get("inbox")
        if waiting:
            lines.append(f"  {waiting} waiting for your answer: F2")
        self.query_one("#doing", Static).update(Text("\n".join(line.rstrip() for line in lines)))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return values that change when the file changes."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


CUSTOM = "custom"
WAYS = (("manual", "Step by step"), ("generate", "Described in words, written by an agent"))
TOOLS = (
    ("all", "All tools of whoever starts it"),
    ("read-only", "Read-only: read, grep, find, ls"),
    ("none", "None"),
    (CUSTOM, "Choose by name…"),
)
THINKING = (("inherit", "As whoever starts it"), *((level, level) for level in THINKING_LEVELS))


class _Cancelled(Exception):  # noqa: N818 - not an error: the person went away
    """The person pressed Esc at some step."""


async def create_on(sheet: ListSheet[None]) -> None:
    """Create an agent, and show the result on `sheet`."""
    feedback = await ask_for_agent(sheet.host)
    if feedback is not None:
        sheet.say(feedback.text, feedback.kind)
        sheet.redraw()


async def ask_for_agent(app: Frame) -> Feedback | None:
    """Ask for an agent, write its file, and return the result; None if the person cancelled. Call this from a worker
    only."""
    try:
        way = await _pick(app, "A new agent", WAYS)
        user = await _pick(app, "Where does it live?", PLACES) == "user"
        name = await _ask(app, "What is it called?", "Such as code-reviewer. Any name, also that of a built-in agent.")
        path = agents_folder("retinue", _cwd(app), user=user) / file_name(name, "retinue")
        replace = path.exists() or path.is_symlink()
        if replace:
            question = f"Replace {near(path, _cwd(app))}?"
            if not await confirm(app, question, "Its content is lost.", "Replace it"):
                raise _Cancelled
        if way == "generate":
            return await _generated(app, name, path)
        return await _written(app, name, user=user, replace=replace)
    except _Cancelled:
        return None


async def _written(app: Frame, name: str, *, user: bool, replace: bool) -> Feedback:
    description = await _ask(app, "When should it be used?", "One sentence: the main agent decides by it.", name=False)
    tools = await _pick(app, "Which tools may it use?", TOOLS)
    if tools == CUSTOM:
        known_tools = ", ".join(sorted(app.retinue.supervisor.project.tools))
        tools = await _ask(app, "Tools, by name", f"Separated by commas. There are: {known_tools}", name=False)
    model = await _pick(app, "Which model?", await _model_rows(app))
    if model == CUSTOM:
        model = await _ask(app, "Model", "provider/model, or a part of its name: retinue models list", name=False)
    thinking = await _pick(app, "How much may it think?", THINKING)
    prompt = await app.push_screen_wait(
        Write("Its instructions", starter(name, description), detail="What it is for, how it works, what it reports.")
    )
    if prompt is None:
        raise _Cancelled
    draft = AgentDraft(name=name, description=description, tools=tools, model=model, thinking=thinking, prompt=prompt)
    created = await asyncio.to_thread(create_agent, draft, _cwd(app), user=user, force=replace)
    path = Path(created.path)
    return _effective(app, name, await asyncio.to_thread(check_file, path, _cwd(app), "Written"), path)


async def _model_rows(app: Frame) -> tuple[tuple[str, str], ...]:
    """Return the models of `retinue models list`, preceded by the families that resolve to a model here."""
    choice = await find_models(app.project)
    rows = [("inherit", "The model of whoever starts it"), *model_families(choice), *model_names(choice.models)]
    return (*rows, (CUSTOM, "Another…"))


async def _generated(app: Frame, name: str, path: Path) -> Feedback:

    described = await app.push_screen_wait(
        Write("What should it do?", detail="In your words: its work, its limits, what it should report.")
    )
    if described is None or not described.strip():
        raise _Cancelled
    written = await app.push_screen_wait(GenerateScreen(name, described, path))
    if written is None:
        raise _Cancelled
    if written.problem:
        return Feedback(written.problem, "error")
    return _effective(app, name, await asyncio.to_thread(check_file, written.path, _cwd(app), "Written"), written.path)


def _effective(app: Frame, name: str, feedback: Feedback, path: Path) -> Feedback:
    """Return `feedback`, or a warning if another file takes precedence over the new one."""
    winner = app.retinue.agents.find(name).path
    if winner == str(path):
        return feedback
    return Feedback(
        f"{feedback.text}\n{name} is still loaded from {near(winner, _cwd(app))}, which is stronger.", "warning"
    )


async def _pick(app: Frame, question: str, rows: tuple[tuple[str, str], ...]) -> str:
    chosen = await app.push_screen_wait(Pick(question, rows))
    if chosen is None:
        raise _Cancelled
    return chosen


async def _ask(app: Frame, question: str, detail: str, *, name: bool = True) -> str:
    dialog = Ask(question, detail=detail)
    if name:
        dialog = Ask(question, detail=detail, check=_name_problem)
    answer = await app.push_screen_wait(dialog)
    if answer is None:
        raise _Cancelled
    return answer


def _cwd(app: Frame) -> Path:
    return app.project.cwd


def _name_problem(text: str) -> str:
    try:
        check_name(text)
    except UsageError as error:
        return sentence(error)
    return ""
