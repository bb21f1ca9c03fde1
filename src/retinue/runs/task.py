"""The task as a run is told it, long ones by file, and the parent's conversation where it inherits it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from retinue.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from retinue.settings.places import private_folder

_FORK_HEAD = """# Parent Conversation Context
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
    return "\n\n".join([_FORK_HEAD, *lines, TAIL]) if lines else ""


LONGEST_TASK = 24_000
"""Characters; a longer task is handed over as a file."""
_HEAD = 4_000
_END = 1_000


def task_message(task: str, folder: Path, *, readable: bool, limit: int = LONGEST_TASK) -> str:
    """`task` as the run is told it. One longer than `limit` characters is written to a file of
    `folder`, which the run can read; a run without a tool to read it (`readable`) hears all of
    it. An inherited conversation before the task stays in the message."""
    context, mark, own = task.rpartition(TAIL)
    if len(own) <= limit or not readable:
        return task
    path = private_folder(folder) / "task.md"
    try:
        path.write_text(own, encoding="utf-8", errors="replace")
    except OSError:
        return task  # nothing is lost: it is only longer
    left = len(own) - _HEAD - _END
    return (
        f"{context}{mark}Your task has {len(own):,} characters and is in {path}. Read that file whole before you "
        f"begin; this is its beginning and its end.\n\n<task_beginning>\n{own[:_HEAD]}\n</task_beginning>\n\n"
        f"[... {left:,} characters are left out here ...]\n\n<task_end>\n{own[-_END:]}\n</task_end>"
    )
