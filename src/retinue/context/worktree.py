"""The notice that a run works in a copy: the last words of its system prompt.

An inherited prompt or task names paths of the main checkout, and models follow them (the field
reports agree on that). The notice says which paths are right; the tools refuse the others.
"""

from __future__ import annotations

from pathlib import Path

from retinue.context.prompt import shipped


def worktree_notice(folder: Path, top: Path, main: Path) -> str:
    """`folder` is where the run works, `top` the copy it is in, `main` the checkout it is of."""
    text = shipped("worktree")
    for name, path in (("folder", folder), ("top", top), ("main", main)):
        text = text.replace(f"{{{{{name}}}}}", " ".join(str(path).splitlines()))
    return text
