"""Check this installation: what it can enforce, which parts are missing, and how to add them.

The sandbox is tested, not queried: a confined program tries to write, to reach the network and to
disturb other processes, and the check reports whether it could.

    retinue doctor
    retinue doctor sandbox --json
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import groupby

from retinue.app.doctor import CATEGORIES, diagnose
from retinue.app.text import plural
from retinue.frontends.cli.project import add_where, folder, write_values

_GRADE_SIGNS = {"ok": "✓", "info": "·", "warning": "!", "failure": "✗"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "category", nargs="*", metavar="CATEGORY", help=f"look only at this; one or more of {', '.join(CATEGORIES)}"
    )
    add_where(parser, "the project to look at (default: here)")


def execute(args: argparse.Namespace) -> int:
    report = diagnose(folder(args.cwd), args.category)
    if args.json:
        write_values(report)
        return int(not report.ok)
    for category, findings in groupby(report.findings, key=lambda finding: finding.category):
        print(category)
        for finding in findings:
            print(f"  {_GRADE_SIGNS[finding.grade]} {finding.name}: {finding.detail}")
            if finding.remedy:
                print(f"      {finding.remedy}")
    grades = Counter(finding.grade for finding in report.findings)
    parts = [plural(grades[grade], grade) for grade in ("failure", "warning") if grades[grade]]
    if parts:
        print(" and ".join(parts) + ".")
    else:
        print("Nothing to complain about.")
    return int(not report.ok)
