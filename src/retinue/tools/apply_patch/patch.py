"""The patch format of OpenAI's coding models, read into changes of single files."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from retinue.core.lean import dataclass
from retinue.tools.errors import ToolError

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_MOVE = "*** Move to: "
_HEADS: dict[str, Literal["add", "delete", "update"]] = {
    "*** Add File: ": "add",
    "*** Delete File: ": "delete",
    "*** Update File: ": "update",
}


@dataclass(slots=True)
class FileChange:
    """`lines` are those of a new file; `hunks` the pairs of old and new text of a change; `move_to`
    is where the changed file goes, empty where it stays."""

    kind: Literal["add", "delete", "update"]
    path: str
    lines: list[str] = field(default_factory=list)
    hunks: list[tuple[str, str]] = field(default_factory=list)
    move_to: str = ""


def read_patch(text: str) -> list[FileChange]:
    """Raises ToolError with what is wrong and what a patch looks like."""
    lines = text.strip().splitlines()
    if not lines or lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise ToolError(f"apply_patch: a patch begins with the line {_BEGIN!r} and ends with {_END!r}.")
    changes: list[FileChange] = []
    hunk: list[str] = []
    for line in lines[1:-1]:
        head = next((head for head in _HEADS if line.startswith(head)), None)
        if head is not None:
            _finish(changes, hunk)
            changes.append(FileChange(_HEADS[head], line.removeprefix(head).strip()))
        elif not changes:
            raise ToolError(f"apply_patch: {line[:80]!r} stands before any '*** Update File: PATH'.")
        elif line.startswith(_MOVE):
            if changes[-1].kind != "update":
                raise ToolError("apply_patch: '*** Move to: PATH' belongs below '*** Update File: PATH'.")
            changes[-1].move_to = line.removeprefix(_MOVE).strip()
        elif line.startswith("@@"):
            _finish(changes, hunk)
        elif line.strip() != "*** End of File":
            hunk.append(line)
    _finish(changes, hunk)
    if not changes:
        raise ToolError("apply_patch: the patch changes no file.")
    return changes


def _finish(changes: list[FileChange], hunk: list[str]) -> None:
    """Gives the lines that were collected to the file they belong to."""
    if not hunk:
        return
    change = changes[-1]
    if change.kind == "add":
        change.lines += [line.removeprefix("+") for line in hunk]
    else:
        old = [line[1:] for line in hunk if not line.startswith("+")]
        new = [line[1:] for line in hunk if not line.startswith("-")]
        change.hunks.append(("\n".join(old), "\n".join(new)))
    hunk.clear()
