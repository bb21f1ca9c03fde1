"""What agents have cost: tokens and money from the log, children included.

    retinue cost                        by agent, this project
    retinue cost --by tree --since 7d   whole trees of runs that were active in the last week
    retinue cost --by model --all       all projects

Runs on models without a known price are counted beside the sum and never shown as free.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from retinue.core.format import format_cost, format_count
from retinue.errors import StateError
from retinue.faces.cli.project import folder
from retinue.log.activity import BY, By, Spending, merged, spending, total
from retinue.log.database import log_folders
from retinue.settings.places import retinue_home, state_folder

_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LONGEST = 60


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=BY, default="agent", help="what to add up by (default: agent)")
    parser.add_argument(
        "--since", type=moment, metavar="WHEN", help="only runs active since then: 30m, 24h, 7d, 2w or 2026-08-01"
    )
    parser.add_argument("--all", action="store_true", help="of all projects")
    parser.add_argument("--limit", type=_count, default=0, metavar="N", help="the first N lines; the total counts all")
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def execute(args: argparse.Namespace) -> int:
    by: By = args.by
    lines, problems = _gather(args, by)
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    everything = total(lines)
    shown = lines[: args.limit or None]
    if args.json:
        import json

        rows = [_data(line, by) for line in shown]
        document = {"by": by, "since": args.since, "rows": rows, "total": _data(everything, None), "problems": problems}
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return 0
    if not lines:
        print("No runs to add up.", file=sys.stderr)
        return 0
    print("\n".join(_table(shown, everything, by)))
    if len(shown) < len(lines):
        print(f"… and {len(lines) - len(shown)} more; --limit 0 shows all.")
    if everything.unpriced_runs:
        print(_unpriced(everything))
    return 0


def moment(text: str) -> float:
    """`7d` or `2026-08-01` as Unix time."""
    from datetime import datetime

    found = re.fullmatch(r"([0-9]{1,9})([mhdw])", text.strip())
    if found:
        return time.time() - int(found[1]) * _UNITS[found[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"'{text}' is no time: 30m, 24h, 7d, 2w or a date like 2026-08-01") from None


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number; 0: all")
    return int(text)


def _gather(args: argparse.Namespace, by: By) -> tuple[list[Spending], list[str]]:
    since: float = args.since or 0.0
    if not args.all:
        return spending(state_folder(folder(args.cwd)), by, since), []
    found: list[Spending] = []
    problems: list[str] = []
    for project in log_folders(retinue_home()):
        try:
            found += spending(project, by, since)
        except StateError as error:
            problems.append(f"{error} It is not counted.")
    return merged(found, by), problems


def _table(lines: Sequence[Spending], everything: Spending, by: By) -> list[str]:
    head = (by, "runs", "input", "output", "cache read", "written", "cost", "")
    rows = [head, *(_cells(line, by) for line in lines), _cells(everything, None)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    table = []
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:7], widths[1:7], strict=True))
        table.append("  ".join((row[0].ljust(widths[0]), *numbers, row[7])).rstrip())
    return table


def _cells(line: Spending, by: By | None) -> tuple[str, ...]:
    name = line.key[:8] if by in ("run", "tree") else clean(line.key)
    note = f"{clean(line.agent)}  {clean(line.task)}".strip() if by in ("run", "tree") else ""
    numbers = (line.runs, line.input, line.output, line.cache_read, line.cache_write)
    return (name, *(format_count(number) for number in numbers), money(line), note)


def money(line: Spending) -> str:
    """`~$1.24`, `~$1.24 + 2 unpriced`, `unpriced`; `$0` only for what is known to be free."""
    if line.cost_usd is None:
        return "unpriced" if line.unpriced_runs else "$0"
    cost = format_cost(line.cost_usd) or "$0"
    return f"{cost} + {line.unpriced_runs} unpriced" if line.unpriced_runs else cost


def clean(text: str) -> str:
    """One line that a terminal can show, whatever an agent or a task was called."""
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _unpriced(line: Spending) -> str:
    runs = "1 run" if line.unpriced_runs == 1 else f"{line.unpriced_runs} runs"
    return (
        f"Not in the sum: {runs} with {format_count(line.unpriced_tokens)} tokens on models without a known price. "
        "The setting `models` can name it."
    )


def _data(line: Spending, by: By | None) -> dict[str, Any]:
    data: dict[str, Any] = {} if by is None else {by: line.key}
    if by in ("run", "tree"):
        data |= {"agent": line.agent, "task": line.task}
    return data | {
        "runs": line.runs,
        "turns": line.turns,
        "tool_uses": line.tool_uses,
        "tokens": line.tokens,
        "input": line.input,
        "output": line.output,
        "cache_read": line.cache_read,
        "cache_write": line.cache_write,
        "cost_usd": line.cost_usd,
        "unpriced_runs": line.unpriced_runs,
        "unpriced_tokens": line.unpriced_tokens,
        "first_at": line.first_at,
        "last_at": line.last_at,
    }
