"""The supervisor of one process: starts runs, queues them, takes them up again, ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.clock import SYSTEM_CLOCK, Clock
from retinue.core.delegation import JoinMode, new_run_id
from retinue.core.events import MovedToBackground, Warned
from retinue.core.foreign import RunId, is_valid
from retinue.core.messages import Image, UserMessage
from retinue.core.outcome import StoppedBy
from retinue.core.request import HERE, ClusterPlacement, RunRequest
from retinue.core.run_state import ActiveRun
from retinue.core.spec import PermissionMode
from retinue.core.usage import Budget, Usage
from retinue.errors import LaunchError, StateError, UsageError
from retinue.log.replay import Conversation
from retinue.runs.budget import Account, open_account
from retinue.runs.capability import Schedules
from retinue.runs.delegate import Delegate
from retinue.runs.execute import cut_off
from retinue.runs.heap import Heap
from retinue.runs.launch import Launch, LaunchPlan
from retinue.runs.messages import CommandServer, Sweeper
from retinue.runs.notifications import Notifications
from retinue.runs.offer import can_answer
from retinue.runs.plan import launching
from retinue.runs.project import Project
from retinue.runs.queue import RunQueue, abandon, attend, take_place, take_slot
from retinue.runs.record import Names, as_received, created, request_of, with_approved_mode
from retinue.runs.requests import RetryCalls
from retinue.runs.resume import names_below, news_of, undelivered, used_below
from retinue.runs.run import Run

if TYPE_CHECKING:
    from retinue.runs.event_bridge import EventBridge
    from retinue.settings.table import Settings


class Supervisor:
    """Use from one event loop, inside `async with`: leaving it stops what still runs."""

    def __init__(self, project: Project, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.members: dict[str, Run] = {}
        """Every run of this process by its id."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._rooms: dict[str, Notifications] = {}
        self.project = project
        self.clock = project.clock = clock
        self.queue = RunQueue(project.settings.settings.max_concurrent)
        self.retry_calls = RetryCalls(clock)
        self._names = Names()
        self.commands = CommandServer(self)
        self._sweeper = Sweeper(self)
        self._heap = Heap()
        self.schedules: Schedules | None = None
        """What starts agents at a time, once it is used."""
        self.opened = False
        self._closed = False
        self.permission_mode: PermissionMode | None = None
        """The mode of runs for which nobody names one, as the session was opened with it."""
        self.idle_news: Callable[[str], None] = lambda run_id: None
        """Called with the id of a run that has ended, when one that it started has ended since: for
        a front end that can show this, or take the run up again."""
        self.broken_off: Callable[[str, StateError], None] = lambda run_id, failure: None
        """Called with the id of a run that could not be recorded any more, and why: no event says so."""

    @property
    def settings(self) -> Settings:
        return self.project.settings.settings

    @property
    def session_mode(self) -> PermissionMode | None:
        """The mode of the newest main run, as it is now, or that of the session where there is none."""
        modes = [node.mode for node in self.members.values() if node.depth == 0]
        return modes[-1] if modes else self.permission_mode

    @cached_property
    def bridge(self) -> EventBridge:
        """The event bus and the calls of other programs; costs nothing until it is used."""
        from retinue.runs.event_bridge import EventBridge

        return EventBridge(self)

    def reload_settings(self, *, persisted: bool = True) -> None:
        """Apply what someone changed in the settings. `persisted` says whether it could be written to a file."""
        self.project.__dict__.pop("settings", None)
        self.queue.limit = self.settings.max_concurrent
        if "bridge" in self.__dict__:
            self.bridge.settings_changed(persisted)

    def notice_settings(self) -> None:
        """What was changed in a file since, by anyone, applies from here on."""
        if self.project.settings_changed:
            self.reload_settings()

    async def start(
        self,
        request: RunRequest,
        *,
        parent: Run | None = None,
        description: str = "",
        background: bool = False,
        name: str | None = None,
        call_id: str | None = None,
        join: JoinMode | None = None,
        notes: tuple[str, ...] = (),
        run_id: str | None = None,
        queued: bool = True,
    ) -> Run:
        """Return the run as soon as it is in the log. Raise LaunchError or UsageError when it must not start; nothing
        is recorded then. A `run_id` must be new; what is not `queued` starts at once, however many are at work."""
        self.notice_settings()
        request = self._placed(request, background, parent)
        run_id = run_id or new_run_id()
        if not is_valid(run_id, RunId):
            # It becomes the name of files and folders.
            raise UsageError(
                "A run_id has at most 64 letters, digits, '-' and '_', and begins with a letter or digit.",
                remedy="Choose another, or leave it out.",
            )
        plan = LaunchPlan(
            request,
            self.project,
            parent,
            Delegate(self, run_id),
            run_id,
            description,
            heard=background and can_answer(parent),
            notes=list(notes),
        )
        place = plan.place
        async with launching(plan, self._check_open) as launch:
            name = self._names.free(name or request.spec.name)
            account = self._account(launch, parent)
            opening = created(
                launch,
                request.spec,
                self.project,
                name=name,
                description=description,
                background=background,
                call_id=call_id,
            )
            event = self.project.log.append(place, opening)
        node = self._add(Run(self, place, launch, account, parent))
        node.observe(event)
        self._names.add(name)
        node.hooks, node.queues = plan.hooks, queued
        try:
            await self.project.log.flush()
        except BaseException:
            await asyncio.shield(abandon(node))
            raise
        if self.project.log.found_dead:
            for note in self.project.end_leftovers():
                self.project.log.append(place, Warned("leftovers", note))
        return self._begin(node, join)

    async def resume(
        self,
        id_or_prefix: str,
        prompt: str | None = None,
        *,
        images: Sequence[Image] = (),
        limits: Mapping[str, float | None] | None = None,
        budget: Budget | None = None,
        model: str | None = None,
        thinking: str | None = None,
        mode: PermissionMode | None = None,
        parent: Run | None = None,
        background: bool = False,
        call_id: str | None = None,
        join: JoinMode | None = None,
        offered: bool = False,
    ) -> Run:
        """Take up an ended or interrupted run with what it had, but for what is named here. It hears first how its
        children ended. One that was `offered` by another process begins with its task. Raise StateError while it runs
        anywhere."""
        self.notice_settings()
        log = self.project.log
        await log.flush()
        row = log.reader.run(id_or_prefix)
        await self._settled(row.id)
        # A person's doing: its parent hears of the end.
        if parent is None and row.parent_id in self.members:
            parent, background = self.members[row.parent_id], True
        past = await log.read(lambda reader: reader.conversation(row.id))
        begins = offered and past.started is None and past.created is not None
        if begins and past.created is not None:
            prompt = past.created.task
        as_asked = request_of(row, past, prompt, limits, model, budget, thinking)
        as_asked = replace(as_received(as_asked, self.project), images=tuple(images))
        request = with_approved_mode(as_asked, log.reader, row.id, mode)
        # Before the run is ours: of a live run nothing is ended.
        left = self.project.end_leftovers(again=True) if row.state == "interrupted" else ()
        row = await log.claim(row.id)
        try:
            plan = LaunchPlan(request, self.project, parent, Delegate(self, row.id), row.id, heard=True, past=past)
            plan.notes += left
            async with launching(plan, self._check_open) as launch:
                below = used_below(log.reader, row.id)
                news = self.news_for(row.id)
                account = self._account(launch, parent, past.usage + below)
        except BaseException:
            await log.release(row)
            raise
        node = self.members.get(row.id)
        if node is not None:
            node.begin(launch, account)
        else:
            node = self._add(Run(self, row.place, launch, account, parent))
            node.recall(row, past, below)
            # Names stay with the runs that they were given to.
            for name in (row.name, *names_below(log.reader, row.id)):
                if name:
                    self._names.add(name)
        if parent is not None and node not in parent.children:
            node.parent = parent
            parent.children.append(node)
        node.state.background, node.state.call_id = background, call_id or node.state.call_id
        node.hooks = plan.hooks
        for child in news:
            if child.id in self.members:
                self.members[child.id].announced = True
        if node.id in self._rooms:
            self._rooms[node.id].reopened()
        told = news_of(news, show_cost=self.settings.show_cost)
        return self._begin(node, join, None if begins else past, told)

    def steer(self, node: Run, text: str, images: Sequence[Image] = ()) -> bool:
        """Say something to a run, for after its current tool calls. False once it has ended."""
        answers = node.dialogue is not None and node.dialogue.answer_question(text)
        if not answers and not node.controls.steer(text, images=images):
            return False
        if "bridge" in self.__dict__:
            self.bridge.steered(node, text)
        return True

    @property
    def busy(self) -> bool:
        """Whether any run lives."""
        return bool(self._tasks)

    def stop(self, run: Run, reason: str, *, by: StoppedBy = "person") -> bool:
        """End one run, as `stopped`, with what it has said; its foreground children go with it.
        One that is still queued never starts. False once it has ended."""
        if not run.controls.stop(reason):
            return False
        run.stopped_by = run.stopped_by or by
        if run.status == "queued":
            self.queue.leave(run.id)
        return True

    def stop_tree(self, top: Run, reason: str, *, by: StoppedBy = "person") -> int:
        """End a run and everything below it, background runs too. Return their number."""
        return sum(self.stop(run, reason, by=by) for run in (top, *top.descendants()) if run.live)

    async def end_tree(self, top: Run, reason: str, *, by: StoppedBy = "person") -> int:
        """The same, and waits until each of them has its ending."""
        tree = (top, *top.descendants())
        stopped = self.stop_tree(top, reason, by=by)
        tasks = {self._tasks[run.id] for run in tree if run.id in self._tasks}
        if tasks:
            await asyncio.wait(tasks)
        return stopped

    async def stop_all(self, reason: str, *, by: StoppedBy = "person") -> int:
        """Stop every live run and wait until each has its ending. Return their number."""
        stopped = sum(self.stop(run, reason, by=by) for run in list(self.members.values()) if run.live)
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

    def forget(self, run: Run) -> None:
        """Drop an ended run from memory. Its name stays its own, and the log has the rest."""
        self.members.pop(run.id, None)
        self._rooms.pop(run.id, None)
        if run.parent is not None and run in run.parent.children:
            run.parent.children.remove(run)

    def detach(self, node: Run, join: JoinMode | None = None) -> bool:
        """Move a foreground run to the background: whoever waits for it goes on, and hears of
        its end as of any other in the background. False when there is nothing to move."""
        if node.state.background or not node.live or node.parent is None:
            return False
        node.record(MovedToBackground(node.state.call_id))
        node.detach()
        take_slot(node, self.queue)
        node.notes = (*node.notes, "It was moved to the background: you will be notified when it ends.")
        self.room(node.parent).started(node, join or self.settings.default_join_mode)
        return True

    def room(self, parent: Run) -> Notifications:
        room = self._rooms.get(parent.id)
        if room is None:
            room = self._rooms[parent.id] = Notifications(
                parent,
                self.clock,
                show_cost=lambda: self.settings.show_cost,
                missed=lambda: self._missed(parent.id),
            )
        return room

    def _missed(self, parent_id: str) -> None:
        if not self._closed:
            self.idle_news(parent_id)

    def news_for(self, run_id: str) -> list[ActiveRun]:
        """How runs that `run_id` started have ended, as far as it has not heard of it."""
        return undelivered(self.project.log.reader, run_id, self.members)

    async def close(self) -> None:
        """Stop what runs and close the log. Nothing starts any more."""
        self._closed = True
        if self.schedules is not None:
            await self.schedules.end()
        await self.stop_all("The program ended.", by="program")
        self.commands.close()
        self._sweeper.close()
        for room in self._rooms.values():
            room.close()
        self.opened = False
        await self.project.close()
        if "bridge" in self.__dict__:
            await self.bridge.close()
        for node in self.members.values():
            node.release()
        self.members.clear()

    async def __aenter__(self) -> Supervisor:
        if not self.opened:
            if self.settings.strict_agent_files:
                self.project.catalog().require_readable()
            self.opened = True
            if "bridge" in self.__dict__:
                self.bridge.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _placed(self, request: RunRequest, background: bool, parent: Run | None) -> RunRequest:
        """Return the request with the place that it, its agent's file or the settings name. Raise LaunchError when no
        other machine can be reached."""
        said = request.spec.placement or (self.settings.placement if background else HERE)
        if request.placement is None and (request.depth == 0 or said == HERE):
            return request
        if self.project.elsewhere is not None:
            from retinue.runs.elsewhere import set_aside

            request = set_aside(request, self.settings, parent.account if parent is not None else None)
            return replace(request, placement=request.placement or ClusterPlacement.read(said))
        if self.project.moved is not None:
            # It is on a worker already.
            return replace(request, placement=None)
        raise LaunchError("A run was placed on a cluster, and none is named.", remedy="Set RETINUE_DATABASE.")

    def _check_open(self) -> None:
        if self._closed:
            raise LaunchError("The program is ending: no run is started any more.")

    async def _settled(self, run_id: str) -> None:
        """A run of this process that is just ending is waited for: it can be resumed then."""
        node, task = self.members.get(run_id), self._tasks.get(run_id)
        if node is not None and node.live and not node.controls.ended:
            raise StateError(f"Run {run_id} is already running in this process.", remedy="Steer it or wait for it.")
        if task is not None:
            await asyncio.wait({task})

    def _account(self, launch: Launch, parent: Run | None, resumed: Usage | None = None) -> Account:
        above = parent.account if parent else None
        return open_account(launch.request, launch.model.info, self.settings, above, self.clock, resumed)

    def _add(self, node: Run) -> Run:
        self.members[node.id] = node
        if node.parent is not None:
            node.parent.children.append(node)
        return node

    def _begin(
        self, node: Run, join: JoinMode | None, past: Conversation | None = None, news: UserMessage | None = None
    ) -> Run:
        if node.parent is not None and node.state.background:
            self.room(node.parent).started(node, join or self.settings.default_join_mode)
        elsewhere = self.project.elsewhere if node.launch.request.placement is not None else None
        if elsewhere is not None:
            from retinue.runs.elsewhere import attend_elsewhere

            work = attend_elsewhere(node, elsewhere)
        else:
            work = attend(node, self.queue, take_place(node, self.queue), past, news)
        task = self._tasks[node.id] = asyncio.create_task(work, name=f"run {node.id}")
        task.add_done_callback(lambda done: self._over(node, done))
        self._heap.runs(len(self._tasks))
        self.commands.watch()
        return node

    def _over(self, node: Run, task: asyncio.Task[None]) -> None:
        self._tasks.pop(node.id, None)
        self._heap.runs(len(self._tasks))
        node.account.close()
        if not task.cancelled():
            # A defect has already become the run's outcome.
            task.exception()
        if node.live:  # cancelled before its first step
            cut_off(node, StateError(f"Run {node.id} was cut off before it had started."))
        failure = node.failure
        if failure is not None and not self._closed:
            self.broken_off(node.id, failure)
        above = node.place.parent_id
        if node.parent is not None and node.state.background:
            self.room(node.parent).ended(node)
        elif node.parent is None and above is not None:  # started by a run of another process
            self._missed(above)
        self._sweeper.watch()
