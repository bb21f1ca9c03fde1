"""Messages and commands to runs: from the person at this process, and from other processes.

`@name message` at the start of a person's input goes to that agent instead of the main one:

    running, starting     it reads the message after its current tool calls
    queued                it reads the message when it starts
    ended, interrupted    it is resumed with the message in the background; its completion is announced
    `@main text`          the main agent reads `text`
    anything else         the main agent reads the input unchanged

The name may also be a type of agent: a new agent of this type is started with the message, unless the setting
`agentMentions` is `model`. The value `off` disables mentions. Only mentions by people have this effect.

Other processes write their commands into the log. While runs are live, the log is polled for changes five times a
second, and the settings once a second. A poll costs a few microseconds. A command is claimed in one transaction, so it
is executed once.

A run stays in memory while it or a run below it is live, until its parent has been told of its completion, and for ten
minutes after its end. Later requests find it in the log.
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
from retinue.runs.record import RESERVED_HANDLES, Mention, parse_mention, without_prefix
from retinue.runs.requests import resolve_type
from retinue.runs.resume import past_run
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.log import commands as _commands
    from retinue.log.commands import CommandAnswer, CommandPoll, RunCommand
    from retinue.runs.supervisor import Supervisor
else:
    # A short run ends before the first poll.
    _commands = LazyModule("retinue.log.commands")


Action = Literal["steered", "resumed", "started"]


class DeliveredMessage(Struct, frozen=True):
    """The message went to an agent, so the main agent needs no turn."""

    action: Action
    run: ActiveRun


async def route(supervisor: Supervisor, main_id: str | None, text: str) -> DeliveredMessage | str:
    """Deliver a line of input to the agent that it addresses. Return the text for the main run if it addresses none.
    Raise StateError if the agent cannot take the message.

    Agents below the run `main_id` can be addressed. If that run is not in this process, an ended agent is resumed
    alone, and `main_id` is told of the agent's completion when it is resumed. Without a main run, agents of this
    process without a parent can be addressed."""
    mode, members, project = supervisor.settings.agent_mentions, supervisor.members, supervisor.project
    mention = parse_mention(text) if mode != "off" else None
    if mention is None:
        return text
    if mention.handle in RESERVED_HANDLES:
        return mention.message
    agent: Run | ActiveRun | None = None
    if main_id is None:
        tops = [run for run in members.values() if run.place.parent_id is None and run.state.name in _names(mention)]
        agent = max(tops, key=lambda run: run.live, default=None)
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
            str(error), remedy="Send it again when that agent has ended, or leave out the @name."
        ) from error
    return started or text


def addressee(reader: LogReader, main: RunState, text: str) -> tuple[RunState, str]:
    """Return the run that a line of input addresses, which is `main` or an agent below it, and the text for it. Of
    several agents with one name, live ones come first, then the newest."""
    mention = parse_mention(text)
    if mention is None:
        return main, text
    if mention.handle in RESERVED_HANDLES:
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


async def _deliver(supervisor: Supervisor, agent: Run | ActiveRun, message: str) -> DeliveredMessage:
    if isinstance(agent, Run) and supervisor.steer(agent, message):
        return DeliveredMessage("steered", agent.snapshot())
    if isinstance(agent, ActiveRun) and agent.live:
        # Another process runs it.
        (answer,) = await _commands.send(supervisor.project.state, [_commands.RunCommand(agent.id, "steer", message)])
        if not answer.accepted:
            raise StateError(answer.text)
        return DeliveredMessage("steered", agent)
    resumed = await supervisor.resume(agent.id, message)
    return DeliveredMessage("resumed", resumed.snapshot())


async def _start(supervisor: Supervisor, main_id: str | None, mention: Mention) -> DeliveredMessage | None:
    """Start a new agent if the name is a type of agent. The main run is told of its completion, at once or when it is
    resumed."""
    project, main = supervisor.project, supervisor.members.get(main_id or "")
    types = {name.casefold(): name for name in project.catalog().names}
    agent = next((types[name] for name in _names(mention) if name in types), None)
    if agent is None:
        return None
    description = mention.message[:60]
    if main is not None and main.live:
        call = SpawnCall(prompt=mention.message, description=description, agent=agent, background=True)
        child = await Delegate(supervisor, main.id).spawn(call)
        if isinstance(child, Refusal):
            raise StateError(child.message)
        return DeliveredMessage("started", child)
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
    run = await supervisor.start(request, background=True, description=description)
    return DeliveredMessage("started", run.snapshot())


COMMAND_POLL_SECONDS = 0.2
ENDED_RUN_SECONDS = 600.0
"""How long an ended run stays in memory."""
SWEEP_SECONDS = 60.0
SETTINGS_POLL_INTERVAL = 5
"""The number of command polls between two checks of the settings files."""


class CommandServer:
    """Executes the commands of other processes to the runs of one supervisor. It polls from `watch`, which is called
    when a run begins, until no run is live."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._timer: Timer | None = None
        self._command_poll: CommandPoll | None = None
        self._serving: asyncio.Task[None] | None = None
        self._polls = 0

    def watch(self) -> None:
        if self._timer is None:
            self._timer = self._supervisor.clock.call_later(COMMAND_POLL_SECONDS, self._poll)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._serving is not None:
            self._serving.cancel()

    def _poll(self) -> None:
        self._timer = None
        if not self._supervisor.busy:
            return
        if self._command_poll is None:
            log = self._supervisor.project.log
            self._command_poll = _commands.CommandPoll(log.reader, log.owner)
        if self._serving is None and self._command_poll.has_commands():
            self._serving = asyncio.create_task(self._serve(self._command_poll), name="commands of other processes")
            self._serving.add_done_callback(self._served)
        self._polls += 1
        if self._polls % SETTINGS_POLL_INTERVAL == 0:
            # Settings of other processes, such as the number of concurrent runs, apply here as well.
            self._supervisor.notice_settings()
        self.watch()

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving = None
        if not task.cancelled():
            # Runs report a log that cannot be written.
            task.exception()

    async def _serve(self, command_poll: CommandPoll) -> None:
        log = self._supervisor.project.log
        try:
            taken = await log.transact(lambda connection: _commands.take(connection, log.owner))
            answers = [(pending.number, self.execute(pending.command)) for pending in taken]
            if answers:
                await log.transact(lambda connection: _commands.answer(connection, answers))
        except StateError:
            command_poll.reset()
            raise

    def execute(self, command: RunCommand) -> CommandAnswer:
        """Execute one command at once."""
        node = self._supervisor.members.get(command.run_id)
        if node is None or not node.live:
            return _commands.not_live(
                node.state if node is not None else self._supervisor.project.log.reader.run(command.run_id)
            )
        try:
            accepted, text = self._dispatch(node, command)
        except Exception as error:  # noqa: BLE001 - the sender must get an answer
            return _commands.CommandAnswer(command.run_id, False, f"Retinue failed: {type(error).__name__}: {error}")
        if not accepted:
            text = f"Not delivered: the run is just ending. Continue it: retinue runs resume {command.run_id}"
        return _commands.CommandAnswer(command.run_id, accepted, text)

    def _dispatch(self, node: Run, command: RunCommand) -> tuple[bool, str]:
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
                    return True, "It continues in the background."
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
    """Removes ended runs of one supervisor from memory. It works from `watch`, which is called when a run has ended,
    until no ended run is left."""

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
        before = self._supervisor.clock.now() - ENDED_RUN_SECONDS
        # Children before their parents.
        for node in reversed(list(self._supervisor.members.values())):
            if node.state.ended_at is not None and node.state.ended_at <= before and _is_forgettable(node):
                self._supervisor.forget(node)
        if any(not node.live for node in self._supervisor.members.values()):
            self.watch()


def _is_forgettable(node: Run) -> bool:
    if any(child.live for child in node.descendants()):
        return False
    parent = node.parent
    return parent is None or not parent.live or not node.state.background or node.consumed or node.announced
