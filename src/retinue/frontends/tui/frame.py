"""The frame of the app: its tables of commands, keys and screens, and how the user leaves it.

`/help` and completion use the same table of commands. A screen is loaded when it is first opened. Its class takes the
words after its command, if any, and reaches the app at `self.app`. If the user leaves while runs are live, either the
runs stop, or they continue without the app, or the user stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

from textual import work
from textual.app import App
from textual.binding import BindingType
from textual.filter import Monochrome, NoColor
from textual.screen import Screen
from textual.signal import Signal
from textual.worker import Worker

from retinue.app.feed import Feed
from retinue.app.retinue import Retinue
from retinue.app.rich_text import fit, one_line
from retinue.app.session import ActiveConversation, Session
from retinue.app.text import plural
from retinue.core.spec import PermissionMode
from retinue.errors import RetinueError
from retinue.frontends.tui.board.board import Board
from retinue.frontends.tui.chat.answer import Answer
from retinue.frontends.tui.chat.folded import Checklist, Folded
from retinue.frontends.tui.panels import Banner
from retinue.frontends.tui.statusline import FactFinder, Facts
from retinue.frontends.tui.theme import THEMES, theme_for, use_colours, wants_motion

if TYPE_CHECKING:
    from retinue.app.retinue import Run, Supervisor
    from retinue.frontends.tui.shell import PersonShell


# A handler takes the app and the words after the command.
Handler = Callable[["Frame", str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """`arguments` is shown in the help, as in `/model NAME`."""

    name: str
    help: str
    handler: Handler
    arguments: str = ""


COMMANDS: dict[str, SlashCommand] = {}


def command(name: str, help: str, arguments: str = "") -> Callable[[Handler], Handler]:
    """Register a handler under `/name`."""

    def register(handler: Handler) -> Handler:
        COMMANDS[name] = SlashCommand(name, help, handler, arguments)
        return handler

    return register


class ScreenEntry(NamedTuple):
    """A screen of the app. `home` is `module:Class` below `screens`. Its slash command and its key open it, if it has
    them; other screens call `await app.open_screen(name, …)`."""

    home: str
    help: str
    command: str = ""
    key: str = ""
    arguments: str = ""

    def screen(self, *arguments: Any) -> Screen[Any]:
        module, _, name = self.home.partition(":")
        screen_class = getattr(importlib.import_module(f"retinue.frontends.tui.screens.{module}"), name)
        screen: Screen[Any] = screen_class(*arguments)
        return screen


SCREENS: dict[str, ScreenEntry] = {
    "help": ScreenEntry("dialogs:HelpScreen", "keys and commands", "help", "f1"),
    "sessions": ScreenEntry("sessions:SessionsScreen", "earlier conversations, to go on with one", "sessions"),
    "rewind": ScreenEntry(
        "rewind:RewindScreen",
        "go back to an earlier message, or fork from there: conversation, files or both",
        "rewind",
    ),
    "memory": ScreenEntry("memory:MemoryScreen", "instruction files that agents read, to edit one", "memory"),
    "confirm": ScreenEntry("dialogs:ConfirmScreen", "a question with a few answers"),
    "viewer": ScreenEntry("viewer:ViewerScreen", "a run as it works"),
    "inbox": ScreenEntry("inbox:InboxScreen", "what waits for an answer", "inbox", "f2"),
    "agents": ScreenEntry("agents:AgentsScreen", "agents: running, types, create, edit", "agents", "f3"),
    "settings": ScreenEntry("settings:SettingsScreen", "see and change settings", "settings"),
    "models": ScreenEntry("models:ModelsScreen", "choose a model"),
    "first_model": ScreenEntry("models:FirstModelScreen", "set up a model: a key, a server, an address"),
    "permissions": ScreenEntry("permissions:PermissionsScreen", "permission modes and rules", "permissions"),
    "schedules": ScreenEntry("schedules:SchedulesScreen", "agents that start at a time", "schedules"),
    "toolkit": ScreenEntry(
        "toolkit:ToolkitScreen", "doctor, agents, logs, activity, lsp, help", "toolkit", arguments="[REPORT]"
    ),
}


class Key(NamedTuple):
    """`name` identifies the key in the setting `keys`; `action` is the name of a Textual action. Keys without an action
    belong to the editor or a list; the help needs them here."""

    name: str
    key: str
    action: str
    help: str
    always: bool = False
    """Whether the key also works while another widget has the focus."""


KEYS: tuple[Key, ...] = (
    Key("interrupt", "escape", "interrupt", "stop what the main agent does; twice in an empty prompt: go back"),
    Key("mode", "shift+tab", "cycle_mode", "another permission mode: ask, accept edits, plan", always=True),
    Key("conversation", "ctrl+up", "conversation", "into the conversation, to open tool calls with enter", always=True),
    Key("resend", "f9", "resend", "stop it and send the waiting messages now"),
    Key("background", "ctrl+b", "background", "move the agents it waits for to the background"),
    Key("fold", "ctrl+o", "fold", "open or fold all tool calls and thoughts"),
    Key("redraw", "ctrl+l", "redraw", "draw the screen again"),
    Key("leave", "ctrl+c", "leave", "copy what is marked, or clear the line; twice: quit", always=True),
    Key("suspend", "ctrl+z", "suspend_process", "back to the shell; fg comes back", always=True),
    Key("quit", "ctrl+q", "quit", "quit", always=True),
)

EDITOR: tuple[tuple[str, str], ...] = (
    ("enter", "send"),
    ("shift+enter, ctrl+j, \\ enter", "a new line"),
    ("ctrl+r", "search what was said before"),
    ("ctrl+g", "go on with the draft in $EDITOR"),
    ("alt+left, alt+right", "a word back, a word on"),
    ("ctrl+_", "undo in the editor"),
    ("tab", "complete a /command, an @agent or a @file"),
    ("up, down", "what was said before; in an empty prompt: take waiting messages back, go to the agents"),
    ("pageup, pagedown", "scroll the conversation"),
)

SIGNS: tuple[tuple[str, str], ...] = (
    ("@path", "attach a file (@a.py#L10-40: lines of it), a folder's names or an image"),
    ("@name words", "say it to that agent"),
    ("@type words", "start an agent of that type in the background"),
    ("!command", "run a command yourself; the model reads its output with your next message; Esc ends it"),
    ("#note", "add a line to AGENTS.md, CLAUDE.md or a file of your own"),
)


def choose_keys(settings: Mapping[str, str], abort_resend_key: str = "f9") -> tuple[tuple[Key, ...], list[str]]:
    """Return the table with the user's keys, and the problems of these keys."""
    names = {entry.name for entry in KEYS}
    problems = []
    for name in settings:
        # A name with a dot belongs to a screen, which handles its own keys.
        if "." not in name and name not in names:
            problems.append(f"keys.{name}: there is no action of that name")
    chosen = {"resend": abort_resend_key, **settings}
    table: list[Key] = []
    taken: dict[str, str] = {}
    for entry in KEYS:
        key = chosen.get(entry.name, entry.key).strip().lower() or entry.key
        if key in taken:
            problems.append(f"keys.{entry.name}: {key} is already the key for {taken[key]}")
            key = entry.key
        taken[key] = entry.name
        table.append(entry._replace(key=key))
    return tuple(table), problems


Leaving = Literal["quit", "keep"]
MAX_LISTED_RUNS = 8


def sentence(error: RetinueError) -> str:
    """Return the message of an error followed by its remedy."""
    return f"{error.message} {error.remedy}".strip()


@contextlib.contextmanager
def leaving_on_signals(leave: Callable[[], None]) -> Iterator[None]:
    """Leave the app in order at the first SIGTERM or SIGHUP; a second signal has its default effect."""
    loop = asyncio.get_running_loop()
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

    def once() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        leave()

    try:
        for number in numbers:
            loop.add_signal_handler(number, once)
    except (NotImplementedError, RuntimeError):
        # Windows, or not the main thread.
        numbers = []
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def live_runs(supervisor: Supervisor) -> list[Run]:
    """Return all live runs of this process, which would end with it."""
    return [node for node in supervisor.members.values() if node.live]


def move_to_background(supervisor: Supervisor) -> int:
    """Move all runs of the foreground to the background. Return how many there were."""
    moved = 0
    for node in live_runs(supervisor):
        if not node.state.background:
            moved += supervisor.detach(node)
    return moved


async def ask_how_to_leave(app: Frame, live: Sequence[Run], *, may_keep: bool) -> Leaving | None:
    """Ask whether live runs stop or continue. Return None if the person stays. Ask nothing if there are none."""
    if not live:
        return "quit"
    rows = []
    for run in live[:MAX_LISTED_RUNS]:
        # The main agent has no description, so its task is shown.
        about = run.state.description or run.launch.request.task
        rows.append(fit(one_line(f"{run.state.name or run.agent}: {about}"), 60))
    if len(live) > MAX_LISTED_RUNS:
        rows.append(f"… and {len(live) - MAX_LISTED_RUNS} more")
    choices = [("quit", "s", "stop them and quit"), ("stay", "c", "stay here")]
    if may_keep:
        choices.insert(0, ("keep", "k", "let them go on without the app"))
    count = f"{plural(len(live), 'run')} still at work."
    chosen = await app.open_screen("confirm", count, choices, "\n".join(rows))
    if chosen == "stay":
        return None
    return cast("Leaving | None", chosen)


class Frame(App[Leaving]):
    """The interface of the app for its screens and commands. `facts` are further facts for the status line; `banner`
    shows what waits for the person."""

    board: Board
    session: Session
    talk: ActiveConversation
    finder: FactFinder
    shell: PersonShell
    first_mode: PermissionMode

    CSS_PATH = Path(__file__).with_name("app.tcss")
    TITLE = "retinue"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, retinue: Retinue, *, may_keep: bool = False) -> None:
        super().__init__()
        if self.no_color:
            # Textual's own filter would leave shades of grey.
            self._filters[:] = [line_filter for line_filter in self._filters if not isinstance(line_filter, Monochrome)]
            self._filters.append(NoColor())
        self.retinue = retinue
        self.project = retinue.supervisor.project
        self.feed = Feed(self.project.cwd, self.project.state, retinue=retinue)
        settings = retinue.supervisor.settings
        self.motion = wants_motion(self.project.environment) and not settings.reduced_motion
        self.animation_level = "full" if self.motion else "none"
        self.keys, self.key_problems = choose_keys(settings.keys, settings.abort_resend_key)
        key = next(entry.key for entry in self.keys if entry.name == "interrupt")
        self.interrupt_key = key.replace("escape", "esc")
        self.facts: dict[str, Any] = {}
        self.beat: Signal[float] = Signal(self, "beat")
        """The only clock of the app. It publishes the time with each painting, at least twice a second."""
        self.banner = Banner()
        self._may_keep = may_keep

    def set_up(self) -> None:
        """Set up colours, keys and screens as soon as the app is on the terminal."""
        for theme in THEMES:
            self.register_theme(theme)
        self.use_theme(self.retinue.supervisor.settings.theme)
        for key in self.keys:
            # These keys are not in BINDINGS, because the settings can change them.
            self._bindings.bind(key.key, key.action, key.help, show=False, priority=key.always)
        for name, entry in SCREENS.items():
            self._register_screen(name, entry)
        # After Ctrl+Z and fg the terminal has lost the earlier screen.
        self.app_resume_signal.subscribe(self, lambda _: self.action_redraw())

    def status_facts(self) -> Facts:
        return self.finder.facts()

    def use_theme(self, choice: str) -> None:
        chosen = theme_for(choice, self.project.environment)
        use_colours(chosen, colour=not self.no_color)
        self.theme = chosen.name
        # These widgets use the colours of the board, which Textual does not update.
        for block in (*self.query(Folded), *self.query(Answer), *self.query(Checklist)):
            block.redraw()

    def tell(self, text: str, kind: str = "info") -> None:
        """Add a notice of the app to the conversation."""

    def put_words(self, text: str) -> None:
        """Insert words into the editor, before the text that is there."""

    def say(self, text: str) -> Worker[None]:
        """Send the person's words to their addressee."""
        raise NotImplementedError

    def run_command(self, name: str, words: str) -> Worker[None]:
        raise NotImplementedError

    def is_busy(self) -> bool:
        """Return whether the main agent of this process is at work, which prevents another conversation. Tell the
        person if it is."""
        raise NotImplementedError

    async def new_conversation(self) -> None:
        """Begin a new conversation; the current one stays in the log."""

    async def open_session(self, run_id: str) -> None:
        """Show an earlier conversation and continue it. If another process runs it, watch it and send messages to that
        process."""

    def open_later(self, run_id: str) -> Worker[None]:
        """Open a session from outside of a worker, and show the reason if that fails."""
        raise NotImplementedError

    async def open_screen(self, name: str, *arguments: Any) -> Any:
        """Open a screen of the table and return its result. Call this from a worker only."""
        return await self.push_screen_wait(SCREENS[name].screen(*arguments))

    @work
    async def action_open_screen(self, name: str) -> None:
        if len(self.screen_stack) == 1:
            await self.open_screen(name)

    @work
    async def watch_run(self, run_id: str) -> None:
        """Open the viewer on any run of the project's log."""
        await self.open_screen("viewer", run_id)

    def _register_screen(self, name: str, entry: ScreenEntry) -> None:
        """Make the key and the command of a screen open it."""
        if entry.key:
            self.bind(entry.key, f"open_screen('{name}')", description=entry.help, show=False)
        if entry.command:

            async def go(app: Frame, words: str) -> None:
                arguments = (words,) if words else ()
                await app.open_screen(name, *arguments)

            COMMANDS[entry.command] = SlashCommand(entry.command, entry.help, go, entry.arguments)

    def action_conversation(self) -> None:
        if len(self.screen_stack) == 1:
            self.screen.focus_previous()

    def action_redraw(self) -> None:
        self.refresh(repaint=True, layout=True)

    async def action_quit(self) -> None:
        self.leave_later()

    @work(exclusive=True, group="leaving")
    async def leave_later(self) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Ask whether live runs stop or continue, and close the app unless the person stays."""
        way = await ask_how_to_leave(self, live_runs(self.retinue.supervisor), may_keep=self._may_keep)
        if way is not None:
            self.exit(way)
