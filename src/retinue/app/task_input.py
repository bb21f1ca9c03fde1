"""A task, a prompt or a schema as a person gives it: words, `-` for standard input, or `@file`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from retinue.errors import UsageError


def read_task(value: str, what: str = "task", *, attaches: bool = False) -> str:
    """Return the text itself, what stdin holds for `-`, or what a file holds for `@path`. `what` names it in errors.
    With `attaches` the path of an image stays as it is, because the image is attached."""
    from retinue.tools.content import is_image_file

    where = "standard input" if value == "-" else value[1:]
    try:
        if value == "-":
            text = sys.stdin.buffer.read().decode("utf-8")
        elif attaches and value.startswith("@") and is_image_file(Path(value[1:])):
            text = value
        elif value.startswith("@") and len(value) > 1:
            text = Path(value[1:]).expanduser().read_text("utf-8")
        else:
            text = value
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The {what} could not be read from {where}: {error}.", remedy="Give it as words, or name another file."
        ) from error
    if not text.strip():
        raise UsageError(f"The {what} is empty.", remedy="Give it as words, as @file, or as - to read standard input.")
    return text


def read_schema(path: str | None) -> dict[str, Any] | None:
    """Return a JSON Schema from a file, checked so far that it is one."""
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
    check_schema(schema, f"The schema {path}")
    return schema


def read_prompt(value: str) -> str:
    """Return the prompt. `@name message` and `@path words` are no file names, unless there is such a file."""
    from retinue.runs.record import parse_mention

    named = value[1:]
    is_file = "\n" not in named and Path(named).expanduser().exists()
    is_words = parse_mention(value) is not None or len(named.split()) > 1
    if value.startswith("@") and is_words and not is_file:
        return value
    return read_task(value, "prompt", attaches=True)
