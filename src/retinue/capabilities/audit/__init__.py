"""The record of the changes of runs: checkpoints, a line of record in the results, and undo if an agent's file asks
for it. Each attempt of a run has one `Audit`. It opens no file before the first call of a changing tool, so runs that
only read cost nothing here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from retinue.core.events import Body, ToolEnded, Warned
from retinue.core.format import relative, replace_unprintable
from retinue.core.lazy import LazyModule
from retinue.core.outcome import RECORD, Outcome
from retinue.core.permission import ToolEffect, TouchedPath
from retinue.core.tool import Tool, ToolContext, ToolOutput, Wrap
from retinue.runs.capability import Capability, RunPart
from retinue.runs.prompt import current_branch
from retinue.tools.base import BuiltinTool
from retinue.tools.paths import Reaching

if TYPE_CHECKING:
    from retinue.capabilities.audit import checkpoint as _checkpoint
    from retinue.capabilities.audit import ledger as _ledger
    from retinue.capabilities.audit import retention as _retention
    from retinue.capabilities.audit import shadow as _shadow
    from retinue.capabilities.audit import undo as _undo
    from retinue.core.tool import Ledger
    from retinue.log.query import LogReader
    from retinue.runs.project import Project
    from retinue.runs.run import Run
    from retinue.tools import processes as _processes
else:
    _checkpoint = LazyModule("retinue.capabilities.audit.checkpoint")
    _ledger = LazyModule("retinue.capabilities.audit.ledger")
    _retention = LazyModule("retinue.capabilities.audit.retention")
    _shadow = LazyModule("retinue.capabilities.audit.shadow")
    _undo = LazyModule("retinue.capabilities.audit.undo")
    _processes = LazyModule("retinue.tools.processes")

MAX_NAMED_STALE_FILES = 20
MAX_NAMED_FILES = 8
MAX_NAMED_COMMANDS = 4
MAX_COMMAND_LENGTH = 80
_CHANGING = frozenset({"write", "execute"})
_CHECK_COMMANDS = (
    r"\b(?:pytest|unittest|tox|nox|mypy|pyright|ruff|flake8|pylint|jest|vitest|mocha|eslint|biome|tsc|rspec|phpunit|ctest)\b"
    r"|\b(?:cargo|go|dotnet|swift|gradle|gradlew|mvn|mix|bazel|make|just|task|npm|pnpm|yarn|bun)\b[^|;&\n]*"
    r"\b(?:tests?|check|lint|verify|build|vet|clippy|typecheck|ci)\b"
)
"""Commands that test, lint, check types or build. Compiled on first use."""


class AuditCapability(Capability):
    """The audit of a run."""

    async def running(self, node: Run, *, resumed: bool) -> RunPart:
        audit = Audit(node, resumed=resumed)
        node.put(audit)

        def wrap(inner: Wrap) -> Wrap:
            return lambda tools: audit.tools(inner(tools))

        return RunPart(audit.context, wrap, observe=audit.observe)

    async def finish(self, node: Run, outcome: Outcome) -> Outcome:
        audit = node.get(Audit)
        return outcome if audit is None else await audit.finish(outcome)


class CheckpointStore:
    """The ledger and the shadow repository of a project in this process."""

    def __init__(self, project: Project) -> None:
        project.closing.push_async_callback(self._close, project)
        self.folder = project.state / "checkpoints"
        self.enabled = project.settings.settings.checkpoints_enabled

    @cached_property
    def store(self) -> _ledger.LedgerStore:
        return _ledger.LedgerStore(self.folder)

    @cached_property
    def shadow(self) -> _shadow.Shadow:
        return _shadow.Shadow(self.folder)

    @property
    def used(self) -> bool:
        """Whether this process has recorded anything."""
        return "store" in self.__dict__

    async def _close(self, project: Project) -> None:
        """Drop old checkpoints if this process has made any, and close the files."""
        if self.used:
            await _retention.tidy(project)
            self.store.close()


class Audit:
    """Records the changes of one attempt of a run; `finish` completes its outcome."""

    def __init__(self, node: Run, *, resumed: bool) -> None:
        self._node = node
        self._project = project = node.project
        self._resumed = resumed
        self._checkpoint_store = project.part(CheckpointStore)
        self._effects: dict[str, ToolEffect] = {}
        self._roots: tuple[Path, ...] = ()
        self._has_warned = False
        self._notices: ChangeNotices | None = None
        if node.parent is None and project.settings.settings.delegation_vocabulary == "devkit":
            self._notices = ChangeNotices(node, resumed=resumed)
        self.seen: dict[str, str] = {}

    @cached_property
    def ledger(self) -> _ledger.RunLedger:
        shadow = self._checkpoint_store.shadow if self._checkpoint_store.enabled else None
        return _ledger.RunLedger(self._checkpoint_store.store, shadow, self._who)

    @cached_property
    def _checkpoints(self) -> _checkpoint.Checkpoints:
        checkpoints = _checkpoint.Checkpoints(
            self._checkpoint_store.shadow, self._checkpoint_store.store, self.ledger, self._roots
        )
        if self._resumed:
            checkpoints.recover()
        return checkpoints

    @property
    def _who(self) -> _ledger.ChangeAuthor:
        return _ledger.ChangeAuthor(self._node.id, self._node.agent)

    # While the run works

    def context(self, context: ToolContext) -> ToolContext:
        """Return the context with this run's ledger in it."""
        self.seen, self._roots = context.seen, context.roots
        return replace(context, ledger=cast("Ledger", _LazyLedger(self)))

    def tools(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return the tools with the changing ones wrapped. The gate must be outside of this wrapper, so that the wait
        for a person is not part of a call."""
        return tuple(Audited(tool, self) if tool.spec.effects & _CHANGING else tool for tool in tools)

    def observe(self, body: Body) -> None:
        if isinstance(body, ToolEnded):
            self._effects[body.call_id] = body.effect
            if self._notices is not None:
                self._notices.observe(body)

    def enter(self, call_id: str) -> None:
        """Attribute the next changes to this call."""
        self.ledger.turn, self.ledger.call_id = self._node.state.turn, call_id

    async def begin(self, call_id: str, command: str) -> bool:
        """Take the checkpoint before a call. Return False if that fails; a warning gives the reason once."""
        if not self._checkpoint_store.enabled:
            return False
        # The text is stored, and a command may contain a secret.
        about = self._project.redactor(command)
        work = asyncio.ensure_future(asyncio.to_thread(lambda: self._checkpoints.begin(call_id, about)))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # The call was cancelled before it began, so there is nothing to record.
            await _processes.wait_until_over(work)
            if work.exception() is None:
                await self.end()
            raise
        except (_shadow.CheckpointError, OSError) as error:
            self._warn_once(f"No checkpoint: {error}. What commands change is not recorded and cannot be undone.")
            return False
        return True

    async def end(self) -> tuple[TouchedPath, ...]:
        """Take the checkpoint after a call, even if the caller is cancelled meanwhile."""
        try:
            writes = await _processes.in_thread(self._checkpoints.end)
        except _shadow.CheckpointError as error:
            self._warn_once(f"No checkpoint after the call: {error}. What it changed is not recorded.")
            return ()
        if self._checkpoints.left_out:
            self._warn_once(f"Too large for checkpoints, so not undone: {name_first(self._checkpoints.left_out, 5)}.")
        return writes

    def _warn_once(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._project.log.append(self._node.place, Warned("checkpoint", text))

    # At the end of the run

    async def finish(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the notes of the record: restored files, the line of record, and the files that a
        parent must read again. An error of the record becomes a note."""
        try:
            return replace(outcome, notes=(*outcome.notes, *await self._complete(outcome)))
        except Exception as error:  # noqa: BLE001  (an error of the record must not change the outcome)
            return replace(outcome, notes=(*outcome.notes, f"The record of its changes failed: {error}"))
        finally:
            # An ended run stays in memory for a while.
            self._effects.clear()

    async def _complete(self, outcome: Outcome) -> list[str]:
        notes: list[str] = []
        if self._notices is not None:
            self._notices.finish()
        rollback = self._node.launch.request.spec.rollback
        if rollback == "on-failure" and not outcome.ok and outcome.ended != "stopped":
            notes.append(await self._roll_back())
        if "_checkpoints" in self.__dict__:
            await asyncio.to_thread(self._checkpoints.close)
        earlier: list[ToolEffect] = []
        if self._resumed:
            earlier = await self._project.log.read(self._earlier)
        return [*notes, *self._describe_record(earlier)]

    async def _roll_back(self) -> str:
        scope = _undo.UndoScope(self._who, below=tuple(child.id for child in self._node.descendants()))

        def work() -> list[_undo.UndoneFile]:
            with closing(_undo.Undo(self._project.state)) as undo:
                return undo.run(scope)

        done = await asyncio.to_thread(work)
        event = _undo.undone_event(done, by="rollback")
        self._project.log.append(self._node.place, event)
        if not done:
            return "rollback: on-failure: it had changed no files."
        count = len(event.restored) + len(event.removed)
        note = f"rollback: on-failure: {count} of {len(done)} files it had changed were put back."
        if event.kept:
            note += f" Not put back: {name_first(event.kept, 10)}."
        return note

    def _describe_record(self, earlier: Iterable[ToolEffect]) -> list[str]:
        """Return the line of record, and a note on files that the parent has read and must read again."""
        files = self._files()
        outcomes = [child.outcome for child in self._node.descendants()]
        notes = [
            record_line(
                [*earlier, *self._effects.values()],
                self._relative_paths(files),
                below=[len(outcome.evidence.commands) if outcome else 0 for outcome in outcomes],
                complete=self._checkpoint_store.enabled and not self._has_warned,
            )
        ]
        above = None if self._node.parent is None else self._node.parent.get(Audit)
        read = {} if above is None else above.seen
        stale = [path for path, after in files.items() if path in read and read[path] != after]
        if stale:
            names = name_first(self._relative_paths(stale), MAX_NAMED_STALE_FILES)
            notes.append(f"You had read {names} before: read again before you edit.")
        return notes

    def _files(self) -> dict[str, str | None]:
        """Return the paths changed in this tree, each with its present hash if that is known."""
        files: dict[str, str | None] = {}
        if self._checkpoint_store.used:
            for row in self._checkpoint_store.store.of_runs(
                [self._node.id, *(child.id for child in self._node.descendants())]
            ):
                if not row.has_folder:
                    files[row.path] = row.after_hash
        for effect in self._effects.values():
            for write in effect.writes:
                if write.before != write.after:
                    files.setdefault(write.path, write.after)
        return files

    def _relative_paths(self, paths: Iterable[str]) -> list[str]:
        root = str(self._roots[0]) if self._roots else ""
        return [relative(path, root) for path in paths]

    def _earlier(self, reader: LogReader) -> list[ToolEffect]:
        """Return the effects of the run before it was resumed."""
        # One event at a time, because the results of a long run may not fit into memory.
        bodies = (event.body for event in reader.stream(self._node.id, types=("tool.ended",)))
        return [body.effect for body in bodies if isinstance(body, ToolEnded) and body.call_id not in self._effects]


class Audited:
    """A changing tool, whose calls run between two checkpoints. A tool that reports its writes needs none, because the
    ledger stores what it replaces."""

    def __init__(self, tool: Tool, audit: Audit) -> None:
        self.inner = tool
        self.spec = tool.spec
        self._audit = audit
        inmost = tool.inner if isinstance(tool, Reaching) else tool
        self._reports = isinstance(inmost, BuiltinTool) and tool.spec.name in ("edit", "write")

    async def run(self, call_id: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self._audit.enter(call_id)
        confinement = context.confinement if self.spec.confinable else None
        harmless = confinement is not None and confinement.readonly
        asked = arguments.get("command")
        command = asked if isinstance(asked, str) else f"{self.spec.name} {dict(arguments)!r}"
        if self._reports or harmless or not await self._audit.begin(call_id, command):
            return await self.inner.run(call_id, arguments, context)
        writes: tuple[TouchedPath, ...] = ()
        try:
            output = await self.inner.run(call_id, arguments, context)
        finally:
            writes = await self._audit.end()
        reported = {write.path for write in output.effect.writes}
        unreported = [write for write in writes if write.path not in reported]
        if not unreported:
            return output
        return replace(output, effect=replace(output.effect, writes=(*output.effect.writes, *unreported)))


class _LazyLedger:
    """The run's ledger, opened when a tool first asks it."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._audit.ledger, name)


class ChangeNotices:
    """Notices for a person while a main run works, each given once: its branch, its first change of a file, and an end
    without a check of its changes. These are devkit-pi's guards and given only in its vocabulary. They stop nothing,
    and the model does not see them."""

    def __init__(self, node: Run, *, resumed: bool) -> None:
        self._node = node
        self._wrote = self._checked = False
        self._codes_given: set[str] = set()
        if resumed:
            earlier = node.project.log.reader.ordered(node.id, ("run.warned",))
            self._codes_given = {event.body.code for _, event in earlier if isinstance(event.body, Warned)}

    def observe(self, body: ToolEnded) -> None:
        cwd = self._node.launch.request.cwd
        if "git_context" not in self._codes_given and (branch := current_branch(cwd)):
            self._notify("git_context", f"It works on branch {branch}.")
        self._checked = self._checked or is_check(body.effect)
        changed = [write.path for write in body.effect.writes if write.before != write.after]
        if changed:
            self._wrote = True
            undo = f"retinue runs undo {self._node.id}"
            first = relative(changed[0], str(cwd))
            self._notify("first_write", f"It begins to change files: {first}. To restore them: {undo}")

    def finish(self) -> None:
        """Give the notice at the end of the run, before its end is logged."""
        if self._wrote and not self._checked:
            self._notify("not_verified", "It changed files, and no test, lint, type check or build command ran.")

    def _notify(self, code: str, text: str) -> None:
        if code not in self._codes_given:
            self._codes_given.add(code)
            self._node.project.log.append(self._node.place, Warned(code, text))


def record_line(
    effects: Sequence[ToolEffect], files: Sequence[str], *, below: Sequence[int] = (), complete: bool = True
) -> str:
    """Return the line of record for a run with these `effects`. It lists the changed `files`, including those changed
    by agents below it, the commands with their exit codes, which commands were checks, and denials.

    `below` has the number of commands of each agent below it. `complete` is False if changes made by commands were not
    recorded.
    """
    if not effects and not files and not below:
        return f"{RECORD}no tool calls."
    commands = [effect for effect in effects if effect.denied is None and effect.command is not None]
    checks = [effect for effect in commands if is_check(effect)]
    others = [effect for effect in commands if not is_check(effect)]
    denied = sum(effect.denied is not None for effect in effects)
    unknown = sum(effect.status in ("unknown", "started") for effect in effects)
    parts = ["no files changed"]
    if files:
        parts = [f"{_counted(len(files), 'file')} changed ({name_first(files, MAX_NAMED_FILES)})"]
    parts.append("no other commands" if checks and not others else _describe_commands("commands", others))
    if files or commands:
        parts.append(_describe_commands("checks", checks))
    if below:
        parts.append(f"{_counted(len(below), 'agent')} started, with {_counted(sum(below), 'command')}")
    if denied:
        parts.append(f"{_counted(denied, 'call')} denied")
    if unknown:
        parts.append(f"{_counted(unknown, 'call')} with unknown effect")
    if commands and not complete:
        parts.append("files changed by commands are not recorded")
    return f"{RECORD}{'; '.join(parts)}."


def is_check(effect: ToolEffect) -> bool:
    """Return whether the call ran a command that tests, lints, checks types or builds."""
    return effect.command is not None and re.search(_CHECK_COMMANDS, effect.command) is not None


def name_first(names: Sequence[str], limit: int) -> str:
    """Return the first `limit` names, and the number of others."""
    shown = ", ".join(map(_on_one_line, names[:limit]))
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def _counted(number: int, noun: str) -> str:
    """Return `number` with its noun: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _on_one_line(text: str) -> str:
    """Return `text` without line breaks and control characters, so that a name cannot imitate a line of the record."""
    return " ".join(replace_unprintable(text).split())


def _describe_commands(title: str, effects: Sequence[ToolEffect]) -> str:
    """Name the last commands, each once, in the order and with the exit code of their last use."""
    codes: dict[str, int | None] = {}
    for effect in effects:
        command = _on_one_line(effect.command or "")
        codes.pop(command, None)
        codes[command] = effect.exit_code
    if not codes:
        return f"no {title}"
    shown = []
    for command, code in list(codes.items())[-MAX_NAMED_COMMANDS:]:
        if len(command) > MAX_COMMAND_LENGTH:
            command = f"{command[: MAX_COMMAND_LENGTH - 1]}…"
        shown.append(f"`{command}` {'no exit code' if code is None else f'exit {code}'}")
    earlier = len(codes) - MAX_NAMED_COMMANDS
    before = f"{earlier} earlier, " if earlier > 0 else ""
    return f"{title}: {before}{', '.join(shown)}"
