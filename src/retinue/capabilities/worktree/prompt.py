"""The notice that a run works in a copy: the last words of its system prompt.

An inherited prompt or task names paths of the main checkout, and models follow them (the field
reports agree on that). The notice says which paths are right; the tools refuse the others.
"""

from __future__ import annotations

from pathlib import Path

from retinue.runs.prompt import shipped

_COMMITTED = "the last commit. Uncommitted changes of the main checkout are not in it."
_AS_IT_WAS = "the main checkout as it was when you started, uncommitted changes included."


def worktree_notice(top: Path, main: Path, *, from_dirty: bool = False) -> str:
    """`top` is the copy that the run works in, `main` the checkout it is of; `from_dirty` says
    whether the copy began with the uncommitted changes of that."""
    text = shipped("worktree").replace("{{holds}}", _AS_IT_WAS if from_dirty else _COMMITTED)
    for name, path in (("top", top), ("main", main)):
        text = text.replace(f"{{{{{name}}}}}", " ".join(str(path).splitlines()))
    return text
