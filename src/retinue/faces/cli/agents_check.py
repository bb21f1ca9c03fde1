"""`retinue agents lint`, `agents convert` and `agents parse`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, cast

import msgspec

from retinue.agents.catalog import Catalog
from retinue.agents.convert import Conversion, Loss, convert
from retinue.agents.dialects.tables import DIALECTS
from retinue.agents.files import write_new
from retinue.agents.folders import WRITABLE
from retinue.agents.frontmatter import Parsed
from retinue.agents.lint.runner import LintReport, lint_catalog, lint_paths
from retinue.agents.lint.subject import AppliedRepair, Finding
from retinue.agents.parse import is_skill, parse, parse_file, parse_skill, read_bytes, unusable
from retinue.core.spec import DialectName, Problem, Severity
from retinue.errors import RetinueError, UsageError
from retinue.faces.cli.agents import LOOK_FROM, parsed_data
from retinue.faces.cli.console.output import put, put_file, workflow_command
from retinue.faces.cli.project import add_where, folder, plugins, say, write_json
from retinue.faces.text import optional, plural

_SKILLS = ("skill", "skills")
_LEVEL: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def configure_lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders (default: all visible agents)")
    parser.add_argument("--fix", action="store_true", help="repair what can be repaired without adding rights")
    parser.add_argument("--format", choices=("text", "github"), default="text", help="how findings are printed")
    parser.add_argument("--strict", action="store_true", help="exit 1 on warnings too")
    add_where(parser, LOOK_FROM)


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
    from retinue.capabilities.mcp.servers import ServerLint
    from retinue.engine import open_project

    cwd = folder(args.cwd)
    check = ServerLint(lambda: open_project(cwd))
    if args.paths:
        found = lint_paths(args.paths, fix=args.fix, check=check)
    else:
        # Plugins outside of the project are not looked at: --fix must not change files of others.
        found = lint_catalog(cwd, fix=args.fix, plugins=plugins(cwd, own=False), check=check)
    if args.json:
        write_json(json_report(found.findings, found.changes, found.files))
    else:
        _print(found, args, cwd)
    return int(bool(found.worst(strict=args.strict)))


def _print(found: LintReport, args: argparse.Namespace, cwd: Path) -> None:
    for change in found.changes:
        file = near(change.file, cwd)
        say(f"{file}{optional(':{}', change.line)}: fixed: {change.what} [{change.code}]")
    if args.format == "github":
        put(github_report(found.findings, Path(os.environ.get("GITHUB_WORKSPACE") or cwd)))
    else:
        put(text_report(found.findings, cwd))
    totals = count_by_severity(found.findings)
    counts = [
        plural(totals[kind], noun) for kind, noun in (("errors", "error"), ("warnings", "warning"), ("infos", "note"))
    ]
    text = f"{plural(found.files, 'file')}: {', '.join(counts)}"
    if args.fix:
        text += f"; {len(found.changes)} fixed"
    say(text)
    fixable = sum(each.fixable for each in found.findings)
    if fixable and not args.fix:
        say(f"{fixable} can be repaired: add --fix")


def text_report(findings: Iterable[Finding], base: Path | None = None) -> str:
    """Return `file:line:column: severity: reason [code]`, then the remedy on a line of its own. Files
    below `base` are named from there."""
    lines: list[str] = []
    for found in findings:
        place = ":".join(str(part) for part in (near(found.file, base), found.line, found.column) if part is not None)
        mark = ", fixable" if found.fixable else ""
        lines.append(f"{_one_line(place)}: {found.severity}: {_one_line(found.reason)} [{found.code}{mark}]")
        if found.remedy:
            lines.append(f"    {_one_line(found.remedy)}")
    return "".join(line + "\n" for line in lines)


def github_report(findings: Iterable[Finding], base: Path | None = None) -> str:
    """Workflow commands, one a line: nothing in a file's text can end or forge one. `base` is
    the workspace, from which GitHub wants its paths."""
    lines: list[str] = []
    for found in findings:
        values = {"file": near(found.file, base), "line": found.line, "col": found.column, "title": found.code}
        message = f"{found.reason} {found.remedy}".strip()
        lines.append(workflow_command(_LEVEL[found.severity], values, message))
    return "".join(line + "\n" for line in lines)


def json_report(findings: Iterable[Finding], changes: Iterable[AppliedRepair], files: int) -> dict[str, Any]:
    """Return the one JSON document of `retinue agents lint --json`."""
    listed = list(findings)
    return {
        "findings": [_plain(found) for found in listed],
        "fixed": [{"file": c.file, "line": c.line, "code": c.code, "change": c.what} for c in changes],
        "files": files,
        **count_by_severity(listed),
    }


def count_by_severity(findings: Iterable[Finding]) -> dict[str, int]:
    names: Mapping[Severity, str] = {"error": "errors", "warning": "warnings", "info": "infos"}
    totals = dict.fromkeys(names.values(), 0)
    for found in findings:
        totals[names[found.severity]] += 1
    return totals


def near(path: str, base: Path | None) -> str:
    """Return `path` from `base` on, if it lies below."""
    pure = PurePath(path)
    if base is not None and pure.is_relative_to(base):
        return str(pure.relative_to(base))
    return path


def _plain(found: Finding) -> dict[str, Any]:
    return {
        "file": found.file,
        "line": found.line,
        "column": found.column,
        "severity": found.severity,
        "code": found.code,
        "reason": found.reason,
        "remedy": found.remedy,
        "key": found.key,
        "fixable": found.fixable,
    }


def _one_line(value: str) -> str:
    return "".join(char if char.isprintable() else _visible(char) for char in value)


def _visible(char: str) -> str:
    # Control characters of a hostile file must not steer the terminal.
    return char.encode("unicode_escape").decode("ascii")


def configure_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agents", nargs="+", metavar="NAME|FILE", help="agents by name, or their files")
    parser.add_argument("--to", required=True, choices=WRITABLE, help="the dialect to write")
    parser.add_argument("--output", "-o", default="-", metavar="DIR|FILE|-", help="where to (default: -, stdout)")
    parser.add_argument("--strict", action="store_true", help="exit 1 when something is lost")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    add_where(parser, LOOK_FROM)


def execute_convert(args: argparse.Namespace) -> int:
    """Write agents in another dialect and say what that dialect cannot express.

    An agent is named as `agents list` shows it, or by its file. Tools get the names the dialect has
    for them (Read, read, read_file); models keep theirs.

      retinue agents convert reviewer --to claude                    print it
      retinue agents convert .claude/agents/*.md --to pi --output .pi/agents
      retinue agents convert reviewer --to gemini --strict           exit 1 if anything is lost

    Nothing is overwritten without --force. What was lost is said on stderr.
    """
    cwd = folder(args.cwd)
    if args.output == "-" and len(args.agents) > 1 and not args.json:
        raise UsageError("Several agents do not fit on stdout.", remedy="Give a folder: --output DIR")
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for name in args.agents:
        try:
            done.append(_convert_one(name, args, cwd))
        except RetinueError as error:
            if len(args.agents) == 1:
                raise
            failed.append({"agent": name, "code": error.code, "message": str(error)})
    if args.json:
        write_json({"converted": done, "failed": failed})
    else:
        _tell(done, failed, args)
    lost = any(each["losses"] for each in done)
    return int(bool(failed) or (lost and args.strict))


def _convert_one(name: str, args: argparse.Namespace, cwd: Path) -> dict[str, Any]:
    parsed = _find(name, cwd)
    made = convert(parsed, args.to)
    path = _target(args, made)
    if path is not None:
        write_new(path, made.text, force=args.force)
    return {
        "name": made.name,
        "source": parsed.file,
        "from": parsed.dialect,
        "to": made.dialect,
        "file": made.file_name,
        "path": path and str(path),
        "text": made.text,
        "losses": msgspec.to_builtins(made.losses),
    }


def _find(name: str, cwd: Path) -> Parsed:
    path = Path(name).absolute()
    if path.is_file():
        return parse_file(path)
    if "/" in name or "\\" in name or name.lower().endswith((".md", ".markdown", ".yaml", ".yml")):
        raise UsageError(f"There is no file {path}.", remedy="Name a file that exists, or an agent.")
    return Catalog.load(cwd, plugin_folders=plugins(cwd)).find(name).parsed


def _target(args: argparse.Namespace, made: Conversion) -> Path | None:
    if args.output == "-":
        return None
    path = Path(args.output).expanduser().absolute()
    if path.is_dir() or len(args.agents) > 1 or args.output.endswith(("/", "\\")) or not path.suffix:
        return path / made.file_name
    return path


def _tell(done: list[dict[str, Any]], failed: list[dict[str, str]], args: argparse.Namespace) -> None:
    for each in done:
        if each["path"] is None:
            put_file(each["text"])
        else:
            put(f"{each['path']}\n")
        for loss in each["losses"]:
            say(f"{each['name']}: {describe(Loss(**loss))}")
    for each in failed:
        say(f"{each['agent']}: {each['message']}")


def describe(loss: Loss) -> str:
    """Return what a dialect cannot express, on one line."""
    word = {"renamed": "changed", "ignored-there": "note"}.get(loss.kind, loss.kind)
    return f"{word}: {loss.field} ({loss.what}): {loss.why}"


def configure_parse(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="an agent file of any dialect, or a SKILL.md")
    parser.add_argument("--dialect", choices=(*DIALECTS, *_SKILLS), help="read every file as this dialect's")


def execute_parse(args: argparse.Namespace) -> int:
    """Files to JSON lines, without discovery: one line per file, in the order given.

    The dialect is guessed from the path, and from the keys where the path says nothing, unless it
    is given. A file that is no agent is a line with an error; the exit code stays 0, because the
    errors are part of the answer.
    """
    for path in args.files:
        write_json(_parse_one(path, args.dialect), indent=None)
    return 0


def _parse_one(path: str, dialect: str | None) -> dict[str, object]:
    skill = dialect in _SKILLS or (dialect is None and is_skill(path))
    chosen = cast("DialectName | None", dialect if dialect in DIALECTS else None)
    data = read_bytes(path)
    if isinstance(data, Problem):
        return parsed_data(unusable(path, data, chosen), "skill" if skill else None)
    if skill:
        return parsed_data(parse_skill(data, path=path), "skill")
    return parsed_data(parse(data, path=path, dialect=chosen))
