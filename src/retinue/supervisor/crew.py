"""The supervisor of one process: starts runs, queues them, takes them up again, ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from retinue.domain.clock import SYSTEM_CLOCK, Clock
from retinue.domain.delegation import ChildView, JoinMode
from retinue.domain.events import RunEnded
from retinue.domain.failure import Failure
from retinue.domain.ids import new_run_id
from retinue.domain.outcome import Outcome
from retinue.domain.request import RunRequest
from retinue.domain.spec import AgentSpec
from retinue.errors import UnknownRunError
from retinue.log.replay import Conversation
from retinue.log.rows import RunPlace
from retinue.log.transcript import transcript_path, wants_transcript
from retinue.supervisor.delegate import Delegate
from retinue.supervisor.handle import RunHandle
from retinue.supervisor.handles import assign
from retinue.supervisor.launch import Launch, prepare
from retinue.supervisor.mailroom import Mailroom
from retinue.supervisor.member import Member
from retinue.supervisor.queue import Queue
from retinue.supervisor.record import created, request_of
from retinue.supervisor.runner import execute
from retinue.supervisor.stash import Stash
from retinue.supervisor.world import World

if TYPE_CHECKING:
    from retinue.settings.table import Settings


class Supervisor:
    """Use from one event loop, inside `async with`: leaving it stops what still runs."""

    def __init__(self, world: World, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.world = world
        self.clock = clock
        self.members: dict[str, Member] = {}
        self.queue = Queue(world.settings.settings.max_concurrent)
        self.stash = Stash(clock)
        self._rooms: dict[str, Mailroom] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def settings(self) -> Settings:
        return self.world.settings.settings

    async def start(
        self,
        request: RunRequest,
        *,
        parent: Member | None = None,
        description: str = "",
        background: bool = False,
        name: str | None = None,
        call_id: str | None = None,
        join: JoinMode | None = None,
        notes: tuple[str, ...] = (),
    ) -> Member:
        """Gives the run as soon as it is in the log. Raises LaunchError or UsageError when it
        must not start; nothing is recorded then."""
        run_id = new_run_id()
        launch = await prepare(request, self.world, Delegate(self, run_id), parent.handle.launch if parent else None)
        launch = replace(launch, transcript=self._transcript(request.spec, run_id), notes=(*notes, *launch.notes))
        place = RunPlace(run_id, request.parent_id, request.root_id or run_id)
        self.world.log.append(place, created(launch))
        await self.world.log.flush()
        member = self._join(place, launch, parent, description, background, call_id)
        member.name = assign(name or request.spec.name, {other.name for other in self.members.values() if other.name})
        return self._begin(member, join, None)

    async def resume(
        self,
        id_or_prefix: str,
        prompt: str | None = None,
        *,
        limits: Mapping[str, float | None] | None = None,
        parent: Member | None = None,
        background: bool = False,
        call_id: str | None = None,
        join: JoinMode | None = None,
    ) -> Member:
        """Takes up an ended or interrupted run with the same definition, model, tools, depth and
        folder it had; turn and time limits apply again, or `limits` instead of them. Raises
        StateError while another process runs it."""
        log = self.world.log
        await log.flush()
        row = log.reader.run(id_or_prefix)
        past = log.reader.conversation(row.id)
        request = request_of(row, past, prompt, limits)
        launch = await prepare(request, self.world, Delegate(self, row.id), parent.handle.launch if parent else None)
        await log.claim(row.id)
        launch = replace(launch, transcript=row.transcript)
        known = self.members.get(row.id)
        member = self._join(row.place, launch, parent, known.description if known else row.agent, background, call_id)
        if known is not None:
            member.name, member.children = known.name, known.children
        return self._begin(member, join, past)

    def stop(self, member: Member, reason: str, *, by_person: bool = True) -> bool:
        """Ends one run, as `stopped`, with what it has said; its foreground children go with it.
        False once it has ended."""
        member.stopped_by_person = by_person and member.live
        if member.status == "queued":
            self.queue.leave(member.id)
            task = self._tasks.get(member.id)
            if task is not None and member.handle.controls.stop(reason):
                task.cancel()
                return True
        return member.handle.controls.stop(reason)

    def stop_tree(self, member: Member, reason: str) -> int:
        return sum(self.stop(each, reason) for each in (member, *member.descendants()) if each.live)

    async def stop_all(self, reason: str) -> int:
        """Stops every live run and waits until each has its ending. Gives their number."""
        stopped = sum(self.stop(member, reason) for member in list(self.members.values()) if member.live)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return stopped

    def view(self, member: Member) -> ChildView:
        return member.view(self.queue.position(member.id))

    def room(self, parent: Member) -> Mailroom:
        room = self._rooms.get(parent.id)
        if room is None:
            room = self._rooms[parent.id] = Mailroom(parent, self.clock, show_cost=self.settings.show_cost)
        return room

    def own_in_log(self, parent_id: str, run_id: str) -> str | None:
        """The id of a child that this process does not know, but the log does."""
        try:
            row = self.world.log.reader.run(run_id)
        except (UnknownRunError, ValueError):
            return None
        return row.id if row.parent_id == parent_id else None

    async def close(self) -> None:
        await self.stop_all("The program ended.")
        await self.world.close()

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _join(
        self,
        place: RunPlace,
        launch: Launch,
        parent: Member | None,
        description: str,
        background: bool,
        call_id: str | None,
    ) -> Member:
        handle = RunHandle(place, launch, self.world.log)
        member = Member(handle, parent, description, background, call_id=call_id, notes=launch.notes)
        handle.stopper = lambda reason: self.stop(member, reason)
        self.members[place.run_id] = member
        if parent is not None:
            parent.children = [child for child in parent.children if child.id != member.id] + [member]
        return member

    def _begin(self, member: Member, join: JoinMode | None, past: Conversation | None) -> Member:
        if member.parent is not None and member.background:
            self.room(member.parent).started(member, join or self.settings.default_join_mode)
        task = asyncio.create_task(self._run(member, past), name=f"run {member.id}")
        self._tasks[member.id] = task
        task.add_done_callback(lambda done: self._over(member, done))
        return member

    async def _run(self, member: Member, past: Conversation | None) -> None:
        """Nested and foreground runs take no slot: whoever waits for them may hold one."""
        queued = member.background and member.depth <= 1
        try:
            if queued:
                await self.queue.join(member.id)
            member.status = "starting"
            await execute(member, self.world, past)
        except asyncio.CancelledError:
            if member.status != "queued" or not member.handle.controls.stopping:
                raise
            await self._stopped_in_queue(member)
        finally:
            self.queue.leave(member.id)

    async def _stopped_in_queue(self, member: Member) -> None:
        failure = Failure("stopped", "Stopped before it had started.")
        ended = RunEnded(Outcome("stopped", failure=failure, model=member.handle.launch.model_name))
        self.world.log.append(member.handle.place, ended)
        await self.world.log.flush()
        member.observe(ended)
        member.handle.settle(ended.outcome)

    def _over(self, member: Member, task: asyncio.Task[None]) -> None:
        self._tasks.pop(member.id, None)
        if not task.cancelled():
            task.exception()  # a defect has already become the run's outcome
        if member.parent is not None and member.background:
            self.room(member.parent).ended(member)

    def _transcript(self, spec: AgentSpec, run_id: str) -> str | None:
        if not wants_transcript(spec.session.transcript, self.settings.output_transcript):
            return None
        return str(transcript_path(self.world.state, run_id))
