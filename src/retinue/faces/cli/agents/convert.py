from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from retinue.agents.catalog import Catalog
from retinue.agents.convert import Conversion, Loss, convert
from retinue.agents.create import write_new
from retinue.agents.parse import parse_file
from retinue.agents.parsed import Parsed
from retinue.core.codec import to_data
from retinue.errors import RetinueError, UsageError
from retinue.faces.cli.agents._common import WRITABLE, add_common, folder, plugins, put, say
from retinue.faces.cli.agents._show import write_json


def configure_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agents", nargs="+", metavar="NAME|FILE", help="agents by name, or their files")
    parser.add_argument("--to", required=True, choices=WRITABLE, help="the dialect to write")
    parser.add_argument("--output", "-o", default="-", metavar="DIR|FILE|-", help="where to (default: -, stdout)")
    parser.add_argument("--strict", action="store_true", help="exit 1 when something is lost")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    add_common(parser)


def execute_convert(args: argparse.Namespace) -> int:
    """Writes agents in another dialect and says what that dialect cannot express.

    An agent is named as `agents list` shows it, or by its file. Tools get the names the dialect has
    for them (Read, read, read_file); models keep theirs.

      retinue agents convert reviewer --to claude                    print it
      retinue agents convert .claude/agents/*.md --to pi --output .pi/agents
      retinue agents convert reviewer --to gemini --strict           exit 1 if anything is lost

    Nothing is overwritten without --force. What was lost is said on stderr.
    """
    cwd = folder(args)
    if args.output == "-" and len(args.agents) > 1 and not args.json:
        raise UsageError("Several agents do not fit on stdout.", remedy="Give a folder: --output DIR")
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for name in args.agents:
        try:
            done.append(_one(name, args, cwd))
        except RetinueError as error:
            if len(args.agents) == 1:
                raise
            failed.append({"agent": name, "code": error.code, "message": str(error)})
    if args.json:
        write_json({"converted": done, "failed": failed})
    else:
        _tell(done, failed, args)
    lost = any(each["losses"] for each in done)
    return 1 if failed or (lost and args.strict) else 0


def _one(name: str, args: argparse.Namespace, cwd: Path) -> dict[str, Any]:
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
        "path": None if path is None else str(path),
        "text": made.text,
        "losses": to_data(made.losses),
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
            put(each["text"])
        else:
            put(f"{each['path']}\n")
        for loss in each["losses"]:
            say(f"{each['name']}: {describe(Loss(**loss))}")
    for each in failed:
        say(f"{each['agent']}: {each['message']}")


def describe(loss: Loss) -> str:
    word = {"lost": "lost", "renamed": "changed", "added": "added", "ignored-there": "note"}[loss.kind]
    return f"{word}: {loss.field} ({loss.what}): {loss.why}"
