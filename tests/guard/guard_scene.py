"""A run that asks, with a real log: the gate and the inbox without a model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from retinue.core.events import Body, RunCreated, RunStarted
from retinue.core.permission import NO_OPINION, Decision, EffectKind, HookResult, InboxItem, InboxRow, ToolUse
from retinue.core.run_state import RunPlace
from retinue.core.spec import PermissionMode
from retinue.core.tool import ToolContext, ToolOutput, ToolSpec, ok
from retinue.guard.gate import Asker
from retinue.guard.inbox_service import POLL_SECONDS, InboxPolicy, InboxService
from retinue.guard.redact import Redactor
from retinue.log.inbox import items
from retinue.log.query import LogReader
from retinue.log.store import Log
from retinue.loop.job import Controls
from retinue.testing import FakeClock


class Rules:
    """Permissions by a table: what is granted is allowed, the rest is as `verdicts` says."""

    mode: PermissionMode = "default"

    def __init__(self, **verdicts: Decision) -> None:
        self.verdicts = verdicts
        self.granted: set[str] = set()
        self.seen: list[ToolUse] = []

    def decide(self, use: ToolUse) -> Decision:
        self.seen.append(use)
        decision = self.verdicts.get(use.tool, Decision("ask", "The mode asks.", "mode", rule=f"{use.tool}(*)"))
        if decision.verdict == "ask" and decision.rule in self.granted:
            return Decision("allow", f"{decision.rule} was granted", "rule")
        return decision

    def grant(self, rule: str) -> None:
        self.granted.add(rule)


class Spoken:
    """Hooks that say what the test says."""

    def __init__(self, **results: HookResult) -> None:
        self.results = results
        self.heard: list[tuple[str, str, Mapping[str, Any]]] = []

    def listens(self, event: str) -> bool:
        return event in self.results

    async def fire(self, event: str, subject: str = "", payload: Mapping[str, Any] | None = None) -> HookResult:
        self.heard.append((event, subject, payload or {}))
        return self.results.get(event, NO_OPINION)


class Noted:
    """A tool that remembers what it was run with."""

    def __init__(self, name: str = "change", effects: frozenset[EffectKind] = frozenset({"write"})) -> None:
        text = {"type": "string"}
        schema = {"type": "object", "properties": {"path": text}, "additionalProperties": False}
        self.spec = ToolSpec(name, "", schema, effects)
        self.calls: list[Mapping[str, Any]] = []

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.calls.append(arguments)
        return ok("done")


class Asking:
    """Use with `async with`. A log with one run in it, and an inbox."""

    def __init__(self, folder: Path, *, policy: InboxPolicy | None = None, redact: Redactor | None = None) -> None:
        self.folder = folder
        self.clock = FakeClock(time.time())
        self.policy = policy or InboxPolicy("wait")
        self._redact = redact
        self.recorded: list[Body] = []

    async def __aenter__(self) -> Asking:
        self.log = Log.open(self.folder, redact=self._redact)
        self.inbox = InboxService(
            self.log, policy=lambda: self.policy, redact=(self._redact or Redactor()).data, clock=self.clock
        )
        self.asker = self.new_asker("run-1")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.log.close()

    def new_asker(self, run_id: str, controls: Controls | None = None) -> Asker:
        place = RunPlace(run_id)
        self.log.append(place, RunCreated("writer", "task", {}, "", "m", str(self.folder)))
        self.log.append(place, RunStarted("m", (), str(self.folder)))

        def record(body: Body) -> None:
            self.recorded.append(body)
            self.log.append(place, body)

        return Asker(place, "writer", controls or Controls(), record)

    def item(self, path: str = "a.txt", run_id: str = "run-1", **fields: Any) -> InboxItem:
        from retinue.guard.gate import new_item_id

        payload = {"tool": "change", "arguments": {"path": path}, "call_id": "c1"}
        given = {"payload": payload, "rule": "change(*)", "title": f"change {path}", **fields}
        return InboxItem(id=new_item_id(), kind="approval", run_id=run_id, root_id=run_id, agent="writer", **given)

    def listed(self, everything: bool = True) -> list[InboxRow]:
        with LogReader.open(self.folder) as reader:
            return items(reader, everything=everything)

    async def waiting(self, count: int = 1) -> list[InboxItem]:
        """The items that wait in the file, once there are as many."""
        return await until(lambda: (found := self._waiting()) and len(found) >= count and found)

    def _waiting(self) -> list[InboxItem]:
        with LogReader.open(self.folder) as reader:
            rows = reader.select("SELECT count(*) FROM inbox WHERE state='waiting'")
            return [each.item for each in items(reader, everything=True)] if rows[0][0] else []

    async def finished(self, task: asyncio.Task[Any]) -> Any:
        """What a task gives that waits for something of another process."""
        async with asyncio.timeout(20):
            while not task.done():
                await self.clock.advance(POLL_SECONDS)
                await asyncio.sleep(0.001)
        return task.result()

    def context(self) -> ToolContext:
        return ToolContext("run-1", (self.folder,), self.folder / "out")


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(20):
        while True:
            found = condition()
            if found:
                return found
            await asyncio.sleep(0.001)
