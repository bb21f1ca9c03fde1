"""Consent to the effects of this project's files: hooks, MCP servers, allowing rules, wider modes.

Without consent such files have no effect; restrictions always take effect. Consent applies to the
exact content of a file in this folder: if it changes, you are asked again. It is stored in
RETINUE_HOME, never in the project.

    retinue trust                          what this project would bring, and what you decided
    retinue trust add                      consent to all of it, with its current content
    retinue trust add .claude/settings.json
    retinue trust remove                   revoke all consent given for this project

`--trust` of `retinue run` and `retinue -p` consents for that one process.
"""

from __future__ import annotations

import argparse
from typing import get_args

from retinue.app.text import indent
from retinue.app.trust import ConsentReport, TrustAction, change_trust
from retinue.core.controls import in_line
from retinue.frontends.cli.project import add_cwd, add_json, folder, write_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=get_args(TrustAction), default="list", help="what to do (default: list)"
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help="only these files, or files below these folders")
    add_json(parser, "print one JSON document")
    add_cwd(parser, "the project to look at (default: here)")


def execute(args: argparse.Namespace) -> int:
    report = change_trust(folder(args.cwd), args.action, args.paths)
    if args.json:
        write_json(report)
    else:
        print("\n".join(_lines(report)))
    return 0


def _lines(report: ConsentReport) -> list[str]:
    if not report.files:
        return ["The files of this project bring nothing that needs consent."]
    lines: list[str] = []
    for file in report.files:
        path = file.path.removeprefix(f"{report.folder}/")
        lines.append(f"{in_line(path)}  [{file.state}]")
        lines += indent(file.brings)
    if any(file.state != "trusted" for file in report.files):
        lines += ["", "Untrusted files have no effect. Consent with: retinue trust add [PATH]"]
    return lines
