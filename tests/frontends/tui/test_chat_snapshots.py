"""How the parts of a conversation look: the checklist, a question, an agent's line, a change, a table."""

from __future__ import annotations

import pytest

from retinue.core.events import (
    AssistantEnded,
    Event,
    InboxOpened,
    MessageAdded,
    RunCreated,
    RunEnded,
    RunStarted,
    TodosUpdated,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, notification, user
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect
from retinue.core.request import RunOptions
from retinue.core.tool import Todo
from retinue.core.usage import Usage
from tests.frontends.tui.screen_scene import NOW, SnapApp
from tests.frontends.tui.test_questions import ASKED
from tests.frontends.tui.test_shell_snapshots import Telling, app, project, settled

__all__ = ["app", "project"]

SIZES = [(80, 24), (120, 40)]
TABLE = """# What was found

- [x] read the parser
- [ ] change it, see [the issue](https://example.com/issues/12)

| file | what it does | lines |
|:---|:---|---:|
| `src/parse.py` | reads the text and builds a tree of it, with errors that name the line and the column | 120 |
| `src/lex.py` | tokens | 7 |

```diff
@@ -1,2 +1,2 @@
-old = 1
+new = 2
```
"""


def child(app: SnapApp, *bodies) -> None:
    for number, body in enumerate(bodies):
        app._take(Event("child", "main", "main", number, NOW + number, body))


def ended(call: ToolCall, text: str) -> ToolEnded:
    return ToolEnded(call.id, call.name, ToolResult(call.id, call.name, (Text(text),)), ToolEffect(), 9)


async def work(pilot) -> None:
    tell = Telling(pilot.app)
    grep = ToolCall("c1", "grep", {"pattern": "def parse", "path": "src"})
    edit = ToolCall("c2", "edit", {"path": "src/a.py", "old_string": "x = 1", "new_string": "x = 2\ny = 3"})
    agent = ToolCall("c3", "Agent", {"description": "Compare callers", "prompt": "p", "subagent_type": "Explore"})
    tell(MessageAdded(user("Make it quick")), ToolStarted(grep), ended(grep, "a\nb"))
    tell(ToolStarted(edit), ended(edit, "Made the edit in src/a.py:\n@@ -1,2 +1,3 @@\n-x = 1\n+x = 2\n+y = 3\n z = 1"))
    options = {"description": "Compare callers", "background": False, "call_id": "c3"}
    created = RunCreated("Explore", "p", {}, "", "offline/planner", "/p", 1, RunOptions(**options))
    child(pilot.app, created, RunStarted("offline/planner", (), "/p"), TurnEnded(8, Usage(33_800), Usage(33_800), 0))
    child(pilot.app, RunEnded(Outcome("completed", "Two callers.", turns=8)))
    tell(ToolStarted(agent), ended(agent, "Agent completed in 12.3s.\n\nTwo callers."))
    steps = (Todo("Read it", "completed"), Todo("Change it", "in_progress", "Changing it"), Todo("Run the tests"))
    tell(TodosUpdated(steps))
    await settled(pilot, "⎿ Done", "To do · 1 of 3 done")


async def questions(pilot) -> None:
    tell = Telling(pilot.app)
    options = [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}]
    call = ToolCall("c1", "ask_user", {"question": "Which database?", "options": options})
    tell(MessageAdded(user("Make it quick")), MessageAdded(notification("An agent asks.", ASKED)))
    tell(ToolStarted(call), InboxOpened("i", "question", "Which database?", "c1"))
    await settled(pilot, "question for you", "Explore: Count uses asks")


async def table(pilot) -> None:
    Telling(pilot.app)(MessageAdded(user("What is there?")), AssistantEnded(1, AssistantMessage((Text(TABLE),))))
    await settled(pilot, "src/lex.py", "+new = 2")


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
@pytest.mark.parametrize("scene", [work, questions, table], ids=lambda scene: scene.__name__)
def test_a_part_of_a_conversation(app, snap_compare, scene, size) -> None:
    assert snap_compare(app, terminal_size=size, run_before=scene)


@pytest.mark.parametrize("scene", [work, table], ids=lambda scene: scene.__name__)
def test_the_same_in_light(app, snap_compare, scene) -> None:
    async def before(pilot) -> None:
        app.use_theme("light")
        await scene(pilot)

    assert snap_compare(app, terminal_size=(80, 24), run_before=before)
