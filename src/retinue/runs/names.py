"""`@name message` at the start of what a person types: to that agent, not to the main one.

    running, starting     it hears the message after its current tool calls
    queued                it hears it when it starts
    ended, interrupted    it goes on with the message in the background; its end is announced
    `@main text`          the main agent hears `text`
    anything else         the main agent hears it as it is

An agent's type that nobody runs as yet may be addressed, too: it is started on the message, unless the
setting `agentMentions` is `model`. `off` leaves all input alone. For people only: what
programs and models say is never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.core.delegation import LIVE, ChildView, Refusal, SpawnCall
from retinue.core.request import RunRequest
from retinue.core.run_state import RunState
from retinue.errors import RetinueError
from retinue.log.query import LogReader
from retinue.runs.delegate import Delegate
from retinue.runs.record import RESERVED, Mention, parse_mention, without_prefix
from retinue.runs.resolution import resolve_type
from retinue.runs.resume import Past, past
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.runs.supervisor import Supervisor

Action = Literal["steered", "resumed", "started"]


class ToMain(Struct, frozen=True):
    """The main agent should hear this."""

    text: str


class ToAgent(Struct, frozen=True):
    """An agent has it: no turn of the main agent is due."""

    action: Action
    view: ChildView


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


def _find(supervisor: Supervisor, main: Run | str | None, name: str) -> Run | Past | None:
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
    return past(reader, row) if row is not None else None


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


async def _deliver(supervisor: Supervisor, main: Run | str | None, agent: Run | Past, message: str) -> Routed:
    if isinstance(agent, Run) and supervisor.steer(agent, message):
        return ToAgent("steered", supervisor.view(agent))
    if isinstance(agent, Past) and agent.live:
        return await _send(supervisor, agent, message)
    parent = agent.parent if isinstance(agent, Run) else None
    if parent is None and isinstance(main, Run) and _parent_of(agent) == main.id:
        parent = main
    try:
        again = await supervisor.resume(agent.id, message, parent=parent, background=parent is not None)
    except RetinueError as error:
        return Undelivered(str(error))
    return ToAgent("resumed", supervisor.view(again))


def _parent_of(agent: Run | Past) -> str | None:
    return agent.place.parent_id if isinstance(agent, Run) else agent.row.parent_id


async def _send(supervisor: Supervisor, agent: Past, message: str) -> Routed:
    """To an agent that another process runs."""
    from retinue.log.commands import RunCommand, send

    (answer,) = await send(supervisor.project.state, [RunCommand(agent.id, "steer", message)])
    return ToAgent("steered", agent.view()) if answer.accepted else Undelivered(answer.text)


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
    return ToAgent("started", supervisor.view(node))
