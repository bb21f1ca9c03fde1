from __future__ import annotations

import argparse
import sys
import time

from retinue.core.format import format_wait
from retinue.faces.cli.inbox._show import body, headline, one_line
from retinue.faces.cli.numbers import count
from retinue.faces.cli.runs.common import add_where, project
from retinue.log.inbox import Listed, how_closed, items
from retinue.log.query import Reader, everywhere
from retinue.settings.places import retinue_home

_MARKS = {"waiting": "?", "answered": "✓", "expired": "⏱", "withdrawn": "–"}


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("--all", action="store_true", help="also what was answered, expired or withdrawn")
    parser.add_argument("--everywhere", action="store_true", help="of all projects")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="at most N items (default: 50; 0: all)")


def execute_list(args: argparse.Namespace) -> int:
    """What waits for an answer: approvals, questions and quotes of every run of this project.

        retinue inbox list
        retinue inbox list --all          (also what was answered, expired or withdrawn)
        retinue inbox list --json

    Answer with: retinue inbox answer ID allow
    """
    def read(reader: Reader) -> list[Listed]:
        return items(reader, everything=args.all, limit=args.limit or None)

    if args.everywhere:
        found = [each for _, some in everywhere(retinue_home(), read) for each in some]
    else:
        with Reader.open(project(args)) as reader:
            found = read(reader)
    if args.json:
        from retinue.core.codec import to_data
        from retinue.log.encode import dump

        rows = [{**to_data(each.item), "run_state": each.run_state, "interrupted": each.interrupted} for each in found]
        print(dump({"items": rows}).decode())
        return 0
    for each in found:
        print("\n".join(_lines(each)))
    if not found:
        print("Nothing waits for an answer.", file=sys.stderr)
    return 0


def _lines(each: Listed) -> list[str]:
    item = each.item
    lines = [f"{_MARKS[item.state]} {item.id}  {headline(item)}"]
    if item.state != "waiting":
        message = f": {one_line(item.answer.message)}" if item.answer is not None and item.answer.message else ""
        return [*lines, f"    {how_closed(item)}{message}"]
    lines += [f"    {line}" for line in body(item)]
    if item.rule:
        lines.append(f"    allow-run, allow-agent and always allow: {one_line(item.rule)}")
    lines.append(f"    {_when(each)}")
    return lines


def _when(each: Listed) -> str:
    item, now = each.item, time.time()
    parts = [f"asked {format_wait(max(now - item.created_at, 0.0))} ago"]
    if item.expires_at is not None:
        parts.append(f"'{item.default}' in {format_wait(max(item.expires_at - now, 0.0))}")
    if item.options:
        parts.append(f"answer: {' | '.join(item.options)}")
    text = " · ".join(parts)
    if each.interrupted:
        text += (
            f"\n    ! its run is interrupted; it takes the answer when resumed: retinue runs resume {item.run_id[:8]}"
        )
    return text
