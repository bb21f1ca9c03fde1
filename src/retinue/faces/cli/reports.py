"""`retinue cost`, `retinue activity` and `retinue logs`: what runs have used, done and met with, from the log."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import asdict

from retinue.core.format import format_cost, format_count
from retinue.errors import StateError
from retinue.faces.cli.project import add_where, count, project, say, warn, write_json
from retinue.faces.text import align, clean_line, local_time, optional, plural
from retinue.log import activity
from retinue.log.activity import ActivityEntry, By, Spending, Totals
from retinue.log.database import log_folders
from retinue.log.troubles import LEVELS, SOURCES, Trouble, troubles
from retinue.settings.places import retinue_state

Line = TypeVar("Line")
_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_POLL_SECONDS = 0.5
_SPENT = (
    "runs",
    "turns",
    "tool_uses",
    "tokens",
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cost_usd",
    "unpriced_runs",
    "unpriced_tokens",
    "first_at",
    "last_at",
)
_CALLS_HEAD = ("what", "provider", "calls", "ok", "errors", "limited", "denied", "running", "average", "median", "95 %")


def moment(text: str) -> float:
    """Return `7d` or `2026-08-01` as Unix time."""
    from datetime import datetime

    found = re.fullmatch(r"([0-9]{1,9})([mhdw])", text.strip())
    if found:
        return time.time() - int(found[1]) * _UNITS[found[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"'{text}' is no time: 30m, 24h, 7d, 2w or a date like 2026-08-01") from None


def _gather(args: argparse.Namespace, read: Callable[[Path], list[Line]]) -> tuple[list[Line], list[str]]:
    """Return what `read` finds in the project, or with --all in every project, and the logs that cannot be read."""
    if not args.all:
        return read(project(args)), []
    found: list[Line] = []
    problems: list[str] = []
    for state in log_folders(retinue_state()):
        try:
            found += read(state)
        except StateError as error:
            problems.append(f"{error} It is not counted.")
    return found, problems


def _add_since(parser: argparse.ArgumentParser, what: str = "since then") -> None:
    parser.add_argument("--since", type=moment, metavar="WHEN", help=f"only {what}: 30m, 24h, 7d, 2w or 2026-08-01")


# Cost


def configure_cost(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=activity.BY, default="agent", help="what to add up by (default: agent)")
    _add_since(parser, "runs active since then")
    parser.add_argument("--all", action="store_true", help="of all projects")
    parser.add_argument("--limit", type=count, default=0, metavar="N", help="the first N lines; the total counts all")
    add_where(parser)


def execute_cost(args: argparse.Namespace) -> int:
    """What agents have cost: tokens and money from the log, children included.

        retinue cost                        by agent, this project
        retinue cost --by tree --since 7d   whole trees of runs that were active in the last week
        retinue cost --by model --all       all projects

    Runs on models without a known price are counted beside the sum and never shown as free.
    """
    by: By = args.by
    lines, problems = _gather(args, lambda state: activity.spending(state, by, args.since or 0.0))
    if args.all:
        lines = activity.merged(lines, by)
    warn(problems)
    everything = activity.total(lines)
    shown = lines[: args.limit or None]
    if args.json:
        rows = [_spending_data(line, by) for line in shown]
        total = _spending_data(everything, None)
        write_json({"by": by, "since": args.since, "rows": rows, "total": total, "problems": problems})
        return 0
    if not lines:
        say("No runs to add up.")
        return 0
    print("\n".join(_spending_table(shown, everything, by)))
    if len(shown) < len(lines):
        print(f"… and {len(lines) - len(shown)} more; --limit 0 shows all.")
    if everything.unpriced_runs:
        tokens = format_count(everything.unpriced_tokens)
        runs = plural(everything.unpriced_runs, "run")
        print(
            f"Not in the sum: {runs} with {tokens} tokens, on models without a known price or from servers that ",
            end="",
        )
        print("sent no usage. The setting `models` can name a price.")
    return 0


def _spending_table(lines: Sequence[Spending], everything: Spending, by: By) -> list[str]:
    rows: list[tuple[str, ...]] = [(by, "runs", "input", "output", "cache read", "written", "cost")]
    rows += [_spending_cells(line, by) for line in lines]
    rows.append(_spending_cells(everything, None))
    table = align(rows)
    if by in ("run", "tree"):
        for number, line in enumerate(lines, 1):
            about = f"{clean_line(line.agent)}  {clean_line(line.task)}".strip()
            table[number] += optional("  {}", about)
    return table


def _spending_cells(line: Spending, by: By | None) -> tuple[str, ...]:
    name = line.key[:8] if by in ("run", "tree") else clean_line(line.key)
    numbers = map(format_count, (line.runs, line.input, line.output, line.cache_read, line.cache_write))
    return (name, *numbers, money(line))


def money(line: Spending) -> str:
    """Return `~$1.24`, `~$1.24 + 2 unpriced` or `unpriced`; `$0` only for what is known to be free."""
    if line.cost_usd is None and line.unpriced_runs:
        return "unpriced"
    cost = format_cost(line.cost_usd) or "$0"
    return cost + optional(" + {} unpriced", line.unpriced_runs)


def _spending_data(line: Spending, by: By | None) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if by is not None:
        data[by] = line.key
    if by in ("run", "tree"):
        data |= {"agent": line.agent, "task": line.task}
    return data | {name: getattr(line, name) for name in _SPENT}


# Activity


def configure_activity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--type", choices=activity.KINDS, action="append", dest="kinds", help="only calls of this kind; may be repeated"
    )
    _add_since(parser)
    parser.add_argument("--recent", type=count, default=0, metavar="N", help="also list the newest N calls")
    parser.add_argument("--all", action="store_true", help="of all projects")
    add_where(parser)


def execute_activity(args: argparse.Namespace) -> int:
    """What agents did on the web, with documents and with language servers.

        retinue activity                        counts, errors, rate limits and latency by provider
        retinue activity --recent 20            the newest calls one by one
        retinue activity --type search --since 7d --json

    Everything comes from the log of this project; --all adds up all projects.
    """
    kinds, since = args.kinds or activity.KINDS, args.since or 0.0
    entries, problems = _gather(args, lambda state: activity.activity(state, kinds=kinds, since=since))
    warn(problems)
    recent = sorted(entries, key=lambda entry: entry.at, reverse=True)[: args.recent]
    totals, everything = activity.totals(entries), activity.everything(entries)
    if args.json:
        write_json(
            {
                "since": args.since,
                "rows": [*map(asdict, totals)],
                "total": asdict(everything),
                "recent": [*map(asdict, recent)],
                "problems": problems,
            }
        )
        return 0
    if not entries:
        say("No searches, fetches, conversions or questions to language servers yet.")
        return 0
    print("\n".join(activity_table([*totals, everything])))
    if recent:
        print("\n" + "\n".join(map(call_line, recent)))
    return 0


def activity_table(lines: Sequence[Totals]) -> list[str]:
    """Return the counts as aligned lines; the last one is the sum."""
    rows: list[tuple[str, ...]] = [_CALLS_HEAD]
    for each in lines:
        counts = (each.total, each.success, each.errors, each.rate_limited, each.denied, each.pending)
        times = (f"{each.average_ms} ms", f"{each.median_ms} ms", f"{each.slow_ms} ms")
        rows.append((each.kind, clean_line(each.provider) or "-", *map(str, counts), *times))
    return align(rows, left=2)


def call_line(entry: ActivityEntry) -> str:
    """Return one call on one line."""
    by = optional(" {}", clean_line(entry.provider))
    rest = optional("  {}", clean_line(entry.error or ", ".join(entry.hosts)))
    who = f"{clean_line(entry.agent)} {entry.run_id[:8]}"
    return f"{local_time(entry.at)}  {entry.kind}{by}  {entry.status}  {entry.duration_ms} ms  {who}{rest}"


# Logs


def configure_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--level", choices=("all", *LEVELS), default="all", help="only warnings, or only errors")
    parser.add_argument(
        "--type", choices=SOURCES, action="append", dest="sources", help="only from there; may be repeated"
    )
    for name in ("search", "fetch", "convert", "lsp"):
        parser.add_argument(
            f"--{name}", action="append_const", const=name, dest="sources", help=f"short for --type {name}"
        )
    _add_since(parser)
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="the newest N (default: 20; 0: all)")
    parser.add_argument("--follow", action="store_true", help="go on with what is new, until interrupted")
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document; with --follow one line each")


def execute_logs(args: argparse.Namespace) -> int:
    """Warnings and errors of runs: what went wrong, where and when, newest last.

        retinue logs                            the last 20 of this project
        retinue logs --level error --limit 100
        retinue logs --search --fetch           only what went wrong on the web
        retinue logs --follow                   and what goes wrong from now on, until interrupted

    `retinue runs show RUN` has the whole story of one run.
    """
    state = project(args)
    wanted: dict[str, Any] = {"levels": LEVELS, "sources": args.sources or SOURCES, "since": args.since or 0.0}
    if args.level != "all":
        wanted["levels"] = (args.level,)
    found = troubles(state, limit=args.limit or None, **wanted)
    if args.json and not args.follow:
        write_json({"entries": [*map(asdict, found)]})
        return 0
    for each in found:
        _print_trouble(each, args.json)
    if args.follow:
        last = found[-1].number if found else 0
        _follow(state, args.json, last, wanted)
    elif not found:
        say("No warnings and no errors.")
    return 0


def _follow(state: Path, as_json: bool, after: int, wanted: dict[str, Any]) -> None:
    """Print what is new until Ctrl-C, which the program turns into its exit code."""
    while True:
        for each in troubles(state, after=after, limit=None, **wanted):
            _print_trouble(each, as_json)
            after = each.number
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)


def _print_trouble(each: Trouble, as_json: bool) -> None:
    if as_json:
        write_json(asdict(each), indent=None)
        return
    who = f"{clean_line(each.agent)} {each.run_id[:8]}"
    what = f"{clean_line(each.code, 40)}: {clean_line(each.text, 400)}"
    print(f"{local_time(each.at)}  {each.level.upper():7}  {each.source}  {who}  {what}")
