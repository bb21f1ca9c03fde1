"""Inbox items in words, and the answers that they accept: the same keys and words in every front end.

A person must see exactly what would run. So text from an agent is shown in full, with every character that a terminal
would obey, hide or reorder written as an escape.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from retinue.app.text import clip, optional
from retinue.core.controls import visible
from retinue.core.format import format_wait
from retinue.core.permission import InboxItem
from retinue.core.tool_names import TOOL_EFFECTS
from retinue.log.inbox import describe_closing


class ApprovalChoice(Struct, frozen=True):
    """An answer to an approval: its key, a short name, and a phrase. The page has the same keys in
    `web/parts/item.js`."""

    key: str
    short: str
    label: str


APPROVAL_CHOICES = {
    "allow": ApprovalChoice("y", "once", "Allow this call, once"),
    "allow-run": ApprovalChoice("r", "this run", "Allow calls like it in this run and below it"),
    "allow-agent": ApprovalChoice("a", "this agent", "Allow calls like it in every run of this agent"),
    "always": ApprovalChoice("A", "always", "Allow calls like it always, by a rule in the settings"),
    "deny": ApprovalChoice("n", "deny", "Deny"),
}
ALLOWING = frozenset(APPROVAL_CHOICES) - {"deny"}
"""The answers that are offered only after all of an approval was shown."""


def exact_line(text: str, most: int = 300) -> str:
    """Return a text on one line, with every character visible."""
    return clip(visible(text.replace("\n", " ").strip()), most)


def choice_label(option: str) -> str:
    """Return the phrase for an answer. The option of a question is its own phrase."""
    return APPROVAL_CHOICES[option].label if option in APPROVAL_CHOICES else option


def asking_agent(item: InboxItem) -> str:
    """Return the name of the agent that asks, and its description if that differs."""
    if item.description == item.agent:
        return item.agent
    return item.agent + optional(", {}", item.description)


def kind_text(item: InboxItem) -> str:
    """Return the risk of a call, or the kind of any other item."""
    if item.kind == "approval":
        return f"{item.risk} risk"
    return item.kind


def headline(item: InboxItem) -> str:
    """Return `edit src/a.py · general-purpose, fix the parser (run 3f2a9c1d) · medium risk`."""
    return (
        f"{exact_line(item.title)} · {exact_line(asking_agent(item), 130)} (run {item.run_id[:8]}) · {kind_text(item)}"
    )


def item_lines(item: InboxItem, *, reason: bool = True) -> list[str]:
    """Return the reason for the question, and the complete call: its command, its diff, or all of its arguments.
    Anything left out would be approved unseen."""
    lines = []
    if item.reason and reason:
        lines.append(exact_line(item.reason, 1_000))
    exact = visible(_exact(item)).split("\n")
    return lines if exact == [""] else lines + exact


def _exact(item: InboxItem) -> str:
    if item.kind != "approval":
        return item.detail
    arguments: Any = item.payload.get("arguments") or {}
    tool = str(item.payload.get("tool", ""))
    if item.detail and (not arguments or "write" in TOOL_EFFECTS.get(tool, ())):
        # The diff contains everything in the arguments.
        return item.detail
    if set(arguments) == {"command"} and isinstance(arguments["command"], str) and not item.detail:
        return str(arguments["command"])
    if not arguments:
        return ""
    return _json(arguments) + optional("\n{}", item.detail)


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def when_text(item: InboxItem, now: float) -> str:
    """Return the age of an item and, while it waits, the default answer and the time until it takes effect."""
    text = f"asked {format_wait(max(now - item.created_at, 0.0))} ago"
    if item.expires_at is not None and item.state == "waiting":
        default = exact_line(item.default) or "no answer"
        text += f" · '{default}' in {format_wait(max(item.expires_at - now, 0.0))}"
    return text


def closed_text(item: InboxItem) -> str:
    """Return how an item was closed, with the message of the answer."""
    if item.answer is None or not item.answer.message:
        return describe_closing(item)
    return f"{describe_closing(item)}: {exact_line(item.answer.message)}"


def interrupted_text(item: InboxItem) -> str:
    run = item.run_id[:8]
    return f"its run is interrupted; it takes the answer when resumed: retinue runs resume {run}"
