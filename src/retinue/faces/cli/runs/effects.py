from __future__ import annotations

import argparse
from pathlib import Path

from retinue.capabilities.audit.report import CallEffect, RunEffects, WriteStatus, Written, effects_of
from retinue.core.states import LIVE
from retinue.faces.cli.runs._tree import with_descendants
from retinue.faces.cli.runs.common import add_where, locate
from retinue.faces.cli.visible import in_line, visible
from retinue.log.query import Reader
from retinue.log.rows import RunRow

_MOST_READS = 10
_SIGNS = {"created": "+", "changed": "~", "deleted": "-", "unchanged": "="}


def configure_effects(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="id of the run, or its beginning")
    parser.add_argument("--tree", action="store_true", help="also all runs it has started, and theirs")
    add_where(parser)


def execute_effects(args: argparse.Namespace) -> int:
    """What a run really did: files read and written, commands with their exit codes, hosts, what
    was denied and who allowed the rest, and calls whose effect nobody knows.

    retinue runs effects 3f2a9c1d
    retinue runs effects 3f2a9c1d --tree       (with the runs it has started)
    retinue runs effects 3f2a9c1d --json
    """
    folder, row = locate(args)
    with Reader.open(folder) as reader:
        rows = with_descendants(reader, row) if args.tree else [row]
        found = [(each, _effects(reader, folder, each)) for each in rows]
    if args.json:
        from retinue.log.encode import dump

        print(dump({"runs": [effects for _, effects in found]}).decode())
        return 0
    for each, effects in found:
        print(visible("\n".join(_lines(each, effects))))
    return 0


def _effects(reader: Reader, folder: Path, row: RunRow) -> RunEffects:
    meanwhile = _meanwhile(folder, row.id)
    return effects_of(reader.events(row.id), row.id, row.agent, live=row.state in LIVE, meanwhile=meanwhile)


def _meanwhile(folder: Path, run_id: str) -> dict[str, tuple[Written, ...]]:
    """What the ledger knows of calls that never reported: they were cut off, or cancelled."""
    if not (folder / "checkpoints" / "ledger.db").is_file():
        return {}
    from retinue.capabilities.audit.undo import Undo

    undo = Undo(folder)
    try:
        rows = undo.changed([run_id])
    finally:
        undo.close()
    found: dict[str, tuple[Written, ...]] = {}
    for change in rows:
        if change.kind == "undo" or any(e is not None and e.is_folder for e in (change.before, change.after)):
            continue
        status: WriteStatus = "created" if change.before is None else "changed"
        if change.after is None:
            status = "deleted"
        one = Written(change.path, status, None, change.after_hash)
        found[change.call_id] = (*found.get(change.call_id, ()), one)
    return found


def _lines(row: RunRow, effects: RunEffects) -> list[str]:
    lines = [f"{row.agent}  run {row.id}  in {row.cwd}"]
    for turn in effects.turns:
        lines.append(f"turn {turn.turn}")
        reads = [path for call in turn.calls for path in call.reads]
        if reads:
            more = f" and {len(reads) - _MOST_READS} more" if len(reads) > _MOST_READS else ""
            lines.append(f"  read   {', '.join(_short(path, row.cwd) for path in reads[:_MOST_READS])}{more}")
        for call in turn.calls:
            lines += _call(call, row.cwd)
    if not effects.turns:
        lines.append("  no tool calls")
    for undone in effects.undone:
        count = len(undone.restored) + len(undone.removed)
        since = f" from turn {undone.turn} on" if undone.turn else ""
        lines.append(f"undone by {undone.by}{since}: {count} files put back, {len(undone.kept)} kept")
    lines += [f"claim without support: {claim}" for claim in effects.unsupported]
    return lines


def _call(call: CallEffect, cwd: str) -> list[str]:
    if call.reads and not call.writes and call.status == "finished":
        return []
    exit_code = "" if call.exit_code is None else f"  → exit {call.exit_code}"
    what = " ".join((call.command or "").split())[:160]
    head = f"  {call.tool:<6} {what}{exit_code}".rstrip()
    lines: list[str] = []
    if call.status == "denied":
        lines.append(f"  DENIED {call.tool} {what}: {call.denied}")
    elif call.status == "unknown":
        lines.append(f"  UNKNOWN EFFECT {call.tool} {what}".rstrip() + ": it started and never reported back")
    elif call.status == "failed" and call.exit_code is None:
        lines.append(f"{head}  (failed)")
    elif call.command is not None or call.status == "running" or call.hosts:
        lines.append(f"{head}{'  (running)' if call.status == 'running' else ''}")
    lines += [f"  write  {_SIGNS[each.status]} {_short(each.path, cwd)}" for each in call.writes]
    if call.hosts:
        lines.append(f"    hosts    {', '.join(call.hosts)}")
    if call.approval:
        lines.append(f"    answered {call.approval}")
    if call.allowed and (call.writes or call.command):
        lines.append(f"    allowed  {call.allowed}")
    return lines


def _short(path: str, cwd: str) -> str:
    return in_line(path.removeprefix(cwd.rstrip("/") + "/"))
