"""Results too long for a parent: beginning and end, and a way to all of it that does not run
the agent again."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from retinue.core.lean import dataclass
from retinue.core.tool import ToolContext
from retinue.tools.delegation.frame import as_data, framed
from retinue.tools.threads import in_thread
from retinue.tools.truncate import head_and_tail

MOST = 20_000
"""Characters of a result, a conversation or a peek that a parent gets at once."""


@dataclass(frozen=True, slots=True)
class Shown:
    """`text` is data, framed or not. `cut` says that it is not all; `path` is where all of it stands."""

    text: str
    cut: bool = False
    path: Path | None = None


async def bounded(
    text: str, run_id: str, context: ToolContext, *, label: str = "result", frame: Callable[[str], str] = framed
) -> Shown:
    """`text` as data, whole if it is short enough. Otherwise all of it is stored where the
    parent's own read tool may look, already made harmless. `frame` is `as_data` where the tool
    result itself is the frame."""
    if len(text) <= MOST:
        return Shown(frame(text))
    path = context.outputs / f"agent-{_safe(run_id)}-{label}.txt"
    try:
        await in_thread(lambda: _store(path, as_data(text)))
        where, stored = f"read or grep the whole in {path}", path
    except OSError:  # a full disk must not keep a parent from its answer
        where, stored = "get_subagent_result with peek shows other parts", None
    return Shown(frame(head_and_tail(text, MOST, where)), True, stored)


def _safe(run_id: str) -> str:
    return re.sub(r"[^\w-]", "-", run_id)[:64]


def _store(path: Path, text: str) -> None:
    """Replaces the file in one step: another call may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_suffix(f".{secrets.token_hex(6)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
