"""`retinue inbox list` and `inbox answer`."""

from __future__ import annotations

import argparse
import asyncio
import time

from retinue.app.approvals import closed_text, headline, interrupted_text, item_lines, when_text
from retinue.app.feed import Feed
from retinue.app.inbox import list_inbox, locate_item
from retinue.app.text import INBOX_MARKS, indent, optional
from retinue.app.views import InboxList, inbox_view
from retinue.core.controls import in_line
from retinue.core.permission import InboxRow
from retinue.frontends.cli.project import add_where, count, folder, project, say, write_values

COMMAND_LINE_NAME = "command line"


def configure_list(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("--all", action="store_true", help="also answered, expired and withdrawn items")
    parser.add_argument("--everywhere", action="store_true", help="include all projects")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="at most N items (default: 50; 0: all)")


def execute_list(args: argparse.Namespace) -> int:
    """List what waits for an answer: approvals, questions and quotes of every run of this project.

        retinue inbox list
        retinue inbox list --all          (also answered, expired and withdrawn items)
        retinue inbox list --json

    Answer with: retinue inbox answer ID allow
    """
    rows = list_inbox(None if args.everywhere else project(args), everything=args.all, limit=args.limit or None)
    if args.json:
        write_values(InboxList([inbox_view(entry) for entry in rows]))
        return 0
    for row in rows:
        print("\n".join(_lines(row)))
    if not rows:
        say("Nothing waits for an answer.")
    return 0


def _lines(row: InboxRow) -> list[str]:
    item = row.item
    head = f"{INBOX_MARKS[item.state]} {item.id}  {headline(item)}"
    if item.state != "waiting":
        return [head, f"    {closed_text(item)}"]
    lines = item_lines(item)
    if item.rule:
        lines.append(f"allow-run, allow-agent and always allow: {in_line(item.rule)}")
    lines.append(when_text(item, time.time()) + optional(" · answer: {}", " | ".join(item.options)))
    if row.interrupted:
        lines.append(f"! {interrupted_text(item)}")
    return [head, *indent(lines)]


def configure_answer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item", metavar="ID", help="id of the item, or a prefix of it: retinue inbox list")
    parser.add_argument("choice", metavar="ANSWER", nargs="+", help="one of the item's answers; words for a question")
    parser.add_argument("--message", metavar="TEXT", default="", help="a message for the agent with a denial")
    add_where(parser)


def execute_answer(args: argparse.Namespace) -> int:
    """Answer an inbox item of a run of any process. Each item is answered once.

        retinue inbox answer 1a2b3c allow            this call, once
        retinue inbox answer 1a2b3c allow-run        calls like it, in this run and below it
        retinue inbox answer 1a2b3c allow-agent      calls like it, in every run of this agent
        retinue inbox answer 1a2b3c always           as a rule in the settings of this project
        retinue inbox answer 1a2b3c deny --message "Use the staging server"
        retinue inbox answer 4d5e6f Only the public API, please

    ID is the item's id or a prefix of it; questions accept any text. The exit code is 1 if someone
    answered first, and 2 for an unknown item or an invalid answer.
    """
    state, item = locate_item(args.item, project(args))
    feed, answer = Feed(folder(args.cwd), state), " ".join(args.choice)
    if feed.redact(answer) is not answer or feed.redact(args.message) is not args.message:
        say("retinue: a secret in the answer was taken out; give it to the agent in a file")
    closed = asyncio.run(feed.answer(item.id, answer, args.message, by=COMMAND_LINE_NAME))
    if args.json:
        write_values(closed)
    else:
        choice = closed.answer.choice if closed.answer else ""
        print(f"{closed.id}  {choice}  {headline(closed)}")
    return 0
