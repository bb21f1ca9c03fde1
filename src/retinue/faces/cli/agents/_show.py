"""How agents and problems are shown: safe on a terminal, and the same in every JSON document."""

from __future__ import annotations

import json
import sys
from typing import Any

from retinue.agents.parsed import Parsed
from retinue.core.codec import to_data
from retinue.core.spec import Fate, Problem
from retinue.faces.cli.output import escape_json


def clean(text: str) -> str:
    """`text` without characters that could move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def write_json(data: Any, indent: int | None = 2) -> None:
    """One JSON document and a newline on stdout. JSON is UTF-8 whatever the terminal's encoding,
    and half a character, as the name of a file may hold, stays an escape."""
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    sys.stdout.flush()
    sys.stdout.buffer.write(escape_json(text.encode("utf-8", "backslashreplace")) + b"\n")
    sys.stdout.buffer.flush()


def problem_data(problem: Problem) -> dict[str, Any]:
    data: dict[str, Any] = to_data(problem)
    return data


def fate_data(fate: Fate) -> dict[str, str]:
    """Only what there is to say."""
    data = {"fate": str(fate.fate)}
    if fate.to is not None:
        data["to"] = fate.to
    if fate.why is not None:
        data["why"] = fate.why
    return data


def parsed_data(parsed: Parsed, dialect: str | None = None) -> dict[str, Any]:
    """One file as `agents parse` prints it."""
    return {
        "file": parsed.file,
        "dialect": dialect or parsed.dialect,
        "name": parsed.name,
        "description": parsed.description,
        "tools": None if parsed.tools is None else list(parsed.tools),
        "disallowed_tools": None if parsed.disallowed_tools is None else list(parsed.disallowed_tools),
        "model": list(parsed.model) if isinstance(parsed.model, tuple) else parsed.model,
        "prompt": parsed.prompt,
        "spec": None if parsed.spec is None else to_data(parsed.spec),
        "fates": {key: fate_data(fate) for key, fate in parsed.fates.items()},
        "problems": [problem_data(problem) for problem in parsed.problems],
        "error": None if parsed.error is None else problem_data(parsed.error),
    }
