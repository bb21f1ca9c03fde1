"""What commands share: where the log is, tasks and schemas as given, runs and agents' text in output.

A task, schema or prompt is given as words, `-` or `@file`. Nothing in the text of an agent may steer
a terminal or pose as something else.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

from retinue.core.format import format_cost, format_tokens, format_wait
from retinue.errors import UnknownRunError, UsageError
from retinue.log.query import LogReader, find_run
from retinue.log.rows import RunRow
from retinue.runs.record import Tag
from retinue.settings.places import retinue_home, state_folder


def read_task(value: str, what: str = "task") -> str:
    """The text itself, what stdin holds for `-`, or what a file holds for `@path`. `what` is what
    people call it."""
    try:
        if value == "-":
            text = sys.stdin.buffer.read().decode("utf-8")
        elif value.startswith("@") and len(value) > 1:
            text = Path(value[1:]).expanduser().read_text("utf-8")
        else:
            text = value
    except (OSError, UnicodeDecodeError) as error:
        where = "standard input" if value == "-" else value[1:]
        raise UsageError(
            f"The {what} could not be read from {where}: {error}.", remedy="Give it as words, or name another file."
        ) from error
    if not text.strip():
        raise UsageError(f"The {what} is empty.", remedy="Give it as words, as @file, or as - to read standard input.")
    return text


def read_schema(path: str | None) -> dict[str, Any] | None:
    """A JSON Schema from a file, checked so far that it is one."""
    if path is None:
        return None
    import orjson

    from retinue.loop.finish import check_schema

    try:
        schema = orjson.loads(Path(path).expanduser().read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"The schema {path} could not be read: {error}.") from error
    if not isinstance(schema, dict):
        raise UsageError(f"The schema {path} is not a JSON object.")
    check_schema(schema)
    return schema


def folder(value: str | None) -> Path:
    """The folder of --cwd, or the one the program was started in; absolute. UsageError when it is none."""
    try:
        path = Path(value).expanduser() if value else Path.cwd()
    except FileNotFoundError:
        gone = "The folder this was started in does not exist any more."
        raise UsageError(gone, remedy="Change to another, or name one: --cwd DIR") from None
    if not path.is_dir():
        raise UsageError(f"There is no folder {path}.", remedy="Choose another with --cwd.")
    return path.resolve()


_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys, takes for a new line, or lets turn the text around."""


def visible(text: str) -> str:
    """`text` with everything that does not show itself written as an escape: for calls, which
    people judge by what they see."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def in_line(text: str) -> str:
    """The same for what must stay on its line: a file name can hold a line break, too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def harmless(text: str) -> str:
    """`text` with what would move the cursor, change colours or turn it around written out, and
    its own signs left alone: for answers, which may be in any script."""
    if not _HARMFUL.search(text):
        return text
    return _HARMFUL.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """Harmless, on one line, cut to `width`."""
    line = harmless(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def for_reader(text: str) -> str:
    """For stdout: harmless where a person reads it; for a program without the escapes of a terminal,
    which would act when somebody prints the file that it went to."""
    if sys.stdout.isatty():
        return harmless(text)
    from retinue.tools.capture import clean

    lines = text.replace("\r\n", "\n").replace("\r", "\n")  # nothing of an answer is overwritten
    return clean(lines.replace("\x08", ""))


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
    from retinue.runs.resume import find_run as find_here

    with LogReader.open(project(args)) as reader:
        return project(args), find_here(reader, args.run)


def project_of(state: Path, row: RunRow) -> Path:
    """The folder in whose log a run is: that of the run above all others of its tree. Its own may
    be a worktree, or in another project, and may be gone."""
    with LogReader.open(state) as reader:
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


def with_descendants(reader: LogReader, row: RunRow) -> list[RunRow]:
    """Parents before their children."""
    found, waiting = [], [row]
    while waiting:
        each = waiting.pop(0)
        found.append(each)
        waiting += reversed(reader.list_runs(parent_id=each.id))
    return found
