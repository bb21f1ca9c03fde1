from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from retinue.capabilities.audit.undo import Scope, Undo, UndoneFile, relative
from retinue.core.events import TurnStarted
from retinue.core.states import LIVE
from retinue.errors import StateError, UsageError
from retinue.faces.cli.runs._tree import with_descendants
from retinue.faces.cli.runs.common import add_where, locate
from retinue.faces.cli.visible import in_line
from retinue.log.query import Reader
from retinue.log.rows import RunRow
from retinue.models.keys import environment as process_environment

_WORDS = {
    "restored": "restored",
    "removed": "removed",
    "unchanged": "as it was",
    "kept": "KEPT",
    "failed": "FAILED",
}


def configure_undo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, or its beginning")
    parser.add_argument("--turn", type=int, metavar="N", help="only what it did in turn N and later")
    parser.add_argument("--tree", action="store_true", help="also what the runs it has started did")
    parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    parser.add_argument("--force", action="store_true", help="also overwrite what others have changed since")
    add_where(parser)


def execute_undo(args: argparse.Namespace) -> int:
    """Put back the files a run has changed, to how they were before it or before one of its turns.

    What someone else has changed since, a person or another run, is left alone and named; --force
    overwrites it, and keeps a copy in the shadow repository. Files the run deleted come back, files
    it created go, modes and links are kept. What it did elsewhere (databases, other hosts, files
    outside its workspace) is not undone: see `retinue runs effects`.

    retinue runs undo 3f2a9c1d --dry-run
    retinue runs undo 3f2a9c1d
    retinue runs undo 3f2a9c1d --turn 4        (what it did in turn 4 and later)
    retinue runs undo 3f2a9c1d --tree          (with the runs it has started)
    """
    if args.turn is not None and args.turn < 1:
        raise UsageError("Turns count from 1.", remedy="See: retinue runs effects ID")
    folder, row = locate(args)
    with Reader.open(folder) as reader:
        rows = with_descendants(reader, row) if args.tree else [row]
        for each in rows:
            if each.state in LIVE:
                raise StateError(
                    f"Run {each.id} ({each.agent}) is still running.",
                    remedy=f"Stop it first: retinue runs stop {row.id[:8]}{' --tree' if args.tree else ''}",
                )
        scope = _scope(reader, row, rows[1:], args.turn)
    done: list[UndoneFile] = []
    forgotten = None
    if (folder / "checkpoints" / "ledger.db").is_file():
        done, forgotten = _undo(folder, scope, args)
    if forgotten is not None and not done:
        raise StateError(
            f"Run {row.id} cannot be undone any more: its checkpoints were removed on {_day(forgotten)}.",
            remedy=f"How long they are kept: checkpoints.keepDays. What it changed: retinue runs effects {row.id[:8]}",
        )
    if done and not args.dry_run:
        _record(folder, row, done, args)
    _report(row, done, args)
    if forgotten is not None:
        print(f"Not undone: what it did before {_day(forgotten)}, when its checkpoints were removed.", file=sys.stderr)
    return 1 if any(each.fate in ("kept", "failed") for each in done) else 0


def _scope(reader: Reader, row: RunRow, below: list[RunRow], turn: int | None) -> Scope:
    from retinue.capabilities.audit.ledger_store import Who

    since = 0.0
    if turn is not None:
        starts = [e.at for e in reader.events(row.id) if isinstance(e.body, TurnStarted) and e.body.turn == turn]
        if not starts:
            raise UsageError(
                f"Run {row.id} has no turn {turn}.", remedy=f"It has {row.turns}. See: retinue runs effects"
            )
        since = starts[0]
    return Scope(Who(row.id, row.agent), turn or 0, tuple(each.id for each in below), since)


def _undo(folder: Path, scope: Scope, args: argparse.Namespace) -> tuple[list[UndoneFile], float | None]:
    undo = Undo(folder)
    try:
        return undo.run(scope, force=args.force, dry_run=args.dry_run), undo.forgotten(scope.runs)
    finally:
        undo.close()


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _record(folder: Path, row: RunRow, done: list[UndoneFile], args: argparse.Namespace) -> None:
    from retinue.capabilities.audit.attach import undone_event
    from retinue.guard.redact import Redactor
    from retinue.log.annotate import annotate

    event = undone_event(done, by="person", turn=args.turn, forced=args.force)
    annotate(folder, row.id, event, Redactor(process_environment()))


def _report(row: RunRow, done: list[UndoneFile], args: argparse.Namespace) -> None:
    if args.json:
        from retinue.log.encode import dump

        document = {"run": row.id, "turn": args.turn, "dryRun": args.dry_run, "forced": args.force, "files": done}
        print(dump(document).decode())
        return
    for each in done:
        detail = f"  ({each.detail})" if each.detail else ""
        print(f"{_WORDS[each.fate]:<10} {in_line(relative(each.path, row.cwd))}{detail}")
    if not done:
        print("Nothing to undo: the record has no file that this run changed.", file=sys.stderr)
    elif args.dry_run:
        print("Nothing was changed (--dry-run).", file=sys.stderr)
    if any(each.fate == "kept" for each in done) and not args.force:
        print("Kept files were left alone. To put them back all the same: --force", file=sys.stderr)
