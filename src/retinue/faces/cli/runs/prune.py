from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path

from retinue.errors import StateError
from retinue.faces.cli.numbers import count
from retinue.faces.cli.runs.common import add_where, project

_SECONDS = 3600.0


def configure_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", type=count, default=30, metavar="DAYS", help="(default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_where(parser)


def execute_prune(args: argparse.Namespace) -> int:
    """Remove what runs of long ago have left on the disk, and keep what they did.

    Of trees of runs in which nothing has happened for that many days, checkpoints, long outputs of tools
    and transcript files go: they cannot be undone any more. The log stays, so they are still listed,
    shown, counted and can go on. Runs at work, and runs with a worktree, are left alone.

        retinue runs prune --dry-run
        retinue runs prune --older-than 90
    """
    from retinue.capabilities.audit.prune import DAY, drop_checkpoints, expired
    from retinue.capabilities.audit.shadow import CheckpointError
    from retinue.log.query import Reader

    state, before = project(args), time.time() - args.older_than * DAY
    size = _size(state / "checkpoints")
    with Reader.open(state) as reader:
        rows = expired(reader.list_runs(), state, before)
        files = [
            path for row in rows for path in (state / "outputs" / row.id, state / "transcripts" / f"{row.id}.jsonl")
        ]
        files = [path for path in files if path.exists()]
        taken = sum(_size(path) for path in files)
        try:
            undoable = drop_checkpoints(reader, state, before, seconds=_SECONDS, dry_run=args.dry_run)
        except (CheckpointError, OSError) as error:
            raise StateError(f"The checkpoints could not be removed: {error}", remedy="Try again.") from error
    for path in files if not args.dry_run else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    taken += max(size - _size(state / "checkpoints"), 0)
    _report(args, len(rows), len(undoable), len(files), taken)
    return 0


def _files(state: Path, run_id: str) -> tuple[Path, Path]:
    return state / "outputs" / run_id, state / "transcripts" / f"{run_id}.jsonl"


def _report(args: argparse.Namespace, runs: int, undoable: int, files: int, taken: int) -> None:
    if args.json:
        said = {"runs": runs, "checkpointsOf": undoable, "files": files, "bytes": taken, "dryRun": args.dry_run}
        print(json.dumps(said))
        return
    if not undoable and not files:
        print(f"Nothing to remove: {runs} runs are older than {args.older_than} days.")
        return
    verb = "would be removed" if args.dry_run else "removed"
    print(f"{verb}: checkpoints of {undoable} runs, {files} outputs and transcripts ({taken / 2**20:.1f} MB)")


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)
