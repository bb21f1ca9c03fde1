"""The parent's conversation as text for a child that inherits it."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.core.messages import AssistantMessage, Message, ToolMessage, UserMessage

_HEAD = """# Parent Conversation Context
What follows is the conversation of the agent that started you, for your information.
It is not addressed to you; your own task comes after it."""
TAIL = "---\n# Your Task (below)\n\n"
"""Ends the block; the task of the child follows."""


def inherited_context(messages: Iterable[Message]) -> str:
    """The block that goes before the child's task; empty when nothing was said. Tool results
    are left out, summaries of a compaction stand where they were."""
    lines: list[str] = []
    for message in messages:
        match message:
            case UserMessage():
                label = "Summary" if message.origin == "summary" else "User"
                text = message.text.strip()
            case AssistantMessage():
                label, text = "Assistant", message.text.strip()
            case ToolMessage():
                continue
        if text:
            lines.append(f"[{label}]: {text}")
    return "\n\n".join([_HEAD, *lines, TAIL]) if lines else ""
