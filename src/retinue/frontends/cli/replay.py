"""Replay a cassette with its recorded model answers and print the differences, to verify that
another version of Retinue, of a tool or of a hook behaves the same. With recorded tools nothing is
executed.

    retinue replay review.cassette.jsonl
    retinue replay review.cassette.jsonl --tools live       (tools work in a copy of the project at the recorded commit)
    retinue replay review.cassette.jsonl --to 40            (the state of the run after that event, without a replay)
    retinue replay review.cassette.jsonl --diff other.cassette.jsonl

exit codes: 0 no differences, 1 differences, 2 a file cannot be used
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from pathlib import Path

from retinue.app.recordings import Comparison, compare_cassettes, describe_call, recorded_moment, replay_cassette
from retinue.app.text import plural
from retinue.core.controls import in_line, visible
from retinue.core.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage
from retinue.frontends.cli.console.comparison_report import comparison_lines, difference_lines
from retinue.frontends.cli.project import add_where, count, folder, say, write_json, write_values


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cassette", metavar="CASSETTE", help="a file of `retinue runs export RUN --cassette`")
    parser.add_argument("--to", type=count, metavar="SEQ", help="show the state of the run after this event")
    parser.add_argument(
        "--tools", choices=("recorded", "live"), default="recorded", help="where results come from (default: recorded)"
    )
    parser.add_argument("--diff", metavar="OTHER", help="compare with another cassette, without a replay")
    add_where(parser, "where to search for the project (default: here)")


def execute(args: argparse.Namespace) -> int:
    cassette = Path(args.cassette).expanduser()
    if args.to is not None:
        return _show(cassette, args)
    if args.diff is not None:
        return _print(compare_cassettes(cassette, Path(args.diff).expanduser()), args)
    played = asyncio.run(replay_cassette(cassette, folder(args.cwd), args.tools))
    for note in played.notes:
        say(visible(f"note: {note}"))
    if args.json:
        write_json(played.comparison)
    else:
        facts = played.comparison.right
        counts = f"{plural(facts.runs, 'run')}, {plural(facts.turns, 'turn')}, {plural(facts.calls, 'call')}"
        print(f"Played {facts.agent} again: {counts}.")
        print(visible("\n".join(difference_lines(played.comparison))))
    return int(not played.same)


def _print(report: Comparison, args: argparse.Namespace) -> int:
    if args.json:
        write_json(report)
    else:
        print("\n".join(comparison_lines(report, (args.cassette, args.diff))))
    return int(not report.same)


def _show(cassette: Path, args: argparse.Namespace) -> int:
    moment, calls, last = recorded_moment(cassette, args.to)
    if args.json:
        write_values(moment)
        return 0
    print(visible("\n".join(_conversation_lines(moment.messages))))
    say(f"After event {moment.seq} of {last}: turn {moment.turn}, {calls} calls.")
    return 0


def _conversation_lines(messages: Iterable[Message]) -> list[str]:
    lines: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, Text) and block.text.strip():
                    lines.append(block.text.strip())
                elif isinstance(block, ToolCall):
                    lines.append(f"→ {describe_call(block)}")
        elif isinstance(message, ToolMessage):
            for result in message.results:
                sign = "✗" if result.is_error else "←"
                lines.append(f"  {sign} {result.name}: {in_line(result.text)[:200]}")
        else:
            lines.append(f"[{message.origin}] {message.text}")
    return lines
