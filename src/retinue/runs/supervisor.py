"""The supervisor of one process: starts runs, queues them, takes them up again, ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from retinue.capabilities.trust.attach import recorded
from retinue.capabilities.worktree.attach import Leg, branch_of, dismissed, prepared
from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.core.delegation import ChildView, JoinMode, new_run_id
from retinue.core.events import MOVED, Warned
from retinue.core.lean import replace
from retinue.core.outcome import StoppedBy
from retinue.core.request import RunRequest
from retinue.core.usage import Budget, Usage
from retinue.errors import LaunchError, StateError
from retinue.log.replay import Conversation
from retinue.log.rows import RunPlace, RunRow
from retinue.runs.account import check_readable, open_account
from retinue.runs.admission import admission
from retinue.runs.budget import Account
from retinue.runs.cleanup import Sweeper
from retinue.runs.delegate import Delegate
from retinue.runs.handle import RunHandle, handle_for
from retinue.runs.handles import Names
from retinue.runs.heap import Heap
from retinue.runs.member import Member
from retinue.runs.notifications import Mailroom
from retinue.runs.offer import can_answer
from retinue.runs.plan import Launch
from retinue.runs.project import World
from retinue.runs.queue import RunQueue, abandon, attend, take_place
from retinue.runs.record import Tag, created, request_of, tag_of, transcript_for, with_approved_mode
from retinue.runs.remote import Commands
from retinue.runs.resume import bounded, names_below, post, undelivered, used_below
from retinue.runs.retry_calls import Stash

if TYPE_CHECKING:
    from retinue.capabilities.schedule.scheduler import Scheduler
    from retinue.runs.event_bridge import Outlet
    from retinue.settings.table import Settings


class Supervisor:
    """Use from one event loop, inside `async with`: leaving it stops what still runs."""

    def __init__(self, world: World, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.world = world
        self.clock = world.clock = clock
        self.members: dict[str, Member] = {}
        self.queue = RunQueue(world.settings.settings.max_concurrent)
        self.stash = Stash(clock)
        self._names = Names()
        self._rooms: dict[str, Mailroom] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._commands = Commands(self)
        self._sweeper = Sweeper(self)
        self._heap = Heap()
        self.opened = False
        self._closed = False
        self.idle_news: Callable[[str], None] = lambda run_id: None
        """Called with the id of a run that has ended, when one that it started has ended since: for
        a face that can show this, or take the run up again."""

    @property
    def busy(self) -> bool:
        """Whether any run lives."""
        return bool(self._tasks)

    @property
    def settings(self) -> Settings:
        return self.world.settings.settings

    @cached_property
    def outlet(self) -> Outlet:
        """The event bus and the calls of other programs; costs nothing until it is used."""
        from retinue.runs.event_bridge import Outlet

        return Outlet(self)

    @cached_property
    def schedules(self) -> Scheduler:
        """Agents that start at a time; costs nothing until it is used."""
        from retinue.capabilities.schedule.scheduler import Scheduler

        return Scheduler(self)

    def reload_settings(self, *, persisted: bool = True) -> None:
        """After someone changed a setting: what applies live, applies. `persisted` says whether
        it could be written to a file."""
        self.world.__dict__.pop("settings", None)
        self.queue.limit = self.settings.max_concurrent
        if "outlet" in self.__dict__:
            self.outlet.settings_changed(persisted)

    def notice_settings(self) -> None:
        """What was changed in a file since, by anyone, applies from here on."""
        if self.world.settings_changed:
            self.reload_settings()

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
        run_id: str | None = None,
        queued: bool = True,
    ) -> Member:
        """Return the run as soon as it is in the log. Raise LaunchError or UsageError when it
        must not start; nothing is recorded then. A `run_id` that is given must be new; what is
        not `queued` starts at once, however many are at work."""
        self.notice_settings()
        run_id = run_id or new_run_id()
        above = parent.handle.launch if parent else None
        way, heard = (Delegate(self, run_id), above), background and can_answer(above)
        launch = await prepared(request, self.world, run_id, *way, description=description, heard=heard)
        try:
            self._check_open()
            more = [*notes, *launch.notes]
            launch = replace(launch, transcript=transcript_for(request, self.world, run_id, more), notes=tuple(more))
            place = RunPlace(run_id, request.parent_id, request.root_id or run_id)
            async with admission(launch, place, self.world, parent) as hooks:
                self._check_open()
                launch = hooks.launch
                tag = Tag(self._names.free(name or request.spec.name), description, background, call_id)
                account = self._account(launch, parent)
                whole = replace(launch, request=recorded(launch.request, request))
                self.world.log.append(place, created(whole, tag))
        except BaseException:
            await dismissed(launch, self.world)
            raise
        member = self._member(handle_for(self, place, launch, hooks), parent, tag)
        member.account, member.queues = account, queued
        try:
            await self.world.log.flush()
        except BaseException:
            await asyncio.shield(abandon(member, self.world))
            raise
        if self.world.log.found_dead:
            for note in self.world.end_leftovers():
                self.world.log.append(place, Warned("leftovers", note))
        return self._begin(member, join)

    async def resume(
        self,
        id_or_prefix: str,
        prompt: str | None = None,
        *,
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | None = None,
        model: str | None = None,
        parent: Member | None = None,
        background: bool = False,
        call_id: str | None = None,
        join: JoinMode | None = None,
    ) -> Member:
        """Take up an ended or interrupted run with the same definition, tools, depth and folder
        it had, and its model unless `model` names another; its limits and its budget apply again,
        but for those that `limits` and `budget` name. It hears first how children of it ended of
        which it does not know. Raise StateError while it is running, here or elsewhere."""
        self.notice_settings()
        log = self.world.log
        await log.flush()
        row = log.reader.run(id_or_prefix)
        await self._settled(row.id)
        if parent is None and row.parent_id in self.members:  # a person's doing: its parent hears of the end
            parent, background = self.members[row.parent_id], True
        past = log.reader.conversation(row.id)
        request = with_approved_mode(request_of(row, past, prompt, limits, model, budget), log.reader, row.id)
        left = self.world.end_leftovers(again=True) if row.state == "interrupted" else ()  # before it is ours, and live
        row = await log.claim(row.id)
        launch = None
        try:
            above = parent.handle.launch if parent else None
            leg = Leg(branch_of(self.world, row.id))
            launch = await prepared(request, self.world, row.id, Delegate(self, row.id), above, leg=leg, heard=True)
            self._check_open()
            launch = bounded(replace(launch, notes=(*launch.notes, *left)), past, log.reader, row)
            async with admission(launch, row.place, self.world, parent, resumed=True) as hooks:
                self._check_open()
                below = used_below(log.reader, row.id)
                news = self.news_for(row.id)
                account = self._account(launch, parent, past.usage + below)
        except BaseException:
            if launch is not None:
                await dismissed(launch, self.world)
            await log.give_back(row)
            raise
        member = self._rejoin(row, handle_for(self, row.place, launch, hooks), past, below, parent, background, call_id)
        member.account = account
        for child in (self.members[view.id] for view in news if view.id in self.members):
            child.announced = True
        if member.id in self._rooms:
            self._rooms[member.id].reopened()
        return self._begin(member, join, past, post(news, show_cost=self.settings.show_cost))

    def stop(self, member: Member, reason: str, *, by: StoppedBy = "person") -> bool:
        """End one run, as `stopped`, with what it has said; its foreground children go with it.
        One that is still queued never starts. False once it has ended."""
        if not member.handle.controls.stop(reason):
            return False
        member.stopped_by = member.stopped_by or by
        if member.status == "queued":
            self.queue.leave(member.id)
        return True

    def stop_tree(self, member: Member, reason: str, *, by: StoppedBy = "person") -> int:
        """End a run and everything below it, background runs too. Return their number."""
        return sum(self.stop(each, reason, by=by) for each in (member, *member.descendants()) if each.live)

    async def end_tree(self, member: Member, reason: str, *, by: StoppedBy = "person") -> int:
        """The same, and waits until each of them has its ending."""
        whole = (member, *member.descendants())
        stopped = self.stop_tree(member, reason, by=by)
        tasks = {self._tasks[each.id] for each in whole if each.id in self._tasks}
        if tasks:
            await asyncio.wait(tasks)
        return stopped

    async def stop_all(self, reason: str, *, by: StoppedBy = "person") -> int:
        """Stop every live run and wait until each has its ending. Return their number."""
        stopped = sum(self.stop(member, reason, by=by) for member in list(self.members.values()) if member.live)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return stopped

    async def wait_all(self) -> None:
        """Return when no run lives or waits any more. Never raises for how they ended."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def steer(self, member: Member, text: str) -> bool:
        """Say something to a run, for after its current tool calls. False once it has ended."""
        answers = member.companion is not None and member.companion.hear(text)
        if not answers and not member.handle.controls.steer(text):
            return False
        if "outlet" in self.__dict__:
            self.outlet.steered(member, text)
        return True

    def detach(self, member: Member, join: JoinMode | None = None) -> bool:
        """Move a foreground run to the background: whoever waits for it goes on, and hears of
        its end as of any other in the background. False when there is nothing to move."""
        if member.background or not member.live or member.parent is None:
            return False
        member.background = True
        member.notes = (*member.notes, "It was moved to the background: you will be notified when it ends.")
        self.world.log.append(member.handle.place, Warned(MOVED, "It was moved to the background."))
        self.room(member.parent).started(member, join or self.settings.default_join_mode)
        member.detached.set()
        return True

    def view(self, member: Member) -> ChildView:
        return member.view(self.queue.position(member.id))

    def room(self, parent: Member) -> Mailroom:
        room = self._rooms.get(parent.id)
        if room is None:
            room = self._rooms[parent.id] = Mailroom(
                parent,
                self.clock,
                show_cost=lambda: self.settings.show_cost,
                missed=lambda: self._missed(parent.id),
            )
        return room

    def _missed(self, parent_id: str) -> None:
        if not self._closed:
            self.idle_news(parent_id)

    def news_for(self, run_id: str) -> list[ChildView]:
        """How runs that `run_id` started have ended, as far as it has not heard of it."""
        return undelivered(self.world.log.reader, run_id, self.members)

    async def close(self) -> None:
        """Stop what runs and close the log. Nothing starts any more."""
        self._closed = True
        if "schedules" in self.__dict__:
            await self.schedules.end()
        await self.stop_all("The program ended.", by="program")
        self._commands.close()
        self._sweeper.close()
        for room in self._rooms.values():
            room.close()
        self.opened = False
        await self.world.close()
        if "outlet" in self.__dict__:
            await self.outlet.close()
        for member in self.members.values():
            member.release()
        self.members.clear()

    async def __aenter__(self) -> Supervisor:
        if not self.opened:
            if self.settings.strict_agent_files:
                self.world.catalog().require_readable()
            self.opened = True
            if "outlet" in self.__dict__:
                self.outlet.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LaunchError("The program is ending: no run is started any more.")

    async def _settled(self, run_id: str) -> None:
        """A run of this process that is just ending is waited for: it can be resumed then."""
        member, task = self.members.get(run_id), self._tasks.get(run_id)
        if member is not None and member.live and not member.handle.controls.ended:
            raise StateError(f"Run {run_id} is already running in this process.", remedy="Steer it or wait for it.")
        if task is not None:
            await asyncio.wait({task})

    def _account(self, launch: Launch, parent: Member | None, resumed: Usage | None = None) -> Account:
        above = parent.account if parent else None
        if above is None:
            check_readable(self.world.settings)
        return open_account(launch.request, launch.model.info, self.settings, above, self.clock, resumed)

    def _member(self, handle: RunHandle, parent: Member | None, tag: Tag) -> Member:
        member = Member(handle, parent, tag.description, tag.background, tag.name, tag.call_id, clock=self.clock)
        member.notes = handle.launch.notes
        self.members[member.id] = member
        if tag.name is not None:
            self._names.add(tag.name)
        if parent is not None:
            parent.children.append(member)
        return member

    def _rejoin(
        self,
        row: RunRow,
        handle: RunHandle,
        past: Conversation,
        below: Usage,
        parent: Member | None,
        background: bool,
        call_id: str | None,
    ) -> Member:
        member = self.members.get(row.id)
        if member is not None:
            member.again(handle, background=background, call_id=call_id)
        else:
            tag = tag_of(past.created) if past.created is not None else Tag(None, row.agent)
            member = self._member(handle, parent, replace(tag, background=background, call_id=call_id or tag.call_id))
            member.remember(past, below)
            for name in names_below(self.world.log.reader, row.id):  # they stay with whom they were given to
                self._names.add(name)
        if parent is not None and member not in parent.children:
            member.parent = parent
            parent.children.append(member)
        return member

    def _begin(self, member: Member, join: JoinMode | None, past: Conversation | None = None, post: str = "") -> Member:
        if member.parent is not None and member.background:
            self.room(member.parent).started(member, join or self.settings.default_join_mode)
        place = take_place(member, self.queue)
        work = attend(member, self.world, self.queue, place, past, post)
        task = self._tasks[member.id] = asyncio.create_task(work, name=f"run {member.id}")
        task.add_done_callback(lambda done: self._over(member, done))
        self._heap.runs(len(self._tasks))
        self._commands.watch()
        return member

    def _over(self, member: Member, task: asyncio.Task[None]) -> None:
        self._tasks.pop(member.id, None)
        self._heap.runs(len(self._tasks))
        member.account.close()
        if not task.cancelled():
            task.exception()  # a defect has already become the run's outcome
        if member.live:  # cancelled before its first step
            member.lost()
            member.handle.break_off(StateError(f"Run {member.id} was cut off before it had started."))
        above = member.handle.place.parent_id
        if member.parent is not None and member.background:
            self.room(member.parent).ended(member)
        elif member.parent is None and above is not None:  # started by a run of another process
            self._missed(above)
        self._sweeper.watch()

    def forget(self, member: Member) -> None:
        """Drop an ended run from memory. Its name stays its own, and the log has the rest."""
        self.members.pop(member.id, None)
        self._rooms.pop(member.id, None)
        if member.parent is not None and member in member.parent.children:
            member.parent.children.remove(member)
