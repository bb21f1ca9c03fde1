"""Messages and commands to runs: from the person at this process, and from other processes.

`@name message` at the start of a person's input goes to that agent instead of the main one:

    running, starting     it reads the message after its current tool calls
    queued                it reads it when it starts
    ended, interrupted    it is resumed with the message in the background; its end is announced
    `@main text`          the main agent reads `text`
    anything else         the main agent reads it unchanged

The name may also be a type that nobody runs yet: an agent of it is started on the message, unless the setting
`agentMentions` is `model`. `off` leaves all input unchanged. This is for people only: mentions by programs and models
have no effect.

Other processes write their commands into the log. While runs live, the log is asked five times a second whether it has
changed, and once a second the settings are; that costs a few microseconds, and nothing when no run lives. A command is
claimed in one transaction, so it is carried out once.

A run stays in memory while it lives, while anything below it lives, until its parent has been told of its completion,
and for ten minutes after it ended. Later requests find it in the log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, assert_never

from msgspec import Struct

from retinue.core.clock import Timer
from retinue.core.delegation import LIVE, Refusal, SpawnCall
from retinue.core.events import STEERED, Warned
from retinue.core.lazy import LazyModule
from retinue.core.request import RunRequest
from retinue.core.run_state import ActiveRun, RunState
from retinue.errors import RetinueError, StateError
from retinue.log.query import LogReader
from retinue.runs.delegate import Delegate
from retinue.runs.record import RESERVED, Mention, parse_mention, without_prefix
from retinue.runs.requests import resolve_type
from retinue.runs.resume import past_run
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.log import commands as _commands
    from retinue.log.commands import CommandAnswer, Ear, RunCommand
    from retinue.runs.supervisor import Supervisor
else:
    # A short run ends before anyone looks.
    _commands = LazyModule("retinue.log.commands")


Action = Literal["steered", "resumed", "started"]


class ToAgent(Struct, frozen=True):
    """An agent has the message: no turn of the main agent is due."""

    action: Action
    run: ActiveRun


async def route(supervisor: Supervisor, main_id: str | None, text: str) -> ToAgent | str:
    """Deliver a line of input to the agent that it addresses. Return the words where they are for the main run itself.
    Raise StateError when the agent cannot take the message.

    An agent is one below the run `main_id`. If that does not run here, an agent that has ended is resumed by itself,
    and `main_id` is told of its end when it is resumed. Without a main run, only agents of this process that have no
    parent are addressed."""
    mode, members, project = supervisor.settings.agent_mentions, supervisor.members, supervisor.project
    mention = parse_mention(text) if mode != "off" else None
    if mention is None:
        return text
    if mention.handle in RESERVED:
        return mention.message
    agent: Run | ActiveRun | None = None
    if main_id is None:
        orphans = [run for run in members.values() if run.place.parent_id is None and run.state.name in _names(mention)]
        agent = max(orphans, key=lambda run: run.live, default=None)
    else:
        reader = project.log.reader
        row, _ = addressee(reader, reader.run(main_id), text)
        if row.id != main_id:
            agent = members.get(row.id) or past_run(reader, row)
    try:
        if agent is not None:
            return await _deliver(supervisor, agent, mention.message)
        started = await _start(supervisor, main_id, mention) if mode == "direct" else None
    except RetinueError as error:
        raise StateError(
            str(error), remedy="Say it again when that agent has ended, or leave out the @name."
        ) from error
    return started or text


def addressee(reader: LogReader, main: RunState, text: str) -> tuple[RunState, str]:
    """Return the run that a line of input is for, `main` or an agent below it, and the words for it. Of several agents
    of one name, a live one goes before the others, and the newest before older ones."""
    mention = parse_mention(text)
    if mention is None:
        return main, text
    if mention.handle in RESERVED:
        return main, mention.message
    for name in _names(mention):
        rows = [row for row in reader.named(name) if row.root_id == main.root_id and _descends(reader, row, main.id)]
        if rows:
            return next((row for row in rows if row.state in LIVE), rows[0]), mention.message
    return main, text


def _descends(reader: LogReader, row: RunState, main_id: str) -> bool:
    while row.parent_id is not None and row.parent_id != main_id:
        row = reader.run(row.parent_id)
    return row.parent_id == main_id


def _names(mention: Mention) -> list[str]:
    return [name for name in (mention.handle, without_prefix(mention.handle)) if name]


async def _deliver(supervisor: Supervisor, agent: Run | ActiveRun, message: str) -> ToAgent:
    if isinstance(agent, Run) and supervisor.steer(agent, message):
        return ToAgent("steered", agent.snapshot())
    if isinstance(agent, ActiveRun) and agent.live:
        # Another process runs it.
        (answer,) = await _commands.send(supervisor.project.state, [_commands.RunCommand(agent.id, "steer", message)])
        if not answer.accepted:
            raise StateError(answer.text)
        return ToAgent("steered", agent)
    again = await supervisor.resume(agent.id, message)
    return ToAgent("resumed", again.snapshot())


async def _start(supervisor: Supervisor, main_id: str | None, mention: Mention) -> ToAgent | None:
    """Start a new agent, if the name is a type. The main run is told of its end, at once or when it is resumed."""
    project, main = supervisor.project, supervisor.members.get(main_id or "")
    types = {name.casefold(): name for name in project.catalog().names}
    agent = next((types[name] for name in _names(mention) if name in types), None)
    if agent is None:
        return None
    about = mention.message[:60]
    if main is not None and main.live:
        call = SpawnCall(prompt=mention.message, description=about, agent=agent, background=True)
        child = await Delegate(supervisor, main.id).spawn(call)
        if isinstance(child, Refusal):
            raise StateError(child.message)
        return ToAgent("started", child)
    resolved = resolve_type(agent, project.catalog(), supervisor.settings)
    if isinstance(resolved, Refusal):
        raise StateError(resolved.message)
    request = RunRequest(
        spec=resolved.spec,
        task=await project.with_initial_prompt(resolved.spec, mention.message),
        cwd=project.cwd,
        parent_id=main_id,
        root_id=main_id and project.log.reader.run(main_id).root_id,
        depth=1,
    )
    run = await supervisor.start(request, background=True, description=about)
    return ToAgent("started", run.snapshot())


LOOK_SECONDS = 0.2
KEEP_SECONDS = 600.0
SWEEP_SECONDS = 60.0
SETTINGS_EVERY = 5
"""So many looks go by before someone asks whether a settings file has changed, too."""


class Commands:
    """Of one supervisor. `watch` when a run begins; it looks until none lives."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._timer: Timer | None = None
        self._ear: Ear | None = None
        self._serving: asyncio.Task[None] | None = None
        self._looks = 0

    def watch(self) -> None:
        if self._timer is None:
            self._timer = self._supervisor.clock.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._serving is not None:
            self._serving.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._supervisor.busy:
            return
        if self._ear is None:
            log = self._supervisor.project.log
            self._ear = _commands.Ear(log.reader, log.owner)
        if self._serving is None and self._ear.hears():
            self._serving = asyncio.create_task(self._serve(self._ear), name="commands of other processes")
            self._serving.add_done_callback(self._served)
        self._looks += 1
        if self._looks % SETTINGS_EVERY == 0:
            # What another process has set holds here too, such as how many may work at once.
            self._supervisor.notice_settings()
        self.watch()

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving = None
        if not task.cancelled():
            # A log that cannot be written is reported by those who write runs.
            task.exception()

    async def _serve(self, ear: Ear) -> None:
        log = self._supervisor.project.log
        try:
            taken = await log.transact(lambda connection: _commands.take(connection, log.owner))
            answers = [(each.number, self.obey(each.command)) for each in taken]
            if answers:
                await log.transact(lambda connection: _commands.answer(connection, answers))
        except StateError:
            ear.again()
            raise

    def obey(self, command: RunCommand) -> CommandAnswer:
        """Carry out one command at once."""
        node = self._supervisor.members.get(command.run_id)
        if node is None or not node.live:
            return _commands.not_live(
                node.state if node is not None else self._supervisor.project.log.reader.run(command.run_id)
            )
        try:
            done, text = self._do(node, command)
        except Exception as error:  # noqa: BLE001 - whoever asked must hear of it
            return _commands.CommandAnswer(command.run_id, False, f"Retinue failed: {type(error).__name__}: {error}")
        if not done:
            text = f"Not delivered: the run is just ending. Go on with it: retinue runs resume {command.run_id}"
        return _commands.CommandAnswer(command.run_id, done, text)

    def _do(self, node: Run, command: RunCommand) -> tuple[bool, str]:
        supervisor, kind = self._supervisor, command.kind
        match kind:
            case "steer":
                when = "when it starts" if node.status == "queued" else "after its current tool calls"
                return self._steer(node, command), f"Delivered: it reads this {when}."
            case "stop":
                return supervisor.stop(node, _stop_reason(command)), "It is stopping."
            case "stop-tree":
                count = supervisor.stop_tree(node, _stop_reason(command))
                others = f", and {count - 1} below it" if count > 1 else ""
                return count > 0, f"It is stopping{others}."
            case "compact":
                return node.controls.compact(command.text), "It shortens its conversation before its next request."
            case "background":
                if supervisor.detach(node):
                    return True, "It goes on in the background."
                return True, "Nobody waits for it: there is nothing to move."
            case _:
                assert_never(kind)

    def _steer(self, node: Run, command: RunCommand) -> bool:
        delivered = self._supervisor.steer(node, command.text)
        if delivered and command.by:
            self._supervisor.project.log.append(node.place, Warned(STEERED, f"Steered by {command.by}."))
        return delivered


def _stop_reason(command: RunCommand) -> str:
    return f"Stopped by {command.text or 'the user'}."


class Sweeper:
    """Of one supervisor. `watch` when a run has ended; it looks until there is nothing to forget."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._timer: Timer | None = None

    def watch(self) -> None:
        if self._timer is None:
            self._timer = self._supervisor.clock.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        before = self._supervisor.clock.now() - KEEP_SECONDS
        # Children before their parents.
        for node in reversed(list(self._supervisor.members.values())):
            if node.state.ended_at is not None and node.state.ended_at <= before and _is_done_with(node):
                self._supervisor.forget(node)
        if any(not node.live for node in self._supervisor.members.values()):
            self.watch()


def _is_done_with(node: Run) -> bool:
    if any(child.live for child in node.descendants()):
        return False
    parent = node.parent
    return parent is None or not parent.live or not node.state.background or node.consumed or node.announced
