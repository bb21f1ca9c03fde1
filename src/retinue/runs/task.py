"""The task as a run is told it: long ones by file."""

from __future__ import annotations

from pathlib import Path

from retinue.runs.fork import TAIL
from retinue.settings.places import private_folder

_HEAD = 4_000
_END = 1_000


def task_message(task: str, limit: int | None, folder: Path, *, readable: bool) -> str:
    """`task` as the run is told it. One longer than `limit` characters is written to a file of
    `folder`, which the run can read; a run without a tool to read it (`readable`) hears all of
    it. An inherited conversation before the task stays in the message."""
    context, mark, own = task.rpartition(TAIL)
    if limit is None or len(own) <= limit or not readable:
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
