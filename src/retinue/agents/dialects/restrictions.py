"""Which fields restrict an agent, and what happens when the value of one cannot be read.

The rule is the same for every dialect and every field below: the file keeps its name, its problem
is reported with line, reason and remedy, and the agent is not started until the file is corrected.
A value that cannot be read never becomes more rights, and never nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from retinue.agents.yaml_values import Item
from retinue.core.spec import Problem

RESTRICTING: Mapping[str, str] = {
    "tools.allow": "which tools it has",
    "tools.deny": "which tools it does not have",
    "tools.rules": "which calls it may make",
    "tools.extensions": "which extensions it has",
    "tools.exclude_extensions": "which extensions it does not have",
    "subagents": "which agents it may start",
    "isolated": "whether it has anything beyond the built-in tools",
    "isolation": "where it works",
    "readonly": "whether it may change anything",
    "permission_mode": "what it is asked about",
    "max_turns": "how many turns it has",
    "timeout_seconds": "how long it runs",
    "budget": "what it may spend",
    "output_schema": "what it has to return",
    "rollback": "what is undone when it fails",
    "hooks": "what is checked while it runs",
    "enabled": "whether it may be started",
}
"""Fields of the spec, and what each of them restricts."""

_MAY_BE_BLANK = frozenset({"hooks", "subagents", "tools.allow"})
"""Fields for which no value has a meaning of its own: no hooks, no agents, no tools."""


def unreadable(item: Item, field: str, why: str, remedy: str, code: str, first_line: int) -> Problem:
    """The problem that keeps an agent from being started."""
    text = f"'{item.key}': {why}. It decides {RESTRICTING[field]}, so the agent is not started until it is corrected."
    remedy = remedy or f"Correct the value of '{item.key}', or remove the key."
    return Problem(code, "error", text, remedy, item.key, item.line + first_line, item.column + 1, refuses=True)


def is_blank(item: Item, field: str) -> bool:
    """Whether a key that restricts says nothing: `isolation:` with no value after it."""
    return item.value is None and field in RESTRICTING and field not in _MAY_BE_BLANK
