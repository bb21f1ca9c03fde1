"""Which parameters of a tool need a description: those whose name does not say it already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PLAIN = frozenset(
    {
        "action",
        "after",
        "command",
        "content",
        "file",
        "ignore_case",
        "isolation",
        "lines",
        "max_turns",
        "message",
        "name",
        "new_string",
        "options",
        "path",
        "pattern",
        "query",
        "question",
        "regex",
        "replace_all",
        "status",
        "stop",
        "todos",
        "url",
    }
)
"""Each description costs every request of every run; these would repeat the name or the text of the tool."""


def is_described(schema: Mapping[str, Any]) -> bool:
    parts = schema.get("properties", {}).items()
    return all((part.get("description") or name in PLAIN) and is_described(part) for name, part in parts)
