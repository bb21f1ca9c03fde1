"""What `runs steer` and `runs stop` share: giving commands to runs of other processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from retinue.core.states import LIVE
from retinue.log.commands import Answer, Command, send
from retinue.log.query import Reader

ENDING_SECONDS = 5.0
POLL_SECONDS = 0.05


def give(folder: Path, commands: Sequence[Command]) -> list[Answer]:
    return asyncio.run(send(folder, commands))


def until_ended(folder: Path, run_ids: Sequence[str], seconds: float = ENDING_SECONDS) -> dict[str, str]:
    """How each run stands once all have ended, or after `seconds`."""

    async def wait() -> dict[str, str]:
        deadline = asyncio.get_running_loop().time() + seconds
        with Reader.open(folder) as reader:
            while True:
                rows = [reader.run(run_id) for run_id in run_ids]
                over = all(row.state not in LIVE for row in rows)
                if over or asyncio.get_running_loop().time() >= deadline:
                    return {row.id: row.ended or row.state for row in rows}
                await asyncio.sleep(POLL_SECONDS)

    return asyncio.run(wait())


def report(answers: Sequence[Answer], *, as_json: bool, statuses: dict[str, str] | None = None) -> int:
    """Prints what became of each command. The exit code is 1 unless all were accepted."""
    known = statuses or {}
    if as_json:
        from retinue.log.encode import dump

        results = [
            {"run": each.run_id, "accepted": each.accepted, "answer": each.text, "status": known.get(each.run_id)}
            for each in answers
        ]
        print(dump({"results": results}).decode())
    else:
        for each in answers:
            status = known.get(each.run_id)
            text = f"{each.run_id}  {status if each.accepted and status else each.text}"
            print(text, file=sys.stdout if each.accepted else sys.stderr)
    return 0 if all(each.accepted for each in answers) else 1
