"""Play a cassette again, with the same answers of the model, and say what is different: to know that another version
of Retinue, of a tool or of a hook still does the same. With recorded tools nothing is executed.

retinue replay review.cassette.jsonl
retinue replay review.cassette.jsonl --tools live       (tools work in a copy of the project at the recorded commit)
retinue replay review.cassette.jsonl --to 40            (the run as it stood after that event; nothing is played)
retinue replay review.cassette.jsonl --diff other.cassette.jsonl

exit codes: 0 no differences, 1 differences, 2 a file that cannot be used
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from retinue.core.controls import in_line, visible
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolMessage
from retinue.errors import UsageError
from retinue.evidence.cassette import Cassette, read_cassette
from retinue.evidence.compare import Comparison, compare
from retinue.evidence.replay import play_again
from retinue.faces.cli.console.comparison_report import comparison_document, comparison_lines, difference_lines
from retinue.faces.cli.project import add_where, count, folder, say, write_json, write_values
from retinue.faces.text import plural
from retinue.log.open_calls import describe_call
from retinue.log.replay import Conversation, replay
from retinue.models.keys import environment as process_environment


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cassette", metavar="CASSETTE", help="a file of `retinue runs export RUN --cassette`")
    parser.add_argument("--to", type=count, metavar="SEQ", help="show the run as it stood after this event")
    parser.add_argument(
        "--tools", choices=("recorded", "live"), default="recorded", help="where results come from (default: recorded)"
    )
    parser.add_argument("--diff", metavar="OTHER", help="compare with another cassette, and play nothing")
    add_where(parser, "where the project is looked for (default: here)")


def execute(args: argparse.Namespace) -> int:
    cassette = read_cassette(Path(args.cassette).expanduser())
    if args.to is not None:
        return _show(cassette, args)
    if args.diff is not None:
        other = read_cassette(Path(args.diff).expanduser())
        return _print(compare(cassette, other), (args.cassette, args.diff), args)
    played = asyncio.run(play_again(cassette, folder(args.cwd), args.tools, process_environment()))
    for note in played.notes:
        say(visible(f"note: {note}"))
    if args.json:
        write_json(comparison_document(played.comparison))
    else:
        facts = played.comparison.right
        counts = f"{plural(facts.runs, 'run')}, {plural(facts.turns, 'turn')}, {plural(facts.calls, 'call')}"
        print(f"Played {facts.agent} again: {counts}.")
        print(visible("\n".join(difference_lines(played.comparison))))
    return int(not played.same)


def _print(found: Comparison, names: tuple[str, str], args: argparse.Namespace) -> int:
    if args.json:
        write_json(comparison_document(found))
    else:
        print("\n".join(comparison_lines(found, names)))
    return int(not found.same)


def _show(cassette: Cassette, args: argparse.Namespace) -> int:
    events = [event for event in cassette.first.events if event.seq <= args.to]
    if not events:
        raise UsageError("Events count from 1.", remedy="Name a number from 1 on: --to 1")
    past = replay([event.body for event in events])
    if args.json:
        write_values({"seq": events[-1].seq, "messages": past.messages, "turn": past.turn, "usage": past.usage})
        return 0
    print(visible("\n".join(_conversation_lines(past))))
    last = cassette.first.events[-1].seq
    say(f"After event {events[-1].seq} of {last}: turn {past.turn}, {past.tool_uses} calls.")
    return 0


def _conversation_lines(past: Conversation) -> list[str]:
    lines: list[str] = []
    for message in past.messages:
        if isinstance(message, AssistantMessage):
            for part in message.content:
                if isinstance(part, Text) and part.text.strip():
                    lines.append(part.text.strip())
                elif isinstance(part, ToolCall):
                    lines.append(f"→ {describe_call(part)}")
        elif isinstance(message, ToolMessage):
            for result in message.results:
                sign = "✗" if result.is_error else "←"
                lines.append(f"  {sign} {result.name}: {in_line(result.text)[:200]}")
        else:
            lines.append(f"[{message.origin}] {message.text}")
    return lines
