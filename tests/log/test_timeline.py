"""What a tree did when, and what its runs are doing, from events in a real log."""

from __future__ import annotations

from pathlib import Path

from retinue.core.events import (
    AssistantEnded,
    InboxClosed,
    InboxOpened,
    LimitReached,
    Retrying,
    RunCreated,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult
from retinue.core.outcome import Failure, Outcome
from retinue.core.permission import ToolEffect
from retinue.core.request import RunOptions
from retinue.core.run_state import RunPlace
from retinue.core.usage import Usage
from retinue.log.follow import run_events_before
from retinue.log.overview import describe_activity, run_tools, tree_budgets, tree_usage
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.log.timeline import read_timeline

MAIN = RunPlace("main-run")
CHILD = RunPlace("child-run", "main-run", "main-run")
BASH = ToolCall("c1", "bash", {"command": "make test"})
EDIT = ToolCall("c2", "edit", {"path": "a.py"})


def begin(log: Log, place: RunPlace, **options: object) -> None:
    log.append(place, RunCreated("worker", "task", {}, "hash", "m", "/p", int(place is CHILD), RunOptions(**options)))
    log.append(place, RunStarted("m", ("read", "bash"), "/p"))
    log.append(place, TurnStarted(1))


async def tell(log: Log) -> None:
    begin(log, MAIN, budget={"usd": 2.0})
    log.append(MAIN, Retrying(1, 2.5, Failure("rate_limit", "too fast")))
    log.append(MAIN, AssistantEnded(1, AssistantMessage((BASH, EDIT))))
    log.append(MAIN, ToolStarted(BASH))
    log.append(MAIN, ToolStarted(EDIT))
    log.append(MAIN, InboxOpened("i1", "approval", "edit a.py", "c2"))
    failed = ToolResult("c1", "bash", (Text("no"),), is_error=True)
    log.append(MAIN, ToolEnded("c1", "bash", failed, ToolEffect(command="make test", exit_code=1), 40))
    begin(log, CHILD)
    spent = Usage(100, 10, cost_usd=0.25)
    log.append(CHILD, AssistantEnded(1, AssistantMessage((Text("Done."),), usage=spent)))
    log.append(CHILD, LimitReached("turns", "end", "30 turns"))
    log.append(CHILD, TurnEnded(1, spent, spent))
    log.append(CHILD, RunEnded(Outcome("completed", usage=spent, turns=1)))
    await log.flush()


async def test_spans_lie_between_the_events_that_begin_and_end_them(tmp_path: Path) -> None:
    async with Log.open(tmp_path) as log:
        await tell(log)
        with LogReader.open(tmp_path) as reader:
            main, child = read_timeline(reader, {"main-run": "waiting", "child-run": "ended"})
        kinds = [(span.kind, span.label, span.detail, span.end is None, span.failed) for span in main.spans]
        assert sorted(kinds) == [
            ("model", "turn 1", "", False, False),
            ("person", "edit a.py", "", True, False),
            ("queue", "queued", "", False, False),
            ("retry", "too fast", "", False, False),
            ("tool", "bash", "make test", False, True),
            ("tool", "edit", "a.py", True, False),
        ]
        retry = next(span for span in main.spans if span.kind == "retry")
        assert retry.end is not None and abs(retry.end - retry.start - 2.5) < 0.001
        assert [span.kind for span in child.spans] == ["queue", "model", "limit"]
        assert not child.cut and all(span.end is not None for span in child.spans)
        log.append(MAIN, InboxClosed("i1", "answered", "allow", "web", "", "c2"))
        await log.flush()


async def test_what_a_run_is_doing_has_spent_and_may_use(tmp_path: Path) -> None:
    async with Log.open(tmp_path) as log:
        await tell(log)
        with LogReader.open(tmp_path) as reader:
            runs = [reader.run("main-run"), reader.run("child-run")]
            describe_activity(reader, runs)
            assert [run.doing for run in runs] == ["edit a.py", ""]
            assert run_tools(reader, "main-run") == ["read", "bash"]
            assert tree_budgets(reader) == {"main-run": {"usd": 2.0}}
            assert tree_usage(reader, "child-run") == Usage(100, 10, cost_usd=0.25)
            assert tree_usage(reader, "main-run").input == 100


async def test_pages_go_back_from_the_newest_event(tmp_path: Path) -> None:
    async with Log.open(tmp_path) as log:
        await tell(log)
        with LogReader.open(tmp_path) as reader:
            newest = run_events_before(reader, "main-run", None, tree=True, limit=4)
            assert newest[-1].type == "run.ended"
            older = run_events_before(reader, "main-run", newest[0].number, tree=True)
            assert [event.number for event in older + newest] == list(range(1, newest[-1].number + 1))
            assert {event.run_id for event in run_events_before(reader, "main-run", None)} == {"main-run"}
