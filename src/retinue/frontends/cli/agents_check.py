"""`retinue agents lint`, `agents convert` and `agents parse`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path, PurePath

from retinue.app.agent_files import (
    DIALECTS,
    SEVERITY_PLURALS,
    SKILL_DIALECTS,
    WRITABLE,
    ConversionList,
    Finding,
    LintList,
    Loss,
    convert_agents,
    lint_agents,
    read_agent_file,
)
from retinue.app.output import put, put_file, workflow_command
from retinue.app.text import optional, plural
from retinue.core.controls import in_line
from retinue.core.spec import Severity
from retinue.errors import UsageError
from retinue.frontends.cli.agents import LOOK_FROM_HELP
from retinue.frontends.cli.project import add_where, folder, say, write_json

_GITHUB_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}
_SEVERITY_NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def configure_lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders (default: all visible agents)")
    parser.add_argument("--fix", action="store_true", help="make the repairs that add no rights")
    parser.add_argument("--format", choices=("text", "github"), default="text", help="how findings are printed")
    parser.add_argument("--strict", action="store_true", help="also exit 1 on warnings")
    add_where(parser, LOOK_FROM_HELP)


def execute_lint(args: argparse.Namespace) -> int:
    """Find problems in agent files: position, reason and remedy.

    Without PATH, check every agent file visible from here, and which file replaces which. A PATH is
    a file, or a folder with everything below it that looks like an agent.

          retinue agents lint                          what is wrong with my agents?
          retinue agents lint .claude/agents --fix     repair what can be repaired safely
          retinue agents lint --format github          annotations in a GitHub workflow

    --fix prints every change it makes. It never gives an agent more rights, and it preserves
    comments, order, quotes and line endings; without PATH it changes only files of the project. MCP
    servers that a file names are looked up but not started; `retinue servers check` starts them.
    Exits with 1 if there are errors, or with --strict if there are warnings.
    """
    cwd = folder(args.cwd)
    lint = lint_agents(cwd, paths=args.paths, fix=args.fix)
    if args.json:
        write_json(lint)
    else:
        _print(lint, args, cwd)
    return int(lint.fails(strict=args.strict))


def _print(lint: LintList, args: argparse.Namespace, cwd: Path) -> None:
    for repair in lint.fixed:
        file = relative_path(repair.file, cwd)
        say(f"{file}{optional(':{}', repair.line)}: fixed: {repair.what} [{repair.code}]")
    if args.format == "github":
        put(github_report(lint.findings, Path(os.environ.get("GITHUB_WORKSPACE") or cwd)))
    else:
        put(text_report(lint.findings, cwd))
    counts = [plural(getattr(lint, SEVERITY_PLURALS[severity]), noun) for severity, noun in _SEVERITY_NOUNS.items()]
    text = f"{plural(lint.files, 'file')}: {', '.join(counts)}"
    if args.fix:
        text += f"; {len(lint.fixed)} fixed"
    say(text)
    fixable = sum(finding.fixable for finding in lint.findings)
    if fixable and not args.fix:
        say(f"{fixable} can be repaired: add --fix")


def text_report(findings: Iterable[Finding], base: Path | None = None) -> str:
    """Return `file:line:column: severity: reason [code]`, with the remedy on the next line. Paths are relative to
    `base` if the file is below it."""
    lines: list[str] = []
    for finding in findings:
        values = (relative_path(finding.file, base), finding.line, finding.column)
        position = ":".join(str(value) for value in values if value is not None)
        mark = ", fixable" if finding.fixable else ""
        lines.append(f"{in_line(position)}: {finding.severity}: {in_line(finding.reason)} [{finding.code}{mark}]")
        if finding.remedy:
            lines.append(f"    {in_line(finding.remedy)}")
    return "".join(line + "\n" for line in lines)


def github_report(findings: Iterable[Finding], base: Path | None = None) -> str:
    """Return workflow commands, one a line. No text of a file can end or forge one. Paths are relative to `base`, the
    workspace."""
    lines: list[str] = []
    for finding in findings:
        values = {
            "file": relative_path(finding.file, base),
            "line": finding.line,
            "col": finding.column,
            "title": finding.code,
        }
        message = f"{finding.reason} {finding.remedy}".strip()
        lines.append(workflow_command(_GITHUB_LEVELS[finding.severity], values, message))
    return "".join(line + "\n" for line in lines)


def relative_path(path: str, base: Path | None) -> str:
    """Return `path` relative to `base` if it is below it."""
    pure = PurePath(path)
    if base is not None and pure.is_relative_to(base):
        return str(pure.relative_to(base))
    return path


def configure_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agents", nargs="+", metavar="NAME|FILE", help="agents by name, or their files")
    parser.add_argument("--to", required=True, choices=WRITABLE, help="the dialect to write")
    parser.add_argument("--output", "-o", default="-", metavar="DIR|FILE|-", help="where to (default: -, stdout)")
    parser.add_argument("--strict", action="store_true", help="exit 1 if something is lost")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    add_where(parser, LOOK_FROM_HELP)


def execute_convert(args: argparse.Namespace) -> int:
    """Write agents in another dialect, and list what that dialect cannot express.

    An agent is named as `agents list` shows it, or by its file. Tools get the names of the dialect
    (Read, read, read_file); models keep theirs.

          retinue agents convert reviewer --to claude                    print it
          retinue agents convert .claude/agents/*.md --to pi --output .pi/agents
          retinue agents convert reviewer --to gemini --strict           exit 1 if anything is lost

    Files are not overwritten without --force. Losses are printed on stderr.
    """
    cwd = folder(args.cwd)
    if args.output == "-" and len(args.agents) > 1 and not args.json:
        raise UsageError("Several agents do not fit on stdout.", remedy="Give a folder: --output DIR")
    result = convert_agents(args.agents, args.to, cwd, args.output, force=args.force)
    if args.json:
        write_json(result)
    else:
        _print_converted(result)
    lost = any(agent.losses for agent in result.converted)
    return int(bool(result.failed) or (lost and args.strict))


def _print_converted(result: ConversionList) -> None:
    for agent in result.converted:
        if agent.path is None:
            put_file(agent.text)
        else:
            put(f"{agent.path}\n")
        for loss in agent.losses:
            say(f"{agent.name}: {describe(loss)}")
    for failed in result.failed:
        say(f"{failed.agent}: {failed.message}")


def describe(loss: Loss) -> str:
    """Describe a loss on one line."""
    word = {"renamed": "changed", "ignored-there": "note"}.get(loss.kind, loss.kind)
    return f"{word}: {loss.field} ({loss.what}): {loss.why}"


def configure_parse(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="an agent file of any dialect, or a SKILL.md")
    parser.add_argument("--dialect", choices=(*DIALECTS, *SKILL_DIALECTS), help="parse every file in this dialect")


def execute_parse(args: argparse.Namespace) -> int:
    """Parse files to JSON lines, without discovery: one line per file, in the given order.

    The dialect is guessed from the path and, if necessary, from the keys, unless it is given. For a
    file that defines no agent the line has an error; the exit code remains 0, because errors are
    part of the result.
    """
    for path in args.files:
        write_json(read_agent_file(path, args.dialect), indent=None)
    return 0
