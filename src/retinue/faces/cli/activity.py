"""What agents did on the web, with documents and with language servers.

    retinue activity                        counts, errors, rate limits and latency by provider
    retinue activity --recent 20            the newest calls one by one
    retinue activity --type search --since 7d --json

Everything comes from the log of this project; --all adds up all projects.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from retinue.errors import StateError
from retinue.faces.cli.cost import clean, moment
from retinue.faces.cli.project import folder
from retinue.log.activity import KINDS, ActivityEntry, Totals, activity, everything, totals
from retinue.log.database import log_folders
from retinue.settings.places import retinue_home, state_folder


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--type", choices=KINDS, action="append", dest="kinds", help="only calls of this kind; may be repeated"
    )
    parser.add_argument("--since", type=moment, metavar="WHEN", help="only since then: 30m, 24h, 7d, 2w or 2026-08-01")
    parser.add_argument("--recent", type=whole, default=0, metavar="N", help="also list the newest N calls")
    parser.add_argument("--all", action="store_true", help="of all projects")
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def execute(args: argparse.Namespace) -> int:
    entries, problems = _gather(args)
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    recent = sorted(entries, key=lambda entry: entry.at, reverse=True)[: args.recent]
    if args.json:
        import json

        document = {
            "since": args.since,
            "rows": [_data(line) for line in totals(entries)],
            "total": _data(everything(entries)),
            "recent": [asdict(entry) for entry in recent],
            "problems": problems,
        }
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return 0
    if not entries:
        print("No searches, fetches, conversions or questions to language servers yet.", file=sys.stderr)
        return 0
    print("\n".join(table([*totals(entries), everything(entries)])))
    if recent:
        print("\n" + "\n".join(line(entry) for entry in recent))
    return 0


def whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number")
    return int(text)


def _gather(args: argparse.Namespace) -> tuple[list[ActivityEntry], list[str]]:
    kinds, since = args.kinds or KINDS, args.since or 0.0
    if not args.all:
        return activity(state_folder(folder(args.cwd)), kinds=kinds, since=since), []
    found: list[ActivityEntry] = []
    problems: list[str] = []
    for project in log_folders(retinue_home()):
        try:
            found += activity(project, kinds=kinds, since=since)
        except StateError as error:
            problems.append(f"{error} It is not counted.")
    return found, problems


def table(lines: Sequence[Totals]) -> list[str]:
    """The counts, aligned; the last line is the sum."""
    head = ("what", "provider", "calls", "ok", "errors", "limited", "denied", "running", "average", "median", "95 %")
    rows = [head, *(_cells(each) for each in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    shown = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        shown.append("  ".join(cells).rstrip())
    return shown


def _cells(each: Totals) -> tuple[str, ...]:
    counts = (each.total, each.success, each.errors, each.rate_limited, each.denied, each.pending)
    times = (each.average_ms, each.median_ms, each.slow_ms)
    return (each.kind, clean(each.provider) or "-", *map(str, counts), *(f"{value} ms" for value in times))


def line(entry: ActivityEntry) -> str:
    """One call on one line."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at))
    who = f"{clean(entry.agent)} {entry.run_id[:8]}"
    by = f" {clean(entry.provider)}" if entry.provider else ""
    rest = f"  {clean(entry.error)}" if entry.error else f"  {clean(', '.join(entry.hosts))}" if entry.hosts else ""
    return f"{when}  {entry.kind}{by}  {entry.status}  {entry.duration_ms} ms  {who}{rest}"


def _data(each: Totals) -> dict[str, Any]:
    return asdict(each)
