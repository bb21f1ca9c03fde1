"""A folder as a commit, made by plumbing alone.

`git add` and `git commit` run hooks, ask for signatures and look into repositories inside the
folder with the settings those bring along. Here files go into an index of ours, the index into a
tree, the tree into a commit, and nothing of the user's or the agent's is touched on the way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from retinue.capabilities.worktree.repository import identity
from retinue.guard.git import Git, GitError, paths

MESSAGE_LENGTH = 200


def tree_of(git: Git, index: Path, left_out: Collection[str] = ()) -> str:
    """Return the tree of the folder as it is: tracked files, and others that are neither ignored nor
    `left_out`. `index` is a copy of its index, and is brought up to date."""
    git = git.having(GIT_INDEX_FILE=str(index))
    tracked = paths(git("ls-files", "-z", "--cached"))
    untracked = paths(git("ls-files", "-z", "--others", "--exclude-standard"))
    others = [name for name in untracked if name[-1] != "/" and name not in left_out]
    hidden = _Hidden(git.folder)
    gone = dict.fromkeys(filter(hidden.is_hidden, tracked))
    kept = dict.fromkeys(name for name in (*tracked, *others) if name not in gone)
    if gone:
        git("update-index", "-z", "--force-remove", "--stdin", given=_listed(gone))
    if kept:
        options = ("--add", "--remove", "--replace", "--ignore-skip-worktree-entries")
        git("update-index", "-z", *options, "--stdin", given=_listed(kept))
    return git.text("write-tree")


def commit_tree(git: Git, tree: str, parent: str, message: str) -> str:
    command, said = ("commit-tree", tree, "-p", parent), message.encode("utf-8", "replace")
    try:
        return git("-c", "user.useConfigOnly=true", *command, given=said).decode().strip()
    except GitError:  # nobody has told git who the user is
        return git.having(**identity(git))(*command, given=said).decode().strip()


def copied_index(source: Path, target: Path) -> Path:
    """Return a copy of an index to work with; without a source git starts with an empty one."""
    target.unlink(missing_ok=True)
    if source.is_file() and not source.is_symlink():
        shutil.copyfile(source, target)
    return target


def subject(description: str) -> str:
    """Return the message of a commit that saves what an agent left."""
    words = " ".join(description.split())
    return f"retinue: {words[:MESSAGE_LENGTH]}" if words else "retinue: changes of an agent"


def _listed(names: dict[str, None]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


class _Hidden:
    """Which names have no file any more because a folder above is a link or gone; git refuses to
    look behind links."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._known: dict[str, bool] = {"": False}

    def is_hidden(self, name: str) -> bool:
        return self._is(name.rpartition("/")[0])

    def _is(self, folder: str) -> bool:
        known = self._known.get(folder)
        if known is None:
            whole = f"{self._root}/{folder}"
            known = self._is(folder.rpartition("/")[0]) or os.path.islink(whole) or not os.path.isdir(whole)  # noqa: PTH112,PTH114 - for every folder
            self._known[folder] = known
        return known
