"""Checkpoints: what recording the effects of a command costs in a workspace of many files.

    python bench/checkpoint.py [FILES]         (default: 5000)

Measured: the very first checkpoint of a project, one that finds nothing new, one after a few
changes, the first of a second run, an edit with its ledger, and undo.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from retinue.capabilities.audit.checkpoint import Checkpoints
from retinue.capabilities.audit.ledger import ChangeAuthor, LedgerStore, RunLedger
from retinue.capabilities.audit.shadow import Shadow
from retinue.capabilities.audit.undo import Undo, UndoScope
from retinue.core.tool import ToolContext
from retinue.tools.base import builtin_tools


def timed(label: str, work: Callable[[], Any], times: int = 1) -> Any:
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        result = work()
        spent.append((time.perf_counter() - began) * 1000)
    print(f"{label:<42} {median(spent):9.1f} ms")
    return result


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as folder:
        root, state = Path(folder).resolve() / "work", Path(folder).resolve() / "state"
        for number in range(files):
            place = root / f"d{number % 97}" / f"s{number % 7}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"f{number}.py").write_text(f"value = {number}\n" * 100)
        shadow, store = Shadow(state / "checkpoints"), LedgerStore(state / "checkpoints")

        def run(name: str) -> Checkpoints:
            return Checkpoints(shadow, store, RunLedger(store, shadow, ChangeAuthor(name, "bench")), (root,))

        print(f"{files} files")
        one = run("run-1")
        timed("the first checkpoint of the project", lambda: one.begin("c", "command"))
        timed("after a command that changed nothing", one.end)
        timed("before a command", lambda: one.begin("c", "command"))
        for number in range(10):
            (root / f"new{number}.txt").write_text("x")
        timed("after a command that made 10 files", one.end)

        def both() -> None:
            one.begin("c", "command")
            one.end()

        timed("before and after, nothing changed", both, 7)
        one.close()
        two = run("run-2")
        timed("the first checkpoint of another run", lambda: two.begin("c", "command"))
        two.end()
        context = ToolContext(
            "run-3",
            (root,),
            state / "out",
            clearance="person",
            ledger=RunLedger(store, shadow, ChangeAuthor("run-3", "bench")),
        )
        plain = ToolContext("run-4", (root,), state / "out", clearance="person")
        for label, given, name in (("an edit without a ledger", plain, "p"), ("an edit with a ledger", context, "l")):

            def edit(given: ToolContext = given, name: str = name) -> None:
                arguments = {"path": f"{name}{time.perf_counter_ns()}.txt", "content": "x" * 2000}
                asyncio.run(builtin_tools()["write"].run("c", arguments, given))

            timed(label, edit, 20)
        undo = Undo(state)
        timed("undo of 10 files", lambda: undo.run(UndoScope(ChangeAuthor("run-1", "bench"))))
        undo.close()


if __name__ == "__main__":
    main()
