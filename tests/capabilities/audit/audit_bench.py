"""A workspace with a ledger and checkpoints, and runs that work in it with the real tools."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from retinue.capabilities.audit.checkpoint import Checkpoints
from retinue.capabilities.audit.ledger import ChangeAuthor, LedgerStore, RunLedger
from retinue.capabilities.audit.shadow import Shadow
from retinue.capabilities.audit.undo import Undo, UndoneFile, UndoScope
from retinue.core.permission import TouchedPath
from retinue.core.tool import ToolContext, ToolOutput
from retinue.tools.base import builtin_tools


class Bench:
    def __init__(self, folder: Path, **limits: Any) -> None:
        self.root = folder.resolve() / "work"
        self.root.mkdir(exist_ok=True)
        self.state = folder.resolve() / "state"
        self.shadow = Shadow(self.state / "checkpoints", **limits)
        self.store = LedgerStore(self.state / "checkpoints")

    def run(self, run_id: str, agent: str = "implementer") -> Worker:
        return Worker(self, run_id, agent)

    def undo(self, run: Worker, *, below: tuple[str, ...] = (), turn: int = 0, **options: Any) -> dict[str, UndoneFile]:
        undo = Undo(self.state)
        try:
            done = undo.run(UndoScope(run.author, turn, below), **options)
        finally:
            undo.close()
        return {os.path.relpath(each.path, self.root): each for each in done}

    def put(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


class Worker:
    """One run."""

    def __init__(self, bench: Bench, run_id: str, agent: str) -> None:
        self.author = ChangeAuthor(run_id, agent)
        self.ledger = RunLedger(bench.store, bench.shadow, self.author)
        self.checkpoints = Checkpoints(bench.shadow, bench.store, self.ledger, (bench.root,))
        self.context = ToolContext(
            run_id, (bench.root,), bench.state / "outputs", clearance="person", ledger=self.ledger
        )
        self._calls = 0

    async def use(self, name: str, **arguments: Any) -> ToolOutput:
        self._calls += 1
        self.ledger.call_id = f"call-{self._calls}"
        return await builtin_tools()[name].run(self.ledger.call_id, arguments, self.context)

    async def bash(self, command: str) -> tuple[TouchedPath, ...]:
        self._calls += 1
        self.checkpoints.begin(f"call-{self._calls}", command)
        await builtin_tools()["bash"].run(f"call-{self._calls}", {"command": command}, self.context)
        return self.checkpoints.end()


def picture(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Everything below a folder, with modes and contents; .git is left out."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for folder, folders, files in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        for name in [*folders, *files]:
            path = Path(folder) / name
            mode = path.lstat().st_mode
            key = str(path.relative_to(root))
            if stat.S_ISLNK(mode):
                found[key] = ("link", 0, os.fsencode(os.readlink(path)))
            elif stat.S_ISDIR(mode):
                found[key] = ("folder", 0, b"")
            else:
                found[key] = ("file", stat.S_IMODE(mode), path.read_bytes())
    return found
