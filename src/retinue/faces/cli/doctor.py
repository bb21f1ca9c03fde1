"""Check this installation: what it can enforce here, what is missing, and what to do about it.

The sandbox is not asked but tried: a confined program attempts to write, to reach the network and
to disturb others, and the answer is whether it could.

retinue doctor
retinue doctor sandbox --json
"""

from __future__ import annotations

import argparse
from itertools import groupby

from retinue.faces.cli.doctor_checks import CHECKS, DoctorFinding, Patient, examine
from retinue.faces.cli.project import folder
from retinue.models.keys import environment as process_environment

_MARKS = {"ok": "✓", "info": "·", "warning": "!", "failure": "✗"}


def configure(parser: argparse.ArgumentParser) -> None:
    known = list(dict.fromkeys(category for category, _ in CHECKS))
    parser.add_argument(
        "category", nargs="*", metavar="CATEGORY", help=f"look only at this; one or more of {', '.join(known)}"
    )
    parser.add_argument("--cwd", metavar="DIR", help="the project to look at (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def execute(args: argparse.Namespace) -> int:
    _check(args.category)
    found = list(examine(Patient(folder(args.cwd), process_environment()), args.category))
    healthy = not any(finding.grade == "failure" for finding in found)
    if args.json:
        from retinue.log.encode import dump

        rows = [
            {"category": f.category, "name": f.name, "status": f.grade, "detail": f.detail, "remedy": f.remedy or None}
            for f in found
        ]
        print(dump({"ok": healthy, "findings": rows}).decode())
        return 0 if healthy else 1
    for category, findings in groupby(found, key=lambda finding: finding.category):
        print(category)
        for finding in findings:
            print("\n".join(_lines(finding)))
    print(_summary(found))
    return 0 if healthy else 1


def _check(categories: list[str]) -> None:
    from retinue.errors import UsageError

    known = list(dict.fromkeys(category for category, _ in CHECKS))
    for wanted in categories:
        if wanted not in known:
            raise UsageError(f"The doctor knows nothing of '{wanted}'.", remedy=f"Choose from: {', '.join(known)}")


def _lines(finding: DoctorFinding) -> list[str]:
    lines = [f"  {_MARKS[finding.grade]} {finding.name}: {finding.detail}"]
    if finding.remedy:
        lines.append(f"      {finding.remedy}")
    return lines


def _summary(found: list[DoctorFinding]) -> str:
    warnings = sum(finding.grade == "warning" for finding in found)
    failures = sum(finding.grade == "failure" for finding in found)
    if not warnings and not failures:
        return "Nothing to complain about."
    parts = [
        f"{count} {word}{'s' if count > 1 else ''}" for count, word in ((failures, "failure"), (warnings, "warning"))
    ]
    return " and ".join(part for part in parts if not part.startswith("0")) + "."
