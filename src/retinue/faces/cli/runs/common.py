"""What the commands on runs share: where the log is, and how a run reads on one line."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from retinue.core.format import format_cost, format_tokens, format_wait
from retinue.errors import UnknownRunError
from retinue.faces.cli.task import folder
from retinue.faces.cli.visible import harmless, one_line
from retinue.log.query import Reader, find_run
from retinue.log.rows import RunRow
from retinue.runs.record import Tag
from retinue.settings.places import retinue_home, state_folder

MARKS = {"completed": "✓", "steered": "✓", "stopped": "■", "interrupted": "!", "queued": "◦"}


def add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="DIR", help="the project to look in (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def project(args: argparse.Namespace) -> Path:
    """The state folder of the project that `--cwd` names."""
    return state_folder(folder(args.cwd))


def locate(args: argparse.Namespace) -> tuple[Path, RunRow]:
    """The run that `args.run` names: by its id or the beginning of it, in this project or any
    other, or as @name in this one."""
    if not args.run.startswith("@"):
        return find_run(retinue_home(), args.run, first=project(args))
    from retinue.runs.recover import find_run as find_here

    with Reader.open(project(args)) as reader:
        return project(args), find_here(reader, args.run)


def project_of(state: Path, row: RunRow) -> Path:
    """The folder in whose log a run is: that of the run above all others of its tree. Its own may
    be a worktree, or in another project, and may be gone."""
    with Reader.open(state) as reader:
        try:
            return Path(reader.run(row.root_id).cwd)
        except UnknownRunError:
            return Path(row.cwd)


def status(row: RunRow) -> str:
    """How a run is, in one word: how it ended, or its state."""
    return row.ended or row.state if row.state == "ended" else row.state


def line(row: RunRow, width: int, tag: Tag | None = None) -> str:
    """One line of a list. Agents of a run are set in below it, with what they are called and what
    they work on."""
    word = "waiting for approval" if row.state == "waiting" else status(row)
    mark = MARKS.get(word, "✗" if row.state == "ended" else "▸")
    ago = format_wait(time.time() - row.updated_at)
    facts = [f"↻{row.turns}", f"{row.tool_uses} tools", format_tokens(row.usage.total_tokens)]
    cost = format_cost(row.usage.cost_usd)
    facts += [cost] if cost else []
    name = f" @{tag.name}" if tag is not None and tag.name and row.depth else ""
    about = f" ({tag.description})" if tag is not None and tag.description not in ("", row.agent) else ""
    who = f"{'  ' * row.depth}{row.agent}{name}{about}"
    told = f"{' · '.join(facts)}  {ago} ago  {one_line(row.task, width)}"
    text = f"{mark} {row.id[:8]}  {word:<11} {harmless(who)}  {told}"
    return text if len(text) <= width else text[: width - 1] + "…"
