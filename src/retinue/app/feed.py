"""The runs of one project for a front end: snapshots, the event stream, and commands.

All data comes from the log, so runs of every process are included. A command for a run of this process is executed at
once; for a run of another process it is sent through the log. Runs that are started or resumed here run in this
process. `by` names the caller (empty for the person at this terminal) and is recorded with answers, started runs and
stopped runs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar

from msgspec import Meta, Struct

from retinue.app.snapshot import RunList, RunTree, find_run, find_stoppable, take_snapshot, take_tree
from retinue.app.stream import BehindError, EventHub, EventScope, FeedFrame, partial_frame
from retinue.core.delegation import LIVE
from retinue.core.encode import dump
from retinue.core.outcome import Outcome
from retinue.core.permission import InboxAnswer, InboxItem, InboxRow
from retinue.core.run_state import RunPlace, RunState
from retinue.errors import StateError, UnknownRunError, UsageError
from retinue.log.commands import CommandAnswer as CommandAnswer
from retinue.log.commands import CommandKind, RunCommand, send_aside
from retinue.log.follow import TextPiece, last_number
from retinue.log.inbox import answer as answer_item
from retinue.log.inbox import find as find_item
from retinue.log.inbox import items
from retinue.log.query import LogReader
from retinue.models.keys import environment as process_environment
from retinue.settings.places import state_folder

if TYPE_CHECKING:
    from retinue.app.retinue import Retinue
    from retinue.guard.redact import Redactor


Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")


class ConflictError(UsageError):
    """A key that was used for another order, or a run that cannot take a command in its current state."""

    code = "CONFLICT"


class CommandRefusedError(ConflictError):
    """A run refused a command. `answer` contains the reason."""

    def __init__(self, answer: CommandAnswer) -> None:
        remedy = "" if "resume" in answer.text else "Look at the run and try again."
        super().__init__(answer.text, remedy=remedy)
        self.answer = answer


LongText = Annotated[str, Meta(min_length=1, max_length=200_000)]
ShortText = Annotated[str, Meta(min_length=1, max_length=500)]


class SpawnOrder(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run to start. Without `agent` it is the main agent. `budget` is shared with all runs below it: `usd`,
    `tokens`, `turns`, `toolCalls`, `seconds`, `spawns`. `schema` is a JSON Schema for the result."""

    task: LongText
    agent: ShortText | None = None
    model: ShortText | None = None
    budget: Mapping[str, float | int | None] | None = None
    isolation: Literal["worktree", "off"] | None = None
    schema: Mapping[str, Any] | None = None
    name: ShortText | None = None


class ForkOrder(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fork of a run. `at` is the number of the last event that the fork keeps. `edit` replaces the message there,
    or is said next. Files go back to that moment unless `keep_files`."""

    at: Annotated[int, Meta(ge=1, le=2**31)]
    edit: LongText | None = None
    model: ShortText | None = None
    keep_files: bool = False


class Feed:
    """Use from one event loop. `close` stops only the runs that were started here."""

    def __init__(
        self,
        cwd: Path,
        folder: Path | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        attended: bool = True,
        retinue: Retinue | None = None,
    ) -> None:
        """`folder` is the state folder of the project, if already known. `settings` override all files for runs that
        are started here; list values are appended. If not `attended`, nobody answers questions of these runs, and the
        headless policy decides. `retinue` is a project that the caller has opened and will close."""
        self.cwd = cwd
        self._settings = settings or {}
        self._attended = attended
        self.folder = folder or state_folder(cwd)
        self._retinue = retinue
        self._is_owner = retinue is None
        self._opening = asyncio.Lock()
        self._keys: dict[str, asyncio.Lock] = {}
        self.places: dict[str, int] = {}
        """The last event sent for each run, for protocols whose clients keep no cursor."""

    @cached_property
    def hub(self) -> EventHub:
        return EventHub(self.folder)

    @cached_property
    def redact(self) -> Redactor:
        if self._retinue is not None:
            return self._retinue.supervisor.project.redactor
        from retinue.guard.redact import Redactor

        return Redactor(process_environment())

    # Questions

    async def read(
        self,
        read: Callable[Concatenate[LogReader, Arguments], Answer],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Answer:
        """Run `read` with a reader of the log, in a thread, so that a large log does not block the event loop."""

        def work() -> Answer:
            with LogReader.open(self.folder) as reader:
                return read(reader, *arguments, **options)

        return await asyncio.to_thread(work)

    async def snapshot(self, **filters: Any) -> RunList:
        """Return runs, newest first, and the cursor at which the event stream continues. `filters` are those of
        `LogReader.list_runs`."""
        return await self.read(lambda reader: take_snapshot(reader, **filters))

    async def tree(self, run_id: str) -> RunTree:
        """Return a run and all runs below it, parents before children."""
        return await self.read(take_tree, run_id)

    async def find(self, run_id: str) -> RunState:
        """Find a run by its id, a prefix of it, or `@name`. Raise UnknownRunError or UsageError."""
        return await self.read(find_run, run_id)

    async def outcome(self, run_id: str) -> Outcome:
        """Return the outcome of a run. Raise StateError if it has not ended."""
        outcome = await self.read(lambda reader: reader.outcome(run_id))
        if outcome is None:
            raise StateError(f"Run {run_id} has not ended.", remedy="Wait for it, or resume it if it is interrupted.")
        return outcome

    async def newest_event(self) -> int:
        """Return the number of the newest event."""
        return await self.read(last_number)

    async def find_item(self, item_id: str) -> InboxItem:
        """Find an inbox item by its id or a prefix of it. Raise UnknownItemError."""
        return await self.read(find_item, item_id)

    async def partial_frames(self, run_id: str) -> list[FeedFrame]:
        """Return the text of an answer that was cut off, as frames."""

        def read(reader: LogReader) -> list[FeedFrame]:
            texts = [(kind, reader.partial(run_id, kind)) for kind in ("thinking", "text")]
            return [partial_frame(TextPiece(RunPlace(run_id), 0, kind, text)) for kind, text in texts]

        return await self.read(read)

    async def inbox(self, *, everything: bool = False, limit: int | None = None) -> list[InboxRow]:
        """Return the waiting inbox items, oldest first; with `everything` also the closed ones."""
        return await self.read(items, everything=everything, limit=limit)

    # Events

    async def events(
        self, *, after: int | None = None, run_id: str | None = None, tree: bool = False
    ) -> AsyncIterator[list[FeedFrame]]:
        """Yield events as `EventHub.follow` does: of all runs, of one, or with `tree` of one and all below it."""
        full_id = None
        if run_id is not None:
            full_id = (await self.find(run_id)).id
        async for frames in self.hub.follow(after, EventScope(full_id, tree)):
            yield frames

    async def follow(
        self, *, after: int, run_id: str | None = None, tree: bool = False
    ) -> AsyncGenerator[list[FeedFrame], None]:
        """Yield the same events to a reader of this process. If it falls behind, it continues at its last event."""
        is_first = True
        while True:
            try:
                async for frames in self.events(after=after, run_id=run_id, tree=tree):
                    after = max((frame.number for frame in frames if frame.number is not None), default=after)
                    # Later, partial frames would repeat yielded text; the whole text follows with its event.
                    yield frames if is_first else [frame for frame in frames if not frame.is_partial]
            except BehindError:
                is_first = False

    # Commands

    async def spawn(
        self, order: SpawnOrder, *, by: str, key: str | None = None, run_id: str | None = None
    ) -> tuple[RunState, bool]:
        """Start a run here. Return it, and whether it is new: the same `key` with the same order returns the earlier
        run. `run_id` sets the id of the run. Raise ConflictError if the key or id belongs to another order, and the
        errors of `Retinue.spawn`."""
        if key is None and run_id is None:
            return await self._spawn(order, {"by": by}, None), True
        run_id = run_id or id_of_key(key or "", self.cwd)
        digest = digest_of(order)
        # One at a time: a second run with the same id could not be written, nor could anything after it.
        async with self._keys.setdefault(run_id, asyncio.Lock()):
            before = await self.read(_find_asked, run_id)
            if before is None:
                return await self._spawn(order, {"by": by, "order": digest}, run_id), True
            row, asked = before
            if key is None or asked.get("order") != digest:
                what = f"The key '{key}' was used for another run" if key is not None else "There is such a run already"
                raise ConflictError(f"{what} ({row.id}).", remedy="Use a new key for a new run.")
            return row, False

    async def _spawn(self, order: SpawnOrder, asked: dict[str, str], run_id: str | None) -> RunState:
        if not order.task.strip():
            raise UsageError("The task is empty.", remedy="Say what the agent is to do.")
        retinue = await self.retinue()
        common: dict[str, Any] = {"model": order.model, "budget": order.budget, "run_id": run_id, "asked": asked}
        if order.schema is not None:
            from retinue.loop.submission import check_schema

            check_schema(dict(order.schema), "`schema`")
        if order.agent is None:
            refused = [name for name in ("isolation", "name") if getattr(order, name) is not None]
            if refused:
                raise UsageError(f"The main agent takes no `{refused[0]}`.", remedy="Name an agent.")
            run = await retinue.prompt(order.task, schema=order.schema, **common)
        else:
            run = await retinue.spawn(
                order.agent, order.task, isolation=order.isolation, schema=order.schema, name=order.name, **common
            )
        return await self.find(run.id)

    async def say(self, run_id: str, text: str, *, by: str, verbatim: bool = False) -> CommandAnswer:
        """Send a message to a live run, which receives it after its current tool calls. `@name message` goes to that
        agent below the run, unless `verbatim`, which is for text of models. Raise ConflictError if the run cannot
        receive it; a run that has ended must be resumed."""
        if not text.strip():
            raise UsageError("The message is empty.", remedy="Say something.")
        row = await self.find(run_id)
        if text.startswith("@") and not verbatim:
            from retinue.runs.messages import addressee
            from retinue.settings.load import load_settings

            loaded = await asyncio.to_thread(load_settings, self.cwd)
            if loaded.settings.agent_mentions != "off":
                row, text = await self.read(addressee, row, text)
        return await self._command(row, "steer", self.redact(text), by=by)

    async def stop(self, run_id: str, *, by: str, tree: bool = False) -> CommandAnswer:
        """Stop a live run, or with `tree` it and all below it. For a run whose process died, end its remaining
        commands. Raise ConflictError for a run that has ended."""
        rows = await self.read(find_stoppable, run_id, tree=tree)
        answers = await self.stop_runs(rows, by=by, tree=tree)
        for answer in answers:
            if answer.accepted:
                return answer
        if rows[0].state == "interrupted":
            return CommandAnswer(rows[0].id, True, "Its process is gone, and nothing of it still runs.")
        raise CommandRefusedError(answers[0])

    async def stop_runs(self, rows: Sequence[RunState], *, by: str, tree: bool = False) -> list[CommandAnswer]:
        """Stop several runs at once. Return one answer for each, including refusals."""
        if rows and all(row.state == "interrupted" for row in rows):
            from retinue.runs.cleanup import end_leftovers

            ended = "; ".join(await self.read(end_leftovers))
            if ended:
                return [CommandAnswer(row.id, True, ended) for row in rows]
        kind: CommandKind = "stop-tree" if tree else "stop"
        return await self._send([RunCommand(row.id, kind, by) for row in rows])

    async def to_background(self, run_id: str, *, by: str) -> CommandAnswer:
        """Let the parent of a run continue without waiting for it."""
        return await self._command(await self.find(run_id), "background", by=by)

    async def compact(self, run_id: str, wish: str = "", *, by: str) -> CommandAnswer:
        """Compact the conversation of a live run. `wish` states what the summary must keep."""
        return await self._command(await self.find(run_id), "compact", self.redact(wish), by=by)

    async def resume(self, run_id: str, prompt: str | None = None, *, by: str, model: str | None = None) -> RunState:
        """Resume an ended or interrupted run in this process. Raise ConflictError if it is running."""
        row = await self.find(run_id)
        if row.state in LIVE:
            raise ConflictError(f"Run {row.id} is running.", remedy="Steer it instead.")
        retinue = await self.retinue()
        run = await retinue.resume(row.id, prompt, model=model)
        return await self.find(run.id)

    async def fork(self, run_id: str, order: ForkOrder, *, by: str) -> RunState:
        """Start a new run in this process from an earlier event of a run. Raise UsageError for an event before the
        first message, and StateError if files of a running run would have to be restored."""
        row = await self.find(run_id)
        retinue = await self.retinue()
        edit = None if order.edit is None else self.redact(order.edit)
        fork = await retinue.fork(row.id, order.at, edit=edit, keep_files=order.keep_files, by=by)
        await retinue.resume(fork.run_id, fork.prompt, model=order.model)
        return await self.find(fork.run_id)

    async def answer(self, item_id: str, choice: str, message: str = "", *, by: str) -> InboxItem:
        """Answer an inbox item. Raise UnknownItemError, UsageError for an invalid answer, and AnsweredError if someone
        answered first."""
        item = await self.find_item(item_id)
        inbox_answer = InboxAnswer(self.redact(choice), self.redact(message), by)
        return await asyncio.to_thread(answer_item, self.folder, item, inbox_answer)

    async def _command(self, row: RunState, kind: CommandKind, text: str = "", *, by: str = "") -> CommandAnswer:
        (answer,) = await self._send([RunCommand(row.id, kind, text, by)])
        if not answer.accepted:
            raise CommandRefusedError(answer)
        return answer

    async def _send(self, commands: Sequence[RunCommand]) -> list[CommandAnswer]:
        answers: dict[str, CommandAnswer] = {}
        if self._retinue is not None:
            supervisor = self._retinue.supervisor
            for command in commands:
                node = supervisor.members.get(command.run_id)
                if node is not None and node.live:
                    answers[command.run_id] = supervisor.commands.execute(command)
        elsewhere = [command for command in commands if command.run_id not in answers]
        for answer in await send_aside(self.folder, elsewhere):
            answers[answer.run_id] = answer
        return [answers[command.run_id] for command in commands]

    # This process

    async def retinue(self) -> Retinue:
        """Return the project opened in this process; it is opened at the first call."""
        async with self._opening:
            if self._retinue is None:
                if not self.cwd.is_dir() or state_folder(self.cwd) != self.folder:
                    gone = f"The folder {self.cwd} of this project is gone or was moved."
                    raise StateError(gone, remedy="Its runs can only be read.")
                # Imported late, so that a server that only shows runs starts in half the time.
                from retinue.app.retinue import Retinue

                retinue = Retinue(self.cwd)
                if self._settings:
                    self._apply_settings(retinue)
                await retinue.__aenter__()
                if self._attended:
                    # Someone can answer, so questions wait instead of being denied.
                    retinue.supervisor.project.inbox_service.attended += 1
                retinue.supervisor.broken_off = self._break_off
                self._retinue = retinue
            return self._retinue

    def _break_off(self, run_id: str, failure: StateError) -> None:
        if "hub" in self.__dict__:
            self.hub.break_off(run_id, str(failure))

    def _apply_settings(self, retinue: Retinue) -> None:
        project = retinue.supervisor.project
        for name, value in self._settings.items():
            if isinstance(value, list):
                value = [*getattr(project.settings.settings, name), *value]
            project.session_settings[name] = value
        retinue.supervisor.reload_settings()

    @property
    def is_open(self) -> bool:
        """Return whether the project is open in this process and may have started runs."""
        return self._retinue is not None

    async def close(self) -> int:
        """Stop the runs that this process started, and return their number."""
        stopped = 0
        if "hub" in self.__dict__:
            await self.hub.close()
        if self._retinue is not None and self._is_owner:
            stopped = await self._retinue.supervisor.stop_all("The program ended.", by="program")
            await self._retinue.__aexit__()
            self._retinue = None
        return stopped


async def command_text(verb: Awaitable[CommandAnswer]) -> str:
    """Return the answer to a command, whether it was accepted or refused."""
    try:
        return (await verb).text
    except CommandRefusedError as refused:
        return refused.answer.text


def digest_of(order: SpawnOrder) -> str:
    """Return the digest by which an order is recorded and recognised."""
    values = {name: getattr(order, name) for name in SpawnOrder.__struct_fields__}
    return hashlib.sha256(dump(values)).hexdigest()


def id_of_key(key: str, cwd: Path) -> str:
    """Return the id of the run with this idempotency key. It is the same after a restart."""
    digits = hashlib.sha256(f"{cwd}\0{key}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:14]}"


def _find_asked(reader: LogReader, run_id: str) -> tuple[RunState, Mapping[str, str]] | None:
    """Return a run and what was recorded about its request; None if there is no such run."""
    try:
        row = reader.run(run_id)
    except UnknownRunError:
        return None
    first = reader.created(row.id)
    if first is None:
        raise StateError(f"Run {row.id} has no beginning in the log.")
    return row, first.options.asked
