"""How the list of agents, the viewer and notifications look, at 80 × 24 and at 120 × 40.

Time stands still here: the same events draw the same picture."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from textual.app import App, ComposeResult
from textual.signal import Signal
from textual.theme import Theme

from retinue.core.events import (
    AssistantEnded,
    Compacted,
    Event,
    InboxOpened,
    MessageAdded,
    RunCreated,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.request import RunOptions
from retinue.core.usage import Usage
from retinue.frontends.tui.board.board import Board
from retinue.frontends.tui.board.panel_lines import AgentSelection, Look
from retinue.frontends.tui.board.viewer import Moment
from retinue.frontends.tui.chat.notification import NotificationBox
from retinue.frontends.tui.panels import AgentsPanel
from retinue.frontends.tui.screens import viewer as viewer_module
from retinue.frontends.tui.screens.viewer import ViewerScreen
from retinue.frontends.tui.theme import DARK, LIGHT, THEMES, use_colours
from retinue.runs.notifications import announcement
from retinue.settings.table import Settings
from tests.frontends.tui.cards import Story
from tests.frontends.tui.test_notifications import view

SIZES = [(80, 24), (120, 40)]
AT = 1_000.0


@pytest.fixture(autouse=True)
def one_place_and_time(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    if hasattr(time, "tzset"):
        time.tzset()
    yield
    monkeypatch.undo()
    if hasattr(time, "tzset"):
        time.tzset()


class Still(App[None]):
    """As much of the app as the parts under test ask for."""

    CSS = "Screen { layout: vertical; }"

    def __init__(self, look: Theme = DARK, board: Board | None = None) -> None:
        super().__init__()
        self.look = look
        self.board = board or Board()
        self.motion = True
        self.feed = None
        self.retinue = SimpleNamespace(supervisor=SimpleNamespace(settings=Settings()))

    def on_mount(self) -> None:
        for each in THEMES:
            self.register_theme(each)
        self.theme = self.look.name
        use_colours(self.look)


def busy() -> Story:
    story = Story()
    story.start("a", limits={"max_turns": 30}, display_name="Agent", description="Refactor auth module", color="blue")
    for number in range(2):
        story.call("a", "edit", f"e{number}")
    story.turn("a", 5, 33_800)
    story.call("a", "edit", "e2")
    story.call("a", "edit", "e3")
    story.start("b", parent="a", depth=2, description="Find auth files")
    story.call("b", "grep")
    story.start("c", description="検索とテスト 👩‍👧 all of it", color="orange")
    story.tell("c", Compacted("threshold", "pruned", 9, 3, ()))
    story.tell("c", TurnEnded(42, Usage(91_000), Usage(91_000, cost_usd=0.42), 84))
    story.say("c", "Looking at the parser now.")
    story.start("d", description="Deploy to staging")
    story.tell("d", InboxOpened("i", "approval", "bash: make deploy"))
    story.create("q1", description="Write the notes")
    story.create("q2", description="Check links")
    story.start("e", description="Read the tests")
    story.end("e", "error")
    story.now += 12.3
    return story


class Watching(Still):
    def __init__(self, story: Story, **options) -> None:
        super().__init__(board=story.board, **options)
        self.story = story

    def compose(self) -> ComposeResult:
        yield AgentsPanel()

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(AgentsPanel).selection = AgentSelection(selected="c")
        self.call_after_refresh(self.paint)

    def on_resize(self) -> None:
        self.paint()

    def paint(self) -> None:
        window = {"offline/planner": 1_000}.get
        look = Look(width=self.size.width - 2, show_cost=True, window=window)
        self.query_one(AgentsPanel).paint(self.story.board, self.story.now, 2, look)


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
def test_the_list_of_agents(snap_compare, size) -> None:
    assert snap_compare(Watching(busy()), terminal_size=size)


def test_the_list_of_agents_in_light(snap_compare) -> None:
    assert snap_compare(Watching(busy(), look=LIGHT), terminal_size=(80, 24))


def test_the_list_of_agents_in_a_narrow_terminal(snap_compare) -> None:
    assert snap_compare(Watching(busy()), terminal_size=(40, 20))


def test_the_list_of_agents_with_two_hundred_runs(snap_compare) -> None:
    story = Story()
    for number in range(200):
        story.start(f"r{number:03}", description=f"Part {number} of the work")
        story.turn(f"r{number:03}", number % 9 + 1)
    story.now += 61
    assert snap_compare(Watching(story), terminal_size=(120, 40))


class Recorded:
    """In place of a run's source: its events are known."""

    def __init__(self, bodies) -> None:
        self.bodies = bodies

    async def row(self):
        return SimpleNamespace(parent_id="main", root_id="main")

    async def events(self):
        for seq, body in enumerate(self.bodies, 1):
            yield Event("run-1", "main", "main", seq, AT + seq, body)


def result(call_id: str, text: str) -> ToolResult:
    return ToolResult(call_id, "", (Text(text),))


def conversation(ended: bool = False) -> list:
    call = ToolCall("c1", "grep", {"pattern": "def login", "path": "src"})
    edit = ToolCall("c2", "edit", {"path": "src/auth.py", "old_string": "a = 1\nb = 2", "new_string": "a = 1\nb = 3"})
    spec = {"prompt": "You find things.", "display_name": "Explore", "color": "green", "prompt_mode": "append"}
    options = {"description": "Find auth files", "model": "haiku", "limits": {"max_turns": 30}}
    found = ToolEffect(reads=("/p/src/auth.py",))
    changed = ToolEffect(writes=(TouchedPath("/p/src/auth.py", "x", "y"),), allowed="mode acceptEdits")
    bodies = [
        RunCreated("Explore", "Where do users log in?", spec, "", "offline/planner", "/p", 1, RunOptions(**options)),
        RunStarted("offline/planner", ("read", "grep", "edit"), "/p", "/t/run-1.output"),
        MessageAdded(user("Where do users log in?")),
        TurnStarted(1),
        AssistantEnded(1, AssistantMessage((Text("I search for it. 検索します。"), call, edit))),
        ToolStarted(call),
        ToolStarted(edit),
        ToolEnded("c1", "grep", result("c1", "src/auth.py:3: def login"), found, 5),
        ToolEnded("c2", "edit", result("c2", "changed"), changed, 5),
        TurnEnded(1, Usage(12_400, 300), Usage(12_400, 300), 620),
        MessageAdded(user("Only in src, please.", "steer")),
        TurnStarted(2),
        TextDelta("Users log in in **src/auth.py**, "),
    ]
    if ended:
        text = "Users log in in **src/auth.py**, line 3."
        bodies[-1] = AssistantEnded(2, AssistantMessage((Text(text),)))
        bodies.append(RunEnded(Outcome("completed", text, usage=Usage(13_000, 400), turns=2, tool_uses=2)))
    return bodies


def viewing(monkeypatch, *, ended: bool = False, **options) -> Still:
    monkeypatch.setattr(viewer_module, "RunSource", lambda supervisor, feed, run_id: Recorded(conversation(ended)))
    monkeypatch.setattr(ViewerScreen, "_moment", lambda self: Moment(AT + 60, 2, window=lambda model: 1_000))

    class Viewing(Still):
        def on_mount(self) -> None:
            super().on_mount()
            self.beat: Signal[float] = Signal(self, "beat")
            self.set_interval(0.05, lambda: self.beat.publish(0.0))
            self.push_screen(ViewerScreen("run-1"))

    return Viewing(**options)


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
@pytest.mark.parametrize("view", ["transcript", "prompt", "effects", "output", "info"])
def test_the_viewer(snap_compare, monkeypatch, view, size) -> None:
    assert snap_compare(viewing(monkeypatch), press=[view[0]], terminal_size=size)


def test_the_viewer_of_an_ended_run_in_light(snap_compare, monkeypatch) -> None:
    assert snap_compare(viewing(monkeypatch, ended=True, look=LIGHT), press=["end"], terminal_size=(80, 24))


def test_the_viewer_with_a_search(snap_compare, monkeypatch) -> None:
    assert snap_compare(viewing(monkeypatch), press=["slash", *"log", "enter"], terminal_size=(80, 24))


def test_the_viewer_armed_to_stop(snap_compare, monkeypatch) -> None:
    assert snap_compare(viewing(monkeypatch), press=["x"], terminal_size=(80, 24))


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
@pytest.mark.parametrize("opened", [False, True], ids=["folded", "open"])
def test_notifications(snap_compare, size, opened) -> None:
    failed = view("a2", description="Run the tests", status="error", error="the provider is gone", text="")
    group = [view("a1"), failed, view("a3", description="設計を読む", status="steered", text="Half of it.")]

    class Notified(Still):
        def compose(self) -> ComposeResult:
            yield NotificationBox(announcement([view("a0", transcript="/t/a0.output")]).notice)
            yield NotificationBox(announcement(group, group=True, partial=True).notice)

        def on_mount(self) -> None:
            super().on_mount()
            for box in self.query(NotificationBox):
                box.unfolded = opened
                box.redraw()

    assert snap_compare(Notified(), terminal_size=size)
