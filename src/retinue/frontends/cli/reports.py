"""`retinue cost`, `retinue activity` and `retinue logs`: reports from the log."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.app.reports import (
    ACTIVITY_KINDS,
    GROUPINGS,
    TROUBLE_LEVELS,
    TROUBLE_SOURCES,
    ActivityEntry,
    CostReport,
    CostRow,
    Totals,
    Trouble,
    TroubleList,
    read_activity,
    read_cost,
    read_troubles,
)
from retinue.app.text import align, clean_line, local_time, optional, plural
from retinue.core.format import count_tokens, format_count
from retinue.frontends.cli.project import add_where, count, folder, project, say, warn, write_json

if TYPE_CHECKING:
    from retinue.app.feed import Feed

_UNIT_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_CALL_COLUMNS = (
    "what",
    "provider",
    "calls",
    "ok",
    "errors",
    "limited",
    "denied",
    "running",
    "average",
    "median",
    "95 %",
)


def moment(text: str) -> float:
    """Return `7d` or `2026-08-01` as Unix time."""
    from datetime import datetime

    match = re.fullmatch(r"([0-9]{1,9})([mhdw])", text.strip())
    if match:
        return time.time() - int(match[1]) * _UNIT_SECONDS[match[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time: 30m, 24h, 7d, 2w or a date like 2026-08-01"
        ) from None


def _add_since(parser: argparse.ArgumentParser, what: str = "since then") -> None:
    parser.add_argument("--since", type=moment, metavar="WHEN", help=f"only {what}: 30m, 24h, 7d, 2w or 2026-08-01")


# Cost


def configure_cost(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=GROUPINGS, default="agent", help="the key of the totals (default: agent)")
    _add_since(parser, "runs active since then")
    parser.add_argument("--all", action="store_true", help="include all projects")
    parser.add_argument("--limit", type=count, default=0, metavar="N", help="the first N lines; the total includes all")
    add_where(parser)


def execute_cost(args: argparse.Namespace) -> int:
    """Print the cost of agents: tokens and money from the log, including children.

        retinue cost                        by agent, this project
        retinue cost --by tree --since 7d   whole trees of runs that were active in the last week
        retinue cost --by model --all       all projects

    Runs on models without a known price are counted separately and never shown as free.
    """
    report = read_cost(None if args.all else project(args), args.by, args.since)
    warn(report.problems)
    lines = len(report.rows)
    report = replace(report, rows=report.rows[: args.limit or None])
    if args.json:
        write_json(report)
        return 0
    if not lines:
        say("No runs to add up.")
        return 0
    print("\n".join(_cost_table(report)))
    if len(report.rows) < lines:
        print(f"… and {lines - len(report.rows)} more; --limit 0 shows all.")
    if report.total.unpriced_runs:
        tokens = count_tokens(report.total.unpriced_tokens)
        runs = plural(report.total.unpriced_runs, "run")
        print(
            f"Not in the sum: {runs} with {tokens}, on models without a known price or from servers that ",
            end="",
        )
        print("sent no usage. The setting `models` can name a price.")
    return 0


def _cost_table(report: CostReport) -> list[str]:
    rows: list[tuple[str, ...]] = [(report.by, "runs", "input", "output", "cache read", "written", "cost")]
    is_run = report.by in ("run", "tree")
    for row in report.rows:
        rows.append(_cost_cells(row, row.key[:8] if is_run else clean_line(row.key)))
    rows.append(_cost_cells(report.total, clean_line(report.total.key)))
    table = align(rows)
    if is_run:
        for number, row in enumerate(report.rows, 1):
            about = f"{clean_line(row.agent)}  {clean_line(row.task)}".strip()
            table[number] += optional("  {}", about)
    return table


def _cost_cells(row: CostRow, name: str) -> tuple[str, ...]:
    numbers = map(format_count, (row.runs, row.input, row.output, row.cache_read, row.cache_write))
    return (name, *numbers, row.money)


# Activity


def configure_activity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--type", choices=ACTIVITY_KINDS, action="append", dest="kinds", help="only calls of this kind; may be repeated"
    )
    _add_since(parser)
    parser.add_argument("--recent", type=count, default=0, metavar="N", help="also list the newest N calls")
    parser.add_argument("--all", action="store_true", help="include all projects")
    add_where(parser)


def execute_activity(args: argparse.Namespace) -> int:
    """Print the calls of agents to the web, to documents and to language servers.

        retinue activity                        counts, errors, rate limits and latency by provider
        retinue activity --recent 20            the newest calls one by one
        retinue activity --type search --since 7d --json

    The data comes from the log of this project; --all adds up all projects.
    """
    report = read_activity(None if args.all else project(args), args.kinds or ACTIVITY_KINDS, args.since, args.recent)
    warn(report.problems)
    if args.json:
        write_json(report)
        return 0
    if not report.rows:
        say("No searches, fetches, conversions or questions to language servers yet.")
        return 0
    print("\n".join(activity_table([*report.rows, report.total])))
    if report.recent:
        print("\n" + "\n".join(map(call_line, report.recent)))
    return 0


def activity_table(lines: Sequence[Totals]) -> list[str]:
    """Return the counts as aligned lines; the last one is the total."""
    rows: list[tuple[str, ...]] = [_CALL_COLUMNS]
    for line in lines:
        counts = (line.total, line.success, line.errors, line.rate_limited, line.denied, line.pending)
        times = (f"{line.average_ms} ms", f"{line.median_ms} ms", f"{line.slow_ms} ms")
        rows.append((line.kind, clean_line(line.provider) or "-", *map(str, counts), *times))
    return align(rows, left_columns=2)


def call_line(entry: ActivityEntry) -> str:
    """Return one call on one line."""
    by = optional(" {}", clean_line(entry.provider))
    detail = optional("  {}", clean_line(entry.error or ", ".join(entry.hosts)))
    who = f"{clean_line(entry.agent)} {entry.run_id[:8]}"
    return f"{local_time(entry.at)}  {entry.kind}{by}  {entry.status}  {entry.duration_ms} ms  {who}{detail}"


# Logs


def configure_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level", choices=("all", *TROUBLE_LEVELS), default="all", help="only warnings, or only errors"
    )
    parser.add_argument(
        "--type",
        choices=TROUBLE_SOURCES,
        action="append",
        dest="sources",
        help="only from this source; may be repeated",
    )
    for name in ("search", "fetch", "convert", "lsp"):
        parser.add_argument(
            f"--{name}", action="append_const", const=name, dest="sources", help=f"short for --type {name}"
        )
    _add_since(parser)
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="the newest N (default: 20; 0: all)")
    parser.add_argument("--follow", action="store_true", help="also print new entries, until interrupted")
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document; with --follow one line each")


def execute_logs(args: argparse.Namespace) -> int:
    """Print warnings and errors of runs with their time and run, newest last.

        retinue logs                            the last 20 of this project
        retinue logs --level error --limit 100
        retinue logs --search --fetch           only problems on the web
        retinue logs --follow                   and new ones, until interrupted

    `retinue runs show RUN` has the whole story of one run.
    """
    # Reports that are printed once need no watcher of the log.
    from retinue.app.feed import Feed

    feed = Feed(folder(args.cwd))
    levels = TROUBLE_LEVELS if args.level == "all" else (args.level,)
    read = partial(
        read_troubles, feed.folder, levels=levels, sources=args.sources or TROUBLE_SOURCES, since=args.since or 0.0
    )
    cursor = asyncio.run(feed.snapshot(limit=1)).cursor if args.follow else 0
    troubles = read(limit=args.limit or None)
    if args.json and not args.follow:
        write_json(troubles)
        return 0
    last = _print_troubles(troubles, 0, args)
    if args.follow:
        asyncio.run(_follow(feed, cursor, lambda after: read(after=after, limit=None), last, args))
    elif not troubles.entries:
        say("No warnings and no errors.")
    return 0


async def _follow(
    feed: Feed, cursor: int, read: Callable[[int], TroubleList], last: int, args: argparse.Namespace
) -> None:
    """Print new entries until Ctrl-C, for which the program has an exit code."""
    async for frames in feed.follow(after=cursor):
        if any(frame.number is not None for frame in frames):
            last = _print_troubles(read(last), last, args)


def _print_troubles(troubles: TroubleList, last: int, args: argparse.Namespace) -> int:
    """Print them, and return the number of the last one."""
    for trouble in troubles.entries:
        _print_trouble(trouble, args.json)
        last = trouble.number
    sys.stdout.flush()
    return last


def _print_trouble(trouble: Trouble, as_json: bool) -> None:
    if as_json:
        write_json(trouble, indent=None)
        return
    who = f"{clean_line(trouble.agent)} {trouble.run_id[:8]}"
    what = f"{clean_line(trouble.code, 40)}: {clean_line(trouble.text, 400)}"
    print(f"{local_time(trouble.at)}  {trouble.level.upper():7}  {trouble.source}  {who}  {what}")
