"""`@name message` at the start of what a person types: to that agent, not to the main one.

    running, starting     it hears the message after its current tool calls
    queued                it hears it when it starts
    ended, interrupted    it goes on with the message in the background; its end is announced
    `@main text`          the main agent hears `text`
    anything else         the main agent hears it as it is

An agent's type that nobody runs as yet may be addressed, too: it is started on the message, unless the
setting `agentMentions` is `model`. `off` leaves all input alone. For people only: what
programs and models say is never looked at.

Carries out what other processes ask of the runs of this one.

While runs live, the log is asked five times a second whether it has changed, and once a second
the settings are; that costs a few microseconds, and nothing at all when no run lives. A command is
taken in one transaction, so it is carried out once; its answer says what happens now, or why nothing
does.

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
    from retinue.log.commands import CommandAnswer, Ear, RunCommand
    from retinue.runs.run import Run
    from retinue.runs.supervisor import Supervisor


Action = Literal["steered", "resumed", "started"]


class ToMain(Struct, frozen=True):
    """The main agent should hear this."""

    text: str


class ToAgent(Struct, frozen=True):
    """An agent has it: no turn of the main agent is due."""

    action: Action
    run: ActiveRun


class Undelivered(Struct, frozen=True):
    """Someone was meant, and cannot take it. `reason` is for the person who typed it."""

    reason: str


Routed = ToMain | ToAgent | Undelivered


async def route(supervisor: Supervisor, main: Run | str | None, text: str) -> Routed:
    """Where a line of input goes, and brings it there. `main` is the run whose agents are
    addressed, by its id if it does not run here: then an agent that has ended goes on by itself,
    and `main` hears of its end when it is taken up. Without one, only agents of this process
    that have no parent are meant."""
    mode = supervisor.settings.agent_mentions
    mention = parse_mention(text) if mode != "off" else None
    if mention is None:
        return ToMain(text)
    if mention.handle in RESERVED:
        return ToMain(mention.message)
    for name in _names(mention):
        found = _find(supervisor, main, name)
        if found is not None:
            return await _deliver(supervisor, main, found, mention.message)
    if mode == "direct":
        started = await _start(supervisor, main, mention)
        if started is not None:
            return started
    return ToMain(text)


def _find(supervisor: Supervisor, main: Run | str | None, name: str) -> Run | ActiveRun | None:
    """The agent of that name, of `main` or of agents below it. Of several, one that lives goes
    before one that does not, and the newest before the others."""
    main_id = main.id if isinstance(main, Run) else main
    found: Run | None = None
    for each in reversed(supervisor.members.values()):
        if each.state.name == name and _is_below(each, main_id):
            if each.live:
                return each
            found = found or each
    if found is not None or main_id is None:
        return found
    reader = supervisor.project.log.reader
    row = _named(reader, reader.run(main_id), name)
    return past_run(reader, row) if row is not None else None


def _named(reader: LogReader, main: RunState, name: str) -> RunState | None:
    rows = [row for row in reader.named(name) if row.id != main.id and row.root_id == main.root_id]
    return next((row for row in rows if row.state in LIVE), rows[0] if rows else None)


def addressee(reader: LogReader, main: RunState, text: str) -> tuple[RunState, str]:
    """Return the run of the log that a line of input is for, `main` or an agent below it, and the words for it."""
    mention = parse_mention(text)
    if mention is None:
        return main, text
    if mention.handle in RESERVED:
        return main, mention.message
    for name in _names(mention):
        row = _named(reader, main, name)
        if row is not None and _descends(reader, row, main.id):
            return row, mention.message
    return main, text


def _descends(reader: LogReader, row: RunState, main_id: str) -> bool:
    while row.parent_id is not None and row.parent_id != main_id:
        row = reader.run(row.parent_id)
    return row.parent_id == main_id


def _names(mention: Mention) -> list[str]:
    return [name for name in (mention.handle, without_prefix(mention.handle)) if name]


def _is_below(node: Run, main_id: str | None) -> bool:
    """Without a main run, those that have no parent are meant."""
    place = node.place
    if main_id is None:
        return place.parent_id is None
    return node.id != main_id and (place.parent_id == main_id or place.root_id == main_id)


async def _deliver(supervisor: Supervisor, main: Run | str | None, agent: Run | ActiveRun, message: str) -> Routed:
    if isinstance(agent, Run) and supervisor.steer(agent, message):
        return ToAgent("steered", agent.snapshot())
    if isinstance(agent, ActiveRun) and agent.live:
        return await _send(supervisor, agent, message)
    parent = agent.parent if isinstance(agent, Run) else None
    if parent is None and isinstance(main, Run) and agent.place.parent_id == main.id:
        parent = main
    try:
        again = await supervisor.resume(agent.id, message, parent=parent, background=parent is not None)
    except RetinueError as error:
        return Undelivered(str(error))
    return ToAgent("resumed", again.snapshot())


async def _send(supervisor: Supervisor, agent: ActiveRun, message: str) -> Routed:
    """To an agent that another process runs."""
    from retinue.log.commands import RunCommand, send

    (answer,) = await send(supervisor.project.state, [RunCommand(agent.id, "steer", message)])
    return ToAgent("steered", agent) if answer.accepted else Undelivered(answer.text)


async def _start(supervisor: Supervisor, main: Run | str | None, mention: Mention) -> Routed | None:
    """A new agent, if the name is a type. None when it is none. `main` hears of its end, at once or when it is taken
    up again."""
    types = {name.casefold(): name for name in supervisor.project.catalog().names}
    wanted = types.get(mention.handle) or types.get(without_prefix(mention.handle) or "")
    if wanted is None:
        return None
    about = mention.message[:60]
    if isinstance(main, Run) and main.live:
        call = SpawnCall(prompt=mention.message, description=about, agent=wanted, background=True)
        view = await Delegate(supervisor, main.id).spawn(call)
        return Undelivered(view.message) if isinstance(view, Refusal) else ToAgent("started", view)
    found = resolve_type(wanted, supervisor.project.catalog(), supervisor.settings)
    if isinstance(found, Refusal):
        return Undelivered(found.message)
    main_id = main.id if isinstance(main, Run) else main
    request = RunRequest(
        spec=found.spec,
        task=await supervisor.project.with_initial_prompt(found.spec, mention.message),
        cwd=supervisor.project.cwd,
        parent_id=main_id,
        root_id=main_id and supervisor.project.log.reader.run(main_id).root_id,
        depth=1,
    )
    try:
        node = await supervisor.start(request, background=True, description=about)
    except RetinueError as error:
        return Undelivered(str(error))
    return ToAgent("started", node.snapshot())


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
            # Loaded late: a short run ends before anyone looks.
            from retinue.log.commands import Ear

            log = self._supervisor.project.log
            self._ear = Ear(log.reader, log.owner)
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
        from retinue.log.commands import answer, take

        log = self._supervisor.project.log
        try:
            taken = await log.transact(lambda connection: take(connection, log.owner))
            answers = [(each.number, self.obey(each.command)) for each in taken]
            if answers:
                await log.transact(lambda connection: answer(connection, answers))
        except StateError:
            ear.again()
            raise

    def obey(self, command: RunCommand) -> CommandAnswer:
        """What becomes of one command, at once."""
        from retinue.log.commands import CommandAnswer

        node = self._supervisor.members.get(command.run_id)
        if node is None or not node.live:
            status = node.status if node is not None else "gone"
            return CommandAnswer(
                command.run_id, False, f"Not delivered: the run has ended ({status}). {_resume(command)}"
            )
        try:
            done, text = self._do(node, command)
        except Exception as error:  # noqa: BLE001 - whoever asked must hear of it
            return CommandAnswer(command.run_id, False, f"Retinue failed: {type(error).__name__}: {error}")
        if not done:
            text = f"Not delivered: the run is just ending. {_resume(command)}"
        return CommandAnswer(command.run_id, done, text)

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


def _resume(command: RunCommand) -> str:
    return f"Go on with it: retinue runs resume {command.run_id}"


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
