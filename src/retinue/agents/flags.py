"""`--agents JSON`: agents given on the command line, in Claude Code's fields."""

from __future__ import annotations

import json
from typing import Any

from retinue.agents.cache import Reading
from retinue.agents.dialects import DIALECTS
from retinue.agents.discover import Folder
from retinue.agents.frontmatter import Frontmatter, Split
from retinue.agents.parse import finish, unusable
from retinue.agents.parsed import Parsed
from retinue.agents.yaml_values import Item, too_deep
from retinue.core.spec import Problem
from retinue.errors import UsageError

FLAG = "--agents"
_SHAPE = 'It is an object such as {"reviewer": {"description": "…", "prompt": "…"}}.'


def read_flag(text: str) -> Reading:
    """The agents of the option. Raises UsageError when it is not an object at all; a single
    agent that is wrong is a failure like a broken file."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The value of {FLAG} is not valid JSON: {error}.", remedy=_SHAPE) from None
    if not isinstance(data, dict) or too_deep(data):
        raise UsageError(f"The value of {FLAG} is not a JSON object.", remedy=_SHAPE)
    files = tuple(_agent(name, fields) for name, fields in data.items())
    return Reading(Folder(FLAG, "flag", "claude"), files)


def _agent(name: str, fields: Any) -> Parsed:
    path = f"{FLAG}#{name}"
    if not isinstance(fields, dict):
        return unusable(path, Problem("bad-value", "error", f"The agent '{name}' is not an object.", _SHAPE), "claude")
    prompt = fields.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        return unusable(path, Problem("bad-value", "error", f"The prompt of '{name}' is not text.", _SHAPE), "claude")
    given = {"name": name, **{key: value for key, value in fields.items() if key not in ("prompt", "name")}}
    items = tuple(Item(key, value, 0, 0, 0) for key, value in given.items())
    parts = Split("", (prompt or "").strip())
    return finish(DIALECTS["claude"], parts, Frontmatter(items, "yaml"), path, "flag")
