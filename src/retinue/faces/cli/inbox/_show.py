"""An inbox item in words for a terminal.

What an agent chose is shown as it is, to the last character: one that a terminal would obey,
hide or turn around is written out instead, so that what people see is what would run.
"""

from __future__ import annotations

from typing import Any

from retinue.core.inbox import InboxItem
from retinue.core.toolnames import TOOLS
from retinue.faces.cli.visible import visible

_LINES = 60
_WIDTH = 400


def one_line(text: str, most: int = 300) -> str:
    line = visible(" ".join(text.split(" ")).replace("\n", " ").strip())
    return line if len(line) <= most else line[: most - 1] + "…"


def who(item: InboxItem) -> str:
    """The agent that asks, and what it works on."""
    about = item.description if item.description != item.agent else ""
    return f"{item.agent}, {about}" if about else item.agent


def headline(item: InboxItem) -> str:
    """`edit src/a.py · general-purpose, fix the parser (run 3f2a9c1d) · medium risk`."""
    risk = f" · {item.risk} risk" if item.kind == "approval" else f" · {item.kind}"
    return f"{one_line(item.title)} · {one_line(who(item), 130)} (run {item.run_id[:8]}){risk}"


def body(item: InboxItem, lines: int = _LINES) -> list[str]:
    """Why it is asked, and the exact call: its command, its diff, or all of its arguments."""
    reason = [one_line(item.reason, 1_000)] if item.reason else []
    return [*reason, *_bounded(_exact(item), lines)]


def _exact(item: InboxItem) -> str:
    if item.kind != "approval":
        return item.detail
    arguments: Any = item.payload.get("arguments") or {}
    tool = str(item.payload.get("tool", ""))
    if item.detail:
        rest = {} if "write" in TOOLS.get(tool, ()) else arguments
        return "\n".join([*([_json(rest)] if rest else []), item.detail])
    if set(arguments) == {"command"} and isinstance(arguments["command"], str):
        return str(arguments["command"])
    return _json(arguments) if arguments else ""


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _bounded(text: str, most: int) -> list[str]:
    found = visible(text).split("\n") if text else []
    shown = [line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…" for line in found[:most]]
    if len(found) > most:
        shown.append(f"… {len(found) - most} more lines: retinue inbox list --json has all of it")
    return shown
