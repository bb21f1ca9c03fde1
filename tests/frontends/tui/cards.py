"""Runs as events, for tests of what is drawn."""

from __future__ import annotations

from retinue.core.events import (
    Body,
    Event,
    RunCreated,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from retinue.core.messages import Text, ToolCall, ToolResult
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect
from retinue.core.request import RunOptions
from retinue.core.usage import Usage
from retinue.frontends.tui.board.board import Board


class Story:
    """A board that is told what happens to runs, one second after another if need be."""

    def __init__(self, main: str | None = "main") -> None:
        self.board = Board(main_id=main)
        self.now = 1_000.0
        self.seq = 0
        self.parents: dict[str, str | None] = {}

    def tell(self, run: str, body: Body) -> None:
        self.seq += 1
        self.board.take(Event(run, self.parents.get(run), "main", self.seq, self.now, body))

    def create(self, run: str, parent: str | None = "main", depth: int = 1, agent: str = "Explore", **options) -> None:
        self.parents[run] = parent
        spec = {"display_name": options.pop("display_name", None), "color": options.pop("color", None)}
        options.setdefault("description", f"look at {run}")
        options.setdefault("background", True)
        self.tell(run, RunCreated(agent, "a task", spec, "", "offline/planner", "/p", depth, RunOptions(**options)))

    def start(self, run: str, parent: str | None = "main", depth: int = 1, **options) -> None:
        self.create(run, parent, depth, **options)
        self.tell(run, RunStarted("offline/planner", (), "/p"))

    def say(self, run: str, text: str) -> None:
        self.tell(run, TextDelta(text))

    def call(self, run: str, tool: str, call_id: str = "c1") -> None:
        self.tell(run, ToolStarted(ToolCall(call_id, tool, {})))

    def called(self, run: str, tool: str, call_id: str = "c1") -> None:
        result = ToolResult(call_id, tool, (Text("fine"),))
        self.tell(run, ToolEnded(call_id, tool, result, ToolEffect(), 5))

    def turn(self, run: str, number: int, tokens: int = 1_200) -> None:
        self.tell(run, TurnEnded(number, Usage(tokens), Usage(tokens), 600))

    def end(self, run: str, ended: str = "completed") -> None:
        self.tell(run, RunEnded(Outcome(ended, "done", usage=Usage(1_200))))
