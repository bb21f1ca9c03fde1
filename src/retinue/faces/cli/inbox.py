"""`retinue inbox list` and `inbox answer`: inbox items in words for a terminal.

What an agent chose is shown as it is, to the last character: one that a terminal would obey,
hide or turn around is written out instead, so that what people see is what would run.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from retinue.core.format import format_wait
from retinue.core.inbox import InboxItem
from retinue.core.toolnames import TOOLS
from retinue.faces.cli.options import count
from retinue.faces.cli.project import add_where, project, visible
from retinue.log.inbox import InboxRow, how_closed, items
from retinue.log.query import LogReader, everywhere
from retinue.models.keys import environment as process_environment
from retinue.settings.places import retinue_home

_LINES = 60
_WIDTH = 400


def one_line(text: str, most: int = 300) -> str:
    line = visible(" ".join(text.split(" ")).replace("\n", " ").strip())
    return line if len(line) <= most else line[: most - 1] + "…"


def who(item: InboxItem) -> str:
    """The agent that asks, and what it works on."""
    about = item.description if item.description != item.agent else ""
    return f"{item.agent}, {about}" if about else item.agent


def headline(item: InboxItem) -> str:
    """`edit src/a.py · general-purpose, fix the parser (run 3f2a9c1d) · medium risk`."""
    risk = f" · {item.risk} risk" if item.kind == "approval" else f" · {item.kind}"
    return f"{one_line(item.title)} · {one_line(who(item), 130)} (run {item.run_id[:8]}){risk}"


def body(item: InboxItem, lines: int = _LINES) -> list[str]:
    """Why it is asked, and the exact call: its command, its diff, or all of its arguments."""
    reason = [one_line(item.reason, 1_000)] if item.reason else []
    return [*reason, *_bounded(_exact(item), lines)]


def _exact(item: InboxItem) -> str:
    if item.kind != "approval":
        return item.detail
    arguments: Any = item.payload.get("arguments") or {}
    tool = str(item.payload.get("tool", ""))
    if item.detail:
        rest = {} if "write" in TOOLS.get(tool, ()) else arguments
        return "\n".join([*([_json(rest)] if rest else []), item.detail])
    if set(arguments) == {"command"} and isinstance(arguments["command"], str):
        return str(arguments["command"])
    return _json(arguments) if arguments else ""


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _bounded(text: str, most: int) -> list[str]:
    found = visible(text).split("\n") if text else []
    shown = [line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…" for line in found[:most]]
    if len(found) > most:
        shown.append(f"… {len(found) - most} more lines: retinue inbox list --json has all of it")
    return shown


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

    def read(reader: LogReader) -> list[InboxRow]:
        return items(reader, everything=args.all, limit=args.limit or None)

    if args.everywhere:
        found = [each for _, some in everywhere(retinue_home(), read) for each in some]
    else:
        with LogReader.open(project(args)) as reader:
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


def _lines(each: InboxRow) -> list[str]:
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


def _when(each: InboxRow) -> str:
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


BY = "command line"


def configure_answer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item", metavar="ID", help="id of the item, or its beginning: retinue inbox list")
    parser.add_argument("choice", metavar="ANSWER", nargs="+", help="one of the item's answers; words for a question")
    parser.add_argument("--message", metavar="TEXT", default="", help="what to tell the agent with a denial")
    add_where(parser)


def execute_answer(args: argparse.Namespace) -> int:
    """Answer what waits in the inbox, for a run of any process. Each item is answered once.

        retinue inbox answer 1a2b3c allow            this call, once
        retinue inbox answer 1a2b3c allow-run        calls like it, in this run and below it
        retinue inbox answer 1a2b3c allow-agent      calls like it, in every run of this agent
        retinue inbox answer 1a2b3c always           as a rule in the settings of this project
        retinue inbox answer 1a2b3c deny --message "Use the staging server"
        retinue inbox answer 4d5e6f Only the public API, please

    ID is the item's id or the beginning of it; questions take any words. The exit code is 1 when
    someone else has answered already, and 2 when there is no such item or answer.
    """
    from retinue.core.inbox import InboxAnswer
    from retinue.guard.redact import Redactor
    from retinue.log.inbox import answer, locate

    folder, item = locate(retinue_home(), args.item, project(args))
    redact, said = Redactor(process_environment()), " ".join(args.choice)
    given = InboxAnswer(redact(said), redact(args.message), BY)
    if given.choice is not said or given.message is not args.message:
        print("retinue: a secret in the answer was taken out; give it to the agent in a file", file=sys.stderr)
    closed = answer(folder, item, given)
    if args.json:
        from retinue.log.encode import dump

        print(dump(closed).decode())
    else:
        print(f"{closed.id}  {closed.answer.choice if closed.answer else ''}  {headline(closed)}")
    return 0
