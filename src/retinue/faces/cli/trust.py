"""Consent to what this project's files bring: hooks, MCP servers, allowing rules, wider modes.

Without consent such files have no effect; what forbids or asks always has. Consent is for exactly
the content a file has now, in exactly this folder: once it changes, you are asked again. It is
kept in RETINUE_HOME, never in the project.

    retinue trust                          what this project would bring, and where you stand
    retinue trust add                      consent to all of it, as it is now
    retinue trust add .claude/settings.json
    retinue trust remove                   take back all consent given for this project

`--trust` of `retinue run` and `retinue -p` consents for that one process.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from retinue.core.controls import in_line
from retinue.errors import UsageError
from retinue.faces.cli.project import add_cwd, add_json, folder, write_json
from retinue.faces.text import indent

if TYPE_CHECKING:
    from retinue.guard.trust_subjects import TrustSubject
    from retinue.runs.project import Project


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=["list", "add", "remove"], default="list", help="what to do (default: list)"
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help="only these files, or files below these folders")
    add_json(parser, "print one JSON document")
    add_cwd(parser, "the project to look at (default: here)")


def execute(args: argparse.Namespace) -> int:
    from retinue.capabilities.trust import subjects
    from retinue.engine import open_project
    from retinue.evidence.consent import case_subjects

    project = open_project(folder(args.cwd))
    every = [*subjects(project), *case_subjects(project.cwd)]
    found = [subject for subject in every if _wanted(subject, args.paths, project)]
    if args.paths and not found and args.action == "add":
        raise UsageError("None of these files brings anything that needs consent.", remedy="See: retinue trust")
    if args.action == "add":
        for subject in found:
            project.trust.grant(subject.path, *subject.contents, what=subject.what)
    elif args.action == "remove":
        if not args.paths:
            for subject in found:
                project.trust.revoke(subject.path)
        # A file that brings nothing any more may still have consent: it is found by its path.
        unknown = [path for path in args.paths if not project.trust.revoke(project.cwd / path)]
        if unknown:
            raise UsageError(f"No consent was given to {', '.join(unknown)}.", remedy="See: retinue trust")
    if args.json:
        files = []
        for subject in found:
            answer = subject.answer(project.trust)
            files.append({"path": str(subject.path), "state": answer, "brings": list(subject.what)})
        write_json({"folder": str(project.cwd), "files": files})
    else:
        print("\n".join(_lines(found, project)))
    return 0


def _wanted(subject: TrustSubject, paths: list[str], project: Project) -> bool:
    if not paths:
        return True
    real = subject.path.resolve()
    chosen = [(project.cwd / path).expanduser().resolve() for path in paths]
    return any(real == path or path in real.parents for path in chosen)


def _lines(found: list[TrustSubject], project: Project) -> list[str]:
    if not found:
        return ["The files of this project bring nothing that needs consent."]
    lines: list[str] = []
    for subject in found:
        path = str(subject.path).removeprefix(f"{project.cwd}/")
        lines.append(f"{in_line(path)}  [{subject.answer(project.trust)}]")
        lines += indent(subject.what)
    if any(subject.answer(project.trust) != "trusted" for subject in found):
        lines += ["", "What is not trusted has no effect. Consent with: retinue trust add [PATH]"]
    return lines
