from __future__ import annotations

import argparse
import sys
from pathlib import Path

from retinue.agents.catalog import Catalog
from retinue.agents.create import agents_folder, file_name, write_new
from retinue.agents.draft import Draft, spec_of
from retinue.agents.lint import report
from retinue.agents.lint.runner import lint_paths
from retinue.agents.write import write_agent
from retinue.core.spec import AgentSpec
from retinue.errors import UsageError
from retinue.faces.cli.agents import _wizard
from retinue.faces.cli.agents._common import add_common, add_place, folder, put, read_text, say
from retinue.faces.cli.agents._show import write_json


def configure_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as code-reviewer")
    parser.add_argument("--description", metavar="TEXT", help="when to use it: the main agent decides by this")
    parser.add_argument("--tools", metavar="LIST", help="names, or all, none, read-only (default: inherit)")
    parser.add_argument("--model", metavar="M", help="provider/model or an alias (default: inherit)")
    parser.add_argument("--thinking", metavar="LEVEL", help="off, minimal, low, medium, high, xhigh, max")
    parser.add_argument("--prompt", metavar="TEXT", help="the instructions; - reads stdin, @file a file")
    parser.add_argument("--readonly", action="store_true", help="it changes nothing")
    parser.set_defaults(body="")
    add_place(parser)
    add_common(parser)


def execute_new(args: argparse.Namespace) -> int:
    """Creates an agent file, from options or by asking.

      retinue agents new reviewer --description "Reviews a change before it is committed" --readonly
      retinue agents new fixer --description "Fixes one failing test" --tools read,edit,bash --prompt @fixer.txt
      retinue agents new                             asks step by step; Ctrl-C leaves nothing behind

    --tools takes names, `all`, `none` or `read-only`. What you leave open is inherited and not
    written. A file that exists is never replaced without --force.
    """
    cwd = folder(args)
    if args.description is None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()) or args.json:
            raise UsageError(
                "An agent needs a description.", remedy='Add --description "when to use it", or run in a terminal.'
            )
        _wizard.ask(args)
    spec = _spec(args)
    path = agents_folder(args.dialect, cwd, user=args.user) / file_name(spec.name, args.dialect)
    made = write_new(path, write_agent(spec, args.dialect), force=args.force)
    _tell(args, cwd, spec, made.path, made.replaced)
    return 0


def _spec(args: argparse.Namespace) -> AgentSpec:
    if args.name is None:
        raise UsageError("An agent needs a name.", remedy="Try: retinue agents new reviewer --description …")
    return spec_of(
        Draft(
            name=args.name,
            description=args.description,
            tools=args.tools or "",
            model=args.model or "",
            thinking=args.thinking or "",
            prompt=args.body if args.prompt is None else read_text(args.prompt),
            readonly=args.readonly,
            dialect=args.dialect,
        )
    )


def _tell(args: argparse.Namespace, cwd: Path, spec: AgentSpec, path: Path, replaced: bool) -> None:
    winner = Catalog.load(cwd).find(spec.name).path
    findings = lint_paths([path]).findings
    if args.json:
        write_json(
            {
                "name": spec.name,
                "path": str(path),
                "dialect": args.dialect,
                "replaced": replaced,
                "effective": winner == str(path),
                "findings": report.document(findings, (), 1)["findings"],
            }
        )
        return
    put(f"{path}\n")
    if winner != str(path):
        say(f"Note: '{spec.name}' is still loaded from {winner}, which is stronger.")
    print(report.text(findings), end="", file=sys.stderr)
    say(f'Try it: retinue run {spec.name} "…"')
