"""How the conversation, the editor, help, sessions and the way out look, at 80 × 24 and 120 × 40."""

from __future__ import annotations

import time

import pytest

from retinue.core.events import (
    AssistantEnded,
    Body,
    Event,
    MessageAdded,
    RunCreated,
    RunStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Warned,
)
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, user
from retinue.core.permission import ToolEffect
from retinue.core.person_prompt import PersonPrompt
from retinue.core.run_state import RunState
from retinue.core.usage import Usage
from retinue.frontends.tui.chat.log import ChatLog
from retinue.log.query import LogReader
from tests.frontends.tui.screen_scene import SnapApp, at_home, picture
from tests.program.conftest import project  # noqa: F401 - a fixture

SIZES = [(80, 24), (120, 40)]
ANSWER = """The parser is in `src/parse.py`. Two things stand out:

1. **Errors** name the line, not the column.
2. The table is built *twice*.

```python
def parse(text: str) -> Tree:
    return build(tokens(text))
```
"""


@pytest.fixture
def app(project, monkeypatch) -> SnapApp:  # noqa: F811
    at_home(project, monkeypatch)
    return SnapApp(project)


class Telling:
    """Events of a main run, one after the other."""

    def __init__(self, app: SnapApp) -> None:
        self.app, self.seq = app, 0
        app.session.main_id = app.board.main_id = "main"

    def __call__(self, *bodies: Body) -> None:
        for body in bodies:
            self.seq += 1
            self.app._take(Event("main", None, "main", self.seq, time.time(), body))


async def settled(pilot, *texts: str) -> None:
    """Waits until the screen has these and does not change any more."""
    last, same = "", 0
    for _ in range(600):
        await pilot.pause(0.02)
        shown = picture(pilot.app)
        # The bar may still move while the text stays.
        heights = [widget.virtual_size.height for widget in pilot.app.screen.query("*")]
        state = f"{shown}\n{heights}"
        same = same + 1 if state == last else 0
        last = state
        if same >= 10 and all(text in shown for text in texts):
            return
    raise AssertionError(last)


async def conversation(pilot) -> None:
    # The first screen grows as it learns more, and the scroll bar with it.
    await settled(pilot, "13 agents", "only searches")
    tell = Telling(pilot.app)
    read = ToolCall("c1", "read", {"path": "src/parse.py"})
    edit = ToolCall("c2", "edit", {"path": "src/parse.py", "edits": [{"old": "line", "new": "line, column"}]})
    bash = ToolCall("c3", "bash", {"command": "make test"})
    thought = Thinking("First look at the parser, then at its tests.")
    tell(
        RunCreated("main", "Why are the errors so vague?", {}, "", "anthropic/claude-sonnet-4-5", "/p", 0),
        RunStarted("anthropic/claude-sonnet-4-5", (), "/p"),
        MessageAdded(user("Why are the errors so vague?")),
        TurnStarted(1),
        AssistantEnded(1, AssistantMessage((thought, Text("I look at the parser."), read, edit, bash))),
        ToolStarted(read),
        ToolEnded("c1", "read", ToolResult("c1", "read", (Text("a\nb\nc"),)), ToolEffect(), 12),
        ToolStarted(edit),
        ToolEnded("c2", "edit", ToolResult("c2", "edit", (Text("Made the edit."),)), ToolEffect(), 9),
        ToolStarted(bash),
        ToolEnded("c3", "bash", ToolResult("c3", "bash", (Text("2 failed"),), True), ToolEffect(exit_code=2), 2_300),
        TurnEnded(1, Usage(1_000, 200, cost_usd=0.0042), Usage(1_000, 200, cost_usd=0.0042), 31_000),
        Warned("launch", "The server 'docs' did not answer."),
        TurnStarted(2),
        AssistantEnded(2, AssistantMessage((Text(ANSWER),))),
    )
    await settled(pilot, "build(tokens(text))", "~$0.0042")
    # The bar keeps the place it had while the text grew until something scrolls again.
    pilot.app.query_one(ChatLog).scroll_home(animate=False)
    await pilot.pause()
    pilot.app.query_one(ChatLog).scroll_end(animate=False)
    await settled(pilot, "build(tokens(text))", "~$0.0042")


async def typing(pilot) -> None:
    await conversation(pilot)
    pilot.app.session.queue += [PersonPrompt("and the column, too"), PersonPrompt("then run the tests")]
    pilot.app._prompt.put("/co")
    await settled(pilot, "/compact", "◦ then run the tests")


async def asked_for_help(pilot) -> None:
    await settled(pilot, "13 agents")
    await pilot.press("f1")
    await settled(pilot, "Keys")


def row(number: int, task: str, **more) -> RunState:
    at = time.time() - 60 * 7 * number - 5
    fields = {"state": "ended", "ended": "completed", "pid": None, **more}
    return RunState(
        id=f"{number:08x}",
        parent_id=None,
        root_id=f"{number:08x}",
        depth=0,
        agent="main",
        task=task,
        cwd="/p",
        model="m",
        error=None,
        transcript=None,
        created_at=at,
        started_at=at,
        ended_at=at,
        updated_at=at,
        turns=number,
        tool_uses=3,
        compactions=0,
        usage=Usage(1_000, 10, cost_usd=0.02 * number),
        **fields,
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_first_screen(app, snap_compare, size) -> None:
    (app.project.cwd / "AGENTS.md").write_text("Be brief.")

    async def before(pilot) -> None:
        await settled(pilot, "AGENTS.md", "only searches", "planner")

    assert snap_compare(app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_conversation(app, snap_compare, size, theme) -> None:
    async def before(pilot) -> None:
        app.use_theme(theme)
        await conversation(pilot)

    assert snap_compare(app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES[1:], ids=str)  # in the smaller one the scroll bar moves as late as it likes
def test_waiting_words_and_a_completion(app, snap_compare, size) -> None:
    assert snap_compare(app, terminal_size=size, run_before=typing)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_help(app, snap_compare, size) -> None:
    assert snap_compare(app, terminal_size=size, run_before=asked_for_help)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sessions(app, snap_compare, size, monkeypatch) -> None:
    rows = [
        row(1, "Why are the errors so vague?"),
        row(2, "Review the branch", state="running", ended=None, pid=4321),
        row(3, "漢字 in a task that is far too long for one line " * 4, ended="stopped"),
        row(4, "Try the new model", ended="error"),
    ]
    monkeypatch.setattr(LogReader, "conversations", lambda *_, **__: rows)

    async def before(pilot) -> None:
        await settled(pilot, "13 agents")
        pilot.app.action_open_screen("sessions")
        await settled(pilot, "Try the new model")

    assert snap_compare(app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_way_out(app, snap_compare, size) -> None:
    async def before(pilot) -> None:
        from retinue.frontends.tui.screens.dialogs import ConfirmScreen

        choices = [
            ("keep", "k", "let them go on without the app"),
            ("quit", "s", "stop them and quit"),
            ("stay", "c", "stay here"),
        ]
        await settled(pilot, "13 agents")
        detail = "explore: Find where requests are authenticated\nreviewer: Review the branch"
        pilot.app.push_screen(ConfirmScreen("2 runs still at work.", choices, detail))
        await settled(pilot, "stay here")

    assert snap_compare(app, terminal_size=size, run_before=before)
