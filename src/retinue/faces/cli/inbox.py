"""`retinue inbox list` and `inbox answer`: inbox items in words for a terminal.

What an agent chose is shown as it is, to the last character: one that a terminal would obey,
hide or turn around is written out instead, so that what people see is what would run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from retinue.core.controls import in_line, visible
from retinue.core.format import format_wait
from retinue.core.permission import InboxItem
from retinue.core.toolnames import TOOLS
from retinue.faces.cli.project import add_where, count, folder, project, say, write_values
from retinue.faces.text import INBOX_MARKS, clip, indent, optional
from retinue.log.inbox import InboxRow, how_closed, items
from retinue.log.query import LogReader, everywhere
from retinue.settings.places import retinue_state

BY = "command line"
ALLOWING = frozenset({"allow", "allow-run", "allow-agent", "always"})
"""Answers that nobody gives before all of an approval was shown."""


def shown(text: str, most: int = 300) -> str:
    """Return a text to the last character as it is, on one line."""
    return clip(visible(text.replace("\n", " ").strip()), most)


def who(item: InboxItem) -> str:
    """Return the agent that asks, and what it works on."""
    if item.description == item.agent:
        return item.agent
    return item.agent + optional(", {}", item.description)


def kind_text(item: InboxItem) -> str:
    """Return what is asked: the risk of a call, or that it is a question."""
    if item.kind == "approval":
        return f"{item.risk} risk"
    return item.kind


def headline(item: InboxItem) -> str:
    """Return `edit src/a.py · general-purpose, fix the parser (run 3f2a9c1d) · medium risk`."""
    return f"{shown(item.title)} · {shown(who(item), 130)} (run {item.run_id[:8]}) · {kind_text(item)}"


def body(item: InboxItem, *, reason: bool = True) -> list[str]:
    """Return why it is asked, and the exact call, whole: its command, its diff, or all of its arguments. What is left
    out would be approved unseen."""
    lines = []
    if item.reason and reason:
        lines.append(shown(item.reason, 1_000))
    exact = visible(_exact(item)).split("\n")
    return lines if exact == [""] else lines + exact


def _exact(item: InboxItem) -> str:
    if item.kind != "approval":
        return item.detail
    arguments: Any = item.payload.get("arguments") or {}
    tool = str(item.payload.get("tool", ""))
    if item.detail and (not arguments or "write" in TOOLS.get(tool, ())):
        # The diff has everything that the arguments say.
        return item.detail
    if set(arguments) == {"command"} and isinstance(arguments["command"], str) and not item.detail:
        return str(arguments["command"])
    if not arguments:
        return ""
    return _json(arguments) + optional("\n{}", item.detail)


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def when_text(item: InboxItem, now: float) -> str:
    """Return since when it is asked, and for something that waits, what happens when nobody answers."""
    text = f"asked {format_wait(max(now - item.created_at, 0.0))} ago"
    if item.expires_at is not None and item.state == "waiting":
        default = shown(item.default) or "no answer"
        text += f" · '{default}' in {format_wait(max(item.expires_at - now, 0.0))}"
    return text


def closed_text(item: InboxItem) -> str:
    """Return how an item was closed, and what was said with it."""
    if item.answer is None or not item.answer.message:
        return how_closed(item)
    return f"{how_closed(item)}: {shown(item.answer.message)}"


def interrupted_text(item: InboxItem) -> str:
    run = item.run_id[:8]
    return f"its run is interrupted; it takes the answer when resumed: retinue runs resume {run}"


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

    found: list[InboxRow] = []
    if args.everywhere:
        for _, some in everywhere(retinue_state(), read):
            found += some
    else:
        with LogReader.open(project(args)) as reader:
            found = read(reader)
    if args.json:
        from msgspec.structs import asdict

        rows = [{**asdict(each.item), "run_state": each.run_state, "interrupted": each.interrupted} for each in found]
        write_values({"items": rows})
        return 0
    for each in found:
        print("\n".join(_lines(each)))
    if not found:
        say("Nothing waits for an answer.")
    return 0


def _lines(each: InboxRow) -> list[str]:
    item = each.item
    head = f"{INBOX_MARKS[item.state]} {item.id}  {headline(item)}"
    if item.state != "waiting":
        return [head, f"    {closed_text(item)}"]
    lines = body(item)
    if item.rule:
        lines.append(f"allow-run, allow-agent and always allow: {in_line(item.rule)}")
    lines.append(when_text(item, time.time()) + optional(" · answer: {}", " | ".join(item.options)))
    if each.interrupted:
        lines.append(f"! {interrupted_text(item)}")
    return [head, *indent(lines)]


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
    from retinue.faces.feed.feed import Feed
    from retinue.log.inbox import locate

    state, item = locate(retinue_state(), args.item, project(args))
    feed, said = Feed(folder(args.cwd), state), " ".join(args.choice)
    if feed.redact(said) is not said or feed.redact(args.message) is not args.message:
        say("retinue: a secret in the answer was taken out; give it to the agent in a file")
    closed = asyncio.run(feed.answer(item.id, said, args.message, by=BY))
    if args.json:
        write_values(closed)
    else:
        choice = closed.answer.choice if closed.answer else ""
        print(f"{closed.id}  {choice}  {headline(closed)}")
    return 0
