"""What a caller asked for: checked once for every way in, and told to the run as its task.

Whatever is not understood is refused before anything is looked up or made; nothing is ignored. A long task is handed
over as a file, after the parent's conversation where the run inherits it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from retinue.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from retinue.core.request import RunRequest
from retinue.core.spec import PermissionMode
from retinue.core.usage import Limits
from retinue.errors import UsageError
from retinue.loop.finish import check_schema
from retinue.models.efforts import LEVELS, level_of
from retinue.settings.places import private_folder

_WHOLE = frozenset({"max_turns", "grace_turns", "max_tool_calls", "repeated_calls", "max_tokens"})
_LIMITS = Limits.__struct_fields__
_MODES = get_args(PermissionMode)


def well_formed(request: RunRequest) -> None:
    """Raise UsageError for what nobody could have meant."""
    if not isinstance(request.task, str):
        raise UsageError(f"The task must be text, not {_kind(request.task)}.")
    if request.limits:
        _check_limits(request.limits)
    if request.thinking is not None and level_of(str(request.thinking)) is None:
        raise UsageError(f"There is no thinking level '{request.thinking}'.", remedy=f"Use one of {', '.join(LEVELS)}.")
    if request.permission_mode is not None and request.permission_mode not in _MODES:
        raise UsageError(
            f"There is no permission mode '{request.permission_mode}'.", remedy=f"Use one of {', '.join(_MODES)}."
        )
    if request.schema is not None:
        name = "The output schema"
        if request.schema == request.spec.output_schema:
            name = f"The output schema of agent '{request.spec.name}' in {request.spec.path or 'its definition'}"
        check_schema(request.schema, name)


def _check_limits(limits: Mapping[str, Any]) -> None:
    for name, value in limits.items():
        if name not in _LIMITS:
            raise UsageError(f"There is no limit '{name}'.", remedy=f"Known: {', '.join(_LIMITS)}.")
        if value is None:
            continue
        right = (int,) if name in _WHOLE else (int, float)
        if type(value) not in right or not 0 <= value < math.inf:
            what = "a whole number" if name in _WHOLE else "a number"
            raise UsageError(f"The limit '{name}' must be {what}, 0 or more, not {value!r}.", remedy="None: no limit.")


def _kind(value: object) -> str:
    return type(value).__name__


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
        # Nothing is lost: it is only longer.
        return task
    left = len(own) - _HEAD - _END
    return (
        f"{context}{mark}Your task has {len(own):,} characters and is in {path}. Read that file whole before you "
        f"begin; this is its beginning and its end.\n\n<task_beginning>\n{own[:_HEAD]}\n</task_beginning>\n\n"
        f"[... {left:,} characters are left out here ...]\n\n<task_end>\n{own[-_END:]}\n</task_end>"
    )
