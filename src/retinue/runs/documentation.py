"""Retinue's own documentation, for the agent that answers questions about Retinue.

In a wheel the pages are package data (`retinue/docs`); in a checkout they are where people write
them (`docs`). The agent reads them with its `read`; no other run reaches the folder.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from retinue.core.spec import AgentSpec

GUIDE = "retinue-guide"
_PACKAGE = Path(__file__).parent.parent


def is_guide(spec: AgentSpec) -> bool:
    """Whether it is our own agent of that name, and no file that replaced it."""
    return spec.name == GUIDE and spec.source == "builtin"


@cache
def documentation_folder() -> Path | None:
    """The real path of the folder with the pages; None where they were left out."""
    for folder in (_PACKAGE / "docs", _PACKAGE.parent.parent / "docs"):
        if (folder / "commands.md").is_file():
            return Path(os.path.realpath(folder))
    return None


def in_documentation(path: str) -> Path | None:
    """The folder of the documentation, if the resolved `path` is a page in it."""
    folder = documentation_folder()
    inside = folder is not None and path.startswith(f"{folder}{os.sep}") and path.endswith(".md")
    return folder if inside else None


@cache
def documentation_block() -> str:
    """What the guide is told: where the pages are, and what each is about."""
    folder = documentation_folder()
    if folder is None:
        return "# Documentation\n\nThe pages of Retinue's documentation are not installed here; say so."
    lines = [f"- {page}: {_title(page)}" for page in sorted(folder.glob("*.md"))]
    told = f"Retinue's documentation is in {folder}. Read the page that fits with its full path before you answer:"
    return "\n".join(["# Documentation", "", told, *lines])


def _title(page: Path) -> str:
    """Its first heading, and the headings below it."""
    heads = [line for line in page.read_text("utf-8").splitlines() if line.startswith(("# ", "## "))]
    title = heads[0].removeprefix("# ") if heads else page.stem
    below = [head.removeprefix("## ") for head in heads[1:7]]
    return f"{title} ({'; '.join(below)})" if below else title
