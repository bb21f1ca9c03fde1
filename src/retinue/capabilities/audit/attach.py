"""What a run does is recorded, told to the reader of its result, and undone where its file wants it.

One `Audit` per attempt of a run. Nothing is opened before a tool that changes something runs, so a
run that only reads costs nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.capabilities.audit.report import ChangeNotices, name_first, notices_wanted, record_line
from retinue.core.events import Body, ToolEnded, TurnStarted, Warned
from retinue.core.format import relative
from retinue.core.outcome import Outcome
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.tool import Tool, ToolContext, ToolOutput
from retinue.tools.base import BuiltinTool
from retinue.tools.paths import Reaching

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from retinue.capabilities.audit.checkpoint import Checkpoints
    from retinue.capabilities.audit.ledger import RunLedger
    from retinue.capabilities.audit.ledger_store import LedgerStore
    from retinue.capabilities.audit.shadow import Shadow
    from retinue.capabilities.audit.undo import UndoneFile
    from retinue.log.query import LogReader
    from retinue.runs.project import Project
    from retinue.runs.run import Run

MOST_NAMED = 20
_CHANGING = frozenset({"write", "execute"})


class CheckpointStore:
    """The ledger and the shadow repository of a project, as one process holds them."""

    def __init__(self, project: Project) -> None:
        project.closing.push_async_callback(self._close, project)
        self.folder = project.state / "checkpoints"
        self.enabled = project.settings.settings.checkpoints_enabled

    @cached_property
    def store(self) -> LedgerStore:
        from retinue.capabilities.audit.ledger_store import LedgerStore

        return LedgerStore(self.folder)

    @cached_property
    def shadow(self) -> Shadow:
        from retinue.capabilities.audit.shadow import Shadow

        return Shadow(self.folder)

    @property
    def used(self) -> bool:
        """Whether this process has recorded anything."""
        return "store" in self.__dict__

    async def _close(self, project: Project) -> None:
        """Drop old checkpoints if this process has made some, and close their files."""
        if self.used:
            from retinue.capabilities.audit.retention import tidy

            await tidy(project)
            self.store.close()


class Audit:
    """Made when the run starts; `finish` completes its outcome."""

    def __init__(self, node: Run, *, resumed: bool) -> None:
        self._node = node
        self._project = project = node.project
        self._resumed = resumed
        self._turn = 0
        self._effects: dict[str, ToolEffect] = {}
        self._roots: tuple[Path, ...] = ()
        self._complained = False
        self._notices: ChangeNotices | None = None
        if node.parent is None and notices_wanted(project.settings.settings):
            self._notices = ChangeNotices(node, project, resumed=resumed)
        self.seen: dict[str, str] = {}

    @cached_property
    def ledger(self) -> RunLedger:
        from retinue.capabilities.audit.ledger import RunLedger
        from retinue.capabilities.audit.ledger_store import Who

        checkpoints, handle = self._project.part(CheckpointStore), self._node
        shadow = checkpoints.shadow if checkpoints.enabled else None
        made = RunLedger(checkpoints.store, shadow, Who(handle.id, handle.agent))
        made.turn = self._turn
        return made

    @cached_property
    def _checkpoints(self) -> Checkpoints:
        from retinue.capabilities.audit.checkpoint import Checkpoints

        checkpoints = self._project.part(CheckpointStore)
        made = Checkpoints(checkpoints.shadow, checkpoints.store, self.ledger, self._roots)
        if self._resumed:
            made.recover()
        return made

    # While it runs

    def context(self, context: ToolContext) -> ToolContext:
        """Return the context with this run's ledger in it."""
        self.seen, self._roots = context.seen, context.roots
        return replace(context, ledger=_Ledger(self))

    def tools(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return the tools, those that change something watched. A gate goes around them, not inside: time
        spent waiting for a person is no part of a call."""
        found: list[Tool] = []
        for tool in tools:
            if tool.spec.effects & _CHANGING:
                tool = Audited(tool, self)
            found.append(tool)
        return tuple(found)

    def observe(self, body: Body) -> None:
        if isinstance(body, TurnStarted):
            self._turn = body.turn
            # Reading the cached property would open the ledger.
            if "ledger" in self.__dict__:
                self.ledger.turn = body.turn
        elif isinstance(body, ToolEnded):
            self._effects[body.call_id] = body.effect
            if self._notices is not None:
                self._notices.observe(body)

    async def begin(self, call_id: str, command: str) -> bool:
        """Take the checkpoint before a call. Return False when there is none; a warning says once why."""
        from retinue.capabilities.audit.shadow import CheckpointError

        if not self._project.part(CheckpointStore).enabled:
            return False
        # The text is stored, and a command may hold a secret.
        about = self._project.redactor(command)
        work = asyncio.ensure_future(asyncio.to_thread(lambda: self._checkpoints.begin(call_id, about)))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # Cancelled before the call began: nothing of it is to be recorded.
            await _wait_for(work)
            if work.exception() is None:
                await self.end()
            raise
        except (CheckpointError, OSError) as error:
            self._complain(f"No checkpoint: {error}. What commands change is not recorded and cannot be undone.")
            return False
        return True

    async def end(self) -> tuple[TouchedPath, ...]:
        """Take the checkpoint after a call, even if the caller is cancelled meanwhile."""
        from retinue.capabilities.audit.shadow import CheckpointError

        work = asyncio.ensure_future(asyncio.to_thread(self._checkpoints.end))
        try:
            writes = await asyncio.shield(work)
        except asyncio.CancelledError:
            await _wait_for(work)
            raise
        except CheckpointError as error:
            self._complain(f"No checkpoint after the call: {error}. What it changed is not recorded.")
            return ()
        if self._checkpoints.left_out:
            self._complain(f"Too large for checkpoints, so not undone: {name_first(self._checkpoints.left_out, 5)}.")
        return writes

    def _complain(self, text: str) -> None:
        if not self._complained:
            self._complained = True
            self._project.log.append(self._node.place, Warned("checkpoint", text))

    # At its end

    async def finish(self, outcome: Outcome) -> Outcome:
        """Return the outcome with what the record adds to it: files put back, the line of record,
        and what a parent must read again. A record that fails takes no outcome away."""
        try:
            return await self._complete(outcome)
        except Exception as error:  # noqa: BLE001  (the run ended as it did, whatever the record says)
            return replace(outcome, notes=(*outcome.notes, f"The record of its changes failed: {error}"))
        finally:
            # An ended run stays in memory for a while.
            self._effects.clear()

    async def _complete(self, outcome: Outcome) -> Outcome:
        spec = self._node.launch.request.spec
        notes: list[str] = []
        if self._notices is not None:
            self._notices.finish()
        if spec.rollback == "on-failure" and not outcome.ok and outcome.ended != "stopped":
            notes.append(await self._roll_back())
        if "_checkpoints" in self.__dict__:
            await asyncio.to_thread(self._checkpoints.close)
        earlier: list[ToolEffect] = []
        if self._resumed:
            earlier = await self._project.log.read(self._earlier)
        notes += self._tell(earlier)
        return replace(outcome, notes=(*outcome.notes, *notes))

    async def _roll_back(self) -> str:
        from retinue.capabilities.audit.ledger_store import Who
        from retinue.capabilities.audit.undo import Undo, UndoScope, undone_event

        handle = self._node
        below = tuple(child.id for child in self._node.descendants())

        def work() -> list[UndoneFile]:
            undo = Undo(self._project.state)
            try:
                return undo.run(UndoScope(Who(handle.id, handle.agent), below=below))
            finally:
                undo.close()

        done = await asyncio.to_thread(work)
        event = undone_event(done, by="rollback")
        self._project.log.append(handle.place, event)
        if not done:
            return "rollback: on-failure: it had changed no files."
        count = len(event.restored) + len(event.removed)
        note = f"rollback: on-failure: {count} of {len(done)} files it had changed were put back."
        if event.kept:
            note += f" Not put back: {name_first(event.kept, 10)}."
        return note

    def _tell(self, earlier: Iterable[ToolEffect]) -> list[str]:
        """Return the line of record, and which files a parent that had read them must read again."""
        files = self._files()
        below = []
        for node in self._node.descendants():
            outcome = node.outcome
            below.append(len(outcome.evidence.commands) if outcome else 0)
        line = record_line(
            [*earlier, *self._effects.values()],
            self._shown(files),
            below=below,
            complete=self._project.part(CheckpointStore).enabled and not self._complained,
        )
        parent = self._node.parent
        above = None if parent is None else parent.get(Audit)
        if above is None:
            return [line]
        known = above.seen
        stale = []
        for path, after in files.items():
            if path in known and known[path] != after:
                stale.append(path)
        if not stale:
            return [line]
        names = name_first(self._shown(stale), MOST_NAMED)
        return [line, f"You had read {names} before: read again before you edit."]

    def _files(self) -> dict[str, str | None]:
        """Return the paths changed in this tree, with the hash they have now as far as it is known."""
        found: dict[str, str | None] = {}
        if self._project.part(CheckpointStore).used:
            ids = [self._node.id, *(child.id for child in self._node.descendants())]
            for row in self._project.part(CheckpointStore).store.of_runs(ids):
                if not row.has_folder:
                    found[row.path] = row.after_hash
        for effect in self._effects.values():
            for write in effect.writes:
                if write.before != write.after:
                    found.setdefault(write.path, write.after)
        return found

    def _shown(self, paths: Iterable[str]) -> list[str]:
        root = str(self._roots[0]) if self._roots else ""
        return [relative(path, root) for path in paths]

    def _earlier(self, reader: LogReader) -> list[ToolEffect]:
        """Return what the run did before it was resumed."""
        effects = []
        for event in reader.stream(self._node.id, types=("tool.ended",)):
            body = event.body
            if isinstance(body, ToolEnded) and body.call_id not in self._effects:
                effects.append(body.effect)
        return effects


class Audited:
    """A tool that may change things, between two checkpoints. One that says itself what it
    wrote needs none: the ledger keeps what it replaces."""

    def __init__(self, tool: Tool, audit: Audit) -> None:
        self.inner = tool
        self.spec = tool.spec
        self._audit = audit
        inmost = tool.inner if isinstance(tool, Reaching) else tool
        self._tells = isinstance(inmost, BuiltinTool) and tool.spec.name in ("edit", "write")

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self._audit.ledger.call_id = call_id
        if self._tells or (self.spec.confinable and _changes_nothing(context)):
            return await self.inner.run(call_id, arguments, context)
        if not await self._audit.begin(call_id, _command(self.spec.name, arguments)):
            return await self.inner.run(call_id, arguments, context)
        try:
            output = await self.inner.run(call_id, arguments, context)
        except BaseException:
            await self._audit.end()
            raise
        writes = await self._audit.end()
        if not writes:
            return output
        every = list(output.effect.writes)
        told = {write.path for write in every}
        for write in writes:
            if write.path not in told:
                every.append(write)
        return replace(output, effect=replace(output.effect, writes=tuple(every)))


def _changes_nothing(context: ToolContext) -> bool:
    return context.confinement is not None and context.confinement.readonly


class _Ledger:
    """The run's ledger, opened when something asks it."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def lease(self, path: Path) -> AbstractContextManager[None]:
        return self._audit.ledger.lease(path)

    def writing(self, path: Path, old: bytes | None, new: bytes | None, mode: int | None) -> None:
        self._audit.ledger.writing(path, old, new, mode)

    def wrote(self, path: Path, before: str | None, after: str | None) -> None:
        self._audit.ledger.wrote(path, before, after)

    def changed_by(self, path: Path, current: str) -> str | None:
        return self._audit.ledger.changed_by(path, current)


async def _wait_for(work: asyncio.Future[Any]) -> None:
    """Wait until `work` is over, however often the waiter is cancelled meanwhile."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({work})


def _command(name: str, arguments: Mapping[str, Any]) -> str:
    command = arguments.get("command")
    return command if isinstance(command, str) else f"{name} {dict(arguments)!r}"
