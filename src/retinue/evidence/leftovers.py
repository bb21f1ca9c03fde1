"""What tests and replays leave behind when their process is killed: a temporary folder, and commands that still run.

Each such folder has a log of its own, which knows the process that wrote it. The next test or replay of the same user
ends what is left of dead ones. A folder whose log is not there yet may belong to one that is just beginning, and stays
until it is old.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from retinue.core.delegation import LIVE
from retinue.errors import RetinueError
from retinue.log.query import LogReader
from retinue.runs.cleanup import end_leftovers

PREFIXES = ("retinue-test-", "retinue-replay-")
_OLD_SECONDS = 3600.0


def clear_leftovers(folder: Path | None = None) -> list[str]:
    """End and remove what dead processes of this user have left in the folder for temporary files. Return their
    folders. Never raises for one that cannot be removed."""
    base = folder or Path(tempfile.gettempdir())
    found: list[str] = []
    for path in base.iterdir():
        if path.name.startswith(PREFIXES) and _is_ours(path) and _is_dead(path):
            shutil.rmtree(path, ignore_errors=True)
            found.append(str(path))
    return found


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    # Another user may have made a folder of this name, or a link, to have something of ours removed.
    mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return mine and path.is_dir() and not path.is_symlink()


def _is_dead(path: Path) -> bool:
    """Return whether no process works in a folder any more; its commands are ended then."""
    if not (path / "state" / "log.db").is_file():
        return time.time() - path.stat().st_mtime > _OLD_SECONDS
    try:
        with LogReader.open(path / "state") as reader:
            rows = reader.list_runs()
            if not rows or any(row.state in LIVE for row in rows):
                return False
            # All of a folder whose process works on end before it is removed by that process itself.
            if not any(row.state == "interrupted" for row in rows):
                return time.time() - path.stat().st_mtime > _OLD_SECONDS
            end_leftovers(reader)
    except (RetinueError, OSError):
        return False
    return True
