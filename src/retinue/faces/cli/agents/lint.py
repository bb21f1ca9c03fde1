from __future__ import annotations

import argparse
import os
from pathlib import Path

from retinue.agents.lint import report
from retinue.agents.lint.runner import Report, lint_catalog, lint_paths
from retinue.faces.cli.agents._common import add_common, folder, plugins, put, say
from retinue.faces.cli.agents._show import write_json


def configure_lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders (default: all visible agents)")
    parser.add_argument("--fix", action="store_true", help="repair what can be repaired without adding rights")
    parser.add_argument("--format", choices=("text", "github"), default="text", help="how findings are printed")
    parser.add_argument("--strict", action="store_true", help="exit 1 on warnings too")
    add_common(parser)


def execute_lint(args: argparse.Namespace) -> int:
    """Problems in agent files: where, why, and what to do.

    Without PATH it looks at every agent file visible from here, and at which file replaces which.
    A PATH is a file, or a folder with everything below it that looks like an agent.

      retinue agents lint                          what is wrong with my agents?
      retinue agents lint .claude/agents --fix     repair what can be repaired safely
      retinue agents lint --format github          annotations in a GitHub workflow

    --fix prints every change it makes. It never gives an agent more rights, and it leaves comments,
    order, quotes and line endings alone; without PATH it changes files of the project only.
    MCP servers that a file names are looked up, never started: `retinue servers check` does that.
    Exits 1 if there are errors; --strict counts warnings too.
    """
    from retinue.runs.server_lint import ServerLint

    cwd = folder(args)
    check = ServerLint(cwd)
    if args.paths:
        found = lint_paths(args.paths, fix=args.fix, check=check)
    else:
        found = lint_catalog(cwd, fix=args.fix, plugins=plugins(cwd, own=False), check=check)
    if args.json:
        write_json(report.document(found.findings, found.changes, found.files))
    else:
        _print(found, args, cwd)
    return 1 if found.worst(strict=args.strict) else 0


def _print(found: Report, args: argparse.Namespace, cwd: Path) -> None:
    for change in found.changes:
        file = report.near(change.file, cwd)
        place = f"{file}:{change.line}" if change.line else file
        say(f"{place}: fixed: {change.what} [{change.code}]")
    if args.format == "github":
        put(report.github(found.findings, Path(os.environ.get("GITHUB_WORKSPACE") or cwd)))
    else:
        put(report.text(found.findings, cwd))
    totals = report.count(found.findings)
    say(
        f"{found.files} files: {totals['errors']} errors, {totals['warnings']} warnings, {totals['infos']} notes"
        + (f"; {len(found.changes)} fixed" if args.fix else "")
    )
    fixable = sum(each.fixable for each in found.findings)
    if fixable and not args.fix:
        say(f"{fixable} can be repaired: add --fix")
