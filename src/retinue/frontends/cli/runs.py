"""`retinue runs list`, `show`, `effects` and `tail`: lists of runs, and details of one run."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from retinue.app.feed import Feed
from retinue.app.lookup import find_outcome
from retinue.app.output import print_json
from retinue.app.run_events import ProcessLost, follow_run
from retinue.app.runs import (
    ListedRun,
    RunEnding,
    list_runs,
    read_document,
    read_ending,
    read_story,
    status_text,
    waiting_words,
)
from retinue.app.text import (
    EFFECT_SIGNS,
    RUN_SIGNS,
    clip,
    effect_notes,
    indent,
    local_time,
    one_line,
    optional,
    plural,
    printed_answer,
    reads_text,
    short_path,
    status_word,
)
from retinue.core.controls import escape_controls, in_line, visible
from retinue.core.delegation import State
from retinue.core.encode import event_to_json
from retinue.core.format import format_cost, format_duration, format_used, format_wait
from retinue.core.outcome import CUT_OFF
from retinue.core.run_state import RunState
from retinue.core.story import StoryStep
from retinue.frontends.cli.console.progress import Progress, call_line, note_line, summary
from retinue.frontends.cli.project import add_run, add_where, count, locate, project, say, write_values

if TYPE_CHECKING:
    from retinue.app.changes import CallEffect, RunEffects


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("--all", action="store_true", help="include all projects")
    parser.add_argument("--state", choices=get_args(State), action="append", help="only runs in this state")
    parser.add_argument("--agent", metavar="NAME", help="only runs of this agent")
    parser.add_argument("--touched", metavar="PATH", help="only runs that read or wrote this file")
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="at most N runs (default: 20; 0: all)")


def execute_list(args: argparse.Namespace) -> int:
    """List the runs of this project, newest first, each with its agents below it and their names.

    Below an interrupted run are the calls whose effects are unknown, and their commands that still
    run.

        retinue runs list
        retinue runs list --state interrupted
        retinue runs list --touched src/app.py
        retinue runs list --all --json
    """
    folder = None if args.all else project(args)
    listing = list_runs(folder, states=args.state, agent=args.agent, touched=args.touched, limit=args.limit or None)
    if args.json:
        write_values(listing)
        return 0
    width = shutil.get_terminal_size((160, 24)).columns
    waiting = waiting_words(folder) if any(run.state == "waiting" for run in listing.runs) else {}
    interrupted = {run.id: run for run in listing.interrupted}
    for run in _as_trees(listing.runs):
        print(_line(run, status_text(run, waiting), width))
        if run.id in interrupted:
            for call in interrupted[run.id].unknown:
                print(f"    {one_line(f'? unknown effect: {call}', width - 4)}")
            for command in interrupted[run.id].still_running:
                print(f"    {one_line(f'! still runs: {command}', width - 4)}")
    if any(run.state == "interrupted" for run in listing.runs):
        say("Resume one: retinue runs resume ID")
    if any(run.still_running for run in listing.interrupted):
        say("End commands that still run: retinue runs stop ID; resuming the run ends them as well")
    if not listing.runs:
        say("No runs here yet. Start one: retinue run Explore 'Where is …?'")
    return 0


def _line(run: ListedRun, status: str, width: int) -> str:
    """Return one line of the list. Agents of a run are indented below it, with their names and descriptions."""
    mark = RUN_SIGNS.get(run.status, "✗" if run.state == "ended" else "▸")
    if run.truncated:
        status += ", cut off"
    facts = [f"↻{run.turns}", plural(run.tool_uses, "tool"), format_used(run.usage, run.turns, run.model)]
    cost = format_cost(run.usage.cost_usd)
    if cost:
        facts.append(cost)
    agent = f"{'  ' * run.depth}{run.agent}"
    if run.depth:
        agent += optional(" @{}", run.name)
    if run.description != run.agent:
        agent += optional(" ({})", run.description)
    age = format_wait(time.time() - run.updated_at)
    summary = f"{' · '.join(facts)}  {age} ago  {one_line(run.task, width)}"
    return clip(f"{mark} {run.id[:8]}  {status:<11} {escape_controls(agent)}  {summary}", width)


def _as_trees(runs: list[ListedRun]) -> Iterator[ListedRun]:
    """Yield the runs as trees: below each run its children, in the order in which it started them."""
    ids = {run.id for run in runs}
    children: dict[str | None, list[ListedRun]] = {}
    for run in runs:
        # A run whose parent is not listed is a root.
        parent = run.parent_id if run.parent_id in ids else None
        children.setdefault(parent, []).append(run)
    pending = children.get(None, [])[::-1]
    while pending:
        run = pending.pop()
        yield run
        pending += children.get(run.id, [])


def configure_show(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_where(parser)


def execute_show(args: argparse.Namespace) -> int:
    """Show one run: its status, its actions and its answers.

    retinue runs show 3f2a9c1d
    retinue runs show 3f2a9c1d --json      (the run with all its events)
    """
    folder, row = locate(args)
    if args.json:
        for piece in read_document(folder, row):
            print_json(piece, end=b"", flush=False)
        print_json(b"")
        return 0
    ending = read_ending(folder, row)
    waiting = waiting_words(folder) if row.state == "waiting" else {}
    lines = _header(row, status_text(row, waiting))
    for step in read_story(folder, row):
        lines += _step_lines(step)
    lines += ["", *indent(ending.todos, "Todo     ")] if ending.todos else []
    lines += _ending_lines(row, ending)
    for undone in ending.undone:
        put_back = len(undone.restored) + len(undone.removed)
        lines.append(f"Undone   {put_back} files put back, {len(undone.kept)} kept")
    print("\n".join(lines))
    return 0


def _header(row: RunState, word: str) -> list[str]:
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


def _step_lines(step: StoryStep) -> list[str]:
    entry = step.entry
    if entry.message is not None:
        return [f"[{entry.message.origin}] {entry.text}"]
    if entry.kind == "answer" and step.change == "ended":
        return [f"[{entry.turn}] {entry.text.strip()}"]
    if entry.call is not None and step.change == "added":
        return [f"[{entry.turn}] → {entry.call.name} {summary(entry.call.arguments)}"]
    line = note_line(entry) or call_line(step)
    if line is None:
        return []
    when = f" on {local_time(entry.at)}" if entry.topic == "pruned" else ""
    return [f"    {line.lstrip()}{when}"]


def _ending_lines(row: RunState, ending: RunEnding) -> list[str]:
    outcome = ending.outcome
    if outcome is None:
        lines = [f"[partial] {ending.partial}"] if ending.partial else []
        lines += indent(ending.unknown, "Unknown effect: ")
        lines += indent(ending.unrun, "Not run: ")
        if row.state == "interrupted":
            lines += indent(ending.still_running, "Still runs: ")
            lines += ending.saved
            lines.append(f"\nInterrupted. Resume it with: retinue runs resume {row.id[:8]}")
        return lines
    how = status_word(outcome.ended)
    if outcome.truncated:
        how += f", {CUT_OFF},"
    lines = ["", f"Ended    {how} after {format_duration(outcome.duration_ms)}", *ending.saved]
    if outcome.failure:
        lines.append(f"Why      {outcome.failure.message} {outcome.failure.remedy}".rstrip())
    lines += indent(outcome.notes, "Note     ")
    lines += indent(map(in_line, outcome.evidence.files_written[:20]), "Wrote    ")
    return lines + indent(map(in_line, outcome.evidence.commands[:20]), "Ran      ")


def configure_effects(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "id of the run, or a prefix of it")
    parser.add_argument("--tree", action="store_true", help="include all runs below it")
    add_where(parser)


def execute_effects(args: argparse.Namespace) -> int:
    """Show the recorded effects of a run: files read and written, commands with exit codes, hosts,
    denials, who allowed each call, and calls whose effect is unknown.

        retinue runs effects 3f2a9c1d
        retinue runs effects 3f2a9c1d --tree       (with the runs it has started)
        retinue runs effects 3f2a9c1d --json
    """
    from retinue.app.changes import read_effects

    folder, row = locate(args)
    effects, rows, pruned = read_effects(folder, row, tree=args.tree)
    for run_id in pruned:
        say(f"The events of run {run_id} were removed to save space: not all that it did is known.")
    if args.json:
        write_values(effects)
        return 0
    for run, effect in zip(rows, effects.runs, strict=True):
        print(visible("\n".join(_effect_lines(run, effect))))
    return 0


def _effect_lines(row: RunState, effects: RunEffects) -> list[str]:
    lines = [f"{row.agent}  run {row.id}  in {row.cwd}"]
    for turn in effects.turns:
        lines.append(f"turn {turn.turn}")
        reads = reads_text(turn, row.cwd)
        if reads:
            lines.append(f"  read   {reads}")
        for call in turn.calls:
            lines += _call_lines(call, row.cwd)
    if not effects.turns:
        lines.append("  no tool calls")
    for undone in effects.undone:
        count = len(undone.restored) + len(undone.removed)
        since = optional(" from turn {} on", undone.turn)
        lines.append(f"undone by {undone.by}{since}: {count} files put back, {len(undone.kept)} kept")
    return lines


def _call_lines(call: CallEffect, cwd: str) -> list[str]:
    if call.reads and not call.writes and call.status == "finished":
        return []
    what = " ".join((call.command or "").split())[:160]
    head = f"  {call.tool:<6} {what}"
    if call.exit_code is not None:
        head += f"  → exit {call.exit_code}"
    head = head.rstrip()
    lines: list[str] = []
    if call.status == "denied":
        lines.append(f"  DENIED {call.tool} {what}: {call.denied}")
    elif call.status == "unknown":
        lines.append(f"  UNKNOWN EFFECT {call.tool} {what}".rstrip() + ": it started and never reported back")
    elif call.status == "failed" and call.exit_code is None:
        lines.append(f"{head}  (failed)")
    elif call.status == "running":
        lines.append(f"{head}  (running)")
    elif call.command is not None or call.hosts:
        lines.append(head)
    for write in call.writes:
        lines.append(f"  write  {EFFECT_SIGNS[write.status]} {short_path(write.path, cwd)}")
    for name, text in effect_notes(call).items():
        lines.append(f"    {name:<8} {text}")
    return lines


def configure_tail(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--after", type=count, default=0, metavar="SEQ", help="only events after this number")
    add_where(parser)


def execute_tail(args: argparse.Namespace) -> int:
    """Watch a run of any process: its past events and new ones, until it ends.

    retinue runs tail 3f2a9c1d
    retinue runs tail 3f2a9c1d --json      (every event as a JSON line)
    """
    folder, row = locate(args)
    try:
        asyncio.run(_watch(folder, row, args))
    except KeyboardInterrupt:
        return 130
    row, outcome = find_outcome(folder, row.id)
    if row.state == "interrupted":
        say(f"retinue: interrupted; resume it with: retinue runs resume {row.id[:8]}")
    if outcome is not None and not args.json:
        text = printed_answer(outcome)
        if text:
            print(text)
    return 0


async def _watch(folder: Path, row: RunState, args: argparse.Namespace) -> None:
    progress = Progress(row.agent)
    async for event in follow_run(Feed(Path(row.cwd), folder), row.id, args.after, until_end=True):
        if isinstance(event, ProcessLost):
            return
        if args.json:
            print_json(event_to_json(event))
        else:
            progress.show(event)
