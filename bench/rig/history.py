"""A synthetic history: thousands of ended runs, written with the log's own code, many to a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    Event,
    MessageAdded,
    RunCreated,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolsEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, user
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect
from retinue.core.programs import this_process
from retinue.core.request import RunOptions
from retinue.core.usage import Usage
from retinue.log.batch import LogBatch, WrittenResults
from retinue.log.database import connect, register, release
from retinue.log.writer import Changes

MODEL = "anthropic/claude-sonnet-4-5"
TREE = 5
"""Runs of a tree: a main run and the agents that it started."""
OUTPUT = "line of a file that a tool has read, with some words in it\n" * 25
USED = Usage(1_000, 200, 500, 100, 0.01)


def run_id(number: int) -> str:
    return f"{number:08x}-{number % 65536:04x}-4000"


def write_history(folder: Path, cwd: Path, runs: int) -> int:
    """Add `runs` runs to a log, the last of them a minute ago. Return the number of events."""
    began = time.time() - 60 - runs * 20
    return _write(folder, (event for number in range(runs) for event in _run(number, cwd, began + number * 20)))


def write_long_run(folder: Path, cwd: Path, run: str, megabytes: int, *, compacted: bool) -> int:
    """Add one interrupted run with that much output of tools. With `compacted` it was compacted now and then, as a
    model's window demands; without, never."""
    output = "0123456789 abcdefghijklmnopqrstuvwxyz some words of a long output\n" * 480
    turns = megabytes * 1_000_000 // len(output)

    def bodies() -> Iterator[Body]:
        yield from _opening("A long run", "bench-worker", cwd, 0, "")
        for turn in range(1, turns + 1):
            yield from _turn(turn, "read", output)
            if compacted and turn % 20 == 0:
                yield Compacted("threshold", "summarised", 150_000, 2_000, (user("A long run"), user("So far.")))

    events = (Event(run, None, run, seq, time.time() - 50, body) for seq, body in enumerate(bodies(), 1))
    return _write(folder, events)


def _write(folder: Path, events: Iterator[Event]) -> int:
    connection, owner = connect(folder), this_process()
    connection.execute("PRAGMA synchronous=OFF")
    count, tallies, results = 0, {}, WrittenResults()
    connection.execute("BEGIN IMMEDIATE")
    register(connection, owner)
    while some := list(islice(events, 1_000)):
        changes = Changes(tallies)
        for event in some:
            changes.take(event)
        changes.write(connection, LogBatch(1, some).prepare(None, results), owner.id)
        changes.settle()
        count += len(some)
    release(connection, owner)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return count


def _run(number: int, cwd: Path, at: float) -> Iterator[Event]:
    root = run_id(number - number % TREE)
    place = (run_id(number), None if number % TREE == 0 else root, root)
    for seq, body in enumerate(_bodies(number, cwd), 1):
        yield Event(*place, seq, at + seq * 0.1, body)


def _bodies(number: int, cwd: Path) -> Iterator[Body]:
    """Some twenty events. Of a hundred runs two were cut off and three stopped; one call of forty failed."""
    main = number % TREE == 0
    agent = "main" if main else ("explorer", "planner", "reviewer")[number % 3]
    name = "" if main else f"helper{number}"
    yield from _opening(f"Task {number}: find where it is", agent, cwd, 0 if main else 1, name)
    yield from _turn(1, "read", OUTPUT, failed=number % 40 == 7)
    yield from _turn(2, "grep", OUTPUT)
    if number % 50 == 13:
        return
    yield TurnStarted(3)
    yield AssistantEnded(3, AssistantMessage((Text("It is in the third file."),), "end", USED, MODEL))
    yield TurnEnded(3, USED, USED)
    ended = "stopped" if number % 33 == 5 else "completed"
    yield RunEnded(Outcome(ended, "It is in the third file.", usage=USED, turns=3, tool_uses=2))


def _opening(task: str, agent: str, cwd: Path, depth: int, name: str) -> Iterator[Body]:
    options = {"name": name, "description": "finds it"} if name else {}
    yield RunCreated(agent, task, {"name": agent}, "hash", MODEL, str(cwd), depth, RunOptions(**options))
    yield RunStarted(MODEL, ("Read", "Grep"), str(cwd))
    yield MessageAdded(user(task))


def _turn(turn: int, tool: str, output: str, *, failed: bool = False) -> Iterator[Body]:
    call = ToolCall(f"call_{turn}", tool, {"path": "src/some/file.py"})
    result = ToolResult(call.id, tool, (Text(output),), failed)
    yield TurnStarted(turn)
    yield AssistantEnded(turn, AssistantMessage((Text("I look."), call), "tool_use", USED, MODEL))
    yield ToolStarted(call)
    yield ToolEnded(call.id, tool, result, ToolEffect(reads=("src/some/file.py",)), 5)
    yield ToolsEnded(ToolMessage((result,)))
    yield TurnEnded(turn, USED, USED)
