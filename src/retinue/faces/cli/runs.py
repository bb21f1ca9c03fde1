"""`retinue runs list`, `runs show` and `runs tail`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from pathlib import Path
from typing import get_args

from retinue.capabilities.questions.attach import todo_line
from retinue.core.delegation import State
from retinue.core.events import (
    AssistantEnded,
    Compacted,
    LimitReached,
    MessageAdded,
    Retrying,
    TodosUpdated,
    ToolEnded,
    Undone,
    Warned,
)
from retinue.core.format import format_cost, format_duration, format_tokens
from retinue.core.messages import Text, ToolCall
from retinue.core.outcome import CUT_OFF, Outcome
from retinue.faces.cli.options import count
from retinue.faces.cli.output import escape_json
from retinue.faces.cli.progress import Progress, summary
from retinue.faces.cli.project import add_where, for_reader, harmless, in_line, line, locate, one_line, project, status
from retinue.faces.cli.worktrees import where_saved
from retinue.log.encode import event_to_json
from retinue.log.follow import follow
from retinue.log.pending import describe_call
from retinue.log.query import LogReader, as_dict, everywhere
from retinue.log.rows import RunRow
from retinue.runs.record import Tag
from retinue.runs.resume import stored_tag
from retinue.settings.places import retinue_home


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("--all", action="store_true", help="of all projects")
    parser.add_argument("--state", choices=get_args(State), action="append", help="only runs in this state")
    parser.add_argument("--agent", metavar="NAME", help="only runs of this agent")
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="at most N runs (default: 20; 0: all)")


def execute_list(args: argparse.Namespace) -> int:
    """Runs of this project, newest first, each with its agents below it and the names by which they
    are addressed.

    Under a run whose process died stand the calls of which nobody knows what they did, and the
    commands of them that still run.

    retinue runs list
    retinue runs list --state interrupted
    retinue runs list --all --json
    """
    tags: dict[str, Tag] = {}

    def read(reader: LogReader) -> list[RunRow]:
        found = reader.list_runs(states=args.state, agent=args.agent, limit=args.limit or None)
        tags.update((row.id, stored_tag(reader, row)) for row in found)
        return found

    if args.all:
        rows = [row for _, found in everywhere(retinue_home(), read) for row in found]
        rows.sort(key=lambda row: row.created_at, reverse=True)
        rows = rows[: args.limit or None]
    else:
        with LogReader.open(project(args)) as reader:
            rows = read(reader)
    cut_off = any(row.state == "interrupted" for row in rows)
    unknown = {} if args.all else _unknown(project(args), rows)
    living = _living(project(args)) if cut_off and not args.all else {}
    if args.json:
        from retinue.log.encode import dump

        cut = [
            {"id": run_id, "unknown": calls, "still_running": living.get(run_id, [])}
            for run_id, calls in unknown.items()
        ]
        runs = [{**as_dict(row), "name": tags[row.id].name, "description": tags[row.id].description} for row in rows]
        print(dump({"runs": runs, **({"interrupted": cut} if cut else {})}).decode())
        return 0
    width = shutil.get_terminal_size((160, 24)).columns
    for row in _as_trees(rows):
        print(line(row, width, tags[row.id]))
        for call in unknown.get(row.id, ()):
            print(f"    {one_line(f'? nobody knows what this did: {call}', width - 4)}")
        for command in living.get(row.id, ()):
            print(f"    {one_line(f'! still runs: {command}', width - 4)}")
    if cut_off:
        print("Go on with one: retinue runs resume ID", file=sys.stderr)
    if living:
        print("End what still runs: retinue runs stop ID; resuming the run does so, too", file=sys.stderr)
    if not rows:
        print("No runs here yet. Start one: retinue run Explore 'Where is …?'", file=sys.stderr)
    return 0


def _as_trees(rows: list[RunRow]) -> list[RunRow]:
    """The same rows, but below each run those that it started, in the order it did."""
    shown = {row.id for row in rows}
    below: dict[str | None, list[RunRow]] = {}
    for row in rows:
        below.setdefault(row.parent_id if row.parent_id in shown else None, []).append(row)
    found: list[RunRow] = []
    waiting = below.get(None, [])[::-1]
    while waiting:
        found.append(waiting.pop())
        waiting += below.get(found[-1].id, [])
    return found


def _unknown(folder: Path, rows: list[RunRow]) -> dict[str, list[str]]:
    """Of each interrupted run, the calls that had begun when its process died."""
    with LogReader.open(folder) as reader:
        return {
            row.id: [describe_call(call) for call in reader.conversation(row.id).unknown]
            for row in rows
            if row.state == "interrupted"
        }


def _living(folder: Path) -> dict[str, list[str]]:
    """Commands that outlived the process of their run, by run."""
    from retinue.runs.cleanup import living_commands

    with LogReader.open(folder) as reader:
        return living_commands(reader)


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, its beginning, or @name")
    add_where(parser)


def execute_show(args: argparse.Namespace) -> int:
    """One run: how it stands, what it did, what it said.

    retinue runs show 3f2a9c1d
    retinue runs show 3f2a9c1d --json      (the run with all its events)
    """
    folder, row = locate(args)
    with LogReader.open(folder) as reader:
        if args.json:
            from retinue.log.transcript import export_document

            print(export_document(reader, row.id).decode())
            return 0
        outcome = reader.outcome(row.id)
        ending = [*_todos(reader, row), *_ending(reader, row, outcome), *_undone(reader, row)]
        print(harmless("\n".join([*_header(row), *_story(reader, row), *ending])))
    return 0


def _header(row: RunRow) -> list[str]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.created_at))
    usage = [f"↻{row.turns} turns", f"{row.tool_uses} tool uses", format_tokens(row.usage.total_tokens)]
    cost = format_cost(row.usage.cost_usd)
    return [
        f"Run      {row.id}",
        f"Agent    {row.agent} · {row.model}",
        f"Status   {_standing(row)}" + (f" ({row.error})" if row.error else ""),
        f"Started  {started} in {row.cwd}",
        f"Used     {' · '.join([*usage, cost] if cost else usage)}",
        *([f"File     {row.transcript}"] if row.transcript else []),
        "",
    ]


def _standing(row: RunRow) -> str:
    return "waiting for approval (retinue inbox list)" if row.state == "waiting" else status(row)


def _story(reader: LogReader, row: RunRow) -> list[str]:
    lines: list[str] = []
    for event in reader.events(row.id):
        match event.body:
            case MessageAdded(message):
                lines.append(f"[{message.origin}] {message.text}")
            case AssistantEnded(turn, answer):
                for part in answer.content:
                    if isinstance(part, Text) and part.text.strip():
                        lines.append(f"[{turn}] {part.text.strip()}")
                    elif isinstance(part, ToolCall):
                        lines.append(f"[{turn}] → {part.name} {summary(part.arguments)}")
            case ToolEnded() if event.body.result.is_error:
                lines.append(f"    ✗ {event.body.name}: {one_line(event.body.result.text, 160)}")
            case Retrying(attempt, _, failure):
                lines.append(f"    … attempt {attempt}: {failure.message}")
            case LimitReached(_, _, detail):
                lines.append(f"    ! {detail}")
            case Compacted():
                lines.append(f"    ⇊ compacted: {event.body.tokens_before} → {event.body.tokens_after} tokens")
            case Warned(_, text):
                lines.append(f"    ! {text}")
            case _:
                pass
    return lines


def _todos(reader: LogReader, row: RunRow) -> list[str]:
    """What it has to do, as it stands."""
    found = reader.ordered(row.id, ("todos.updated",))
    body = found[-1][1].body if found else None
    return ["", *(f"Todo     {todo_line(todo)}" for todo in body.todos)] if isinstance(body, TodosUpdated) else []


def _undone(reader: LogReader, row: RunRow) -> list[str]:
    bodies = [event.body for _, event in reader.ordered(row.id, ("run.undone",))]
    return [
        f"Undone   {len(body.restored) + len(body.removed)} files put back, {len(body.kept)} kept"
        for body in bodies
        if isinstance(body, Undone)
    ]


def _ending(reader: LogReader, row: RunRow, outcome: Outcome | None) -> list[str]:
    if outcome is None:
        past = reader.conversation(row.id)
        lines = [f"[partial] {past.partial.strip()}"] if past.partial.strip() else []
        lines += [f"Unknown effect: {describe_call(call)}" for call in past.unknown]
        lines += [f"Not run: {describe_call(call)}" for call in past.unrun]
        if row.state == "interrupted":
            lines += where_saved(reader.path.parent, row)
            lines.append(f"\nInterrupted. Go on with: retinue runs resume {row.id[:8]}")
        return lines
    how = f"{outcome.ended}, {CUT_OFF}," if outcome.truncated else outcome.ended
    lines = ["", f"Ended    {how} after {format_duration(outcome.duration_ms)}"]
    lines += where_saved(reader.path.parent, row, outcome.branch)
    if outcome.failure:
        lines.append(f"Why      {outcome.failure.message} {outcome.failure.remedy}".rstrip())
    lines += [f"Note     {note}" for note in outcome.notes]
    for name, values in (("Wrote", outcome.evidence.files_written), ("Ran", outcome.evidence.commands)):
        lines += [f"{name:<8} {in_line(value)}" for value in values[:20]]
    return lines


def configure_tail(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, its beginning, or @name")
    parser.add_argument("--after", type=count, default=0, metavar="SEQ", help="only events after this number")
    add_where(parser)


def execute_tail(args: argparse.Namespace) -> int:
    """Watch a run of any process: what it has done, and what it does, until it ends.

    retinue runs tail 3f2a9c1d
    retinue runs tail 3f2a9c1d --json      (every event as a JSON line)
    """
    folder, row = locate(args)
    try:
        asyncio.run(_watch(folder, row, args))
    except KeyboardInterrupt:
        return 130
    with LogReader.open(folder) as reader:
        outcome = reader.outcome(row.id)
        if reader.run(row.id).state == "interrupted":
            print(f"retinue: interrupted; go on with: retinue runs resume {row.id[:8]}", file=sys.stderr)
    if outcome is not None and not args.json:
        print(for_reader(outcome.text) or "No output.")
    return 0


async def _watch(folder: Path, row: RunRow, args: argparse.Namespace) -> None:
    progress = Progress(row.agent)
    async for event in follow(folder, row.id, args.after):
        if args.json:
            sys.stdout.buffer.write(escape_json(event_to_json(event)) + b"\n")
            sys.stdout.buffer.flush()
        else:
            progress.show(event)
