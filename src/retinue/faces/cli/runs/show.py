from __future__ import annotations

import argparse
import time

from retinue.capabilities.questions.attach import todo_line
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
from retinue.faces.cli.progress import summary
from retinue.faces.cli.runs.common import add_where, locate, status
from retinue.faces.cli.visible import harmless, in_line, one_line
from retinue.faces.cli.worktrees.common import where_saved
from retinue.log.pending import describe_call
from retinue.log.query import Reader
from retinue.log.rows import RunRow


def configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, its beginning, or @name")
    add_where(parser)


def execute_show(args: argparse.Namespace) -> int:
    """One run: how it stands, what it did, what it said.

    retinue runs show 3f2a9c1d
    retinue runs show 3f2a9c1d --json      (the run with all its events)
    """
    folder, row = locate(args)
    with Reader.open(folder) as reader:
        if args.json:
            from retinue.log.export import export_document

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


def _story(reader: Reader, row: RunRow) -> list[str]:
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


def _todos(reader: Reader, row: RunRow) -> list[str]:
    """What it has to do, as it stands."""
    found = reader.ordered(row.id, ("todos.updated",))
    body = found[-1][1].body if found else None
    return ["", *(f"Todo     {todo_line(todo)}" for todo in body.todos)] if isinstance(body, TodosUpdated) else []


def _undone(reader: Reader, row: RunRow) -> list[str]:
    bodies = [event.body for _, event in reader.ordered(row.id, ("run.undone",))]
    return [
        f"Undone   {len(body.restored) + len(body.removed)} files put back, {len(body.kept)} kept"
        for body in bodies
        if isinstance(body, Undone)
    ]


def _ending(reader: Reader, row: RunRow, outcome: Outcome | None) -> list[str]:
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
