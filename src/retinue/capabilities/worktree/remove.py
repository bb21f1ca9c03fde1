"""Removing a worktree, wherever its making or an earlier removal was cut off."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from retinue.capabilities.worktree.home import WorktreeRecord, forget
from retinue.capabilities.worktree.repository import home
from retinue.guard.git import Git, GitError

LOCKED = "retinue run "
"""How the reason of a lock of ours begins. Any other lock is a person's."""
BESIDE = (".aside", ".index", ".index.lock", ".json.new")
"""What a process that was killed may leave beside a worktree, and nobody needs."""


def discard(record: WorktreeRecord, environment: Mapping[str, str]) -> None:
    """Remove a worktree with everything in it. Only for one that holds nothing, or nothing that
    is not reachable elsewhere. Does not fail: what cannot be removed stays listed."""
    try:
        main: Git | None = home(record, environment)
    except GitError:
        main = None
    remove_folder(record.path)
    if main is not None:
        _quietly(main, "worktree", "remove", "--force", "--force", record.folder)
    for entry in entries(record):  # half an entry, of a git that was killed, is none that git removes
        remove_folder(entry)
    remove_folder(record.git)
    for beside in BESIDE:
        remove_folder(record.path.with_name(f"{record.run}{beside}"))
    if not record.path.exists() and not record.git.exists():
        forget(record)


def locked_by_user(record: WorktreeRecord) -> bool:
    """Whether a person has put a lock of their own on it."""
    for entry in entries(record):
        try:
            return not (entry / "locked").read_text("utf-8", "replace").startswith(LOCKED)
        except OSError:
            continue
    return False


def entries(record: WorktreeRecord) -> list[Path]:
    """Where git has it registered."""
    return registered(Path(record.common), record.path)


def registered(common: Path, folder: Path) -> list[Path]:
    """The entries that the repository at `common` has for a worktree at `folder`. Git chooses
    another name than the folder's when that is taken."""
    return [path for path in (common / "worktrees").glob(f"{folder.name}*") if _is_of(path, folder)]


def _is_of(entry: Path, folder: Path) -> bool:
    try:
        said = (entry / "gitdir").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        said = ""
    if not said:
        return entry.name == folder.name
    return os.path.realpath(entry / Path(said).parent) == os.path.realpath(folder)


def remove_folder(path: Path) -> None:
    """As far as possible, read-only folders inside included; links are removed, not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return

    def writable(function: object, name: str, error: object) -> None:
        for each in (Path(name).parent, Path(name)):
            if not each.is_symlink() and each.exists() and path in (each, *each.parents):
                each.chmod(each.stat().st_mode | stat.S_IRWXU)

    shutil.rmtree(path, onerror=writable)
    if path.exists():
        shutil.rmtree(path, ignore_errors=True)


def _quietly(git: Git, *arguments: str) -> None:
    try:
        git(*arguments)
    except GitError:
        return
