"""A run as a member of its tree: where it stands, whose it is, how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.core.delegation import ChildView, Status
from retinue.core.events import (
    AssistantEnded,
    Body,
    Compacted,
    InboxClosed,
    InboxOpened,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from retinue.core.format import context_percent
from retinue.core.outcome import StoppedBy
from retinue.core.permission import NO_HOOKS, Hooks
from retinue.core.usage import NOTHING, Usage
from retinue.runs.budget import Account
from retinue.runs.handle import RunHandle
from retinue.runs.launch import State, T

if TYPE_CHECKING:
    from retinue.core.spec import PermissionMode
    from retinue.core.tool import Reply
    from retinue.log.replay import Conversation
    from retinue.runs.notifications import Notifications
    from retinue.runs.project import Project
    from retinue.runs.queue import RunQueue


class SlotQueue(Protocol):
    """Where a background run has its slot."""

    def rest(self, run_id: str) -> None: ...
    async def wake(self, run_id: str) -> None: ...


class PlanReceiver(Protocol):
    """What a run in plan mode hands its plan in to, and what changes its mode."""

    async def hand_in(self, plan: str, call_id: str) -> Reply: ...
    async def change(self, mode: PermissionMode) -> None: ...


_COUNTED = frozenset(
    {TurnEnded, ToolStarted, ToolEnded, AssistantEnded, Compacted, InboxOpened, InboxClosed}
    | {RunStarted, RunResumed, RunEnded}
)
"""The events that `RunNode.observe` takes anything from."""


class RunNode(Struct, eq=False):
    """Counts what a run does as it does it, so that a view costs no look into the log. A run
    that is resumed stays the same node and goes on with a new handle: its next attempt."""

    handle: RunHandle
    account: Account
    """What it may spend, and has spent with all runs below it."""
    parent: RunNode | None = None
    description: str = ""
    background: bool = False
    name: str | None = None
    call_id: str | None = None
    notes: tuple[str, ...] = ()
    status: Status = "queued"
    stopped_by: StoppedBy | None = None
    consumed: bool = False
    announced: bool = False
    queues: bool = True
    """Whether it waits for a slot when it runs in the background."""
    attempt: int = 1
    """How often it was started: an end belongs to one attempt."""
    children: list[RunNode] = field(default_factory=list)
    began: float | None = None
    finished: float | None = None
    turns: int = 0
    turn_seq: int = 0
    """The number of the event with which its current turn began."""
    tool_uses: int = 0
    compactions: int = 0
    usage: Usage = NOTHING
    below: Usage = NOTHING
    """What all descendants have used."""
    context_tokens: int = 0
    activity: str = ""
    asking: int = 0
    """How much of it waits for a person."""
    detached: asyncio.Event | None = None
    """Set when a foreground run is moved to the background: its waiter stops waiting. Made by the first who needs it,
    because few runs are waited for in this way and an event costs 1 kB."""
    cleared: frozenset[str] = frozenset()
    """Children it wants to hear no more of."""
    clock: Clock = SYSTEM_CLOCK
    queue: SlotQueue | None = None
    """Where it has its slot, if it needs one."""
    hooks: Hooks = NO_HOOKS
    """Who is told what it does."""
    plan_mode: PlanReceiver | None = None
    """Where a main run hands in its plan, and where a person changes its mode."""
    end_notes: list[str] = field(default_factory=list)
    """What capabilities want its outcome to say."""
    state: State = field(default_factory=dict)

    def put(self, value: object) -> None:
        """Keep `value` for this attempt of the run, under its type."""
        self.state[type(value)] = value

    def get(self, kind: type[T]) -> T | None:
        """Return what a capability keeps for this attempt of the run, or None."""
        found = self.state.get(kind)
        return found if isinstance(found, kind) else None

    @property
    def project(self) -> Project:
        return self.handle.project

    @property
    def id(self) -> str:
        return self.handle.id

    @property
    def depth(self) -> int:
        return self.handle.launch.request.depth

    @property
    def live(self) -> bool:
        return self.finished is None

    @property
    def observes(self) -> bool:
        """Whether it only watches its parent, which neither waits for it nor hears of it."""
        return self.handle.launch.request.observes is not None

    @property
    def seen_as(self) -> Status:
        """Its status as others see it: one that waits for its agents or its provider waits, too."""
        waits = self.status == "running" and self.handle.controls.is_waiting
        return "waiting" if waits else self.status

    def observe(self, body: Body) -> None:
        """Take one event of the run in. Called for every one, so it does little."""
        # Half of all events, each piece of text among them, change nothing here.
        if type(body) not in _COUNTED:
            return
        match body:
            case TurnEnded():
                self.turns = body.turn
                self.charge(body.total)
                self.context_tokens = body.context_tokens
            case ToolStarted():
                self.activity = body.call.name
            case ToolEnded():
                self.tool_uses += 1
            case AssistantEnded():
                self.activity = ""
            case Compacted():
                self.compactions += 1
                self.context_tokens = 0
            case InboxOpened() | InboxClosed():
                self.asking = max(self.asking + (1 if isinstance(body, InboxOpened) else -1), 0)
                self.status = "waiting" if self.asking else "running"
            case RunStarted() | RunResumed():
                self.status, self.began = "running", self.clock.now()
            case RunEnded(outcome):
                self.charge(outcome.usage)
                self.status, self.finished, self.activity = outcome.ended, self.clock.now(), ""
            case _:
                pass

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """While it waits for a person others may have its slot. It goes on when it has one again."""
        if self.queue is not None:
            self.queue.rest(self.id)
        yield
        # It may have been moved to the background in the meantime.
        if self.queue is not None:
            self.status = "waiting"
            await self.queue.wake(self.id)
            self.status = "waiting" if self.asking else "running"

    def lost(self) -> None:
        """It cannot be recorded any more: for the log it was cut off here."""
        self.status, self.finished, self.activity = "interrupted", self.clock.now(), ""

    def release(self) -> None:
        """Nothing more will come of it: it goes with the last who holds it, and not only when the
        garbage collector comes by."""
        self.parent = self.plan_mode = None
        self.hooks, self.state, self.children = NO_HOOKS, {}, []

    def again(self, handle: RunHandle, account: Account, *, background: bool, call_id: str | None) -> None:
        """Begin the next attempt. Counts go on; what was said about the last end is void."""
        self.handle, self.account = handle, account
        self.background, self.call_id = background, call_id
        self.attempt += 1
        self.status, self.began, self.finished = "queued", None, None
        self.stopped_by, self.consumed, self.announced = None, False, False
        self.asking = 0
        self.detached = None
        self.notes, self.end_notes = handle.launch.notes, []
        self.state, self.plan_mode = dict(handle.launch.state), None

    def remember(self, past: Conversation, below: Usage) -> None:
        """Take over what the log has of the run's earlier legs."""
        self.usage, self.turns = past.usage, past.turn
        self.tool_uses, self.compactions = past.tool_uses, past.compactions
        self.below = below

    def charge(self, total: Usage) -> None:
        """The run has used `total` in all. What is new of it, every ancestor's tree has, too."""
        new = _more(total, self.usage)
        self.usage += new
        above = self.parent
        while above is not None:
            above.below += new
            above = above.parent

    def charge_below(self, usage: Usage) -> None:
        """A run below this one, which is no member of this process, has used more."""
        above: RunNode | None = self
        while above is not None:
            above.below += usage
            above = above.parent

    def detach(self) -> None:
        """Go on in the background: whoever waits for the run in the foreground stops waiting."""
        self.background = True
        self._detachment().set()

    def _detachment(self) -> asyncio.Event:
        if self.detached is None:
            self.detached = asyncio.Event()
        return self.detached

    async def settled_or_detached(self) -> None:
        ended = asyncio.ensure_future(self.handle.wait_settled())
        moved = asyncio.ensure_future(self._detachment().wait())
        try:
            await asyncio.wait({ended, moved}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            moved.cancel()

    def descendants(self) -> list[RunNode]:
        return [node for child in self.children for node in (child, *child.descendants())]

    def view(self, queue_position: int | None = None) -> ChildView:
        launch, outcome = self.handle.launch, self.handle.outcome
        spec = launch.request.spec
        end = self.finished or self.clock.now()
        return ChildView(
            id=self.id,
            agent=spec.name,
            display_name=spec.display_name or spec.name,
            description=self.description,
            status=self.seen_as,
            handle=self.name,
            call_id=self.call_id,
            background=self.background,
            moved=self.detached is not None and self.detached.is_set(),
            depth=self.depth,
            parent_id=self.handle.place.parent_id,
            started_at=self.began,
            ended_at=self.finished,
            duration_ms=round((end - self.began) * 1000) if self.began else 0,
            turns=self.turns,
            tool_uses=self.tool_uses,
            usage=self.usage,
            context_percent=context_percent(self.context_tokens, launch.model.info.window),
            compactions=self.compactions,
            text=outcome.text if outcome else "",
            error=f"{outcome.failure.message} {outcome.failure.remedy}".strip()
            if outcome and outcome.failure
            else None,
            partial=outcome.partial if outcome else False,
            transcript=launch.transcript,
            queue_position=queue_position,
            consumed=self.consumed,
            notes=(*self.notes, *(outcome.notes if outcome else ())),
            activity=self.activity,
            outcome=outcome,
        )


def _more(total: Usage, known: Usage) -> Usage:
    """What `total` has beyond `known`; its cost is unknown when one of theirs is."""
    cost = None
    if total.cost_usd is not None and known.cost_usd is not None:
        cost = max(total.cost_usd - known.cost_usd, 0.0)
    return Usage(
        max(total.input - known.input, 0),
        max(total.output - known.output, 0),
        max(total.cache_read - known.cache_read, 0),
        max(total.cache_write - known.cache_write, 0),
        cost,
    )


class Members:
    """Every run of this process by its id, and the task of each that lives."""

    queue: RunQueue

    def __init__(self) -> None:
        self.members: dict[str, RunNode] = {}
        self._rooms: dict[str, Notifications] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether any run lives."""
        return bool(self._tasks)

    def stop(self, node: RunNode, reason: str, *, by: StoppedBy = "person") -> bool:
        """End one run, as `stopped`, with what it has said; its foreground children go with it.
        One that is still queued never starts. False once it has ended."""
        if not node.handle.controls.stop(reason):
            return node.live and self.stop_observers(node, reason)
        node.stopped_by = node.stopped_by or by
        if node.status == "queued":
            self.queue.leave(node.id)
        return True

    def stop_observers(self, node: RunNode, reason: str) -> bool:
        """End the wait of a run that has only its observers to wait for."""
        watching = [each for each in self.members.values() if each.observes and each.parent is node]
        # Not by a person: they go on when the run is resumed.
        stopped = [self.stop(each, reason, by="program") for each in watching if each.live]
        return any(stopped)

    def stop_tree(self, node: RunNode, reason: str, *, by: StoppedBy = "person") -> int:
        """End a run and everything below it, background runs too. Return their number."""
        return sum(self.stop(each, reason, by=by) for each in (node, *node.descendants()) if each.live)

    async def end_tree(self, node: RunNode, reason: str, *, by: StoppedBy = "person") -> int:
        """The same, and waits until each of them has its ending."""
        whole = (node, *node.descendants())
        stopped = self.stop_tree(node, reason, by=by)
        tasks = {self._tasks[each.id] for each in whole if each.id in self._tasks}
        if tasks:
            await asyncio.wait(tasks)
        return stopped

    async def stop_all(self, reason: str, *, by: StoppedBy = "person") -> int:
        """Stop every live run and wait until each has its ending. Return their number."""
        stopped = sum(self.stop(node, reason, by=by) for node in list(self.members.values()) if node.live)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return stopped

    async def wait_all(self) -> None:
        """Return when no run lives or waits any more. Never raises for how they ended."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def cut_off(self) -> None:
        """Leave every live run where it is, without an ending: another process goes on with it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, node: RunNode) -> None:
        """Drop an ended run from memory. Its name stays its own, and the log has the rest."""
        self.members.pop(node.id, None)
        self._rooms.pop(node.id, None)
        if node.parent is not None and node in node.parent.children:
            node.parent.children.remove(node)
