"""Warnings and errors of runs: what went wrong, where and when, newest last.

    retinue logs                            the last 20 of this project
    retinue logs --level error --limit 100
    retinue logs --search --fetch           only what went wrong on the web
    retinue logs --follow                   and what goes wrong from now on, until interrupted

`retinue runs show RUN` has the whole story of one run.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from retinue.faces.cli.activity import whole
from retinue.faces.cli.cost import moment
from retinue.faces.cli.project import folder
from retinue.log.troubles import LEVELS, SOURCES, Trouble, troubles
from retinue.settings.places import state_folder

_POLL_SECONDS = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--level", choices=("all", *LEVELS), default="all", help="only warnings, or only errors")
    parser.add_argument(
        "--type", choices=SOURCES, action="append", dest="sources", help="only from there; may be repeated"
    )
    for name in ("search", "fetch", "convert", "lsp"):
        parser.add_argument(
            f"--{name}", action="append_const", const=name, dest="sources", help=f"short for --type {name}"
        )
    parser.add_argument("--since", type=moment, metavar="WHEN", help="only since then: 30m, 24h, 7d, 2w or 2026-08-01")
    parser.add_argument("--limit", type=whole, default=20, metavar="N", help="the newest N (default: 20; 0: all)")
    parser.add_argument("--follow", action="store_true", help="go on with what is new, until interrupted")
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document; with --follow one line each")


def execute(args: argparse.Namespace) -> int:
    place = state_folder(folder(args.cwd))
    given: dict[str, Any] = {
        "levels": LEVELS if args.level == "all" else (args.level,),
        "sources": args.sources or SOURCES,
        "since": args.since or 0.0,
    }
    found = troubles(place, limit=args.limit or None, **given)
    if args.json and not args.follow:
        import json

        print(json.dumps({"entries": [asdict(each) for each in found]}, ensure_ascii=False, indent=2))
        return 0
    for each in found:
        _print(each, args.json)
    if args.follow:
        _follow(place, args.json, found[-1].number if found else 0, given)
    elif not found:
        print("No warnings and no errors.", file=sys.stderr)
    return 0


def line(each: Trouble) -> str:
    """One trouble on one line, safe for a terminal."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.at))
    agent, text = _plain(each.agent, 60), _plain(each.text, 400)
    return f"{when}  {each.level.upper():7}  {each.source}  {agent} {each.run_id[:8]}  {_plain(each.code, 40)}: {text}"


def _follow(place: Path, as_json: bool, after: int, given: dict[str, Any]) -> None:
    """Until Ctrl-C, which the program turns into its exit code."""
    while True:
        for each in troubles(place, after=after, limit=None, **given):
            _print(each, as_json)
            after = each.number
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)


def _print(each: Trouble, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(asdict(each), ensure_ascii=False))
    else:
        print(line(each))


def _plain(text: str, most: int) -> str:
    kept = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return kept if len(kept) <= most else kept[: most - 1] + "…"
