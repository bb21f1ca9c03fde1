"""How a task, a schema or a prompt is given on the command line: as words, `-` or `@file`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from retinue.errors import UsageError


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
