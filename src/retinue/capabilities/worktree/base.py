"""Which commit a worktree begins at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from retinue.guard.git import REMOTES, Git, GitError

FETCH_SECONDS = 5.0
FRESH_SECONDS = 24 * 3600.0


def base_of(git: Git, base_ref: Literal["head", "fresh"], head: str, notes: list[str]) -> str:
    """`head`, or for `fresh` the remote's default branch as it was seen within the last day. A
    remote that does not answer in time leaves what was last seen of it; without one it is `head`."""
    if base_ref == "head":
        return head
    remote = (git.ask("remote") or "").split("\n")[0]
    if not remote:
        return head
    if _age(git) > FRESH_SECONDS:
        try:
            _fetch(git, remote)
        except GitError as error:
            notes.append(
                f"{remote} could not be fetched, the worktree begins at what was last seen of it ({error.why})"
            )
    for name in (f"refs/remotes/{remote}/HEAD", f"refs/remotes/{remote}/main", f"refs/remotes/{remote}/master"):
        found = git.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found is not None:
            return found
    return head


def _fetch(git: Git, remote: str) -> None:
    # The first `remote.<name>.uploadpack` counts, so that one of the repository's cannot be overridden by a setting.
    other_end = () if git.consented else ("--upload-pack=git-upload-pack",)
    reaching = git.having(GIT_ALLOW_PROTOCOL=REMOTES)
    reaching("fetch", "--quiet", "--no-tags", *other_end, remote, seconds=FETCH_SECONDS)


def _age(git: Git) -> float:
    fetched = git.folder / git.text("rev-parse", "--git-path", "FETCH_HEAD")
    try:
        return time.time() - Path(fetched).stat().st_mtime
    except OSError:
        return float("inf")
