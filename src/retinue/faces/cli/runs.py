"""`retinue runs list`, `runs show` and `runs tail`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import time
from pathlib import Path
from typing import Any, get_args

from retinue.capabilities.questions.attach import todo_line
from retinue.core import events
from retinue.core.controls import escape_controls, in_line
from retinue.core.delegation import State
from retinue.core.format import format_cost, format_duration, format_used, format_wait
from retinue.core.messages import Text, ToolCall
from retinue.core.outcome import CUT_OFF, SUCCESS, Outcome
from retinue.faces.cli.console.output import print_json
from retinue.faces.cli.console.progress import Progress, summary
from retinue.faces.cli.project import add_run, add_where, count, locate, printed_answer, project, say, write_values
from retinue.faces.cli.worktrees import where_saved
from retinue.faces.text import MARKS, clip, indent, local_time, one_line, optional, plural, status
from retinue.log.encode import event_to_json
from retinue.log.follow import follow
from retinue.log.inbox import items
from retinue.log.open_calls import describe_call
from retinue.log.query import LogReader, as_dict, everywhere
from retinue.log.rows import RunRow
from retinue.runs.cleanup import living_commands
from retinue.runs.record import Tag
from retinue.runs.resume import stored_tag
from retinue.settings.places import retinue_state


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
    cut_off: set[str] = set()
    words: dict[str, str] = {}

    def read(reader: LogReader) -> list[RunRow]:
        found = reader.list_runs(states=args.state, agent=args.agent, limit=args.limit or None)
        tags.update((row.id, stored_tag(reader, row)) for row in found)
        words.update((row.id, _status_word(reader, row)) for row in found)
        cut_off.update(row.id for row in found if _is_cut_off(reader, row))
        return found

    unknown: dict[str, list[str]] = {}
    living: dict[str, list[str]] = {}
    if args.all:
        everyone: list[RunRow] = []
        for _, found in everywhere(retinue_state(), read):
            everyone += found
        rows = sorted(everyone, key=lambda row: row.created_at, reverse=True)[: args.limit or None]
    else:
        with LogReader.open(project(args)) as reader:
            rows = read(reader)
            unknown = _unknown_calls(reader, rows)
            living = living_commands(reader) if unknown else {}
    if args.json:
        runs = [_as_data(row, tags[row.id], cut_off=row.id in cut_off) for row in rows]
        document: dict[str, Any] = {"runs": runs}
        if unknown:
            document["interrupted"] = [
                {"id": run_id, "unknown": calls, "still_running": living.get(run_id, [])}
                for run_id, calls in unknown.items()
            ]
        write_values(document)
        return 0
    width = shutil.get_terminal_size((160, 24)).columns
    for row in _as_trees(rows):
        print(_line(row, words[row.id], width, tags[row.id], cut_off=row.id in cut_off))
        for call in unknown.get(row.id, ()):
            print(f"    {one_line(f'? nobody knows what this did: {call}', width - 4)}")
        for command in living.get(row.id, ()):
            print(f"    {one_line(f'! still runs: {command}', width - 4)}")
    if any(row.state == "interrupted" for row in rows):
        say("Go on with one: retinue runs resume ID")
    if living:
        say("End what still runs: retinue runs stop ID; resuming the run ends it as well")
    if not rows:
        say("No runs here yet. Start one: retinue run Explore 'Where is …?'")
    return 0


def _is_cut_off(reader: LogReader, row: RunRow) -> bool:
    """Return whether the answer of a run that succeeded was cut off at the output limit."""
    if row.state != "ended" or row.ended not in SUCCESS:
        return False
    outcome = reader.outcome(row.id)
    return outcome is not None and outcome.truncated


def _as_data(row: RunRow, tag: Tag, *, cut_off: bool) -> dict[str, Any]:
    return {**as_dict(row), "truncated": cut_off, "name": tag.name, "description": tag.description}


def _status_word(reader: LogReader, row: RunRow) -> str:
    """Return how a run stands; of one that waits, whether for an approval or for an answer to a question."""
    if row.state != "waiting":
        return status(row)
    kinds = {each.item.kind for each in items(reader) if each.item.run_id == row.id}
    return "waiting for an answer" if kinds == {"question"} else "waiting for approval"


def _line(row: RunRow, word: str, width: int, tag: Tag, *, cut_off: bool) -> str:
    """Return one line of the list. Agents of a run are indented below it, with what they are called and what they
    work on."""
    mark = MARKS.get(word, "✗" if row.state == "ended" else "▸")
    if cut_off:
        word += ", cut off"
    facts = [f"↻{row.turns}", plural(row.tool_uses, "tool"), format_used(row.usage, row.turns, row.model)]
    cost = format_cost(row.usage.cost_usd)
    if cost:
        facts.append(cost)
    who = f"{'  ' * row.depth}{row.agent}"
    if row.depth:
        who += optional(" @{}", tag.name)
    if tag.description != row.agent:
        who += optional(" ({})", tag.description)
    ago = format_wait(time.time() - row.updated_at)
    told = f"{' · '.join(facts)}  {ago} ago  {one_line(row.task, width)}"
    return clip(f"{mark} {row.id[:8]}  {word:<11} {escape_controls(who)}  {told}", width)


def _as_trees(rows: list[RunRow]) -> list[RunRow]:
    """Return the same rows, but below each run those that it started, in the order it did."""
    shown = {row.id for row in rows}
    below: dict[str | None, list[RunRow]] = {}
    for row in rows:
        # A run whose parent is not listed stands at the top.
        parent = row.parent_id if row.parent_id in shown else None
        below.setdefault(parent, []).append(row)
    found: list[RunRow] = []
    waiting = below.get(None, [])[::-1]
    while waiting:
        found.append(waiting.pop())
        waiting += below.get(found[-1].id, [])
    return found


def _unknown_calls(reader: LogReader, rows: list[RunRow]) -> dict[str, list[str]]:
    """Return for each interrupted run the calls that had begun when its process died."""
    found = {}
    for row in rows:
        if row.state == "interrupted":
            found[row.id] = [*map(describe_call, reader.last_turn(row.id).unknown)]
    return found


def configure_show(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_where(parser)


def execute_show(args: argparse.Namespace) -> int:
    """One run: how it stands, what it did, what it said.

    retinue runs show 3f2a9c1d
    retinue runs show 3f2a9c1d --json      (the run with all its events)
    """
    folder, row = locate(args)
    with LogReader.open(folder) as reader:
        if args.json:
            from retinue.log.follow import export_document

            for piece in export_document(reader, row.id):
                print_json(piece, end=b"", flush=False)
            print_json(b"")
            return 0
        outcome = reader.outcome(row.id)
        ending = [*_todos(reader, row), *_ending(reader, row, outcome), *_undone(reader, row)]
        print("\n".join([*_header(row, _status_word(reader, row)), *_story(reader, row), *ending]))
    return 0


def _header(row: RunRow, word: str) -> list[str]:
    if row.state == "waiting":
        word += " (retinue inbox list)"
    why = row.error if row.error != word else None
    usage = f"↻{row.turns} turns · {row.tool_uses} tool uses · {format_used(row.usage, row.turns, row.model)}"
    lines = [
        f"Run      {row.id}",
        f"Agent    {row.agent} · {row.model}",
        f"Status   {word}{optional(' ({})', why)}",
        f"Started  {local_time(row.created_at)} in {row.cwd}",
        f"Used     {usage}{optional(' · {}', format_cost(row.usage.cost_usd))}",
    ]
    if row.transcript:
        lines.append(f"File     {row.transcript}")
    return [*lines, ""]


_TOLD = (
    "message.added",
    "assistant.ended",
    "tool.ended",
    "model.retrying",
    "limit.reached",
    "run.compacted",
    "run.warned",
    "run.pruned",
)
"""What the story of a run is made of. Of ends of calls only those that failed are told, and so read."""


def _story(reader: LogReader, row: RunRow) -> list[str]:
    lines: list[str] = []
    for event in reader.stream(row.id, types=_TOLD, condition="type <> 'tool.ended' OR level='warning'"):
        match event.body:
            case events.MessageAdded(message):
                lines.append(f"[{message.origin}] {message.text}")
            case events.AssistantEnded(turn, answer):
                for part in answer.content:
                    if isinstance(part, Text) and part.text.strip():
                        lines.append(f"[{turn}] {part.text.strip()}")
                    elif isinstance(part, ToolCall):
                        lines.append(f"[{turn}] → {part.name} {summary(part.arguments)}")
            case events.ToolEnded() if event.body.result.is_error:
                lines.append(f"    ✗ {event.body.name}: {one_line(event.body.result.text, 160)}")
            case body:
                lines += indent(_remark(body, event.at), "    ")
    return lines


def _remark(body: events.Body, at: float) -> list[str]:
    """Return the line about something that happened between answers."""
    match body:
        case events.Retrying(attempt, _, failure):
            return [f"… attempt {attempt}: {failure.message}"]
        case events.LimitReached(_, _, detail):
            return [f"! {detail}"]
        case events.Compacted():
            return [f"⇊ compacted: {body.tokens_before} → {body.tokens_after} tokens"]
        case events.Warned(_, text):
            return [f"! {text}"]
        case events.RunPruned(removed):
            return [f"… {plural(removed, 'event')} removed to save space on {local_time(at)}"]
        case _:
            return []


def _todos(reader: LogReader, row: RunRow) -> list[str]:
    """Return what the run has to do, as it stands."""
    for _, event in reader.ordered(row.id, ("todos.updated",), newest_first=True):
        if isinstance(event.body, events.TodosUpdated):
            return ["", *indent(map(todo_line, event.body.todos), "Todo     ")]
    return []


def _undone(reader: LogReader, row: RunRow) -> list[str]:
    lines = []
    for _, event in reader.ordered(row.id, ("run.undone",)):
        if isinstance(event.body, events.Undone):
            put_back = len(event.body.restored) + len(event.body.removed)
            lines.append(f"Undone   {put_back} files put back, {len(event.body.kept)} kept")
    return lines


def _ending(reader: LogReader, row: RunRow, outcome: Outcome | None) -> list[str]:
    if outcome is None:
        past = reader.last_turn(row.id)
        lines = []
        if past.partial.strip():
            lines.append(f"[partial] {past.partial.strip()}")
        lines += indent(map(describe_call, past.unknown), "Unknown effect: ")
        lines += indent(map(describe_call, past.unrun), "Not run: ")
        if row.state == "interrupted":
            lines += indent(living_commands(reader).get(row.id, ()), "Still runs: ")
            lines += where_saved(reader.path.parent, row)
            lines.append(f"\nInterrupted. Go on with: retinue runs resume {row.id[:8]}")
        return lines
    how: str = outcome.ended
    if outcome.truncated:
        how += f", {CUT_OFF},"
    lines = ["", f"Ended    {how} after {format_duration(outcome.duration_ms)}"]
    lines += where_saved(reader.path.parent, row, outcome.branch)
    if outcome.failure:
        lines.append(f"Why      {outcome.failure.message} {outcome.failure.remedy}".rstrip())
    lines += indent(outcome.notes, "Note     ")
    lines += indent(map(in_line, outcome.evidence.files_written[:20]), "Wrote    ")
    return lines + indent(map(in_line, outcome.evidence.commands[:20]), "Ran      ")


def configure_tail(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
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
            say(f"retinue: interrupted; go on with: retinue runs resume {row.id[:8]}")
    if outcome is not None and not args.json:
        text = printed_answer(outcome)
        if text:
            print(text)
    return 0


async def _watch(folder: Path, row: RunRow, args: argparse.Namespace) -> None:
    progress = Progress(row.agent)
    async for event in follow(folder, row.id, args.after):
        if args.json:
            print_json(event_to_json(event))
        else:
            progress.show(event)
