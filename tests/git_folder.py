"""A folder that git takes for a repository, made without starting git."""

from __future__ import annotations

from pathlib import Path


def make_git_folder(folder: Path) -> None:
    """Make `folder`, and what is missing above it, the root of an empty repository on branch `main`."""
    for name in ("objects", "refs/heads"):
        (folder / ".git" / name).mkdir(parents=True, exist_ok=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
